// Counts the threads of this process, and starts some.
#pragma once

#include <functional>

namespace tessera::cli::verify {

int threads_now();
// The number of threads, after up to a second for those that are about to end.
int threads_once_at_most(int expected);
// Throws Broken if more threads than expected run after all objects were used and destroyed.
void require_no_threads_left(int expected);
// Runs `ask` on four threads at once, with 0 to 3, and throws Broken with the first thing that one of them threw.
void on_four_threads(const std::function<void(int)>& ask);

}  // namespace tessera::cli::verify

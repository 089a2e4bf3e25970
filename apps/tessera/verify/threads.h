// Counts the threads of this process.
#pragma once

namespace tessera::cli::verify {

int threads_now();
// The number of threads, after up to a second for those that are about to end.
int threads_once_at_most(int expected);
// Throws Broken if more threads than expected run after all objects were used and destroyed.
void require_no_threads_left(int expected);

}  // namespace tessera::cli::verify

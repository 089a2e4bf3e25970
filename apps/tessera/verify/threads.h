// Counts the threads of this process.
#pragma once

namespace tessera::cli::verify {

int threads_now();
// The number of threads, after up to a second for those that are about to end.
int threads_once_at_most(int expected);

}  // namespace tessera::cli::verify

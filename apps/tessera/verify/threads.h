// Threads of this process.
#pragma once

namespace tessera::cli::verify {

int threads_now();
// How many are left once those that are about to end have had a second.
int threads_once_at_most(int expected);

}  // namespace tessera::cli::verify

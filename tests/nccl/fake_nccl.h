// How the stand-in for NCCL is made to misbehave, and what is left open of it. [any-thread]
#pragma once

#include <atomic>

struct FakeNccl {
  std::atomic<bool> split_hangs{false};  // until the parent is aborted
  std::atomic<bool> abort_hangs{false};
  std::atomic<int> open{0};  // communicators
};
FakeNccl& fake_nccl();

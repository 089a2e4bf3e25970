// Makes the stand-in for NCCL misbehave, and counts what is left open. [any-thread]
#pragma once

#include <atomic>

struct FakeNccl {
  std::atomic<bool> split_hangs{false};  // until the parent is aborted
  std::atomic<bool> abort_hangs{false};
  std::atomic<int> open{0};  // communicators that are open
};
FakeNccl& fake_nccl();

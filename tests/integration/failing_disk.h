// What a program is started with so that a call of its fails: failing_disk.cc, preloaded.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace tessera::test {

constexpr int kKilled = 0, kHalf = -1;

struct DiskFault {
  std::string under;   // files whose paths begin so
  int at = 0;          // the number of the call; 0: none fails
  int with = kKilled;  // an errno, or kKilled, kHalf
  bool reads = false;  // of the calls that read, otherwise of those that change files
  int rank = -1;       // in this rank's process alone; -1: in all
  int calls = 1;       // so many from `at` on fail
};

// In the process that becomes the program.
inline void preload(const DiskFault& fault) {
  if (fault.at == 0) return;
  setenv("LD_PRELOAD", TESSERA_FAILING_DISK, 1);
  setenv("TESSERA_FAIL_UNDER", fault.under.c_str(), 1);
  setenv("TESSERA_FAIL_AT", std::to_string(fault.at).c_str(), 1);
  setenv("TESSERA_FAIL_WITH", std::to_string(fault.with).c_str(), 1);
  setenv("TESSERA_FAIL_CALLS", std::to_string(fault.calls).c_str(), 1);
  if (fault.reads) setenv("TESSERA_FAIL_READS", "1", 1);
  if (fault.rank >= 0) setenv("TESSERA_FAIL_RANK", std::to_string(fault.rank).c_str(), 1);
}

inline bool has_struck(const std::string& output) { return output.find("the disk has failed") != std::string::npos; }

}  // namespace tessera::test

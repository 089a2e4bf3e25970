// Makes a call of a program fail: starts it with failing_disk.cc preloaded.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace tessera::test {

constexpr int kKilled = 0, kHalf = -1;

struct DiskFault {
  std::string under;   // prefix of the paths of affected files
  int at = 0;          // number of the failing call; 0: none fails
  int with = kKilled;  // an errno, or kKilled, kHalf
  bool reads = false;  // counts calls that read instead of those that change files
  int rank = -1;       // only in this rank's process; -1: in all
  int calls = 1;       // number of failing calls from `at` on
};

// Called in the process that becomes the program.
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

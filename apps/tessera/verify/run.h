// Runs a check in a process of its own, which may crash, hang, or leave things behind.
#pragma once

#include <string>

#include "verify/check.h"

namespace tessera::cli::verify {

enum class Outcome { kPassed, kFailed, kCrashed, kTimedOut, kSkipped, kWarned };
const char* to_string(Outcome outcome);  // "passed", "FAILED", ...
inline bool is_defect(Outcome o) { return o == Outcome::kFailed || o == Outcome::kCrashed || o == Outcome::kTimedOut; }

struct Result {
  std::string check;      // such as "sharder.tiling"
  std::string component;  // its id; the file's name if the check is for the file
  int level = 0;
  Outcome outcome = Outcome::kPassed;
  std::string text;  // one sentence, unless kPassed
  std::string rule;  // place in the contract, for defects and warnings
  double seconds = 0;
};

Result run_check(const Check& check, const Subject::What& what);

}  // namespace tessera::cli::verify

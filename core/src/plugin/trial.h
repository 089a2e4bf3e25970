// Runs something in a child process first, because it may never come back.
#pragma once

#include <functional>
#include <string>

namespace tessera::plugin {

struct TrialEnd {
  std::string reason;     // "" if nothing went wrong
  bool harmless = false;  // what went wrong breaks no rule
};

// Runs `body` in a child process, without the child's output, and returns its answer. A child that crashes, exits or
// takes more than 60 s gives a reason that says so. If there can be no child, the answer has no reason.
TrialEnd tried_in_a_child(const std::function<TrialEnd()>& body);

}  // namespace tessera::plugin

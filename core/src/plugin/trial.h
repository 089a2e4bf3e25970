// Runs something in a child process first, because it may never come back.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tessera::plugin {

struct TrialEnd {
  std::string reason;                  // "" if nothing went wrong
  bool harmless = false;               // what went wrong breaks no rule
  bool lasting = true;                 // another try of the same files would end in the same way
  int threads = 0;                     // threads that were started and still run
  std::vector<std::string> libraries;  // paths of the files that were loaded
};

// Runs `body` in a child process, without the child's output, and returns its answer with `threads` and `libraries`. A
// child that crashes, throws, exits or takes more than `longest_s` seconds gives a reason that says so. If there can be
// no child, the answer has no reason and is not lasting.
TrialEnd tried_in_a_child(const std::function<TrialEnd()>& body, int longest_s = 60);

// These make a text for another process, and read it. Error: the text is not one that to_json() made.
nlohmann::ordered_json to_json(const TrialEnd& end);
TrialEnd trial_end(const nlohmann::ordered_json& json);

}  // namespace tessera::plugin

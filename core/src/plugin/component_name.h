// The name of a component, which may wrap another one and have options: "tcp", "codec:int8(tcp)",
// "trace(tcp?shm=false&spin_us=20)".
#pragma once

#include <string>
#include <string_view>

namespace tessera::plugin {

struct ComponentName {
  std::string id;
  std::string name;            // the text after the colon; empty: none
  std::string options = "{}";  // the text after the question mark, as a JSON object
  std::string inner;           // the text in parentheses, which is a component's name itself; empty: none
};

// Parses the outermost level and checks all levels, of which there may be 8. kInvalidArgument: the message names the
// text and its error.
ComponentName parse_component_name(std::string_view text);

// Returns `options` (a JSON object) with the options of the name added, and "name" if it has one. kInvalidArgument:
// `options` is no JSON object, or already has one of them.
std::string all_options(const std::string& options, const ComponentName& part);

}  // namespace tessera::plugin

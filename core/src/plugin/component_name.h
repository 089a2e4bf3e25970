// The name of a part, which may be stacked and have options: "tcp", "codec:int8(tcp)",
// "trace(tcp?shm=false&spin_us=20)".
#pragma once

#include <string>
#include <string_view>

namespace tessera::plugin {

struct ComponentName {
  std::string id;
  std::string name;            // behind the colon; empty: none
  std::string options = "{}";  // behind the question mark, as a JSON object
  std::string inner;           // the part in the brackets, itself such a text; empty: none
};

// Takes the outermost level off; all levels are checked. kInvalidArgument names the text and what is wrong with it. At
// most 8 levels.
ComponentName parse_component_name(std::string_view text);

// `options` (a JSON object) with those of the part's name added, and "name" where it has one. kInvalidArgument when it
// is no JSON object or has one of them already.
std::string all_options(const std::string& options, const ComponentName& part);

}  // namespace tessera::plugin

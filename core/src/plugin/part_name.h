// The name of a part, which may be stacked: "tcp", "codec:int8(tcp)", "trace(codec:int8(tcp))".
#pragma once

#include <string>
#include <string_view>

namespace tessera::plugin {

struct PartName {
  std::string id;
  std::string name;   // behind the colon; empty: none
  std::string inner;  // the part in the brackets, itself such a text; empty: none
};

// Takes the outermost level off; all levels are checked. kInvalidArgument names the text and what is wrong with it. At
// most 8 levels.
PartName parse_part_name(std::string_view text);

// `options` (a JSON object) with "name" added; unchanged when name is empty. kInvalidArgument when it is no JSON object
// or has a name already.
std::string with_name(const std::string& options, const std::string& name);

}  // namespace tessera::plugin

// Keys of the config that only have an effect beside others. A key without effect is refused by name: parse_config()
// calls check_effects(), and to_toml() leaves such keys out.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "tessera/config.h"

namespace tessera::config {

// Maps each key to the place where it was written: "data.path" -> "job.toml:3". Keys of a table are "table.film.rows".
using Given = std::map<std::string, std::string, std::less<>>;

// False: the key has no effect in this job. Keys of a section that another key switches off count as having one.
bool takes_effect(const Config& config, std::string_view section, std::string_view key);

// kInvalidArgument: a given key that is neither 0 nor empty has no effect. Keys are allowed in a section that another
// given key switches off: `validation.fraction = 0`. Keys of generated data in a file are also allowed if --set names
// another reader; data.rows, which such a reader could take for its own, is then unset.
void check_effects(Config& config, const Given& given);

}  // namespace tessera::config

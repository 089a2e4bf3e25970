// Keys of the config that count only beside others. A key that was written and counts for nothing is refused by name:
// parse_config() asks check_effects(), and to_toml() leaves such keys out.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "tessera/config.h"

namespace tessera::config {

// Where each key was written: "data.path" -> "job.toml:3"; of one table "table.film.rows".
using Given = std::map<std::string, std::string, std::less<>>;

// False: `key` of a section counts for nothing in this job. Keys of a section that another key switches off wait, and
// take effect.
bool takes_effect(const Config& config, std::string_view section, std::string_view key);

// kInvalidArgument: a key that was given, and neither 0 nor empty, has no effect. Keys of a section that is switched
// off by a key that was given, too, may wait: `validation.fraction = 0`. So may keys of generated data in a file, if
// --set names another reader.
void check_effects(const Config& config, const Given& given);

}  // namespace tessera::config

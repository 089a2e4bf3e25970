// The reader that makes histories of users: [history] of the config, as the name of a component.
#pragma once

#include <string>

#include "tessera/config.h"

namespace tessera::data {

// Returns `reader`, or the component around it that makes the histories: history?user="name"&...(csv). Texts are in
// quotes, so that none is a number, and %XX stands for characters that have a meaning in a component's name.
std::string history_reader(const HistoryConfig& history, const std::string& reader);

}  // namespace tessera::data

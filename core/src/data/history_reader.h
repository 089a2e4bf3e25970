// The reader that makes histories of users: [history] of the config, as the name of a component.
#pragma once

#include <string>

#include "tessera/config.h"

namespace tessera::data {

// Returns `reader`, or the component around it that makes the histories: histories?user="name"&...(csv). Texts are in
// quotes, so that none is a number, and %XX stands for characters that have a meaning in a component's name.
std::string history_reader(const HistoryConfig& history, const std::string& reader);

// `trained`: the reader of a model's training data. kInvalidArgument: the job's reader makes histories of events in
// another way. It may have another split, order or kind of samples, which change no history.
void check_same_histories(const std::string& trained, const Config& config);

// The same histories, for samples that are not divided into parts.
HistoryConfig without_split(HistoryConfig history);

}  // namespace tessera::data

// Asks the reader plugins which of them opens a path, and how a model takes the columns of its files
// (abi/draft/reader_paths.h).
#pragma once

#include <string>

#include "tessera/config.h"
#include "tessera/runtime.h"

namespace tessera::data {

// The only value of data.reader that is no component: its data are generated.
constexpr const char* kGenerated = "synthetic";

// data.reader, or the reader that opens data.path if it is empty. kInvalidArgument: none or several do.
std::string reader_of(const Runtime& runtime, const DataConfig& data);
// Sets data.reader to that reader, inside the one that makes histories if there is a [history], which is then cleared.
// A second call changes nothing.
void choose_reader(const Runtime& runtime, Config& config);

// The reader's description of its columns and files, as JSON; empty: it has none, so that the job must have
// [[column]]s. kInvalidArgument, with the nearest name: there is no such reader.
std::string description_of(const Runtime& runtime, const std::string& reader, const std::string& path);

}  // namespace tessera::data

// Opening packed models whose rows are to be written.
#pragma once

#include <string>

#include "inference/mapped_file.h"
#include "tessera/packed_model.h"

namespace tessera::inference {

// As the public function, which shares. With kPrivate the tables' rows may be written, by one who knows that nobody
// reads; files stay as they are.
InferenceModel open_packed_model(const std::string& directory, MappedFile::Access access);

// Writes a model whose rows are packed already, as pack_model() does.
void copy_packed_model(const InferenceModel& model, const std::string& directory);

}  // namespace tessera::inference

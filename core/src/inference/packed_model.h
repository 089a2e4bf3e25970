// Opens packed models whose rows will be written.
#pragma once

#include <string>

#include "inference/mapped_file.h"
#include "tessera/predictor.h"

namespace tessera::inference {

// Does the same as the public function, which uses kShared. With kPrivate the tables' rows may be written while nobody
// reads them; files do not change.
InferenceModel open_packed_model(const std::string& directory, MappedFile::Access access);

// Writes a model whose rows are packed already, in the way of pack_model().
void copy_packed_model(const InferenceModel& model, const std::string& directory);

}  // namespace tessera::inference

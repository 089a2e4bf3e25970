// Detects sorted files: if the test part is the end of the files, its labels differ from those of the rows before it.
#pragma once

#include <string>

#include "tessera/data.h"

namespace tessera {

// Returns a sentence about the first label whose mean in the test rows is far from its mean in the training rows.
// Empty: there is none, or the test rows are not the end of the files. Only some of the streamed samples are looked at.
std::string sorted_rows_warning(const Dataset& data);

}  // namespace tessera

// Finds values that are other words, as ids, than a person or another program may expect.
#pragma once

#include <string>

#include "data/column_look.h"

namespace tessera::cli {

// True for whole numbers that are written with zeros in front, such as 007 and 01234, as codes are.
bool is_padded(const ColumnSeen& c);

// A comment on a column that gives ids: zeros in front, one number in two notations, and words such as NA. Empty if
// there is nothing to say.
std::string id_words_note(const ColumnSeen& c);

}  // namespace tessera::cli

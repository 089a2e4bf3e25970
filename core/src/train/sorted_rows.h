// The check for files that are sorted: a test part that is their end has other labels than the rows before it.
#pragma once

#include <string>

#include "tessera/data.h"

namespace tessera {

// A sentence about the first label whose mean in the test rows is far from that in the training rows; empty: there is
// none, or the test rows are not the end of the files. Streamed samples are judged by some of them.
std::string sorted_rows_warning(const Dataset& data);

}  // namespace tessera

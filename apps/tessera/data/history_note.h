// Points out that the rows of users can become histories.
#pragma once

#include <string>
#include <vector>

#include "data/column_look.h"
#include "data/decisions.h"

namespace tessera::cli {

// A sentence with the keys of [history], if the columns look like a user, a time and an item; else empty.
std::string history_sentence(const std::vector<ColumnSeen>& columns, const std::vector<Decision>& decisions);
// The same as a comment.
std::string history_note(const std::vector<ColumnSeen>& columns, const std::vector<Decision>& decisions);

}  // namespace tessera::cli

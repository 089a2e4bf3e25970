// The [[column]] of a label.
#pragma once

#include <string>
#include <vector>

#include "data/column_look.h"
#include "data/label_choice.h"

namespace tessera::cli {

std::string label_toml(const ColumnSeen& column);
// For a label that was guessed: that it is a guess, and the other candidates. Empty for others.
std::string guess_note(const std::vector<ColumnSeen>& columns, const Labels& labels);
// The keys that read numbers such as $12.99; empty for plain ones.
std::string written_keys(const ColumnSeen& column);

}  // namespace tessera::cli

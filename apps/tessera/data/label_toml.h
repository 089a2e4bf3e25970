// Writes the [[column]] section of a label.
#pragma once

#include <string>
#include <vector>

#include "data/column_look.h"
#include "data/label_choice.h"

namespace tessera::cli {

std::string label_toml(const ColumnSeen& column);
// For a guessed label, says so and lists the other candidates; empty otherwise.
std::string guess_note(const std::vector<ColumnSeen>& columns, const Labels& labels);
// The key `missing_words`; empty if the column has no such words.
std::string words_key(const ColumnSeen& column);
// The keys that read numbers such as $12.99, and the key above; empty for plain numbers.
std::string written_keys(const ColumnSeen& column);
// A comment on a comma in numbers that could mean something else; empty if there is none.
std::string written_note(const ColumnSeen& column);

}  // namespace tessera::cli

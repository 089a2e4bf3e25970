// Finds fields that are likely to mean something else than what a reader makes of them.
#pragma once

#include <string>
#include <vector>

#include "data/column_look.h"

namespace tessera::cli {

// Throws kInvalidArgument if the header occurs again among the rows: two columns or more have their name as a value.
void refuse_repeated_header(const std::vector<ColumnSeen>& columns);

// Throws kInvalidArgument if a label's words are one word in several spellings, or if some rows have a word or a number
// that usually stands for a missing label.
void check_label_values(const ColumnSeen& label);

// True for texts that look like dates but are not YYYY-MM-DD.
bool are_other_dates(const ColumnSeen& c);

// True if all numbers are months such as 202401, days such as 20240131, or times such as 20240131221300.
bool are_compact_dates(const ColumnSeen& c);

// True if the texts are numbers, some of them negative ones in parentheses, as accountants write them.
bool is_accounting(const ColumnSeen& c);

// A comment on a column whose texts look like dates or like numbers with a unit, or whose numbers have a likely code
// for a missing value or points that may group digits. Empty if there is nothing to say.
std::string odd_texts_note(const ColumnSeen& c);

// A comment on categories that differ only in their case or in blanks; empty if there are none.
std::string spellings_note(const ColumnSeen& c);

}  // namespace tessera::cli

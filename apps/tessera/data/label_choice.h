// Which columns are to be predicted, and how each is read as a label.
#pragma once

#include <string>
#include <vector>

#include "data/column_look.h"

namespace tessera::cli {

enum class LabelForm {
  kNone,       // it can be no label
  kBinary,     // 0 and 1, or one of the two in all rows
  kThreshold,  // a few numbers, as stars: 1 from the threshold on
  kWords,      // words, of which one is 1
  kReal        // a number that is predicted itself
};

struct Labels {
  std::vector<size_t> columns;
  bool guessed = false;
  std::vector<size_t> candidates;  // others that it could have been, if it is a guess
};

LabelForm label_form(const ColumnSeen& column);
// Named as labels are: label, click, target, ...
bool named_as_label(const ColumnSeen& column);
// From this number on a label of the form kThreshold is 1.
double threshold_of(const ColumnSeen& column);
// The word of a label of the form kWords that is 1: yes, true, 1, good and the like; of others the rarer one of two, or
// the most frequent one of several.
std::string positive_of(const ColumnSeen& column);

// `wanted`: names with commas between them; empty: one column that seems to be the label. kInvalidArgument: a column is
// not there or can be no label, or none can.
Labels choose_labels(const std::vector<ColumnSeen>& columns, const std::string& wanted);

// "a", "b", ... of at most 20 names.
std::string names_of(const std::vector<ColumnSeen>& columns);

}  // namespace tessera::cli

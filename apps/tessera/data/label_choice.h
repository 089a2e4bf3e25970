// Chooses the columns to predict, and how each is read as a label.
#pragma once

#include <string>
#include <vector>

#include "data/column_look.h"

namespace tessera::cli {

enum class LabelForm {
  kNone,       // cannot be a label
  kBinary,     // 0 and 1, or one of the two in all rows
  kThreshold,  // a few numbers, such as stars: 1 from the threshold on
  kWords,      // words, one of which is 1
  kReal        // a number that is predicted as it is
};

struct Labels {
  std::vector<size_t> columns;
  bool guessed = false;
  std::vector<size_t> candidates;  // other possible labels, if this one is a guess
};

LabelForm label_form(const ColumnSeen& column);
// True for names that labels usually have: label, click, target, ...
bool named_as_label(const ColumnSeen& column);
// The number from which on a label of the form kThreshold is 1.
double threshold_of(const ColumnSeen& column);
// The word that is 1 in a label of the form kWords: yes, true, 1, good and the like. Among other words, it is the rarer
// one of two, or the most frequent one of several.
std::string positive_of(const ColumnSeen& column);

// `wanted` has names separated by commas; if it is empty, one column that seems to be the label is chosen. Throws
// kInvalidArgument if a column is missing or cannot be a label, or if none can.
Labels choose_labels(const std::vector<ColumnSeen>& columns, const std::string& wanted);

// At most 20 names as "a", "b", ...
std::string names_of(const std::vector<ColumnSeen>& columns);

}  // namespace tessera::cli

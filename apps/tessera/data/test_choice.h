// Chooses the rows of the files that test the model.
#pragma once

#include <string>
#include <vector>

#include "data/column_look.h"
#include "data/decisions.h"
#include "data/label_choice.h"

namespace tessera::cli {

struct TestSplit {
  std::string text;      // keys of [data], with comments
  bool in_time = false;  // the newest rows are the test
};

TestSplit test_split(const std::vector<ColumnSeen>& columns, const std::vector<Decision>& decisions,
                     const Labels& labels);

}  // namespace tessera::cli

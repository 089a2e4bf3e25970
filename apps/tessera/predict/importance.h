// Permutation importance says how much worse a model answers if the values of a column are shuffled among the rows
// (Breiman, Random Forests, 2001).
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "predict/heads.h"
#include "tessera/data.h"
#include "tessera/predictor.h"

namespace tessera::cli {

struct ImportanceOptions {
  int64_t repeats = 5;    // shuffles of each column
  int64_t rows = 100000;  // the first rows that are looked at
  int64_t batch = 1024;
  std::string metric;  // a name that HeadJudge gives; empty: its first one
  bool as_json = false;
};

// Prints a line for each column, the most important first: the mean over the shuffles of what its metric loses, and the
// deviation. Columns made of one field of the files are shuffled together. kInvalidArgument: the rows have no label to
// judge by, or there is no such metric.
void print_importance(Predictor& predictor, const Dataset& data, const std::vector<Samples>& parts,
                      const std::vector<AskedHead>& heads, const ImportanceOptions& options, std::ostream& out);

}  // namespace tessera::cli

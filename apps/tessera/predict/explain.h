// Says which columns moved the score of a row.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "predict/heads.h"
#include "tessera/data.h"
#include "tessera/predictor.h"

namespace tessera::cli {

struct ExplainOptions {
  int64_t rows = 1;     // the first rows of the data
  int64_t others = 50;  // rows whose values stand in for those of a row
  bool as_json = false;
};

// Prints for each row its score, and for each column by how much the score is larger than the mean of the scores with
// values of other rows in this column's place. Columns made of one field of the files are exchanged together. The other
// rows are drawn from the data, the same ones in each run. kInvalidArgument: several heads are asked, or one that has
// several values, or there are no rows.
void print_explanations(Predictor& predictor, const Dataset& data, const std::vector<Samples>& parts,
                        const std::vector<AskedHead>& heads, const ExplainOptions& options, std::ostream& out);

}  // namespace tessera::cli

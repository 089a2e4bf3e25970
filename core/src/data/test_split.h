// Chooses the test rows of a data set: data.test, data.test_path and data.test_fraction.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tessera/config.h"
#include "tessera/data.h"

namespace tessera::data {

struct TestSplit {
  enum class Rows { kRandom, kLast, kNewest, kFile };
  Rows rows = Rows::kRandom;
  std::string of;        // kNewest: the time column; kFile: the path
  double fraction = 0;   // fraction of the rows; kFile: 0
  std::string order_by;  // column that the rows are sorted by before the split; empty: file order

  // `by_default` is used if the config does not choose. kInvalidArgument: keys exclude each other or have no effect.
  static TestSplit from(const DataConfig& config, Rows by_default);
  int64_t count(int64_t rows) const { return static_cast<int64_t>(static_cast<double>(rows) * fraction); }
  void describe(Dataset* set) const;
  // Keeps the time_format of each column of the files that has one, and which columns a [[column]] takes times from.
  void take_formats(const std::vector<ColumnConfig>& columns);
  std::string format_of(const std::string& column) const;

  std::map<std::string, std::string> formats = {};  // by column of the files
  std::set<std::string> times = {};                 // columns of the files
};

// The random test part. Only the seed and a row's number in the data set decide if it is in the part, not ranks, blocks
// or the reading order.
class RandomRows {
 public:
  RandomRows(double fraction, uint64_t seed);
  bool takes(int64_t row) const;
  int64_t count(int64_t rows) const;  // number of test rows among the first `rows` rows

 private:
  double fraction_;
  uint64_t seed_;
};

}  // namespace tessera::data

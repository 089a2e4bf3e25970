// Which rows of a data set are its test: data.test, data.test_path and data.test_fraction.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/config.h"
#include "tessera/data.h"

namespace tessera::data {

struct TestSplit {
  enum class Rows { kRandom, kLast, kNewest, kFile };
  Rows rows = Rows::kRandom;
  std::string of;        // kNewest: the column of times; kFile: the path
  double fraction = 0;   // part of the rows; kFile: 0
  std::string order_by;  // the column that the rows are ordered by before the split; empty: the order of the files

  // `by_default`: where the config says nothing. kInvalidArgument: keys that exclude each other or have no effect.
  static TestSplit from(const DataConfig& config, Rows by_default);
  int64_t count(int64_t rows) const { return static_cast<int64_t>(static_cast<double>(rows) * fraction); }
  void describe(Dataset* set) const;
};

// The file of test rows that the config names; empty: there is none.
std::string test_file(const DataConfig& config);

// The random test part. A row is in it or not by the seed and its number in the data set, whatever else there is:
// ranks, blocks, the order in which rows are read.
class RandomRows {
 public:
  RandomRows(double fraction, uint64_t seed);
  bool takes(int64_t row) const;
  int64_t count(int64_t rows) const;  // of the first `rows` rows

 private:
  double fraction_;
  uint64_t seed_;
};

}  // namespace tessera::data

// Estimates how much memory is touched between two visits of a row, which decides the cache that still has the row.
//
// Rows are visited at random with a known rate. Within T steps, rows * (1 - exp(-rate * T)) different rows of a group
// are touched (Che, Tung, Wang: Hierarchical web caching systems, 2002). The sum over all groups of a rank, in bytes,
// is the memory that is touched between two visits.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tessera {

// Rows of one table that are visited about equally often.
struct PopularityBand {
  double rows = 0;
  double share = 0;  // share of the table's ids that are in these rows
};
// Divides a table's rows into bands by popularity. The k-th most popular row is looked up in proportion to k^-exponent
// (Zipf); with exponent 0 there is one band. Shares add up to 1.
std::vector<PopularityBand> popularity_bands(int64_t rows, double exponent);

// The expected number of different rows among n ids of a band with `rows` rows.
double distinct_rows(double rows, double n);

class ReuseModel {
 public:
  // Adds `rows` rows of row_bytes bytes, each visited `rate` times per step.
  void add_rows(double rows, double row_bytes, double rate);
  // Adds memory that every step touches once: batches, exchanged rows, the dense part.
  void add_every_step(double bytes) { every_step_ += bytes; }

  // Returns the size of a table that, alone and with uniform ids, would have as many bytes touched between two visits
  // of a row as there are here for a row with this rate. It covers at least one whole step, because a row that is
  // visited several times in a step is fetched only once.
  double equivalent_bytes(double rate) const;

 private:
  struct Group {
    double bytes, rate;
  };
  double touched(double steps) const;  // bytes of different rows that are visited in `steps` steps
  std::vector<Group> groups_;
  double every_step_ = 0;
};

}  // namespace tessera

// How much memory is touched between two visits of a row: what decides which cache the row still lies in.
//
// Rows are visited at random with a known rate. Then a group of rows with `rows * row_bytes` bytes has, within T steps,
// rows * (1 - exp(-rate * T)) different ones touched (Che, Tung, Wang: Hierarchical web caching systems, 2002), and all
// groups of a rank together give the bytes that pass between two visits.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tessera {

// Rows of one table that are visited about equally often.
struct PopularityBand {
  double rows = 0;
  double share = 0;  // of the table's ids
};
// A table's rows by popularity: the k-th most popular one is asked for in proportion to k^-exponent (Zipf). Exponent 0:
// one band. Shares add up to 1.
std::vector<PopularityBand> popularity_bands(int64_t rows, double exponent);

// Different rows among n ids of a band.
double distinct_rows(double rows, double n);

class ReuseModel {
 public:
  // `rows` of row_bytes, each visited `rate` times in a step.
  void add_rows(double rows, double row_bytes, double rate);
  // Memory that every step goes through once: batches, exchanged rows, the dense part.
  void add_every_step(double bytes) { every_step_ += bytes; }

  // Returns the size of a table that, by itself and with uniform ids, would have as many bytes between two visits of a
  // row as a row with this rate has here. It is at least the bytes of a whole step, because a row that is visited
  // several times in a step is fetched only once.
  double equivalent_bytes(double rate) const;

 private:
  struct Group {
    double bytes, rate;
  };
  double touched(double steps) const;  // by rows
  std::vector<Group> groups_;
  double every_step_ = 0;
};

}  // namespace tessera

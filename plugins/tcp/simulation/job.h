// The operations of a simulated job, as one rank does them: what it sends, and whether what it gets is right.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "scenario.h"
#include "tessera/sdk/collective.h"

namespace tessera::tcp::simulation {

// A number for each byte that is on its way: who sends it to whom, in which operation.
inline float number(size_t operation, int64_t from, int64_t to, int64_t index) {
  return static_cast<float>((static_cast<int64_t>(operation) * 31 + from * 7 + to * 3 + index) % 1000);
}

// Elements that `from` has for `to`; of an all_gather, for all.
inline int64_t count_of(const Operation& operation, int from, int to) {
  return operation.elements * ((from + 2 * to) % 3) / 2;
}

// An operation under way, with its memory, which others may read even when this rank has failed.
class Started {
 public:
  Started(sdk::Group& group, size_t index, const Operation& operation, const char* label);
  sdk::Work* work() const { return work_; }
  // The difference between what came and what was sent; empty: none.
  std::string wrong() const;
  // Others must not believe what they read from now on.
  void scribble();

 private:
  static DLTensor view(std::vector<float>& data, int64_t& size);

  size_t index_;
  Operation operation_;
  int rank_, world_;
  std::vector<float> from_, to_;
  int64_t from_size_ = 0, to_size_ = 0;
  sdk::Work* work_ = nullptr;
};

}  // namespace tessera::tcp::simulation

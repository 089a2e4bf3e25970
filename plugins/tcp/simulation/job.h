// The operations of a simulated job as one rank does them: makes the data it sends, and checks the data it gets.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "scenario.h"
#include "tessera/sdk/collective.h"

namespace tessera::tcp::simulation {

// A number that depends on everything about a byte on its way: sender, receiver, operation, index.
inline float number(size_t operation, int64_t from, int64_t to, int64_t index) {
  return static_cast<float>((static_cast<int64_t>(operation) * 31 + from * 7 + to * 3 + index) % 1000);
}

// Elements that `from` has for `to`; for an all_gather, for all.
inline int64_t count_of(const Operation& operation, int from, int to) {
  return operation.elements * ((from + 2 * to) % 3) / 2;
}

// An operation in flight with its memory, which others may read even after this rank has failed.
class Started {
 public:
  Started(sdk::Group& group, size_t index, const Operation& operation, const char* label);
  sdk::Work* work() const { return work_; }
  // The first difference between the data that came and the data sent; empty if there is none.
  std::string wrong() const;
  // Overwrites the memory, so others must not use data that they read from now on.
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

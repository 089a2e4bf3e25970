// Runs the operations of a simulated job on one rank: makes the data that it sends, and checks the data that it gets.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "scenario.h"
#include "tessera/sdk/collective.h"

namespace tessera::tcp::simulation {

// The value of an element, which depends on its sender, receiver, operation and index.
inline float number(size_t operation, int64_t from, int64_t to, int64_t index) {
  return static_cast<float>((static_cast<int64_t>(operation) * 31 + from * 7 + to * 3 + index) % 1000);
}

// The number of elements that `from` has for `to`, or in an all_gather for all.
inline int64_t count_of(const Operation& operation, int from, int to) {
  return operation.elements * ((from + 2 * to) % 3) / 2;
}

// An operation in flight with its memory, which others may read even after this rank has failed.
class Started {
 public:
  Started(sdk::Group& group, size_t index, const Operation& operation, const char* label);
  sdk::Work* work() const { return work_; }
  // Describes the first difference between received and sent data; empty if there is none.
  std::string wrong() const;
  // Overwrites the memory. Other ranks must not use data that they read after this.
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

// tessera/trace.h - records when one thread of a rank did what, for a picture of a few steps.
//
// A collection with a Trace adds a span for each of its stages. Without one, nothing is recorded, and each stage only
// costs a test.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera {

// Used by one thread at a time. Allocates nothing after construction.
class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  struct Span {
    const char* name = nullptr;  // must live as long as the program
    Clock::time_point begin, end;
    int64_t step = 0;
    int64_t bytes = 0;    // sent to other ranks during the span
    double waited_s = 0;  // time in the span spent waiting for an exchange
  };

  // Keeps the first `most` spans, and only counts later ones.
  explicit Trace(size_t most) : most_(most) { spans_.reserve(most); }

  void set_step(int64_t step) { step_ = step; }
  void add(const char* name, Clock::time_point begin, Clock::time_point end, int64_t bytes = 0, double waited_s = 0) {
    if (spans_.size() < most_)
      spans_.push_back({name, begin, end, step_, bytes, waited_s});
    else
      ++left_out_;
  }
  const std::vector<Span>& spans() const { return spans_; }
  int64_t left_out() const { return left_out_; }

 private:
  size_t most_;
  std::vector<Span> spans_;
  int64_t step_ = 0, left_out_ = 0;
};

}  // namespace tessera

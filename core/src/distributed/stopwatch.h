// Measures the time of one stage, or of stages that follow each other.
#pragma once

#include <chrono>

#include "tessera/process_group.h"
#include "tessera/step_figures.h"

namespace tessera {

class Stopwatch {
 public:
  explicit Stopwatch(Trace* trace = nullptr) : trace_(trace) {}

  // Adds the time since construction or the last lap to a stage, and a span to the trace.
  void lap(double& stage, const char* name, int64_t bytes = 0) {
    const auto now = Trace::Clock::now();
    stage += std::chrono::duration<double>(now - last_).count();
    if (trace_) trace_->add(name, last_, now, bytes, waited_);
    last_ = now;
    waited_ = 0;
  }
  // Seconds since construction or the last lap.
  double seconds() const { return std::chrono::duration<double>(Trace::Clock::now() - last_).count(); }
  double us() const { return 1e6 * seconds(); }
  // Waits for the work. This time counts as waiting of the current lap.
  void wait(Work work) {
    if (!trace_) return work.wait();
    const auto start = Trace::Clock::now();
    work.wait();
    waited_ += std::chrono::duration<double>(Trace::Clock::now() - start).count();
  }

 private:
  Trace* trace_;
  Trace::Clock::time_point last_ = Trace::Clock::now();
  double waited_ = 0;
};

}  // namespace tessera

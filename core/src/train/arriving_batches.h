// Batches of rows that arrive over time. Rank 0 reads them and sends them to the others. A batch is complete when it is
// full, or when its first row has waited for a while. All ranks have the same batches and share each one as they share
// batches of files.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/arriving_rows.h"
#include "tessera/process_group.h"
#include "train/event_times.h"

namespace tessera {

class ArrivingBatches {
 public:
  struct Options {
    int64_t batch = 0;                     // largest number of samples
    std::string position;                  // where to continue; empty: at the beginning
    std::function<bool()> stop = nullptr;  // called while it waits; true: this rank wants to end
    // Called by all ranks in step, about ten times a second while there is no batch. It may be collective.
    std::function<void()> waiting = nullptr;
  };
  // `rows` are opened here on rank 0, and read only there. Collective.
  ArrivingBatches(std::unique_ptr<data::ArrivingRows> rows, const ProcessGroup& group, Options options);

  // Gets this rank's share of the next batch. False, on all ranks: no more rows will come, or some rank wants to end.
  // Errors of rank 0 are thrown there. Collective.
  bool next(Batch& batch);
  bool stopped() const { return stopped_; }  // some rank wanted to end
  // Position after the rows of the batches so far.
  const std::string& position() const { return options_.position; }
  ArrivedRows arrived() const { return {samples_, waited_s_, position(), event_times_.figures()}; }  // on rank 0

 private:
  // A message of rank 0 to all.
  struct Round {
    int64_t stop, last, bytes;  // some rank wants to end; no more rows come; size of a batch, 0: none yet
  };
  Round round();
  void gather();
  bool ready() const;
  int64_t write_message();
  void take(std::string_view message, Batch& batch);

  std::unique_ptr<data::ArrivingRows> rows_;
  const ProcessGroup& group_;
  Options options_;
  bool stopped_ = false;
  int64_t samples_ = 0;
  double waited_s_ = 0;
  // Only rank 0 uses these.
  data::Examples gathered_;
  std::vector<double> times_;  // event times of gathered_
  std::string message_;
  std::chrono::steady_clock::time_point first_;  // when the batch's first row came
  bool last_ = false;
  EventTimes event_times_;
};

}  // namespace tessera

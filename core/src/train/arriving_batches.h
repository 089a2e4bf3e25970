// Batches of rows that arrive. Rank 0 reads them and tells the others; a batch is full, or what there was when its
// first row had waited for a while. All ranks have the same batches, and share each as those of files.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/arriving_rows.h"
#include "tessera/process_group.h"
#include "train/event_times.h"

namespace tessera {

class ArrivingBatches {
 public:
  struct Options {
    int64_t batch = 0;                     // samples at most
    std::string position;                  // to go on behind; empty: at the beginning
    std::function<bool()> stop = nullptr;  // asked while it waits: whether this rank wants to end
    // Called by all ranks alike about ten times a second while there is no batch: may be collective.
    std::function<void()> waiting = nullptr;
  };
  // `rows` are only read on rank 0, which opens them here. Collective.
  ArrivingBatches(std::unique_ptr<data::ArrivingRows> rows, const ProcessGroup& group, Options options);

  // This rank's share of the next one. False, on all ranks alike: no row will come, or some rank wants to end. What
  // goes wrong on rank 0 is thrown there. Collective.
  bool next(Batch& batch);
  bool stopped() const { return stopped_; }  // because some rank wanted to end
  // Behind the rows of the batches so far.
  const std::string& position() const { return options_.position; }
  // {"rows", "position", "waited_s", "event_times"}; of rank 0.
  nlohmann::ordered_json report() const;

 private:
  // What rank 0 says.
  struct Round {
    int64_t stop, last, bytes;  // some rank wants to end; no row will come; of a batch, 0: there is none yet
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
  // Of rank 0.
  data::Examples gathered_;
  std::vector<double> times_;  // of gathered_
  std::string message_;
  std::chrono::steady_clock::time_point first_;  // when its first row came
  bool last_ = false;
  EventTimes event_times_;
};

}  // namespace tessera

// tessera/step_figures.h - figures of a step of a sharded collection on one rank: the bytes that it sends, expected
// from a plan and measured, and the times of its stages.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/embedding_configs.h"
#include "tessera/sharding.h"

namespace tessera {

class ProcessGroup;
class Runtime;
struct ProcessGroupOptions;

// Bytes sent to other ranks of the same host, and to ranks of other hosts.
template <class Number>
struct HostBytes {
  Number in_host = 0, across_hosts = 0;
  HostBytes& operator+=(const HostBytes& other) {
    in_host += other.in_host;
    across_hosts += other.across_hosts;
    return *this;
  }
  HostBytes& operator-=(const HostBytes& other) {
    in_host -= other.in_host;
    across_hosts -= other.across_hosts;
    return *this;
  }
  bool operator==(const HostBytes&) const = default;
};

// The exchanges of a step: headers and ids with their lengths, pooled or sequence rows, and their gradients.
// `unused_inline`: inline payload that the step's ids did not fill, and what was sent on behalf of other ranks.
// `ids_wanted`: the number of ids of other ranks' rows; `ids_sent`: how many of them travelled, because repeated rows
// of some tables travel once.
template <class Number>
struct ExchangeBytes {
  HostBytes<Number> ids, rows, gradients, unused_inline;
  Number ids_wanted = 0, ids_sent = 0;
  ExchangeBytes& operator+=(const ExchangeBytes& other) {
    ids += other.ids;
    rows += other.rows;
    gradients += other.gradients;
    unused_inline += other.unused_inline;
    ids_wanted += other.ids_wanted, ids_sent += other.ids_sent;
    return *this;
  }
  ExchangeBytes& operator-=(const ExchangeBytes& other) {
    ids -= other.ids;
    rows -= other.rows;
    gradients -= other.gradients;
    unused_inline -= other.unused_inline;
    ids_wanted -= other.ids_wanted, ids_sent -= other.ids_sent;
    return *this;
  }
  bool operator==(const ExchangeBytes&) const = default;
};

WireBytes wire_bytes_of(const ProcessGroup& group);  // `group` must outlive it
// Wire sizes of the transport that connect() would choose, for plans made without ranks. Null: nothing may be lossy, or
// this process cannot create that transport.
WireBytes wire_bytes_of(const Runtime& runtime, const ProcessGroupOptions& options);

// A step as the estimate assumes it: every rank has `batch` samples, and every bag of a feature has the same number of
// ids, spread evenly over the rows.
struct TrafficInput {
  int world_size = 1;
  int local_world_size = 1;
  double batch = 0;                           // of each rank; the mean if they differ
  std::map<std::string, double> ids_per_bag;  // by feature; default 1
  std::map<std::string, double> distinct;     // by table: the share of a batch's ids that travel; default 1
  bool is_weighted = false;
  bool sequence = false;  // EmbeddingCollection
  WireBytes wire = nullptr;
};

// The bytes that rank `rank` sends. They are exact if all bags have the given number of ids and rows are not split. For
// rows and gradients between hosts they are also exact if rows are summed inside a host that holds all of them.
// Otherwise they are an expectation, because bags without ids on a shard send nothing. Unused inline payload depends on
// the batches and is 0 here; for small payloads it is an eighth of their size. The all-reduce of data-parallel tables
// is not included. kInvalidArgument: the plan does not fit.
ExchangeBytes<double> expected_traffic(const std::vector<EmbeddingBagConfig>& tables,
                                       const EmbeddingModuleShardingPlan& plan, const TrafficInput& input, int rank);

// Seconds per stage since the last reset, on this rank. Exchanges include waiting for the peers.
struct StageTimes {
  double route = 0, exchange_ids = 0, lookup = 0, exchange_rows = 0, combine = 0;
  double split = 0, exchange_gradients = 0, update = 0, data_parallel = 0;
  int64_t steps = 0;
  StageTimes& operator+=(const StageTimes& other);  // adds another collection in the same steps
};

// Sizes of the exchanges of one step, by peer: bytes of ids with their lengths, and elements (float32) of rows.
// Gradients have as many elements, in the other direction. `bytes`: everything that this rank sends to others, without
// data-parallel tables.
struct StepTraffic {
  int64_t first_message = 0;   // bytes of a header and an inline payload of ids, which each rank has for each other one
  bool ids_in_second = false;  // some rank's ids exceeded the inline payload and went in a second exchange
  std::vector<int64_t> ids_sent, ids_received;
  std::vector<int64_t> rows_sent, rows_received;
  ExchangeBytes<int64_t> bytes;
};

// Records when one thread of a rank did what, for a picture of a few steps. A collection with a Trace adds a span for
// each of its stages. Without one nothing is recorded, and each stage only costs a test. Used by one thread at a time.
// Allocates nothing after construction.
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

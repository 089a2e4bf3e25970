// tessera/step_figures.h - figures of a step of a sharded collection on one rank: the bytes that it sends, expected
// from a plan and measured, and the times of its stages.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/embedding_configs.h"
#include "tessera/planner.h"
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

// The exchanges of a step: headers and ids with their lengths, pooled or sequence rows, and their gradients. Headers
// and ids are counted by their final destination. Joined rows and gradients are counted in the messages that this rank
// sends, which include data of other ranks. `unused_inline`: inline payload that the step's ids did not fill, and the
// ids sent on behalf of other ranks, less those that others sent for this one. `ids_wanted`: the number of ids of other
// ranks' rows; `ids_sent`: how many of them travelled, because repeated rows of some tables travel once.
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
  Joins joins;
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

// Bytes of one step. `bytes`: everything that this rank sends to others, without data-parallel tables.
struct StepTraffic {
  int64_t first_message = 0;   // bytes of a header and an inline payload of ids, which each rank has for each other one
  bool ids_in_second = false;  // some rank's ids exceeded the inline payload and went in a second exchange
  std::vector<int64_t> ids_sent;  // bytes of ids with their lengths, by their owner
  ExchangeBytes<int64_t> bytes;
};

// One all-to-all among all ranks. A joined exchange (JoinExchanges) is two of them: the name of the second one ends in
// "of a row" or "of a column".
struct StepExchange {
  const char* name = nullptr;
  std::vector<int64_t> sent, received;  // bytes, by rank
};
// Messages to other ranks in all exchanges.
int64_t messages_of(const std::vector<StepExchange>& exchanges, int own_rank);

// Records the times of the stages on one thread of a rank, for a picture of a few steps. A collection with a Trace adds
// a span for each of its stages. Without one nothing is recorded, and each stage only costs a test. Used by one thread
// at a time. Allocates nothing after construction.
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

// Predicts the time of a training step under a plan, by rank and table, before it runs.
//
// The figures are those of a Machine and of the kernel plugins (planner.h, cost model "default"). Between two exchanges
// each rank works on its own, and an exchange begins when the last rank arrives. So a step is the sum of the exchanges
// and of the slowest rank's time between them.

// The dense part of a model, as far as its time depends on it. Empty: only embeddings.
struct DenseWork {
  std::vector<std::pair<int64_t, int64_t>> layers;  // inputs, outputs
  int64_t vectors = 0, dim = 0;                     // of a dot interaction; 0: none
  double bucket_bytes = 4 << 20;                    // size of float32 gradients that are reduced together
  double gradient_bytes = 4;                        // bytes of a value on the wire; 2: comm.lossy has "dense_gradients"
  int64_t parameters() const;
  // Seconds of all layers or of the interaction, and the other work, for `batch` samples.
  double layer_seconds(const Curve& curve, double batch) const;
  double interaction_seconds(const Curve& curve, double batch) const;
  BesideLayersWork beside_layers(double batch) const;
  DenseUpdateWork update() const;
  bool empty() const { return layers.empty() && vectors == 0; }
};
// The dense work of a DLRM (layer_graph.h): dense inputs, bottom and top layer sizes, pooled outputs of embedding_dim.
DenseWork dlrm_dense_work(int64_t dense_inputs, int64_t num_embeddings, int64_t embedding_dim,
                          const std::vector<int64_t>& bottom_mlp, const std::vector<int64_t>& top_mlp);

// Seconds of each stage, in the order of a step, with StageTimes' names.
using StageSeconds = std::vector<std::pair<std::string, double>>;

struct TablePrediction {
  std::string name;
  // Totals for each rank over the shards that it holds.
  std::vector<double> lookup, update;  // seconds
  std::vector<double> reads;           // rows, from disk
  std::vector<double> bytes;           // ids to it from other ranks, rows and gradients between it and them
};

// The core's work on one rank, in the units of a Machine's figures of the same names.
struct RankWork {
  RouteWork route;
  UnpackWork unpack;
  RowsWork combine, split;
  DataParallelWork data_parallel;
};

struct StepPrediction {
  double seconds = 0;                // seconds of a step: the slowest ranks' work, exchanges and waiting
  double exchanges = 0;              // part of `seconds`
  double across_hosts = 0;           // part of `exchanges` that crosses hosts
  double waiting = 0;                // part of `seconds`, although ranks have equal work
  double imbalance = 0;              // part of `seconds`: the work of the slowest ranks beyond the mean
  double bytes_across_hosts = 0;     // bytes to other hosts, of the rank that sends most
  std::vector<StageSeconds> stages;  // by rank; without waiting for others
  std::vector<RankWork> work;        // by rank
  std::vector<TablePrediction> tables;
  std::string kernel;  // plugin whose estimates were used; empty: only figures
};

// Predicts the work of the collections in `modules` under `plan`, and ignores kDense modules. kInvalidArgument: the
// plan does not fit the tables.
StepPrediction predict_step(const Runtime& runtime, const PlannerOptions& options,
                            const std::vector<PlannerModule>& modules, const ShardingPlan& plan,
                            const DenseWork& dense = {});

}  // namespace tessera

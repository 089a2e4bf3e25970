// One step of a sharded collection, from batch to rows and back: route -> exchange -> lookup -> exchange -> combine.
// EmbeddingBagCollection and EmbeddingCollection share it; sharded_modules.h has their public interfaces.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "distributed/checked_batch.h"
#include "distributed/exchange.h"
#include "distributed/input_exchange.h"
#include "distributed/output_layout.h"
#include "distributed/replicated_shards.h"
#include "distributed/route.h"
#include "distributed/shard_groups.h"
#include "distributed/step.h"
#include "tessera/embedding_configs.h"
#include "tessera/process_group.h"
#include "tessera/sharded_modules.h"

namespace tessera {

// The state of a batch between start() and release().
struct StepState {
  StepState(const RankWiring& own, const DeviceStreamPtr& stream, Workers workers) : step(own, stream, workers) {
    grad.on_device(stream);
  }
  std::atomic<int> handles{0};               // number of StepHandles that refer to it
  std::shared_ptr<ShardedCollection> owner;  // set while there are handles
  bool taken = false;                        // start() has succeeded, and look_up() has not begun

  Step step;
  CheckedBatch batch;
  ReplicatedShards::Contexts replicated_contexts;
  // Memory of the rows, and of the expanded output if there is one. It only grows. There are two of each, because the
  // caller may still hold the last one.
  std::array<Tensor, 2> storage, expanded;
  Tensor rows;                    // the result of combine: all table features, laid out by `layout`
  int64_t num_rows_elements = 0;  // elements of `rows`
  OutputLayout layout;
  StepTraffic traffic;
  double route_s = 0, exchange_ids_s = 0;
  Buffer grad{DType::kFloat32};     // gradient of `rows`, for a batch with inverse indices
  Buffer clamped{DType::kFloat32};  // gradients that are bounded before they are divided by the bag's length
  bool sampled = false;             // shards were looked up one by one, and will be updated one by one
  Tensor given;                     // the gradient of `rows`, between start_backward() and finish_backward()
  Work travel;                      // rows or gradients on their way
};

// The side of a collection that takes in batches: it exchanges their ids, and remembers sizes from batch to batch.
struct InputSide {
  InputSide(InputExchange e, Workers w, bool a) : exchange(std::move(e)), workers(w), ahead(a) {}
  InputExchange exchange;
  Workers workers;  // none if a thread runs the steps on the host meanwhile, because its kernels use all threads
  bool ahead;       // true: it works ahead of the steps, in another thread
  KeyIndex keys;
  Trace* trace = nullptr;
};

// The tables and their sharding.
struct ShardedTables {
  std::vector<EmbeddingBagConfig> tables;
  EmbeddingModuleShardingPlan plan;
  bool sequence = false;  // a row for each id, instead of one for each bag
};

class ShardedCollection : public std::enable_shared_from_this<ShardedCollection> {
 public:
  ShardedCollection(const Runtime& runtime, ShardedTables sharded, std::shared_ptr<ProcessGroup> group,
                    ShardedModuleOptions options);

  // A batch on its way into a collection.
  struct Taken {
    const ShardedCollection* collection;
    StepState* state;
    const KeyedJaggedTensor* input;
    InputSide* side;
    std::string error = {};  // the reason why this rank has no batch; empty: it has one
  };

  // Returns buffers for a step, from a step that has ended if there is one.
  StepHandle reserve();
  // Checks and routes the batch, and exchanges ids over the side's group. Collective. An id that is fatal on this rank
  // ends the step on all ranks. If `side` is not the steps' own, another thread may call this while the current thread
  // runs earlier steps. `trains`: a backward may follow; then repeated ids travel once only in some tables
  // (route_once.h).
  void start(StepState& state, const KeyedJaggedTensor& input, bool finished, InputSide& side,
             bool trains = true) const {
    Taken one{this, &state, &input, &side};
    start(std::span(&one, 1), finished, trains);
  }
  // Does the same for several collections. Their ids are exchanged at the same time over the group that their sides
  // share.
  static void start(std::span<Taken> all, bool finished, bool trains);
  InputSide& side_of_steps() const { return *inputs_; }
  // Called instead of start() on a rank that could not produce a batch; ends the step on all ranks with "rank N: why".
  [[noreturn]] void start_without_batch(StepState& state, const std::string& why) const;
  void start(StepState& state, const KeyedJaggedTensor& input, bool finished, bool trains) {
    start(state, input, finished, side_of_steps(), trains);
  }
  std::unique_ptr<InputSide> input_side(const std::shared_ptr<ProcessGroup>& group) const;
  // Looks up rows and starts to send them. Other collections may do the same before finish().
  void look_up(StepState& state, bool keep_context);
  // Waits for rows and combines them. Then state.rows is valid, laid out by state.layout.
  void finish(StepState& state);
  // expand() returns the pooled output [batch, width] of a batch with inverse indices, from state.rows. collapse()
  // returns the gradient of state.rows from that of the output.
  Tensor expand(StepState& state, bool keep_context) const;
  Tensor collapse(StepState& state, const Tensor& grad) const;
  // Starts to send gradients. `grad` has the layout of state.rows, is on the same device or in host memory, and must
  // not change until finish_backward(). The state cannot be used for a second backward. Collective.
  void start_backward(StepState& state, const Tensor& grad);
  // Waits for gradients and updates the tables.
  void finish_backward(StepState& state);
  void give_back(StepState* state) noexcept;
  // Ends the job on all ranks, if only this rank can know about an error between two collectives.
  [[noreturn]] void refuse(const std::string& why) const;

  const Wiring& wiring() const { return wiring_; }
  // The prefix of the tables' names in a state dict, which is TorchRec's attribute name.
  const char* prefix() const { return wiring_.sequence() ? "embeddings" : "embedding_bags"; }
  const std::vector<EmbeddingBagConfig>& tables() const { return tables_; }
  const EmbeddingModuleShardingPlan& plan() const { return plan_; }
  const ShardedModuleOptions& options() const { return options_; }
  const ProcessGroup& group() const { return *group_; }
  // Records spans of all stages; null: none. An InputSide of its own has its own trace.
  void set_trace(Trace* trace) { trace_ = inputs_->trace = trace; }
  int table_index(const std::string& name) const;  // kNotFound
  // Returns the table's ids of rows [first, first + count) of a shard.
  std::vector<int64_t> table_rows(const LocalShard& shard, int64_t first, int64_t count) const;
  // to_table_rows() does the same for rows in any order. to_local_rows() replaces rows of the table by the shard's
  // rows; -1 for rows of another shard.
  void to_table_rows(const LocalShard& shard, std::span<int64_t> rows) const;
  void to_local_rows(const LocalShard& shard, std::span<int64_t> rows) const;
  int64_t dropped_ids() const { return dropped_ids_; }
  int64_t updates() const { return updates_; }
  void set_updates(int64_t n) { updates_ = n; }
  ShardGroups& shards() { return shards_; }
  ReplicatedShards& replicated() { return replicated_; }
  const ShardGroups& shards() const { return shards_; }
  const ReplicatedShards& replicated() const { return replicated_; }
  StageTimes& times() { return times_; }
  // Runs every n-th training step shard by shard, and measures the shards' times; 0: no step.
  void sample_shards(int64_t every) { sample_every_ = every; }
  const std::vector<OwnerLookup::ShardSeconds>& shard_seconds() const { return shard_seconds_; }
  int64_t sampled_steps() const { return sampled_steps_; }
  const StepTraffic& traffic() const { return traffic_; }
  std::vector<StepExchange> last_exchanges() const;
  const ExchangeBytes<int64_t>& bytes_sent() const { return bytes_sent_; }

 private:
  void count_dropped(const CheckedBatch& batch);
  void check_and_route(Taken& taken, bool trains) const;
  void lay_out(const Taken& taken, Stopwatch& watch) const;
  template <class Body>
  void guarded(const char* stage, const Body& body) const;
  void choose_once(const EmbeddingBagConfig& table, const OptimizerSpec& optimizer);
  void lay_out_output(StepState& state) const;
  Tensor clamped(StepState& state, const Tensor& grad) const;
  double gradient_scale() const { return options_.gradient_scale.value_or(1.0 / group_->world_size()); }
  Tensor room(std::array<Tensor, 2>& storage, int64_t elements) const;

  const Runtime& runtime_;
  std::vector<EmbeddingBagConfig> tables_;
  EmbeddingModuleShardingPlan plan_;
  std::shared_ptr<ProcessGroup> group_;
  ShardedModuleOptions options_;
  std::map<std::string, int> index_;   // index in tables_, by name
  std::vector<RowRouterPtr> routers_;  // by table; null if rows are ranges
  Wiring wiring_;
  ShardGroups shards_;
  const RankWiring own_;
  std::array<std::vector<uint8_t>, 2> once_;  // by table: RouteOptions::once in evaluations and in training
  OwnerLookup owner_;
  ReplicatedShards replicated_;
  const JobFingerprint fingerprint_;
  std::unique_ptr<InputSide> inputs_;
  RowExchange rows_;
  int64_t updates_ = 0;
  int64_t dropped_ids_ = 0;
  bool warned_ = false;
  std::vector<std::unique_ptr<StepState>> spare_;
  size_t states_ = 0;  // number of states that were made
  StageTimes times_;
  Trace* trace_ = nullptr;
  int64_t sample_every_ = 0, since_sample_ = 0, sampled_steps_ = 0;
  std::vector<OwnerLookup::ShardSeconds> shard_seconds_;  // of shards_.shards(), summed over the sampled steps
  StepTraffic traffic_;
  const StepState* last_ = nullptr;  // the step that finish() was called with; it stays in memory as a spare one
  ExchangeBytes<int64_t> bytes_sent_;
};

}  // namespace tessera

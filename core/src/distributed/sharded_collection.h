// One step of a sharded collection, from batch to rows and back: route -> exchange -> lookup -> exchange -> combine.
// The common part of EmbeddingBagCollection and EmbeddingCollection; their public faces are in sharded_modules.h.
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

// A batch on its way: between start() and release().
struct StepState {
  StepState(const RankWiring& own, const DeviceStreamPtr& stream, Workers workers) : step(own, stream, workers) {
    grad.on_device(stream);
  }
  std::atomic<int> handles{0};               // StepHandles on it
  std::shared_ptr<ShardedCollection> owner;  // while there are any
  bool taken = false;                        // start() has ended well, and look_up() has not begun

  Step step;
  CheckedBatch batch;
  ReplicatedShards::Contexts replicated_contexts;
  // Memory of rows, and of the output if that is another; it grows. There are two each: the caller may hold the last.
  std::array<Tensor, 2> storage, expanded;
  Tensor rows;                    // what combine wrote: all table features, laid out by `layout`
  int64_t num_rows_elements = 0;  // of rows
  OutputLayout layout;
  StepTraffic traffic;
  double route_s = 0, exchange_ids_s = 0;
  Buffer grad{DType::kFloat32};     // of `rows`, of a batch with inverse indices
  Buffer clamped{DType::kFloat32};  // of table features whose gradients are bounded before they are divided
  bool sampled = false;             // shards were looked up one by one, and will be updated so
  Tensor given;                     // the gradient of `rows`, between start_backward() and finish_backward()
  Work travel;                      // rows or gradients on their way
};

// The side that takes batches in: it exchanges their ids, and remembers sizes from batch to batch.
struct InputSide {
  InputSide(InputExchange e, Workers w, bool a) : exchange(std::move(e)), workers(w), ahead(a) {}
  InputExchange exchange;
  Workers workers;  // none beside a thread that is in the steps on the host: its kernels want them all
  bool ahead;       // of the steps
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
    std::string error = {};  // why it has no batch to offer
  };

  // Buffers for a step, from an earlier one that has ended where there is one.
  StepHandle reserve();
  // Checks and routes the batch, exchanges ids over the side's group. Collective. On an id that is fatal here, ends the
  // step on all ranks. A side of its own may be used by another thread, while this one is in the steps before.
  // `trains`: a backward may follow, which only some tables' repeated ids allow to travel once (route_once.h).
  void start(StepState& state, const KeyedJaggedTensor& input, bool finished, InputSide& side,
             bool trains = true) const {
    Taken one{this, &state, &input, &side};
    start(std::span(&one, 1), finished, trains);
  }
  // The same of several collections, whose ids are exchanged at the same time over the group that their sides share.
  static void start(std::span<Taken> all, bool finished, bool trains);
  InputSide& side_of_steps() const { return *inputs_; }
  // Called instead of start() on a rank that could not produce a batch; ends the step on all ranks with "rank N: why".
  [[noreturn]] void start_without_batch(StepState& state, const std::string& why) const;
  void start(StepState& state, const KeyedJaggedTensor& input, bool finished, bool trains) {
    start(state, input, finished, side_of_steps(), trains);
  }
  std::unique_ptr<InputSide> input_side(const std::shared_ptr<ProcessGroup>& group) const;
  // Looks up, and sends rows. Other collections may send theirs before finish().
  void look_up(StepState& state, bool keep_context);
  // Waits for rows, and combines them: state.rows is valid, as state.layout says.
  void finish(StepState& state);
  // The pooled output [batch, width] of a batch that has inverse indices, from state.rows; and the gradient of those.
  Tensor expand(StepState& state, bool keep_context) const;
  Tensor collapse(StepState& state, const Tensor& grad) const;
  // Sends gradients. `grad` lies as state.rows does, where that is or in host memory, and must not change until
  // finish_backward(). Collective. The state must not be used for another backward.
  void start_backward(StepState& state, const Tensor& grad);
  // Waits for gradients, and updates tables.
  void finish_backward(StepState& state);
  void give_back(StepState* state) noexcept;
  // Ends the job on all ranks: for what only this rank can know to be wrong between two collectives.
  [[noreturn]] void refuse(const std::string& why) const;

  const Wiring& wiring() const { return wiring_; }
  // Before the tables' names in a state dict: TorchRec's attribute names.
  const char* prefix() const { return wiring_.sequence() ? "embeddings" : "embedding_bags"; }
  const std::vector<EmbeddingBagConfig>& tables() const { return tables_; }
  const EmbeddingModuleShardingPlan& plan() const { return plan_; }
  const ShardedModuleOptions& options() const { return options_; }
  const ProcessGroup& group() const { return *group_; }
  // Spans of all stages; null: none. Batches that come by a side of their own are that one's.
  void set_trace(Trace* trace) { trace_ = inputs_->trace = trace; }
  int table_index(const std::string& name) const;  // kNotFound
  // The table's row ids behind rows [first, first + count) of a shard.
  std::vector<int64_t> table_rows(const LocalShard& shard, int64_t first, int64_t count) const;
  // The same for rows in any order; and the local rows of rows of the table, -1 where those are another shard's.
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
  // Every n-th training step is done shard by shard, and timed; 0: none.
  void sample_shards(int64_t every) { sample_every_ = every; }
  const std::vector<OwnerLookup::ShardSeconds>& shard_seconds() const { return shard_seconds_; }
  int64_t sampled_steps() const { return sampled_steps_; }
  const StepTraffic& traffic() const { return traffic_; }
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
  std::map<std::string, int> index_;   // of a name in tables_
  std::vector<RowRouterPtr> routers_;  // by table; null where rows are ranges
  Wiring wiring_;
  ShardGroups shards_;
  const RankWiring own_;
  std::array<std::vector<uint8_t>, 2> once_;  // by table: RouteOptions::once, of evaluation and of training
  OwnerLookup owner_;
  ReplicatedShards replicated_;
  const JobFingerprint fingerprint_;
  std::unique_ptr<InputSide> inputs_;
  RowExchange rows_;
  int64_t updates_ = 0;
  int64_t dropped_ids_ = 0;
  bool warned_ = false;
  std::vector<std::unique_ptr<StepState>> spare_;
  size_t states_ = 0;  // that have been made
  StageTimes times_;
  Trace* trace_ = nullptr;
  int64_t sample_every_ = 0, since_sample_ = 0, sampled_steps_ = 0;
  std::vector<OwnerLookup::ShardSeconds> shard_seconds_;  // of shards_.shards(), over the sampled steps
  StepTraffic traffic_;
  ExchangeBytes<int64_t> bytes_sent_;
};

}  // namespace tessera

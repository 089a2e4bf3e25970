// tessera/sharded_modules.h - collections whose tables are spread over ranks: same inputs and outputs as unsharded.
//
//   ShardedEmbeddingBagCollection sharded = EmbeddingBagCollectionSharder(runtime, options).shard(tables, plan, group);
//   auto out = sharded.forward(kjt).wait();      // KeyedTensor in the unsharded key order
//   sharded.backward(out, grad);                 // updates the tables
//
// forward, backward and everything marked collective are called by every rank in the same order. One object is used by
// one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/awaitable.h"
#include "tessera/embedding_configs.h"
#include "tessera/jagged_tensor.h"
#include "tessera/lookup.h"
#include "tessera/optim.h"
#include "tessera/process_group.h"
#include "tessera/sharding_plan.h"
#include "tessera/trace.h"
#include "tessera/traffic.h"

namespace tessera {

struct ShardedModuleOptions {
  std::string kernel = "auto";  // kernel plugin's id
  // The stream of the device that holds the shards, the pooled outputs and their gradients; null: host memory. Batches
  // and their ids are in host memory.
  std::shared_ptr<DeviceStream> stream;
  OptimizerSpec optimizer;  // fused parameters of tables that name none themselves
  bool is_weighted = false;
  BoundsCheckMode bounds_check = BoundsCheckMode::kFatal;
  uint64_t seed = 0;          // of the start values
  bool need_indices = false;  // of sequences: outputs carry the input ids as their weights
  // Factors on the gradient of the sum over ranks of the losses. Unset: 1 / world size for both, so that training
  // equals that on the mean of the ranks' losses (TorchRec's gradient division). Data-parallel tables have their own.
  std::optional<double> gradient_scale;
  std::optional<double> data_parallel_gradient_scale;
};

// Seconds spent per stage since the last reset, on this rank; exchange includes waiting for the peers.
struct StageTimes {
  double route = 0, exchange_ids = 0, lookup = 0, exchange_rows = 0, combine = 0;
  double split = 0, exchange_gradients = 0, update = 0, data_parallel = 0;
  int64_t steps = 0;
  StageTimes& operator+=(const StageTimes& other);  // of another collection, in the same steps
};

// The sizes of the exchanges of one step, by peer: bytes of ids with their lengths, elements (float32) of rows.
// Gradients are as many elements as rows, the other way. `bytes`: all that this rank sends to others, data-parallel
// tables aside.
struct StepTraffic {
  int64_t first_message = 0;   // bytes that go to each other rank first: a header, and room for ids behind it
  bool ids_in_second = false;  // no room for some rank's ids: they went in an exchange of their own
  std::vector<int64_t> ids_sent, ids_received;
  std::vector<int64_t> rows_sent, rows_received;
  ExchangeBytes<int64_t> bytes;
};

// A piece of a table that this rank holds.
struct HeldShard {
  std::string table;
  ShardMetadata where;
  int shard = 0;  // index in the plan
};

// How long this rank's shard of a table took, in the mean of the sampled steps.
struct ShardTimes {
  HeldShard shard;
  double lookup = 0, update = 0;  // seconds
};

struct StepState;
class ShardedCollection;

// The state that a forward keeps for its backward. Copies share it; its buffers serve another step when the last one
// has gone.
class StepHandle {
 public:
  StepHandle() = default;
  explicit StepHandle(StepState* state);  // one more handle on it
  StepHandle(const StepHandle& other) : StepHandle(other.state_) {}
  StepHandle(StepHandle&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  StepHandle& operator=(StepHandle other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~StepHandle();
  explicit operator bool() const { return state_ != nullptr; }
  StepState& operator*() const { return *state_; }
  StepState* operator->() const { return state_; }

 private:
  StepState* state_ = nullptr;
};

// The common part of the two sharded collections: tables, plan, shards, state.
class ShardedEmbeddings {
 public:
  virtual ~ShardedEmbeddings();
  ShardedEmbeddings(const ShardedEmbeddings&) = delete;
  ShardedEmbeddings(ShardedEmbeddings&&) = default;

  const std::vector<EmbeddingBagConfig>& tables() const;
  const EmbeddingModuleShardingPlan& plan() const;
  const ProcessGroup& group() const;

  std::vector<HeldShard> held_shards() const;   // this rank's, also replicated ones, in table then shard order
  Tensor weight(const HeldShard& shard) const;  // float32 [rows, cols], a copy
  void set_weight(const HeldShard& shard, const Tensor& value);
  // Tables that only infer: the shard's rows are from now on these, read in place (Lookup::adopt_rows).
  void adopt_rows(const HeldShard& shard, const Tensor& rows);
  std::vector<std::pair<std::string, Tensor>> states(
      const HeldShard& shard) const;  // "momentum1" -> [rows] or [rows, cols]
  // The rows of one shard, [first, first + count), for checkpoints: weights [count, cols], states [count(, cols)],
  // and what the kernel keeps besides, extra_bytes() of each row; null: not asked for.
  void read_rows(const HeldShard& shard, int64_t first, int64_t count, float* weights, std::span<float* const> states,
                 void* extra = nullptr) const;
  void write_rows(const HeldShard& shard, int64_t first, int64_t count, const float* weights,
                  std::span<const float* const> states, const void* extra = nullptr);
  int64_t extra_bytes(const HeldShard& shard) const;
  // Shards whose rows come on demand, likewise (Lookup has more): rows by the table's ids, of which import_rows takes
  // those that the shard owns.
  bool rows_on_demand(const HeldShard& shard) const;
  int64_t export_rows(const HeldShard& shard, uint64_t& cursor, std::span<int64_t> ids, float* weights,
                      std::span<float* const> states, void* extra = nullptr) const;
  void import_rows(const HeldShard& shard, std::span<const int64_t> ids, const float* weights,
                   std::span<const float* const> states, const void* extra = nullptr);
  std::vector<bool> owns_rows(const HeldShard& shard, std::span<const int64_t> ids) const;
  void clear_rows(const HeldShard& shard);
  std::string table_extra(const HeldShard& shard) const;
  void add_table_extra(const HeldShard& shard, std::string_view saved);
  RowFigures row_figures(const HeldShard& shard) const;
  // Which rows of this rank's shards change, as Lookup has it; ids are the table's. A mark of kCheckpoints passes over
  // kernels whose tables do not change by rows.
  using Follower = Lookup::Follower;
  void mark_changes(Follower follower);
  // Its kernel knows which of its rows change, and no optimizer state is the whole table's, which changes in every
  // step.
  bool changes_by_rows(const HeldShard& shard) const;
  Lookup::RowChanges changes(Follower follower, const HeldShard& shard) const;
  int64_t export_changed(Follower follower, const HeldShard& shard, uint64_t& cursor, std::span<int64_t> ids,
                         float* weights, std::span<float* const> states = {}, void* extra = nullptr) const;
  int64_t export_removed(Follower follower, const HeldShard& shard, uint64_t& cursor, std::span<int64_t> ids) const;
  tsr_kernel_stats kernel_stats(const HeldShard& shard) const;  // what the kernel counts of it: abi/kernel.h
  // The table's row ids behind rows [first, first + count) of a shard: contiguous, unless the sharder routes rows.
  std::vector<int64_t> table_rows(const HeldShard& shard, int64_t first, int64_t count) const;
  const std::vector<Lookup::State>& state_layout(const HeldShard& shard) const;
  OptimizerSpec optimizer_of(const std::string& table) const;  // as it is used: the table's or the collection's

  void set_learning_rate(double value);                            // of every table
  void set_learning_rate(const std::string& table, double value);  // tables with the same optimizer change together
  double learning_rate(const std::string& table) const;
  // The learning rates of this rank's kernel instances, in an order that stays. The setter makes each `factor` times
  // that of such a list.
  std::vector<double> learning_rates() const;
  void scale_learning_rates(std::span<const double> rates, double factor);
  int64_t step() const;  // updates done
  void set_step(int64_t step);

  // "embedding_bags.<table>.weight" or "embeddings.<table>.weight", in table order, the same on every rank.
  std::vector<std::string> state_dict_keys() const;
  // The fused optimizers of this rank's shards, data-parallel tables aside: keys as state_dict_keys(), states
  // "<table>.momentum1" of the rows held here.
  std::shared_ptr<CombinedOptimizer> fused_optimizer() const;

  // Table -> gradient [rows, dim] of the last backward, reduced over ranks: data-parallel tables.
  std::vector<std::pair<std::string, Tensor>> data_parallel_gradients() const;

  // Collective, on the rank that has no batch to offer instead of forward, which ends on all ranks with this error:
  // kInvalidArgument, "rank N: why". The next step may follow.
  [[noreturn]] void refuse_batch(const std::string& why);

  int64_t dropped_ids() const;  // by this rank's bounds check, since construction

  // Every n-th training step, counted from the last reset of the stage times, this rank looks up and updates its
  // shards one by one and takes their times; the numbers stay the same. 0: never, which is what it starts with.
  // data_parallel tables are not sampled. Not between a forward and its backward.
  void sample_shards(int64_t every_steps);
  int64_t sampled_steps() const;
  std::vector<ShardTimes> shard_times() const;

  // Spans of this collection's stages from now on; nullptr: none. The trace outlives its use here.
  void set_trace(Trace* trace);

  const StageTimes& stage_times() const;
  void reset_stage_times();
  const StepTraffic& last_traffic() const;  // of the last forward, and of the backward that belongs to it
  // Sent to other ranks since construction: forwards as they ended, backwards likewise.
  const ExchangeBytes<int64_t>& bytes_sent() const;

 protected:
  explicit ShardedEmbeddings(std::shared_ptr<ShardedCollection> impl);
  std::shared_ptr<ShardedCollection> impl_;
};

class ShardedEmbeddingBagCollection : public ShardedEmbeddings {
 public:
  struct Output {
    KeyedTensor values;         // [batch, sum of dims], unsharded order
    bool all_finished = false;  // every rank said `finished`
    bool any_finished = false;  // some rank did, be it with its last batch: what all know, they can end on
    StepHandle state;           // for backward
  };

  // Collective. What is wrong with one rank's batch (an id out of range, a missing feature) ends the step on all ranks
  // with kInvalidArgument and "rank N: ..."; the next step may follow. A rank without further
  // batches goes on with an empty one and finished = true until all_finished.
  Awaitable<Output> forward(const KeyedJaggedTensor& input, bool finished = false, bool keep_for_backward = true);
  // The forward of a batch that ShardedInputs has taken. Collective.
  Awaitable<Output> forward(StepHandle taken, bool keep_for_backward = true);
  // Collective. grad: [batch, sum of dims] of this rank's loss, where the output is or in host memory. Once for each
  // forward.
  void backward(const Output& output, const Tensor& grad);
  // Collective, before the batch's backward: the gradients of the ids' weights, [ids], of a collection with
  // is_weighted; grad as there, in host memory. All rows are looked up once more, those of this rank's ids one by one.
  // An id that the bounds check leaves out has 0. Errors as of forward(); kUnimplemented where the tables are on a
  // device.
  Tensor weight_gradients(const KeyedJaggedTensor& batch, const Tensor& grad);
  const std::vector<std::string>& output_keys() const { return layout_->keys; }

  explicit ShardedEmbeddingBagCollection(std::shared_ptr<ShardedCollection> impl);

 private:
  friend class ShardedInputs;
  std::shared_ptr<const KeyedTensor::KeyLayout> layout_;
};

// Takes batches ahead of their steps: the ids of the next batch are checked, routed and exchanged by another thread
// while the collection is in the step before. The numbers are those of forward(batch).
//
//   ShardedInputs inputs(collection);            // collective
//   StepHandle next = inputs.reserve();
//   inputs.take(next, batch);                    // in another thread
//   auto out = collection.forward(next).wait();  // once it has been taken
//
// take() has a process group of its own, so that it may run beside whatever the other groups do; all ranks take their
// batches in the same order. The object is used by one thread at a time, reserve() by that of the collection.
class ShardedInputs {
 public:
  // Collective.
  explicit ShardedInputs(ShardedEmbeddingBagCollection& collection);
  ~ShardedInputs();

  StepHandle reserve();
  // Collective; errors as of forward(). The batch's tensors stay as they are until the step is over. What goes wrong on
  // one rank when ids had been exchanged (kDataLoss, no memory) ends the job on all: the others may be in forward() of
  // this batch by then, so the collection's group is aborted too, naming this rank.
  void take(const StepHandle& place, const KeyedJaggedTensor& batch, bool finished = false);
  // [any-thread] Ends what take() waits for, on all ranks.
  void abort(const std::string& reason) const;
  // The trace of take()'s stages; nullptr: none.
  void set_trace(Trace* trace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class ShardedEmbeddingCollection : public ShardedEmbeddings {
 public:
  struct Output {
    JaggedTensorDict values;  // per output name: rows [ids, dim] in input order; float16 tables: rounded to half
    bool all_finished = false;
    StepHandle state;
  };
  Awaitable<Output> forward(const KeyedJaggedTensor& input, bool finished = false, bool keep_for_backward = true);
  // grads: by output name, each [ids, dim]; a name left out has gradient 0.
  void backward(const Output& output, const std::vector<std::pair<std::string, Tensor>>& grads);

  explicit ShardedEmbeddingCollection(std::shared_ptr<ShardedCollection> impl);
};

// The module sharders: module (its tables) + plan + ranks -> sharded module. Collective: ranks must agree on all three.
class EmbeddingBagCollectionSharder {
 public:
  EmbeddingBagCollectionSharder(const Runtime& runtime, ShardedModuleOptions options)
      : runtime_(runtime), options_(std::move(options)) {}
  ShardedEmbeddingBagCollection shard(const std::vector<EmbeddingBagConfig>& tables,
                                      const EmbeddingModuleShardingPlan& plan,
                                      std::shared_ptr<ProcessGroup> group) const;

 private:
  const Runtime& runtime_;
  ShardedModuleOptions options_;
};

class EmbeddingCollectionSharder {
 public:
  EmbeddingCollectionSharder(const Runtime& runtime, ShardedModuleOptions options)
      : runtime_(runtime), options_(std::move(options)) {}
  ShardedEmbeddingCollection shard(const std::vector<EmbeddingBagConfig>& tables,
                                   const EmbeddingModuleShardingPlan& plan, std::shared_ptr<ProcessGroup> group) const;

 private:
  const Runtime& runtime_;
  ShardedModuleOptions options_;
};

}  // namespace tessera

// tessera/sharded_modules.h - collections with tables spread over ranks, with the inputs and outputs of unsharded ones.
//
//   ShardedEmbeddingBagCollection sharded = EmbeddingBagCollectionSharder(runtime, options).shard(tables, plan, group);
//   auto out = sharded.forward(kjt).wait();      // KeyedTensor in the unsharded key order
//   sharded.backward(out, grad);                 // updates the tables
//
// Every rank must call forward, backward and everything marked collective in the same order. One thread at a time uses
// an object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/embedding_configs.h"
#include "tessera/jagged_tensor.h"
#include "tessera/lookup.h"
#include "tessera/optim.h"
#include "tessera/process_group.h"
#include "tessera/sharding.h"
#include "tessera/step_figures.h"

namespace tessera {

// A result that is still being computed. wait() finishes it, once. The destructor finishes and
// drops an unfinished one, so that no rank leaves a collective half-way.
template <class T>
class Awaitable {
 public:
  // `finish` is called once, without arguments, and returns the value. It is stored inside the object, so nothing is
  // allocated.
  template <class Finish>
  requires(std::is_invocable_r_v<T, Finish&> &&
           !std::is_same_v<std::decay_t<Finish>, Awaitable>) explicit Awaitable(Finish finish)
      : calls_(&kCallsOf<Finish>) {
    static_assert(sizeof(Finish) <= kRoom && alignof(Finish) <= alignof(std::max_align_t));
    static_assert(std::is_nothrow_move_constructible_v<Finish>);
    ::new (static_cast<void*>(room_)) Finish(std::move(finish));
  }
  Awaitable(Awaitable&& other) noexcept { take(other); }
  Awaitable& operator=(Awaitable&& other) noexcept {
    if (this == &other) return *this;
    drop();
    value_.reset();
    take(other);
    return *this;
  }
  ~Awaitable() { drop(); }

  // Returns the value; the first call does the work. Throws what the work throws.
  T& wait() {
    if (calls_) std::exchange(calls_, nullptr)->finish(room_, value_);
    return value_.value();
  }

 private:
  static constexpr size_t kRoom = 64;

  struct Calls {
    void (*finish)(void* room, std::optional<T>& value);  // also destroys the object in `room`
    void (*move)(void* from, void* to) noexcept;
  };
  template <class Finish>
  static constexpr Calls kCallsOf = {[](void* room, std::optional<T>& value) {
                                       struct Owner {  // destroys it even if the call throws
                                         Finish* finish;
                                         ~Owner() { std::destroy_at(finish); }
                                       } const owner{static_cast<Finish*>(room)};
                                       value.emplace((*owner.finish)());
                                     },
                                     [](void* from, void* to) noexcept {
                                       auto* finish = static_cast<Finish*>(from);
                                       ::new (to) Finish(std::move(*finish));
                                       std::destroy_at(finish);
                                     }};

  void take(Awaitable& other) noexcept {
    calls_ = std::exchange(other.calls_, nullptr);
    if (calls_) calls_->move(other.room_, room_);
    value_ = std::move(other.value_);
  }

  void drop() noexcept {
    if (!calls_) return;
    try {
      wait();
    } catch (...) {  // nobody asked for the result; the group remembers its error
    }
  }

  const Calls* calls_ = nullptr;  // null: nothing is left to do
  alignas(std::max_align_t) std::byte room_[kRoom];
  std::optional<T> value_;
};

struct ShardedModuleOptions {
  std::string kernel = "auto";  // kernel plugin's id
  // The stream of the device with the shards, the pooled outputs and their gradients; null: host memory. Batches and
  // their ids are in host memory.
  std::shared_ptr<DeviceStream> stream;
  OptimizerSpec optimizer;  // fused optimizer of tables without their own
  bool is_weighted = false;
  BoundsCheckMode bounds_check = BoundsCheckMode::kFatal;
  uint64_t seed = 0;          // of the start values
  bool need_indices = false;  // for sequences: outputs carry the input ids as their weights
  // Factors on the gradient of the sum of the ranks' losses; the second is for data-parallel tables. Unset: 1 / world
  // size for both, so that training uses the mean of the ranks' losses (TorchRec's gradient division).
  std::optional<double> gradient_scale;
  std::optional<double> data_parallel_gradient_scale;
};

// A shard of a table that this rank holds.
struct HeldShard {
  std::string table;
  ShardMetadata where;
  int shard = 0;  // index in the plan
};

// Mean time of this rank's shard of a table over the sampled steps.
struct ShardTimes {
  HeldShard shard;
  double lookup = 0, update = 0;  // seconds
};

struct StepState;
class ShardedCollection;
class ShardedEmbeddingCollection;

// State that a forward keeps for its backward. Copies share it. When the last copy is gone, another step reuses its
// buffers.
class StepHandle {
 public:
  StepHandle() = default;
  explicit StepHandle(StepState* state);  // adds a handle
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

// A batch whose ids were sent to the ranks that have the rows, for one collection of each kind.
struct TakenBatch {
  StepHandle pooled = {};     // empty: nothing was taken
  StepHandle sequences = {};  // empty if there is no such collection
  explicit operator bool() const { return static_cast<bool>(pooled); }
};

// The common base of the two sharded collections: tables, plan, shards, state.
class ShardedEmbeddings {
 public:
  virtual ~ShardedEmbeddings();
  ShardedEmbeddings(const ShardedEmbeddings&) = delete;
  ShardedEmbeddings(ShardedEmbeddings&&) = default;

  const std::vector<EmbeddingBagConfig>& tables() const;
  const EmbeddingModuleShardingPlan& plan() const;
  const ProcessGroup& group() const;

  std::vector<HeldShard> held_shards() const;   // this rank's, by table and shard; includes replicated ones
  Tensor weight(const HeldShard& shard) const;  // float32 [rows, cols], a copy
  void set_weight(const HeldShard& shard, const Tensor& value);
  // For tables that only infer: replaces the shard's rows by these, read in place (Lookup::adopt_rows).
  void adopt_rows(const HeldShard& shard, const Tensor& rows);
  std::vector<std::pair<std::string, Tensor>> states(
      const HeldShard& shard) const;  // "momentum1" -> [rows] or [rows, cols]
  // Reads rows [first, first + count) of one shard, for checkpoints: weights [count, cols], states [count(, cols)], and
  // the kernel's extra_bytes() per row. Null: not wanted.
  void read_rows(const HeldShard& shard, int64_t first, int64_t count, float* weights, std::span<float* const> states,
                 void* extra = nullptr) const;
  void write_rows(const HeldShard& shard, int64_t first, int64_t count, const float* weights,
                  std::span<const float* const> states, const void* extra = nullptr);
  MatrixView view(const HeldShard& shard, int state = -1) const;  // Lookup::view of a shard
  int64_t extra_bytes(const HeldShard& shard) const;
  // Access to shards with on-demand rows (Lookup has more). Ids are the table's. import_rows takes those ids that the
  // shard owns.
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
  // Tracks changed rows of this rank's shards, as Lookup does; ids are the table's. A mark of kCheckpoints skips
  // kernels whose tables do not change by rows.
  using Follower = Lookup::Follower;
  void mark_changes(Follower follower);
  // True if this shard's kernel knows which of its rows change, and keeps no optimizer state of the whole table; such a
  // state would change all rows.
  bool changes_by_rows(const HeldShard& shard) const;
  Lookup::RowChanges changes(Follower follower, const HeldShard& shard) const;
  int64_t export_changed(Follower follower, const HeldShard& shard, uint64_t& cursor, std::span<int64_t> ids,
                         float* weights, std::span<float* const> states = {}, void* extra = nullptr) const;
  int64_t export_removed(Follower follower, const HeldShard& shard, uint64_t& cursor, std::span<int64_t> ids) const;
  tsr_kernel_stats kernel_stats(const HeldShard& shard) const;  // the kernel's counters: abi/kernel.h
  // The table's ids of rows [first, first + count) of a shard. They are contiguous unless the sharder routes rows.
  std::vector<int64_t> table_rows(const HeldShard& shard, int64_t first, int64_t count) const;
  const std::vector<Lookup::State>& state_layout(const HeldShard& shard) const;
  OptimizerSpec optimizer_of(const std::string& table) const;  // in use: the table's or the collection's

  void set_learning_rate(double value);                            // of every table
  void set_learning_rate(const std::string& table, double value);  // tables with the same optimizer change together
  double learning_rate(const std::string& table) const;
  // Learning rates of this rank's kernel instances, in a fixed order. The setter makes each one `factor` times the rate
  // in such a list.
  std::vector<double> learning_rates() const;
  void scale_learning_rates(std::span<const double> rates, double factor);
  int64_t step() const;  // number of updates done
  void set_step(int64_t step);

  // "embedding_bags.<table>.weight" or "embeddings.<table>.weight", in table order, the same on every rank.
  std::vector<std::string> state_dict_keys() const;
  // The fused optimizers of this rank's shards, without data-parallel tables. Keys are state_dict_keys(); states are
  // "<table>.momentum1" of this rank's rows.
  std::shared_ptr<CombinedOptimizer> fused_optimizer() const;

  // For data-parallel tables: table -> gradient [rows, dim] of the last backward, reduced over ranks.
  std::vector<std::pair<std::string, Tensor>> data_parallel_gradients() const;

  // Called instead of forward() on a rank that could not produce a batch; fails the step on every rank with
  // kInvalidArgument, "rank N: why". The next step may follow. Collective.
  [[noreturn]] void refuse_batch(const std::string& why);

  int64_t dropped_ids() const;  // by this rank's bounds check since construction

  // Samples every n-th training step since the last reset of the stage times: this rank then looks up and updates its
  // shards one by one and times them. Results stay the same. 0, the default: never. Data-parallel tables are not
  // sampled. Do not call it between a forward and its backward.
  void sample_shards(int64_t every_steps);
  int64_t sampled_steps() const;
  std::vector<ShardTimes> shard_times() const;

  // Records spans of this collection's stages; nullptr: none. The trace must outlive its use here.
  void set_trace(Trace* trace);

  const StageTimes& stage_times() const;
  void reset_stage_times();
  const StepTraffic& last_traffic() const;  // of the last forward and its backward
  // The exchanges of the last forward and its backward, in their order. Call it before the next batch is taken in.
  std::vector<StepExchange> last_exchanges() const;
  // Bytes sent to other ranks since construction, in finished forwards and backwards.
  const ExchangeBytes<int64_t>& bytes_sent() const;

 protected:
  explicit ShardedEmbeddings(std::shared_ptr<ShardedCollection> impl);
  // Takes a batch in: its ids are checked and sent to the ranks that have the rows.
  StepHandle take_in(const KeyedJaggedTensor& input, bool finished, bool keep_for_backward);
  std::shared_ptr<ShardedCollection> impl_;
};

class ShardedEmbeddingBagCollection : public ShardedEmbeddings {
 public:
  struct Output {
    KeyedTensor values;         // [batch, sum of dims], in the unsharded order
    bool all_finished = false;  // every rank said `finished`
    bool any_finished = false;  // some rank did, maybe with its last batch; all ranks know, so all can end
    StepHandle state;           // for backward
  };

  // Collective. An error in one rank's batch (an id out of range, a missing feature) fails the step on all ranks with
  // kInvalidArgument and "rank N: ..."; the next step may follow. A rank without further batches passes an empty one
  // and finished = true until all_finished.
  Awaitable<Output> forward(const KeyedJaggedTensor& input, bool finished = false, bool keep_for_backward = true) {
    return forward(take_in(input, finished, keep_for_backward), keep_for_backward);
  }
  // Runs the forward of a batch that ShardedInputs has taken. Collective.
  Awaitable<Output> forward(StepHandle taken, bool keep_for_backward = true);
  // The same, but rows are looked up and sent here, and not in wait(). So other collections may send theirs before this
  // one's are waited for. An update of the tables in between is not seen.
  Awaitable<Output> start_forward(const KeyedJaggedTensor& input, bool finished = false,
                                  bool keep_for_backward = true) {
    return start_forward(take_in(input, finished, keep_for_backward), keep_for_backward);
  }
  Awaitable<Output> start_forward(StepHandle taken, bool keep_for_backward = true);
  // Collective. grad: [batch, sum of dims] of this rank's loss, on the output's device or in host memory. Call it once
  // for each forward.
  void backward(const Output& output, const Tensor& grad) {
    start_backward(output, grad);
    finish_backward(output);
  }
  // The two halves of backward(): the first sends gradients, the second waits for them and updates tables. Between them
  // other collections may send theirs; `grad` must not change.
  void start_backward(const Output& output, const Tensor& grad);
  void finish_backward(const Output& output);
  // Collective; called before the batch's backward. Returns the gradients of the ids' weights, [ids], for a collection
  // with is_weighted. grad is as in backward(), in host memory. It looks up all rows again, one by one for this rank's
  // ids. Ids that the bounds check drops get 0. Errors are those of forward(). kUnimplemented: the tables are on a
  // device.
  Tensor weight_gradients(const KeyedJaggedTensor& batch, const Tensor& grad);
  const std::vector<std::string>& output_keys() const { return layout_->keys; }

  explicit ShardedEmbeddingBagCollection(std::shared_ptr<ShardedCollection> impl);

 private:
  friend class ShardedInputs;
  friend TakenBatch take_together(ShardedEmbeddingBagCollection&, const KeyedJaggedTensor&, ShardedEmbeddingCollection&,
                                  const KeyedJaggedTensor&, bool, bool);
  using LayoutPtr = std::shared_ptr<const KeyedTensor::KeyLayout>;
  static Output finish_forward(const LayoutPtr& layout, const StepHandle& state, bool keep);
  LayoutPtr layout_;
};

class ShardedEmbeddingCollection : public ShardedEmbeddings {
 public:
  struct Output {
    JaggedTensorDict values;  // by output name: rows [ids, dim] in input order; float16 tables: rounded to half
    bool all_finished = false;
    StepHandle state;
  };
  // These are like those of ShardedEmbeddingBagCollection.
  Awaitable<Output> forward(const KeyedJaggedTensor& input, bool finished = false, bool keep_for_backward = true) {
    return forward(take_in(input, finished, keep_for_backward), keep_for_backward);
  }
  Awaitable<Output> forward(StepHandle taken, bool keep_for_backward = true);
  Awaitable<Output> start_forward(const KeyedJaggedTensor& input, bool finished = false,
                                  bool keep_for_backward = true) {
    return start_forward(take_in(input, finished, keep_for_backward), keep_for_backward);
  }
  Awaitable<Output> start_forward(StepHandle taken, bool keep_for_backward = true);
  // grads: by output name, each [ids, dim]; a missing name has gradient 0.
  void backward(const Output& output, const std::vector<std::pair<std::string, Tensor>>& grads) {
    start_backward(output, grads);
    finish_backward(output);
  }
  void start_backward(const Output& output, const std::vector<std::pair<std::string, Tensor>>& grads);
  void finish_backward(const Output& output);

  explicit ShardedEmbeddingCollection(std::shared_ptr<ShardedCollection> impl);

 private:
  friend class ShardedInputs;
  friend TakenBatch take_together(ShardedEmbeddingBagCollection&, const KeyedJaggedTensor&, ShardedEmbeddingCollection&,
                                  const KeyedJaggedTensor&, bool, bool);
  static Output finish_forward(const StepHandle& state, bool keep);
};

// Takes a batch in for two collections, whose ids travel at the same time. Each one's start_forward() follows. Errors
// are those of forward(). Collective.
TakenBatch take_together(ShardedEmbeddingBagCollection& pooled, const KeyedJaggedTensor& of_pooled,
                         ShardedEmbeddingCollection& sequences, const KeyedJaggedTensor& of_sequences,
                         bool finished = false, bool keep_for_backward = true);

// Takes batches of a collection, or of one of each kind, ahead of their steps. Another thread checks, routes and
// exchanges the ids of the next batch while the collection is in the step before. Results are the same as with
// forward(batch).
//
//   ShardedInputs inputs(collection);            // collective
//   StepHandle next = inputs.reserve();
//   inputs.take(next, batch);                    // in another thread
//   auto out = collection.forward(next).wait();  // once it has been taken
//
// take() has its own process group, so it may run beside the other groups. All ranks must take their batches in the
// same order. One thread at a time uses the object; reserve() belongs to the collection's thread.
class ShardedInputs {
 public:
  // Collective.
  explicit ShardedInputs(ShardedEmbeddingBagCollection& collection);
  explicit ShardedInputs(ShardedEmbeddingCollection& collection);
  // Takes batches of both. Their ids travel at the same time, over one group.
  ShardedInputs(ShardedEmbeddingBagCollection& pooled, ShardedEmbeddingCollection& sequences);
  ~ShardedInputs();

  StepHandle reserve();
  TakenBatch reserve_all();  // of both, or of the only one if it is pooled
  // Collective; errors are those of forward(). The batch's tensors must not change until the step is over. An error on
  // one rank after ids were exchanged (kDataLoss, out of memory) ends the job on all ranks: the others may already be
  // in forward() of this batch, so the collection's group is aborted too, naming this rank.
  void take(const StepHandle& place, const KeyedJaggedTensor& batch, bool finished = false);
  void take(const TakenBatch& places, const KeyedJaggedTensor& batch, bool finished = false);
  // [any-thread] Ends take()'s waits, on all ranks.
  void abort(const std::string& reason) const;
  // Records take()'s stages; nullptr: none.
  void set_trace(Trace* trace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The module sharders turn a module (its tables), a plan and ranks into a sharded module. Collective: ranks must agree
// on all three.
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

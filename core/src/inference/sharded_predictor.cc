// Serves a model over several ranks: rank 0 brings every batch, the others look up their shards.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "inference/counts.h"
#include "inference/input_check.h"
#include "inference/int8_dense.h"
#include "inference/sharded.h"
#include "inference/workspace.h"
#include "modules/sequence_inputs.h"
#include "tessera/planner.h"
#include "tessera/predictor.h"
#include "tessera/quantization.h"

namespace tessera {
namespace inference {
namespace {

// True for errors of one batch, after which the ranks still agree. Any other error means a lost rank.
bool only_the_batch(Code code) { return code == Code::kInvalidArgument || code == Code::kOutOfRange; }

// `model` gets the precision that was chosen.
std::unique_ptr<LayerGraph> layers_of(const Runtime& runtime, InferenceModel& model, const std::string& precision) {
  const DensePrecision chosen = prediction_precision(runtime, model, precision);
  model.description.dense_precision = chosen.type;
  model.description.why_float32 = chosen.why;
  return std::make_unique<LayerGraph>(
      runtime, model.graph,
      LayerGraphOptions{.values = &model.dense, .precision = chosen.type, .sequence_heads = true});
}

// Its pooled tables, or those of sequences.
std::vector<QuantizedTable> tables_of(const InferenceModel& model, bool sequences) {
  std::vector<QuantizedTable> out;
  for (const QuantizedTable& t : model.tables) {
    if ((t.config.pooling == PoolingType::kNone) == sequences) out.push_back(t);
  }
  return out;
}

EmbeddingModuleShardingPlan part_of(const EmbeddingModuleShardingPlan& plan,
                                    const std::vector<QuantizedTable>& tables) {
  EmbeddingModuleShardingPlan out;
  for (const QuantizedTable& t : tables) out.add(t.config.name, plan.at(t.config.name));
  return out;
}

KeyedJaggedTensor to_batch(const ModelDescription& model, const PredictInput& input) {
  std::vector<std::string> keys;
  int64_t ids = 0;
  for (const ModelFeature& f : model.features) keys.push_back(f.name);
  for (const PredictInput::Feature& f : input.features) ids += static_cast<int64_t>(f.values.size());
  const auto features = static_cast<int64_t>(keys.size());
  const Tensor values = Tensor::empty({ids}, DType::kInt64),
               lengths = Tensor::empty({features * input.batch}, DType::kInt32);
  Tensor weights;
  if (model.is_weighted) {
    weights = Tensor::empty({ids});
    weights.fill(1);
  }
  int64_t at = 0, bag = 0;
  for (const PredictInput::Feature& f : input.features) {
    std::copy(f.values.begin(), f.values.end(), values.data<int64_t>() + at);
    std::copy(f.lengths.begin(), f.lengths.end(), lengths.data<int32_t>() + bag);
    if (!f.weights.empty()) std::copy(f.weights.begin(), f.weights.end(), weights.data<float>() + at);
    at += static_cast<int64_t>(f.values.size());
    bag += input.batch;
  }
  KeyedJaggedTensor::Options options;
  options.keys = std::move(keys);
  options.values = values;
  options.lengths = lengths;
  options.weights = weights;
  options.stride = input.batch;
  return KeyedJaggedTensor(std::move(options));
}

class Sharded : public ShardedPredictor {
 public:
  Sharded(const Runtime& runtime, InferenceModel model, const EmbeddingModuleShardingPlan& plan,
          std::shared_ptr<ProcessGroup> group, const ShardedPredictorOptions& options)
      : model_(std::move(model)),
        table_features_(table_features_of(model_, options.kernel)),
        group_(std::move(group)),
        keep_alive_(options.keep_alive_s),
        plan_(plan),
        counts_(options.counts ? options.counts : std::make_shared<PredictorCounts>(model_.tables.size())),
        bad_ids_(model_.tables.size()),
        first_ids_(model_.graph, model_.description),
        needed_(model_.description),
        bags_(shard<QuantEmbeddingBagCollectionSharder, ShardedEmbeddingBagCollection>(runtime, options, false)) {
    TESSERA_CHECK(counts_->bad_ids.size() == model_.tables.size(), "a count for each table");
    if (!tables_of(model_, true).empty())
      sequences_.emplace(shard<QuantEmbeddingCollectionSharder, ShardedEmbeddingCollection>(runtime, options, true));
    if (group_->rank() == 0) dense_ = layers_of(runtime, model_, options.dense_precision);
    if (options.part) part_ = options.part(model_, group_->rank(), group_->world_size());
  }
  // Called when all ranks have finished the constructor.
  void start() {
    started_ = true;
    if (group_->rank() == 0 && group_->world_size() > 1) keeper_ = std::thread([this] { keep_alive(); });
  }
  ~Sharded() override {
    if (keeper_.joinable()) {
      {
        const std::lock_guard lock(mutex_);
        closing_ = true;
      }
      wake_.notify_all();
      keeper_.join();
    }
    if (group_->rank() != 0 || !started_ || !lost_.empty()) return;
    try {
      (void)step({}, true);
    } catch (const std::exception&) {  // the others will notice it themselves
    }
  }

  const ModelDescription& model() const override { return model_.description; }
  const EmbeddingModuleShardingPlan& plan() const override { return plan_; }
  bool usable() const override { return usable_; }
  std::string why_not(const PredictInput& input) const override { return problem_with(model(), input).sentence; }

  void predict_outputs(const PredictInput& input, std::span<const std::span<float>> outputs) override {
    predict(input, outputs, nullptr);
  }

  void predict_with_parts(const PredictInput& input, size_t output, std::span<float> values,
                          std::span<std::byte> answers) override {
    TESSERA_CHECK(part_, "options.part was set");
    TESSERA_CHECK(std::cmp_equal(answers.size(), group_->world_size() * input.batch * part_->answer_bytes()),
                  "room for all ranks' answers");
    std::vector<std::span<float>> outputs(output + 1);
    outputs[output] = values;
    const Asked asked{values, answers};
    predict(input, outputs, &asked);
  }

  PredictorStats stats() const override { return totals(*counts_); }

  void serve_shard() override {
    if (group_->rank() == 0) fail(Code::kFailedPrecondition, "rank 0 predicts: serve_shard() is for the other ranks");
    const KeyedJaggedTensor nothing = to_batch(model(), {});
    for (bool finished = false; !finished;) {
      try {
        finished = look_up(nothing, true).bags.all_finished;
      } catch (const Error& e) {
        if (only_the_batch(e.code())) continue;
        lose(e);
      }
      if (part_ && !finished) help_with_parts();
    }
  }

 private:
  template <class Sharder, class Collection>
  Collection shard(const Runtime& runtime, const ShardedPredictorOptions& options, bool sequences) const {
    ShardedModuleOptions o{.kernel = options.kernel,
                           .is_weighted = model_.description.is_weighted && !sequences,
                           .bounds_check = model_.description.bounds_check};
    const std::vector<QuantizedTable> tables = tables_of(model_, sequences);
    return Sharder(runtime, o).shard(tables, part_of(plan_, tables), group_);
  }

  // Looked-up rows for this rank's batch.
  struct Rows {
    ShardedEmbeddingBagCollection::Output bags;
    ShardedEmbeddingCollection::Output sequences;
  };
  Rows look_up(const KeyedJaggedTensor& batch, bool finished) {
    if (!sequences_) return {bags_.forward(batch, finished, false).wait(), {}};
    TakenBatch taken = take_together(bags_, batch, *sequences_, batch, finished, false);
    auto bags = bags_.start_forward(std::move(taken.pooled), false);
    auto sequences = sequences_->start_forward(std::move(taken.sequences), false);
    return {bags.wait(), sequences.wait()};
  }

  [[noreturn]] void lose(const std::exception& e) {
    lost_ = str_cat("the sharded model has lost a rank: ", e.what());
    usable_ = false;
    fail(Code::kUnavailable, lost_);
  }

  // Runs one forward pass of all ranks; the caller holds the mutex. If ranks have a RankPart, call ask_parts() after
  // each step except the last.
  Rows step(const KeyedJaggedTensor& batch, bool last) {
    if (!lost_.empty()) fail(Code::kUnavailable, lost_);
    try {
      last_step_ = std::chrono::steady_clock::now();
      return look_up(batch.keys().empty() ? to_batch(model(), {}) : batch, last);
    } catch (const Error& e) {
      if (only_the_batch(e.code())) throw;
      lose(e);
    } catch (const std::exception& e) {  // out of memory, while the others are in the step
      lose(e);
    }
  }

  // Values for the RankPart of every rank, and memory for their answers.
  struct Asked {
    std::span<const float> values;
    std::span<std::byte> answers;
  };

  void predict(const PredictInput& given, std::span<const std::span<float>> outputs, const Asked* asked) {
    if (group_->rank() != 0)
      fail(Code::kFailedPrecondition, "rank 0 predicts, and this is rank ", group_->rank(), ": call serve_shard()");
    const Problem problem = problem_with(model(), given);
    if (problem.code != Code::kOk) throw Error(problem.code, problem.sentence);
    const std::lock_guard lock(mutex_);
    const PredictInput input = needed_.of(given);
    if (input.batch > 0) {
      const Rows rows = step(to_batch(model(), input), false);
      try {
        answer(*dense_, model().outputs, input,
               {rows.bags.values.values(), sequence_inputs_.take(rows.sequences.values), first_ids_.take(input)},
               outputs);
      } catch (...) {
        ask_parts({}, 0);
        throw;
      }
      ask_parts(asked == nullptr ? Asked{} : *asked, asked == nullptr ? 0 : input.batch);
    }
    count_bad_ids(table_features_, input, bad_ids_);
    for (size_t t = 0; t < bad_ids_.size(); ++t)
      counts_->bad_ids[t].fetch_add(std::exchange(bad_ids_[t], 0), std::memory_order_relaxed);
    counts_->predictions.fetch_add(1, std::memory_order_relaxed);
    counts_->samples.fetch_add(static_cast<uint64_t>(input.batch), std::memory_order_relaxed);
  }

  // Only rank 0 calls this. `batch` 0: there is no work for them.
  void ask_parts(const Asked& asked, int64_t batch) {
    if (!part_) return;
    try {
      const std::array<int64_t, 2> sizes{batch, static_cast<int64_t>(asked.values.size())};
      group_->broadcast(Tensor::from<int64_t>(sizes, {2}), 0, "sizes for parts").wait();
      if (batch > 0) work_on_components(Tensor::from<float>(asked.values, {sizes[1]}), batch, asked.answers);
    } catch (const std::exception& e) {
      lose(e);
    }
  }

  // All other ranks call this.
  void help_with_parts() {
    try {
      const Tensor sizes = Tensor::zeros({2}, DType::kInt64);
      group_->broadcast(sizes, 0, "sizes for parts").wait();
      const std::span<const int64_t> of = sizes.span<int64_t>();
      if (of[0] > 0) work_on_components(Tensor::empty({of[1]}), of[0], {});
    } catch (const std::exception& e) {
      lose(e);
    }
  }

  void work_on_components(const Tensor& values, int64_t batch, std::span<std::byte> answers) const {
    group_->broadcast(values, 0, "values for parts").wait();
    const int64_t bytes = batch * part_->answer_bytes();
    const Tensor mine = Tensor::empty({bytes}, DType::kUInt8);
    part_->answer(values.span<float>(), batch, std::as_writable_bytes(mine.span<uint8_t>()));
    const auto ranks = static_cast<size_t>(group_->world_size());
    std::vector<int64_t> send(ranks, 0), recv(ranks, group_->rank() == 0 ? bytes : 0);
    send[0] = bytes;
    const Tensor all = group_->rank() == 0
                           ? Tensor::borrow(answers.data(), {static_cast<int64_t>(answers.size())}, DType::kUInt8)
                           : Tensor::empty({0}, DType::kUInt8);
    group_->all_to_all_v(mine, send, all, recv, "answers of parts").wait();
  }

  // Sends empty batches while nobody predicts, so that the other ranks' waits do not time out and a lost rank is
  // noticed.
  void keep_alive() {
    std::unique_lock lock(mutex_);
    while (!closing_ && lost_.empty()) {
      wake_.wait_for(lock, std::chrono::duration<double>(keep_alive_ / 2));
      if (closing_ || std::chrono::steady_clock::now() - last_step_ < std::chrono::duration<double>(keep_alive_ / 2))
        continue;
      try {
        (void)step({}, false);
        ask_parts({}, 0);
      } catch (const std::exception&) {  // lost_ remembers it
      }
    }
  }

  InferenceModel model_;  // constant after the constructor
  const TableFeatures table_features_;
  const std::shared_ptr<ProcessGroup> group_;
  const double keep_alive_;
  bool started_ = false;
  std::mutex mutex_;  // guards the members below; held for long if a rank is lost
  std::condition_variable wake_;
  const EmbeddingModuleShardingPlan plan_;  // of all tables
  const std::shared_ptr<PredictorCounts> counts_;
  std::vector<uint64_t> bad_ids_;  // of one batch
  FirstIds first_ids_;
  NeededFeatures needed_;
  ShardedEmbeddingBagCollection bags_;
  std::optional<ShardedEmbeddingCollection> sequences_;  // unset: all tables are pooled
  SequenceInputs sequence_inputs_;
  std::unique_ptr<LayerGraph> dense_;  // only on rank 0
  std::unique_ptr<RankPart> part_;     // null: ranks have none
  std::string lost_;                   // the reason why nothing works any more
  std::atomic<bool> usable_{true};     // lost_ is empty; readable without the mutex
  bool closing_ = false;
  std::chrono::steady_clock::time_point last_step_ = std::chrono::steady_clock::now();
  std::thread keeper_;
};

EmbeddingModuleShardingPlan for_inference(const EmbeddingModuleShardingPlan& plan) {
  EmbeddingModuleShardingPlan out;
  for (const auto& [table, sharding] : plan.tables()) {
    ParameterSharding changed = sharding;
    changed.compute_kernel = TSR_COMPUTE_QUANT;
    out.add(table, std::move(changed));
  }
  return out;
}

}  // namespace

EmbeddingModuleShardingPlan planned(const Runtime& runtime, const InferenceModel& model, const ProcessGroup& group) {
  PlannerModule bags{.path = kCollectionPath}, sequences{.path = kSequencePath};
  sequences.kind = PlannerModule::Kind::kEmbeddingCollection;
  for (const QuantizedTable& t : model.tables) {
    EmbeddingBagConfig table = t.config;
    // The nearest type that the planner knows. Only the relative size of tables matters.
    table.data_type = sdk::info_of(*table.row_format).bits <= 16 ? DType::kFloat16 : DType::kFloat32;
    table.row_format.reset();
    (table.pooling == PoolingType::kNone ? sequences : bags).tables.push_back(std::move(table));
  }
  PlannerOptions options{.topology = Topology::of(group.world_size(), group.local_world_size())};
  std::vector<PlannerModule> modules = {std::move(bags)};
  if (!sequences.tables.empty()) modules.push_back(std::move(sequences));
  EmbeddingModuleShardingPlan out;
  for (const auto& [path, plan] : EmbeddingShardingPlanner(runtime, options).plan(modules).plan.modules) {
    for (const auto& [table, sharding] : plan.tables()) out.add(table, sharding);
  }
  return out;
}

std::vector<std::string> agreed(const ProcessGroup& group, const std::function<std::string()>& mine) {
  std::string text;
  try {
    text = "+" + mine();
  } catch (const Error& e) {
    text = str_cat(static_cast<int32_t>(e.code()), ' ', e.what());
  } catch (const std::exception& e) {  // such as out of memory
    text = str_cat(static_cast<int32_t>(Code::kResourceExhausted), ' ', e.what());
  }
  std::vector<std::string> texts = group.all_gather_text(text, "sharded model");
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].front() == '+') continue;
    const size_t space = texts[rank].find(' ');
    throw Error(static_cast<Code>(std::stoi(texts[rank])), str_cat("rank ", rank, ": ", texts[rank].substr(space + 1)),
                static_cast<int>(rank));
  }
  for (std::string& t : texts) t.erase(0, 1);
  return texts;
}

}  // namespace inference

using namespace inference;

std::unique_ptr<ShardedPredictor> open_sharded_predictor(const Runtime& runtime, const std::string& directory,
                                                         std::shared_ptr<ProcessGroup> group,
                                                         const ShardedPredictorOptions& options) {
  return make_sharded_predictor(
      runtime, [&] { return open_packed_model(directory); }, std::move(group), options);
}

std::unique_ptr<ShardedPredictor> make_sharded_predictor(const Runtime& runtime,
                                                         const std::function<InferenceModel()>& open,
                                                         std::shared_ptr<ProcessGroup> group,
                                                         const ShardedPredictorOptions& options) {
  InferenceModel model;
  const auto versions = agreed(*group, [&] {
    model = open();
    keep_served_heads(model);
    // Fails here, on every rank.
    model.description.outputs = outputs_of(runtime, model.graph, *layers_of(runtime, model, kFloat32Precision));
    return model.description.version;
  });
  for (size_t rank = 1; rank < versions.size(); ++rank) {
    if (versions[rank] == versions[0]) continue;
    throw Error(Code::kFailedPrecondition,
                str_cat("rank ", rank, " has version ", versions[rank], " of model ", model.description.name,
                        ", rank 0 has version ", versions[0]),
                static_cast<int>(rank));
  }
  // All ranks use rank 0's plan.
  const auto plans = agreed(*group, [&]() -> std::string {
    if (group->rank() != 0) return "";
    ShardingPlan plan{.world_size = group->world_size(), .local_world_size = group->local_world_size()};
    plan.modules.emplace_back(kCollectionPath,
                              for_inference(options.plan ? *options.plan : planned(runtime, model, *group)));
    return plan.json();
  });
  const ShardingPlan plan = ShardingPlan::from_json(plans[0]);
  std::unique_ptr<Sharded> opened;
  // Cutting shards takes longer on some ranks. Wait for all, so that an error on one is known before any continues.
  (void)agreed(*group, [&]() -> std::string {
    opened = std::make_unique<Sharded>(runtime, std::move(model), plan.at(kCollectionPath), group, options);
    return "";
  });
  opened->start();
  return opened;
}

}  // namespace tessera

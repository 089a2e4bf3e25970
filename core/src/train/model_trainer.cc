#include "tessera/trainer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "distributed/stopwatch.h"
#include "modules/id_inputs.h"
#include "modules/sequence_inputs.h"
#include "sparse/finite.h"
#include "train/dense_updates.h"
#include "train/device_batch.h"
#include "train/drawn_ids.h"
#include "train/head_losses.h"

namespace tessera {
namespace {

// The reason why the dense part stays in host memory though tables are on a device; "": it does not, or there is no
// device.
std::string what_keeps_it_on_the_host(const DeviceStreamPtr& stream, const Runtime& runtime, const ModelGraph& model) {
  if (!stream) return "";
  if (std::string why = LayerGraph::cannot_train_on(stream, runtime, model); !why.empty()) return why;
  for (const HeadSpec& head : model.heads) {
    if (head.loss != kOwnLoss)
      return str_cat("the head \"", head.name, "\" has the loss ", head.loss, ", but devices support only ", kOwnLoss);
  }
  if (model.heads.size() == 1) return "";
  return str_cat("there are the heads \"", model.heads[1].name, "\" and \"", model.heads[0].name,
                 "\", but devices train only one");
}

// Number of losses that stay on the device before they are read, so that waits are rare.
constexpr int64_t kLossesOnDevice = 1024;

// Removes a layer's parameters from `from` and returns them.
ParameterList take_layer(const ParameterList& of_layer, ParameterList& from) {
  const auto rest = std::stable_partition(from.begin(), from.end(), [&](const ParameterPtr& p) {
    return std::find(of_layer.begin(), of_layer.end(), p) == of_layer.end();
  });
  ParameterList out(rest, from.end());
  from.erase(rest, from.end());
  return out;
}

// Combines the layers' own optimizers with the common one for all other parameters.
KeyedOptimizerPtr optimizer_of(const ModelGraph& graph, const LayerGraph& layers, ParameterList parameters,
                               const DenseOptimizerSpec& common) {
  std::vector<CombinedOptimizer::Member> own;
  for (size_t i = 0; i < graph.layers.size(); ++i) {
    const LayerSpec& layer = graph.layers[i];
    if (layer.trainable && !layer.optimizer) continue;
    ParameterList taken = take_layer(layers.parameters_of(i), parameters);
    if (layer.trainable) own.push_back({"", make_dense_optimizer(*layer.optimizer, std::move(taken))});
  }
  KeyedOptimizerPtr others = make_dense_optimizer(common, std::move(parameters));
  if (own.empty()) return others;
  own.insert(own.begin(), {"", std::move(others)});
  return std::make_shared<CombinedOptimizer>(std::move(own));
}

// Returns the index of the first value that is not finite; -1: all are finite.
int64_t broken(const Tensor& t) {
  const Tensor host = in_host_memory(t);
  return host.numel() ? first_not_finite({host.data<float>(), static_cast<size_t>(host.numel())}) : -1;
}

// Tables in the form that DistributedModelParallel shards. Allocates nothing.
CollectionOptions described(std::vector<EmbeddingBagConfig> tables, bool is_weighted) {
  return {.tables = std::move(tables), .is_weighted = is_weighted, .device = kMeta};
}

// Collective if `wanted` is "auto": ranks on different machines take the type that all of them have.
DensePrecision common_precision(const Runtime& runtime, const ModelGraph& graph, const std::string& wanted,
                                const DeviceStreamPtr& stream, const ProcessGroup& group) {
  DensePrecision mine = choose_precision(runtime, graph, wanted, stream);
  if (wanted != kAutoPrecision || group.world_size() == 1) return mine;
  const std::vector<std::string> all = group.all_gather_text(mine.why, "dense precision");
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty()) return {kFloat32Precision, str_cat("rank ", rank, ": ", all[rank])};
  }
  return mine;
}

// The graph with what is drawn.
ModelGraph with_drawn(const ModelTrainerOptions& options) {
  std::vector<std::string> sequences;  // features, in the order of ModelGraph::sequences
  for (const EmbeddingBagConfig& t : split_by_pooling(options.tables).sequences)
    sequences.insert(sequences.end(), t.feature_names.begin(), t.feature_names.end());
  ModelGraph graph = options.graph;
  for (const DrawnFeature& d : options.drawn) {
    const auto at = std::find(sequences.begin(), sequences.end(), d.name) - sequences.begin();
    using When = DrawnFeature::When;
    uint32_t flags = d.when == When::kTraining     ? TSR_VALUE_ONLY_IN_TRAINING
                     : d.when == When::kEvaluation ? TSR_VALUE_ONLY_IN_EVALUATION
                                                   : 0;
    if (d.split && d.when != When::kEvaluation) flags |= TSR_VALUE_SPLIT;
    if (d.split && d.when != When::kTraining) flags |= TSR_VALUE_SPLIT_IN_EVALUATION;
    const int64_t how = d.draw == DrawnFeature::Draw::kAll ? DrawnInput::kAll
                        : d.per_sample                     ? DrawnInput::kPerSample
                                                           : DrawnInput::kPerBatch;
    graph.drawn.push_back({d.name, d.first, at, flags, how});
  }
  return graph;
}

constexpr const char* kApart = "; training has diverged: try a lower learning rate";

}  // namespace

ModelTrainer::ModelTrainer(const Runtime& runtime, std::shared_ptr<ProcessGroup> group, ModelTrainerOptions options)
    : graph_(with_drawn(options)),
      tables_stream_(options.parallel.sharded.stream),
      in_host_memory_(what_keeps_it_on_the_host(tables_stream_, runtime, graph_)),
      stream_(in_host_memory_.empty() ? tables_stream_ : nullptr),
      precision_(common_precision(runtime, graph_, options.dense_precision, stream_, *group)),
      layers_(runtime, graph_, {.seed = options.seed, .stream = stream_, .precision = precision_.type}),
      ids_(std::make_unique<IdInputs>(graph_.ids)) {
  losses_of_heads_ =
      std::make_unique<HeadLosses>(runtime, graph_, layers_, HeadLossesOptions{std::move(options.labels), stream_});
  step_.rank = group->rank();
  step_.world_size = group->world_size();
  if (layers_.sums_over_ranks() && group->world_size() > 1) {
    // Use a separate group, because rows' gradients travel in the other one while layers run backward.
    step_.sum_over_ranks = [sums = std::shared_ptr<ProcessGroup>(group->split(0))](const Tensor& inout) {
      sums->all_reduce(inout, ReduceOp::kSum, "statistics of layers").wait();
    };
  }
  if (stream_) {
    inputs_ = std::make_unique<DeviceBatch>(stream_);
    device_losses_ = stream_->empty({kLossesOnDevice}, DType::kFloat64);
  }
  if (!options.drawn.empty())
    drawn_ = std::make_unique<DrawnIds>(std::move(options.drawn), options.seed, group->rank(), group->world_size());
  ModelTables tables = split_by_pooling(options.tables);
  const EmbeddingBagCollection pooled(runtime, described(std::move(tables.pooled), options.is_weighted));
  std::optional<EmbeddingCollection> sequences;
  if (!tables.sequences.empty()) sequences.emplace(runtime, described(std::move(tables.sequences), false));
  // The loss is a sum of the ranks' shares of one mean, so gradients are added up, not averaged.
  options.parallel.sharded.gradient_scale = 1.0;
  options.parallel.sharded.data_parallel_gradient_scale = 1.0;
  options.parallel.sum_dense_gradients = true;
  ParallelModel model{.bag_collections = {{kCollectionPath, &pooled}}};
  if (sequences) model.collections = {{kSequencePath, &*sequences}};
  model.dense = layers_.parameters();
  model.buffers = layers_.buffers();
  parallel_ = std::make_unique<DistributedModelParallel>(runtime, model, std::move(group), std::move(options.parallel));
  if (sequences) {
    sequences_ = &parallel_->collection(kSequencePath);
    row_inputs_ = std::make_unique<SequenceInputs>();
  }
  ParameterList trained = in_backward_optimizer_filter(parallel_->parameters());
  optimizer_ = optimizer_of(graph_, layers_, std::move(trained), options.dense_optimizer);
  if (const double norm = options.dense_max_gradient_norm; norm > 0)
    optimizer_ = std::make_shared<GradientClippingOptimizer>(
        std::move(optimizer_), GradientClippingOptimizer::Options{GradientClipping::kNorm, norm});
  if (stream_ && (options.accumulate > 1 || options.dense_ema > 0))
    fail(Code::kUnimplemented, options.accumulate > 1 ? "job.accumulate" : "job.ema",
         " needs the dense layers in host memory, but they are on a device: set job.device = \"cpu\", or leave it out");
  if (options.accumulate > 1) sums_ = std::make_unique<GradientSums>(layers_.parameters(), options.accumulate);
  if (options.dense_ema > 0)
    optimizer_ = averages_ = std::make_shared<AveragingOptimizer>(std::move(optimizer_), options.dense_ema);
  for (const ParamGroup& group : optimizer_->param_groups()) dense_rates_.push_back(group.number("lr"));
  for (const ParameterPtr& p : layers_.parameters()) {
    if (!stream_ && p->value.dim() == 1) biases_.push_back(p);
  }
}

ModelTrainer::~ModelTrainer() = default;

void ModelTrainer::scale_dense_learning_rates(double factor) {
  for (size_t g = 0; g < dense_rates_.size(); ++g) optimizer_->set_option(g, "lr", dense_rates_[g] * factor);
}

bool ModelTrainer::step(const Batch& batch, TakenBatch taken, bool finished) {
  if (averages_) averages_->show(false);
  step_.step = embeddings().step();
  const auto [pooled, sequences] = look_up(batch, std::move(taken), finished, true);
  const Tensor& values = pooled.values.values();
  const Tensor grad_pooled = stream_ ? train_dense_on_device(batch, values) : train_dense(batch, values, sequences);
  send_gradients(pooled, grad_pooled, batch.labels.numel() > 0 || step_.sum_over_ranks);
  // The exchanges of dense gradients in host memory began before those of rows, so they end first.
  const bool reduced = !sums_ && !stream_;
  if (reduced) reduce_dense();
  update_tables(pooled);
  if (sums_ && !(sums_->add(batch.global_size, step_.step + 1) && sums_->take())) return pooled.any_finished;
  if (!reduced) reduce_dense();
  update_dense();
  return pooled.any_finished;
}

void ModelTrainer::reduce_dense() {
  Stopwatch watch(trace_);
  parallel_->all_reduce_gradients();
  watch.lap(dense_reduce_, "dense all-reduce");
}

void ModelTrainer::update_dense() {
  Stopwatch watch(trace_);
  check_gradients();
  optimizer_->step();
  optimizer_->zero_grad();
  watch.lap(dense_update_, "dense update");
}

void ModelTrainer::settle() {
  if (sums_ && sums_->take()) {
    reduce_dense();
    update_dense();
  }
  if (averages_) averages_->show(true);
}

ModelTrainer::Rows ModelTrainer::look_up(const Batch& batch, TakenBatch taken, bool finished, bool train) {
  static const std::vector<DenseInput> none;
  sparse_ = drawn_ ? &drawn_->add_to(batch, train, embeddings().step()) : &batch.sparse;
  if (!sequences_) {
    auto pooled = taken ? embeddings().start_forward(std::move(taken.pooled), train)
                        : embeddings().start_forward(batch.sparse, finished, train);
    return {pooled.wait(), none};
  }
  if (!taken) taken = take_together(embeddings(), batch.sparse, *sequences_, *sparse_, finished, train);
  auto pooled = embeddings().start_forward(std::move(taken.pooled), train);
  auto rows = taken.sequences ? sequences_->start_forward(std::move(taken.sequences), train)
                              : sequences_->start_forward(*sparse_, finished, train);
  auto& of_pooled = pooled.wait();
  rows_ = rows.wait();
  return {of_pooled, row_inputs_->take(rows_.values)};
}

void ModelTrainer::send_gradients(const ShardedEmbeddingBagCollection::Output& pooled, const Tensor& grad_pooled,
                                  bool trained) {
  embeddings().start_backward(pooled, grad_pooled);
  if (!sequences_) return;
  std::vector<std::pair<std::string, Tensor>> grads;
  for (size_t i = 0; trained && i < rows_.values.size(); ++i) {
    const Tensor& grad = layers_.sequence_gradients()[i];
    if (grad.defined()) grads.emplace_back(rows_.values[i].first, grad);
  }
  sequences_->start_backward(rows_, grads);
}

void ModelTrainer::update_tables(const ShardedEmbeddingBagCollection::Output& pooled) {
  embeddings().finish_backward(pooled);
  if (!sequences_) return;
  sequences_->finish_backward(rows_);
  rows_ = {};
}

Tensor ModelTrainer::train_dense(const Batch& batch, const Tensor& pooled, const std::vector<DenseInput>& sequences) {
  const int64_t samples = batch.labels.numel();
  if (!samples && !step_.sum_over_ranks) {  // a rank without samples sends nothing and does no work
    losses_.push_back(0);
    if (!sums_) parallel_->gradients_finished();
    return Tensor::empty({0, pooled.size(1)});
  }
  Stopwatch watch(trace_);
  const std::vector<Tensor>& logits =
      layers_.forward(batch.dense, in_host_memory(pooled), true, sequences, ids_->take(*sparse_), step_);
  if (observer_) observer_(predicted(logits), batch);
  watch.lap(dense_forward_, "dense forward");
  const double scale = 1.0 / static_cast<double>(batch.global_size);
  double loss = 0;
  for (size_t h = 0; h < logits.size(); ++h) {
    const ParameterPtr& learnt = layers_.learnt_weight(h);
    const double s = learnt ? learnt->value.data<float>()[0] : 0;
    const double weight = learnt ? graph_.heads[h].weight * std::exp(-s) : graph_.heads[h].weight;
    const double of_head = weight * losses_of_heads_->train(h, logits[h], batch, weight * scale, step_);
    loss += of_head;
    if (!learnt) continue;
    loss += s / 2 * static_cast<double>(samples);
    learnt->grad = learnt->grad_buffer.defined() ? learnt->grad_buffer : Tensor::empty({1});
    learnt->grad.data<float>()[0] = static_cast<float>(scale * (static_cast<double>(samples) / 2 - of_head));
  }
  losses_.push_back(loss);
  if (!std::isfinite(loss)) refuse_loss(loss, batch, pooled);
  LayerGraph::FinishedGradients finished;
  if (!sums_) finished = [&](const ParameterList& of_layer) { parallel_->gradients_finished(of_layer); };
  Tensor grad_pooled = layers_.backward(losses_of_heads_->gradients(), finished);
  if (!sums_) parallel_->gradients_finished();  // with the heads' learnt weights
  watch.lap(dense_backward_, "dense backward");
  return grad_pooled;
}

// Checks in the order of a step's work, so that the error names a cause and not a consequence.
void ModelTrainer::refuse_loss(double loss, const Batch& batch, const Tensor& pooled) {
  std::string cause = "the dense forward overflows";
  const int64_t at = broken(pooled);
  const ParameterList& parameters = layers_.parameters();
  const auto parameter =
      std::find_if(parameters.begin(), parameters.end(), [&](const ParameterPtr& p) { return broken(p->value) >= 0; });
  if (broken(batch.dense) >= 0) {
    cause = "the data's dense inputs are not finite";
  } else if (batch.sample_weights.defined() && broken(batch.sample_weights) >= 0) {
    cause = "the data's weights of samples are not finite";
  } else if (at >= 0) {
    cause = str_cat("the lookup of \"", feature_at(at % pooled.size(1)), "\" gives rows that are not finite");
  } else if (const std::string name = broken_sequence(); !name.empty()) {
    cause = str_cat("the lookup of \"", name, "\" gives rows that are not finite");
  } else if (parameter != parameters.end()) {
    cause = str_cat("the dense update has made parameter \"", (*parameter)->name, "\" not finite");
  }
  fail(Code::kFailedPrecondition, "rank ", group().rank(), ": the loss of step ", embeddings().step() + 1, " is ",
       std::abs(loss), ": ", cause, kApart);
}

std::string ModelTrainer::broken_sequence() const {
  for (const auto& [name, rows] : rows_.values) {
    if (broken(rows.values()) >= 0) return name;
  }
  return "";
}

std::string ModelTrainer::feature_at(int64_t column) {
  size_t key = 0;
  for (const EmbeddingBagConfig& t : embeddings().tables()) {
    for (size_t feature = 0; feature < t.feature_names.size(); ++feature, ++key) {
      if (column < t.embedding_dim) return embeddings().output_keys()[key];
      column -= t.embedding_dim;
    }
  }
  return "a table";
}

// A bias's gradient is the sum of everything that passes its layer on the way back. So nearly any value that is not
// finite reaches some bias, and there are few biases. All ranks see the same sums.
void ModelTrainer::check_gradients() {
  for (const ParameterPtr& p : biases_) {
    if (!p->grad.defined() || first_not_finite(p->grad.span<float>()) < 0) continue;
    fail(Code::kFailedPrecondition, "the gradient of parameter \"", p->name, "\" in step ", embeddings().step(),
         " is not finite", kApart);
  }
}

Tensor ModelTrainer::train_dense_on_device(const Batch& batch, const Tensor& pooled) {
  const int64_t samples = batch.labels.numel();
  const Tensor loss = next_loss();
  if (!samples && !step_.sum_over_ranks) {
    stream_->fill(loss, 0);
    return stream_->empty({0, pooled.size(1)});
  }
  if (batch.sample_weights.defined())
    fail(Code::kUnimplemented,
         "weights of samples are not supported if the dense part is on a device: set "
         "job.device = \"cpu\"");
  Stopwatch watch(trace_);
  const DeviceBatch::Inputs inputs = inputs_->take(batch, losses_of_heads_->label(0));
  const Tensor logits = layers_.forward(inputs.dense, pooled, true, {}, {}, step_)[0];
  if (observer_) observer_({in_host_memory(logits)}, batch);
  watch.lap(dense_forward_, "dense forward");
  const double weight = graph_.heads[0].weight;
  binary_cross_entropy_with_logits(logits, inputs.labels, losses_of_heads_->reserve(0, samples),
                                   weight / static_cast<double>(batch.global_size), loss);
  Tensor grad_pooled = layers_.backward(losses_of_heads_->gradients());
  watch.lap(dense_backward_, "dense backward");
  return grad_pooled;
}

Tensor ModelTrainer::next_loss() {
  if (on_device_ == kLossesOnDevice) losses_ = take_losses();
  return device_losses_.narrow(on_device_++, 1);
}

std::vector<double> ModelTrainer::take_losses() {
  std::vector<double> out = std::exchange(losses_, {});
  if (on_device_ == 0) return out;
  const Tensor host = in_host_memory(device_losses_.narrow(0, std::exchange(on_device_, 0)));
  for (const double loss : host.span<double>()) out.push_back(graph_.heads[0].weight * loss);
  return out;
}

std::vector<Prediction> ModelTrainer::predictions() const { return losses_of_heads_->predictions(); }

std::vector<Tensor> ModelTrainer::predicted(const std::vector<Tensor>& of_heads) const {
  std::vector<Tensor> out;
  for (size_t h = 0; h < of_heads.size(); ++h) {
    if (losses_of_heads_->predicts(h)) out.push_back(of_heads[h]);
  }
  return out;
}

std::vector<Tensor> ModelTrainer::predict(const Batch& batch) {
  settle();
  const auto [pooled, sequences] = look_up(batch, {}, false, false);
  if (!batch.labels.numel() && (stream_ || !step_.sum_over_ranks))
    return std::vector<Tensor>(predictions().size(), Tensor::empty({0, 1}));
  const Tensor& values = pooled.values.values();
  if (!stream_) {
    const std::vector<DenseInput>& ids = ids_->take(*sparse_);
    return predicted(layers_.forward(batch.dense, in_host_memory(values), false, sequences, ids, step_));
  }
  return {in_host_memory(layers_.forward(inputs_->take(batch).dense, values, false, {}, {}, step_)[0])};
}

std::vector<ShardedEmbeddings*> ModelTrainer::tables() {
  std::vector<ShardedEmbeddings*> out;
  for (const auto& [path, tables] : parallel_->sharded()) out.push_back(tables);
  return out;
}

ExchangeBytes<int64_t> ModelTrainer::bytes_sent() {
  ExchangeBytes<int64_t> sum;
  for (const ShardedEmbeddings* tables : tables()) sum += tables->bytes_sent();
  return sum;
}

Stages ModelTrainer::stages() {
  StageTimes t;
  for (const ShardedEmbeddings* tables : tables()) t += tables->stage_times();
  return {{kRouteStage, t.route},
          {kExchangeIdsStage, t.exchange_ids},
          {"lookup", t.lookup},
          {"exchange rows", t.exchange_rows},
          {"combine", t.combine},
          {"dense forward", dense_forward_},
          {"dense backward", dense_backward_},
          {"split", t.split},
          {"exchange gradients", t.exchange_gradients},
          {"table update", t.update},
          {"data parallel", t.data_parallel},
          {"dense all-reduce", dense_reduce_},
          {"dense update", dense_update_}};
}

void ModelTrainer::synchronize() {
  if (tables_stream_) tables_stream_->synchronize();
}

void ModelTrainer::set_trace(Trace* trace) {
  trace_ = trace;
  for (ShardedEmbeddings* tables : tables()) tables->set_trace(trace);
}

void ModelTrainer::reset_stages() {
  for (ShardedEmbeddings* tables : tables()) tables->reset_stage_times();
  dense_forward_ = dense_backward_ = dense_reduce_ = dense_update_ = 0;
}

}  // namespace tessera

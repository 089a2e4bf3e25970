#include "tessera/dlrm_trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "distributed/stopwatch.h"
#include "sparse/finite.h"
#include "train/device_batch.h"

namespace tessera {
namespace {

DlrmOptions with_embeddings(DlrmOptions options, const std::vector<EmbeddingBagConfig>& tables) {
  options.num_embeddings = 0;
  for (const EmbeddingBagConfig& t : tables) {
    if (t.embedding_dim != options.embedding_dim) {
      fail(Code::kInvalidArgument, "table ", t.name, " has dimension ", t.embedding_dim, ", but a dlrm needs ",
           options.embedding_dim, " for all (model.embedding_dim)");
    }
    options.num_embeddings += static_cast<int64_t>(std::max<size_t>(1, t.feature_names.size()));
  }
  return options;
}

DlrmOptions placed(DlrmOptions options, const DeviceStreamPtr& stream, std::shared_ptr<const DenseStep> step) {
  options.stream = stream;
  options.step = std::move(step);
  return options;
}

// Losses that stay on the device; then they are read, for a wait in so many steps.
constexpr int64_t kLossesOnDevice = 1024;

constexpr const char* kApart = "; training has come apart, a lower learning rate may keep it together";

}  // namespace

DlrmTrainer::DlrmTrainer(const Runtime& runtime, std::shared_ptr<ProcessGroup> group, DlrmTrainerOptions options)
    : tables_stream_(options.parallel.sharded.stream),
      stream_(Dlrm::trains_on(tables_stream_, runtime, options.dlrm) ? tables_stream_ : nullptr),
      dense_step_(std::make_shared<DenseStep>()),
      dlrm_(runtime, placed(with_embeddings(options.dlrm, options.tables), stream_, dense_step_)) {
  dense_step_->rank = group->rank();
  if (dlrm_.sums_over_ranks() && group->world_size() > 1) {
    // In a group of its own: rows' gradients are on their way in the other while layers go backward.
    dense_step_->sum_over_ranks = [sums = std::shared_ptr<ProcessGroup>(group->split(0))](const Tensor& inout) {
      sums->all_reduce(inout, ReduceOp::kSum, "statistics of layers").wait();
    };
  }
  if (stream_) {
    inputs_ = std::make_unique<DeviceBatch>(stream_);
    device_losses_ = stream_->empty({kLossesOnDevice}, DType::kFloat64);
  }
  CollectionOptions describe;
  describe.tables = options.tables;
  describe.device = kMeta;
  const EmbeddingBagCollection collection(runtime, std::move(describe));
  // The loss is a sum over ranks of shares of one mean: gradients are added up, not averaged.
  options.parallel.sharded.gradient_scale = 1.0;
  options.parallel.sharded.data_parallel_gradient_scale = 1.0;
  options.parallel.sum_dense_gradients = true;
  ParallelModel model;
  model.bag_collections = {{Dlrm::kCollectionPath, &collection}};
  model.dense = dlrm_.parameters();
  model.buffers = dlrm_.buffers();
  parallel_ = std::make_unique<DistributedModelParallel>(runtime, model, std::move(group), std::move(options.parallel));
  optimizer_ = make_dense_optimizer(options.dense_optimizer, in_backward_optimizer_filter(parallel_->parameters()));
  for (const ParameterPtr& p : dlrm_.parameters()) {
    if (!stream_ && p->value.dim() == 1) biases_.push_back(p);
  }
}

DlrmTrainer::~DlrmTrainer() = default;

bool DlrmTrainer::step(const Batch& batch, StepHandle taken, bool finished) {
  dense_step_->step = embeddings().step();
  auto pooled = (taken ? embeddings().forward(std::move(taken)) : embeddings().forward(batch.sparse, finished)).wait();
  const Tensor& values = pooled.values.values();
  const Tensor grad_pooled = stream_ ? train_dense_on_device(batch, values) : train_dense(batch, values);
  embeddings().backward(pooled, grad_pooled);
  Stopwatch watch(trace_);
  parallel_->all_reduce_gradients();
  check_gradients();
  watch.lap(dense_reduce_, "dense all-reduce");
  optimizer_->step();
  optimizer_->zero_grad();
  watch.lap(dense_update_, "dense update");
  return pooled.any_finished;
}

Tensor DlrmTrainer::train_dense(const Batch& batch, const Tensor& pooled) {
  const int64_t samples = batch.labels.numel();
  if (!samples && !dense_step_->sum_over_ranks) {  // a rank without samples takes part with nothing
    losses_.push_back(0);
    return Tensor::empty({0, pooled.size(1)});
  }
  Stopwatch watch(trace_);
  const Tensor logits = dlrm_.forward(batch.dense, in_host_memory(pooled), true);
  watch.lap(dense_forward_, "dense forward");
  if (!grad_logits_.defined() || grad_logits_.numel() < samples) grad_logits_ = Tensor::empty({samples, 1});
  const Tensor grad = grad_logits_.first({samples, 1});
  const double scale = 1.0 / static_cast<double>(batch.global_size);
  losses_.push_back(binary_cross_entropy_with_logits(logits, batch.labels, grad, scale));
  if (!std::isfinite(losses_.back())) refuse_loss(losses_.back(), batch, pooled);
  const Tensor grad_pooled = dlrm_.backward_top(grad);
  dlrm_.backward_bottom();
  watch.lap(dense_backward_, "dense backward");
  return grad_pooled;
}

// In the order in which a step comes upon them, so that what is named is a cause and no consequence.
void DlrmTrainer::refuse_loss(double loss, const Batch& batch, const Tensor& pooled) {
  const auto broken = [](const Tensor& t) {
    const Tensor host = in_host_memory(t);
    return host.numel() ? first_not_finite({host.data<float>(), static_cast<size_t>(host.numel())}) : -1;
  };
  std::string cause = "the dense forward overflows";
  const int64_t at = broken(pooled);
  const auto parameters = dlrm_.parameters();
  const auto parameter =
      std::find_if(parameters.begin(), parameters.end(), [&](const ParameterPtr& p) { return broken(p->value) >= 0; });
  if (broken(batch.dense) >= 0) {
    cause = "the data's dense inputs are not finite";
  } else if (at >= 0) {
    // Columns of the output belong to features in the order of their keys, which are all of one dimension.
    const int64_t slot = at % pooled.size(1) / (pooled.size(1) / std::ssize(embeddings().output_keys()));
    cause = cat("the lookup of \"", embeddings().output_keys()[slot], "\" gives rows that are not finite");
  } else if (parameter != parameters.end()) {
    cause = cat("the dense update has made parameter \"", (*parameter)->name, "\" not finite");
  }
  fail(Code::kFailedPrecondition, "rank ", group().rank(), ": the loss of step ", embeddings().step() + 1, " is ",
       std::abs(loss), ": ", cause, kApart);
}

// A bias's gradient is the sum of what passes its layer on the way back, so hardly anything that is not finite gets
// past all of them; and they are few. All ranks see the same sums.
void DlrmTrainer::check_gradients() {
  for (const ParameterPtr& p : biases_) {
    if (!p->grad.defined() || first_not_finite(p->grad.span<float>()) < 0) continue;
    fail(Code::kFailedPrecondition, "the gradient of parameter \"", p->name, "\" in step ", embeddings().step(),
         " is not finite", kApart);
  }
}

Tensor DlrmTrainer::train_dense_on_device(const Batch& batch, const Tensor& pooled) {
  const int64_t samples = batch.labels.numel();
  const Tensor loss = next_loss();
  if (!samples && !dense_step_->sum_over_ranks) {
    stream_->fill(loss, 0);
    return stream_->empty({0, pooled.size(1)});
  }
  Stopwatch watch(trace_);
  const DeviceBatch::Inputs inputs = inputs_->take(batch);
  const Tensor logits = dlrm_.forward(inputs.dense, pooled, true);
  watch.lap(dense_forward_, "dense forward");
  if (!grad_logits_.defined() || grad_logits_.numel() < samples) grad_logits_ = stream_->empty({samples, 1});
  const Tensor grad = grad_logits_.first({samples, 1});
  binary_cross_entropy_with_logits(logits, inputs.labels, grad, 1.0 / static_cast<double>(batch.global_size), loss);
  const Tensor grad_pooled = dlrm_.backward_top(grad);
  dlrm_.backward_bottom();
  watch.lap(dense_backward_, "dense backward");
  return grad_pooled;
}

Tensor DlrmTrainer::next_loss() {
  if (on_device_ == kLossesOnDevice) losses_ = take_losses();
  return device_losses_.narrow(on_device_++, 1);
}

std::vector<double> DlrmTrainer::take_losses() {
  std::vector<double> out = std::exchange(losses_, {});
  if (on_device_ == 0) return out;
  const Tensor host = in_host_memory(device_losses_.narrow(0, std::exchange(on_device_, 0)));
  out.insert(out.end(), host.span<double>().begin(), host.span<double>().end());
  return out;
}

Tensor DlrmTrainer::predict(const Batch& batch) {
  const auto pooled = embeddings().forward(batch.sparse, false, false).wait();
  if (!batch.labels.numel()) return Tensor::empty({0, 1});
  const Tensor& values = pooled.values.values();
  if (!stream_) return dlrm_.forward(batch.dense, in_host_memory(values), false);
  return in_host_memory(dlrm_.forward(inputs_->take(batch).dense, values, false));
}

Stages DlrmTrainer::stages() {
  const StageTimes& t = embeddings().stage_times();
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

void DlrmTrainer::synchronize() {
  if (tables_stream_) tables_stream_->synchronize();
}

void DlrmTrainer::set_trace(Trace* trace) {
  trace_ = trace;
  embeddings().set_trace(trace);
}

void DlrmTrainer::reset_stages() {
  embeddings().reset_stage_times();
  dense_forward_ = dense_backward_ = dense_reduce_ = dense_update_ = 0;
}

}  // namespace tessera

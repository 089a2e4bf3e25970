#include "train/dlrm_trainer.h"

#include <chrono>

namespace tessera::cli {
namespace {

class Lap {
 public:
  explicit Lap(Trace* trace) : trace_(trace) {}
  void to(double& stage, const char* name, int64_t bytes = 0) {
    const auto now = Trace::Clock::now();
    stage += std::chrono::duration<double>(now - last_).count();
    if (trace_) trace_->add(name, last_, now, bytes);
    last_ = now;
  }
  void skip() { last_ = Trace::Clock::now(); }

 private:
  Trace* trace_;
  Trace::Clock::time_point last_ = Trace::Clock::now();
};

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

}  // namespace

DlrmTrainer::DlrmTrainer(const Runtime& runtime, std::shared_ptr<ProcessGroup> group, DlrmTrainerOptions options)
    : dlrm_(runtime, with_embeddings(options.dlrm, options.tables)) {
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
  parallel_ = std::make_unique<DistributedModelParallel>(runtime, model, std::move(group), std::move(options.parallel));
  optimizer_ = make_dense_optimizer(options.dense_optimizer, in_backward_optimizer_filter(parallel_->parameters()));
}

double DlrmTrainer::step(const Batch& batch, StepHandle taken) {
  const int64_t samples = batch.labels.numel();
  auto pooled = (taken ? embeddings().forward(std::move(taken)) : embeddings().forward(batch.sparse)).wait();
  Lap lap(trace_);
  double loss = 0;
  Tensor grad_pooled = Tensor::empty({0, pooled.values.values().size(1)});
  if (samples) {  // a rank without samples takes part with nothing
    const Tensor logits = dlrm_.forward(batch.dense, in_host_memory(pooled.values.values()), true);
    lap.to(dense_forward_, "dense forward");
    if (!grad_logits_.defined() || grad_logits_.numel() < samples) grad_logits_ = Tensor::empty({samples, 1});
    const Tensor grad = grad_logits_.first({samples, 1});
    loss = binary_cross_entropy_with_logits(logits, batch.labels, grad, 1.0 / static_cast<double>(batch.global_size));
    grad_pooled = dlrm_.backward_top(grad);
    dlrm_.backward_bottom();
    lap.to(dense_backward_, "dense backward");
  }
  embeddings().backward(pooled, grad_pooled);
  lap.skip();
  parallel_->all_reduce_gradients();
  lap.to(dense_reduce_, "dense all-reduce");
  optimizer_->step();
  optimizer_->zero_grad();
  lap.to(dense_update_, "dense update");
  return loss;
}

Tensor DlrmTrainer::predict(const Batch& batch) {
  const auto pooled = embeddings().forward(batch.sparse, false, false).wait();
  if (!batch.labels.numel()) return Tensor::empty({0, 1});
  return dlrm_.forward(batch.dense, in_host_memory(pooled.values.values()), false);
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

void DlrmTrainer::set_trace(Trace* trace) {
  trace_ = trace;
  embeddings().set_trace(trace);
}

void DlrmTrainer::reset_stages() {
  embeddings().reset_stage_times();
  dense_forward_ = dense_backward_ = dense_reduce_ = dense_update_ = 0;
}

}  // namespace tessera::cli

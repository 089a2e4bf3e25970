#include "tessera/train_loop.h"

#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "distributed/stopwatch.h"

namespace tessera {

std::vector<Tensor> Trainer::predict(const Batch&) { fail(Code::kUnimplemented, "this trainer does not predict"); }

void Trainer::observe(const Observer&) { fail(Code::kUnimplemented, "this trainer does not tell its predictions"); }

TrainLoop::TrainLoop(Trainer& trainer, ReadBatch read, TrainLoopOptions options)
    : trainer_(trainer), read_(std::move(read)), options_(std::move(options)) {}

void TrainLoop::run() {
  TESSERA_CHECK(read_, "a loop runs once");
  TrainPipeline inputs(
      std::exchange(read_, nullptr), trainer_.embeddings(),
      {options_.first_step, options_.steps, options_.ahead, options_.stop, trainer_.sequences_ahead()});
  trainer_.set_trace(options_.step_trace);
  inputs.set_trace(options_.input_trace);
  Stopwatch watch;
  try {
    train(inputs);
  } catch (const std::exception& e) {
    inputs.abort(e.what());
    throw;
  }
  trainer_.synchronize();
  watch.lap(seconds_, "run");
  trainer_.set_trace(nullptr);
  read_s_ = inputs.read_s();
  waited_s_ = inputs.waited_s();
}

void TrainLoop::train(TrainPipeline& inputs) {
  for (int64_t step = options_.first_step; step < options_.steps && !stopped_; ++step) {
    if (options_.step_trace) options_.step_trace->set_step(step);
    TrainInput& input = inputs.next();
    if (input.batch.global_size == 0) return;
    stopped_ = trainer_.step(input.batch, std::move(input.taken), options_.stop && options_.stop());
    batch_sizes_.push_back(input.batch.global_size);
    ++steps_done_;
    samples_ += input.batch.global_size;
    if (options_.after_step)
      options_.after_step(*this, {step + 1, input.batch, stopped_ || step + 1 == options_.steps});
  }
}

double TrainLoop::mean_loss() {
  check_losses();
  const std::span<const double> news = std::span(losses_).subspan(told_);
  told_ = losses_.size();
  const double mean =
      news.empty() ? 0 : std::accumulate(news.begin(), news.end(), 0.0) / static_cast<double>(news.size());
  if (losses_.size() >= 2 * options_.keep_losses) {
    const size_t gone = losses_.size() - options_.keep_losses;
    losses_.erase(losses_.begin(), losses_.begin() + static_cast<std::ptrdiff_t>(gone));
    told_ -= gone;
  }
  return mean;
}

void TrainLoop::check_losses() {
  std::vector<double> sums = trainer_.take_losses();
  if (sums.empty()) return;
  for (double& sum : sums) {
    sum /= static_cast<double>(batch_sizes_.front());
    batch_sizes_.pop_front();
  }
  const Tensor part = Tensor::from(sums);
  if (trainer_.group().world_size() > 1) trainer_.group().all_reduce(part, ReduceOp::kSum, "losses").wait();
  for (double loss : part.span<double>()) {
    losses_.push_back(loss);
    ++looked_at_;
    if (!std::isfinite(loss)) {
      fail(Code::kFailedPrecondition, "the loss of step ", options_.first_step + looked_at_, " is ", loss,
           ": training has diverged; try a lower learning rate");
    }
  }
}

MetricValues evaluate(Trainer& trainer, BatchReader reader, HeadMetrics metrics,
                      const std::function<void(const Batch&)>& seen) {
  for (Batch batch; reader.next(batch);) {
    if (seen) seen(batch);
    const std::vector<Tensor> scores = trainer.predict(batch);
    if (batch.labels.numel()) metrics.add(scores, batch);
  }
  return metrics.values(trainer.group());
}

MetricValues evaluate(Trainer& trainer, BatchReader reader) {
  return evaluate(trainer, std::move(reader), HeadMetrics(trainer.predictions()));
}

}  // namespace tessera

#include "train/head_losses.h"

#include <algorithm>

#include "tessera/model_trainer.h"

namespace tessera {
namespace {

std::unique_ptr<DenseLayer> make_loss(const Runtime& runtime, const HeadSpec& head, int64_t width,
                                      std::shared_ptr<const DenseStep> step) {
  if (head.loss == kOwnLoss) {
    if (width == 1) return nullptr;
    fail(Code::kInvalidArgument, "the head \"", head.name, "\" takes \"", head.input, "\", which has ", width,
         " values per sample, but its loss ", kOwnLoss, " takes 1, the logit");
  }
  try {
    auto loss = std::make_unique<DenseLayer>(
        runtime,
        DenseLayerOptions{.module = head.loss, .name = head.name, .step = std::move(step), .inputs = {width, 1}});
    if (loss->output_widths(std::vector<int64_t>{width, 1}) != std::vector<int64_t>{1} || !loss->parameters().empty())
      fail(Code::kInvalidArgument, "\"", head.loss,
           "\" is no loss: those have no parameters and give one value a sample");
    return loss;
  } catch (const Error& e) {
    throw Error(e.code(), cat("the loss of head \"", head.name, "\" and a label: ", e.what()));
  }
}

}  // namespace

HeadLosses::HeadLosses(const Runtime& runtime, const ModelGraph& graph, const LayerGraph& layers,
                       std::shared_ptr<const DenseStep> step, DeviceStreamPtr stream)
    : stream_(std::move(stream)), memory_(graph.heads.size()), grads_(graph.heads.size()) {
  for (size_t h = 0; h < graph.heads.size(); ++h)
    losses_.push_back(make_loss(runtime, graph.heads[h], layers.head_width(h), step));
  if (losses_.front())
    fail(Code::kInvalidArgument, "the first head \"", graph.heads[0].name, "\" has the loss \"", graph.heads[0].loss,
         "\", but what a model predicts is the logit of its first head: put one of ", kOwnLoss, " first");
}

const Tensor& HeadLosses::reserve(size_t head, int64_t samples) {
  Tensor& memory = memory_[head];
  if (!memory.defined() || memory.numel() < samples)
    memory = stream_ ? stream_->empty({samples, 1}) : Tensor::empty({samples, 1});
  return grads_[head] = memory.first({samples, 1});
}

double HeadLosses::train(size_t head, const Tensor& input, const Tensor& labels, const Tensor& weights, double scale) {
  const int64_t samples = labels.numel();
  const Tensor& grad = reserve(head, samples);
  if (losses_[head] == nullptr) return binary_cross_entropy_with_logits(input, {labels, weights}, grad, scale);
  DenseLayer& loss = *losses_[head];
  const Tensor each = loss.forward({input, labels.reshape({samples, 1})}, true);
  double sum = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const double weight = weights.defined() ? weights.data<float>()[i] : 1.0;
    sum += weight * each.data<float>()[i];
    grad.data<float>()[i] = static_cast<float>(weight * scale);
  }
  grads_[head] = loss.backward(grad, {true, false})[0];
  return sum;
}

}  // namespace tessera

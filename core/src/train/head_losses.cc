#include "train/head_losses.h"

#include <algorithm>

#include "tessera/trainer.h"

namespace tessera {
namespace {

[[noreturn]] void refuse_groups(const HeadSpec& head) {
  fail(Code::kInvalidArgument, "the head \"", head.name, "\" has groups = \"", head.groups, "\", but its loss ",
       head.loss, " takes no ids of groups: leave them out, or use a loss of pairs");
}

// Fails if the head has groups but the loss takes no ids after the label.
void check_groups(const HeadSpec& head, const DenseLayer& loss, int64_t width) {
  if (head.groups.empty()) return;
  try {
    constexpr DLDataType kFloats = {kDLFloat, 32, 1}, kIds = {kDLInt, 64, 1};
    (void)loss.outputs_for(std::vector<tsr_value>{{sizeof(tsr_value), 0, kFloats, 0, width},
                                                  {sizeof(tsr_value), 0, kFloats, 0, 1},
                                                  {sizeof(tsr_value), 0, kIds, 0, 1}});
  } catch (const Error&) {
    refuse_groups(head);
  }
}

std::unique_ptr<DenseLayer> make_loss(const Runtime& runtime, const HeadSpec& head, int64_t width) {
  if (head.label_smoothing != 0 && head.loss != kOwnLoss)
    fail(Code::kInvalidArgument, "the head \"", head.name, "\" has label_smoothing, which is of the loss ", kOwnLoss,
         ", not of ", head.loss);
  if (head.loss == kOwnLoss) {
    if (!head.groups.empty()) refuse_groups(head);
    if (width == 1) return nullptr;
    fail(Code::kInvalidArgument, "the head \"", head.name, "\" takes \"", head.input, "\", which has ", width,
         " values per sample, but its loss ", kOwnLoss, " takes 1, the logit");
  }
  std::unique_ptr<DenseLayer> loss;
  try {
    loss = std::make_unique<DenseLayer>(
        runtime, DenseLayerOptions{.module = head.loss, .name = head.name, .inputs = {width, 1}});
    if (loss->output_widths(std::vector<int64_t>{width, 1}) != std::vector<int64_t>{1} || !loss->parameters().empty())
      fail(Code::kInvalidArgument, "\"", head.loss,
           "\" is not a loss: a loss has no parameters and gives one value for each sample");
  } catch (const Error& e) {
    throw Error(e.code(), str_cat("the loss of head \"", head.name, "\" and a label: ", e.what()));
  }
  check_groups(head, *loss, width);
  return loss;
}

[[noreturn]] void no_label(const HeadSpec& head, const std::string& wants, const std::vector<std::string>& labels) {
  std::string known;
  for (const std::string& label : labels) known += str_cat(known.empty() ? "\"" : ", \"", label, '"');
  fail(Code::kInvalidArgument, "the head \"", head.name, "\" ", wants, ", but the data's ",
       labels.size() == 1 ? "one label is called " : "labels are called ", known);
}

size_t find_label(const HeadSpec& head, const std::vector<std::string>& labels) {
  const auto at = std::find(labels.begin(), labels.end(), head.label);
  if (at != labels.end()) return static_cast<size_t>(at - labels.begin());
  if (labels.empty() || (labels.size() == 1 && head.label == HeadSpec().label)) return 0;
  no_label(head, str_cat("wants the label \"", head.label, '"'), labels);
}

std::optional<size_t> find_where(const HeadSpec& head, const std::vector<std::string>& labels) {
  if (head.where.empty()) return std::nullopt;
  if (head.where == head.label)
    fail(Code::kInvalidArgument, "the head \"", head.name, "\" counts samples where its own label \"", head.label,
         "\" is 1, so it would learn nothing but ones");
  const auto at = std::find(labels.begin(), labels.end(), head.where);
  if (at == labels.end()) no_label(head, str_cat("counts samples where \"", head.where, "\" is 1"), labels);
  return static_cast<size_t>(at - labels.begin());
}

// Cross-entropy needs labels that are probabilities.
void check_probabilities(const HeadSpec& head, const Tensor& labels) {
  for (const float label : labels.span<float>()) {
    if (label >= 0 && label <= 1) continue;
    fail(Code::kInvalidArgument, "the head \"", head.name, "\" has the loss ", kOwnLoss,
         ", whose labels are from 0 to 1, and \"", head.label, "\" has ", label,
         ": give the label's column a threshold, or the head another loss, such as mse");
  }
}

// HeadSpec::label_smoothing; the result may be in `memory`.
Tensor smoothed(const HeadSpec& head, const Tensor& labels, Tensor& memory) {
  if (head.label_smoothing == 0) return labels;
  const auto s = static_cast<float>(head.label_smoothing);
  const int64_t samples = labels.numel();
  if (!memory.defined() || memory.numel() < samples) memory = Tensor::empty({samples});
  Tensor out = memory.first({samples});
  for (int64_t i = 0; i < samples; ++i) out.data<float>()[i] = (1 - s) * labels.data<float>()[i] + s / 2;
  return out;
}

}  // namespace

HeadLosses::HeadLosses(const Runtime& runtime, const ModelGraph& graph, const LayerGraph& layers,
                       HeadLossesOptions options)
    : options_(std::move(options)), heads_(graph.heads), memory_(heads_.size()), grads_(heads_.size()) {
  for (size_t h = 0; h < heads_.size(); ++h) {
    labels_.push_back(find_label(heads_[h], options_.labels));
    where_.push_back(find_where(heads_[h], options_.labels));
    widths_.push_back(layers.head_width(h));
    losses_.push_back(make_loss(runtime, heads_[h], widths_[h]));
    groups_.emplace_back(heads_[h].groups.empty() ? std::vector<IdFeature>()
                                                  : std::vector<IdFeature>{{heads_[h].groups}});
  }
}

std::vector<Prediction> HeadLosses::predictions() const {
  std::vector<Prediction> out;
  for (size_t h = 0; h < heads_.size(); ++h) {
    if (predicts(h)) out.push_back({heads_[h].name, labels_[h], losses_[h] == nullptr, where_[h]});
  }
  return out;
}

const Tensor& HeadLosses::reserve(size_t head, int64_t samples) {
  Tensor& memory = memory_[head];
  if (!memory.defined() || memory.numel() < samples)
    memory = options_.stream ? options_.stream->empty({samples, 1}) : Tensor::empty({samples, 1});
  return grads_[head] = memory.first({samples, 1});
}

Tensor HeadLosses::weights_of(size_t head, const Batch& batch, const Tensor& labels) {
  Tensor counted = counted_weights(batch, where_[head], counted_);
  const auto positive = static_cast<float>(heads_[head].positive_weight);
  if (positive == 1) return counted;
  const int64_t samples = labels.numel();
  if (!weights_.defined() || weights_.numel() < samples) weights_ = Tensor::empty({samples});
  Tensor out = weights_.first({samples});
  for (int64_t i = 0; i < samples; ++i) {
    const float weight = counted.defined() ? counted.data<float>()[i] : 1.0f;
    out.data<float>()[i] = labels.data<float>()[i] >= 0.5f ? weight * positive : weight;
  }
  return out;
}

double HeadLosses::train(size_t head, const Tensor& input, const Batch& batch, double scale, const StepInfo& step) {
  const Tensor labels = batch.label(labels_[head]), weights = weights_of(head, batch, labels);
  const int64_t samples = labels.numel();
  const Tensor& grad = reserve(head, samples);
  if (losses_[head] == nullptr) {
    check_probabilities(heads_[head], labels);
    return binary_cross_entropy_with_logits(input, {smoothed(heads_[head], labels, smoothed_), weights}, grad, scale);
  }
  DenseLayer& loss = *losses_[head];
  std::vector<Tensor> given = {input, labels.reshape({samples, 1})};
  for (const DenseInput& groups : groups_[head].take(batch.sparse)) given.push_back(groups.values);
  const Tensor each = loss.forward(given, true, step);
  double sum = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const double weight = weights.defined() ? weights.data<float>()[i] : 1.0;
    sum += weight * each.data<float>()[i];
    grad.data<float>()[i] = static_cast<float>(weight * scale);
  }
  grads_[head] = loss.backward(grad, {true, false})[0];
  return sum;
}

std::vector<std::string> loss_names(const Runtime& runtime) {
  std::vector<std::string> out = {kOwnLoss};
  for (const LayerChoice& layer : layer_choices(runtime, kDLCPU)) {
    try {
      (void)make_loss(runtime, {.name = layer.layer, .input = "", .loss = layer.layer}, 1);
      out.push_back(layer.layer);
    } catch (const Error&) {  // this layer is not a loss
    }
  }
  return out;
}

}  // namespace tessera

#include "train/head_losses.h"

#include <algorithm>
#include <cmath>

#include "tessera/trainer.h"

namespace tessera {
namespace {

[[noreturn]] void refuse_groups(const HeadSpec& head) {
  fail(Code::kInvalidArgument, "the head \"", head.name, "\" has groups = \"", head.groups, "\", but its loss ",
       head.loss, " takes no ids of groups: leave them out, or use a loss of pairs");
}

// A head's value, its label and perhaps its groups.
std::vector<tsr_value> inputs_of(int64_t width, bool groups) {
  constexpr DLDataType kFloats = {kDLFloat, 32, 1}, kIds = {kDLInt, 64, 1};
  std::vector<tsr_value> inputs = {{sizeof(tsr_value), 0, kFloats, 0, width}, {sizeof(tsr_value), 0, kFloats, 0, 1}};
  if (groups) inputs.push_back({sizeof(tsr_value), 0, kIds, 0, 1});
  return inputs;
}

// True if the loss takes these inputs and gives one value per sample. Fails if it does not take them.
bool gives_one_value(const DenseLayer& loss, int64_t width, bool groups) {
  const std::vector<tsr_value> outputs = loss.outputs_for(inputs_of(width, groups));
  return outputs.size() == 1 && outputs[0].width == 1 && (outputs[0].flags & TSR_MUST_UNDERSTAND) == 0;
}

// True if a smaller value is one of a larger label, as with a distance.
bool falls_with_label(const DenseLayer* loss, int64_t width, bool groups) {
  return loss && (loss->outputs_for(inputs_of(width, groups))[0].flags & TSR_VALUE_FALLS_WITH_LABEL) != 0;
}

// Fails if the loss does not take the head's input, its label and its groups.
void check_takes(const HeadSpec& head, const DenseLayer& loss, int64_t width) {
  bool takes = false;
  try {
    takes = gives_one_value(loss, width, !head.groups.empty());
  } catch (const Error&) {
    if (head.groups.empty()) throw;
    bool without = false;  // true: only the groups do not fit
    try {
      without = gives_one_value(loss, width, false);
    } catch (const Error&) {  // the first error says why
    }
    if (without) refuse_groups(head);
    throw;
  }
  if (!takes || !loss.parameters().empty())
    fail(Code::kInvalidArgument, "\"", head.loss,
         "\" is not a loss: a loss has no parameters and gives one value for each sample");
}

std::unique_ptr<DenseLayer> make_loss(const Runtime& runtime, const HeadSpec& head, int64_t width) {
  const char* of_own = head.label_smoothing != 0 ? "label_smoothing" : head.focal_gamma != 0 ? "focal_gamma" : nullptr;
  if (of_own && head.loss != kOwnLoss)
    fail(Code::kInvalidArgument, "the head \"", head.name, "\" has ", of_own, ", which is of the loss ", kOwnLoss,
         ", not of ", head.loss);
  if (head.loss == kOwnLoss) {
    if (head.loss_options != HeadSpec().loss_options)
      fail(Code::kInvalidArgument, "the head \"", head.name, "\" has loss_options, but its loss ", kOwnLoss,
           " has none: leave them out");
    if (!head.groups.empty()) refuse_groups(head);
    if (width == 1) return nullptr;
    fail(Code::kInvalidArgument, "the head \"", head.name, "\" takes \"", head.input, "\", which has ", width,
         " values per sample, but its loss ", kOwnLoss, " takes 1, the logit");
  }
  std::unique_ptr<DenseLayer> loss;
  try {
    loss = std::make_unique<DenseLayer>(
        runtime,
        DenseLayerOptions{.module = head.loss, .options = head.loss_options, .name = head.name, .inputs = {width, 1}});
  } catch (const Error& e) {
    throw Error(e.code(), str_cat("the loss of head \"", head.name, "\" and a label: ", e.what()));
  }
  try {
    check_takes(head, *loss, width);
  } catch (const Error& e) {
    throw Error(e.code(), str_cat("the loss of head \"", head.name, "\" and a label: ", e.what()));
  }
  return loss;
}

// True if the loss of a value and the label 1 is the value, as with a product: the value is a loss or a rank then,
// which is not to be near a label.
bool gives_value_itself(const Runtime& runtime, const HeadSpec& head, int64_t width) {
  if (head.loss == kOwnLoss || width != 1 || !head.groups.empty()) return false;
  const std::vector<float> values = {2.5F, 7};
  try {
    const std::unique_ptr<DenseLayer> loss = make_loss(runtime, head, width);  // another one, which may count calls
    const Tensor of_values = Tensor::from(values).reshape({2, 1}), ones = Tensor::from<float>({1, 1}).reshape({2, 1});
    const Tensor each = loss->forward({of_values, ones}, false, StepInfo{});
    return std::equal(values.begin(), values.end(), each.data<float>());
  } catch (const Error&) {  // the loss takes no such values
    return false;
  }
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

// Fails if a weight that is learnt would weigh nothing.
void check_learnt_weight(const std::vector<HeadSpec>& heads, const HeadSpec& head) {
  if (!head.learn_weight) return;
  if (heads.size() == 1)
    fail(Code::kInvalidArgument, "the head \"", head.name,
         "\" has learn_weight, which weighs several heads, but it is the only one: leave it out");
  if (head.weight == 0)
    fail(Code::kInvalidArgument, "the head \"", head.name,
         "\" has learn_weight and the weight 0: leave one of them out");
}

// Fails if positive_weight would weigh other samples than those of a positive label.
void check_positive_weight(const HeadSpec& head, int64_t width) {
  if (head.positive_weight == 1) return;
  const char* why = width > 2                            ? "label is the number of a class: give class_weights instead"
                    : width == 1 && !head.groups.empty() ? "loss compares samples with each other: leave it out"
                                                         : nullptr;
  if (why)
    fail(Code::kInvalidArgument, "the head \"", head.name, "\" has positive_weight = ", head.positive_weight,
         ", which is for labels of 0 and 1, but its ", why);
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

// The focal loss (Lin et al., Focal Loss for Dense Object Detection, 2017) of logits, which is like
// binary_cross_entropy_with_logits(): each sample's loss times (1 - p_t)^gamma, p_t = p y + (1 - p) (1 - y).
double focal_loss(const Tensor& logits, const WeightedLabels& to, double gamma, const Tensor& grad, double scale) {
  double sum = 0;
  for (int64_t i = 0; i < to.labels.numel(); ++i) {
    const double x = logits.data<float>()[i], y = to.labels.data<float>()[i];
    const double weight = to.weights.defined() ? to.weights.data<float>()[i] : 1.0;
    const double e = std::exp(-std::abs(x)), small = e / (1 + e), large = 1 / (1 + e);
    const double p = x >= 0 ? large : small, q = x >= 0 ? small : large;
    const double missed = p * (1 - y) + q * y, factor = std::pow(missed, gamma);
    const double entropy = std::max(x, 0.0) - x * y + std::log1p(e);
    const double slope = missed > 0 ? gamma * factor / missed * p * q * (2 * y - 1) : 0.0;
    sum += weight * factor * entropy;
    grad.data<float>()[i] = static_cast<float>(weight * scale * (factor * (p - y) - slope * entropy));
  }
  return sum;
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
    check_learnt_weight(heads_, heads_[h]);
    labels_.push_back(find_label(heads_[h], options_.labels));
    where_.push_back(find_where(heads_[h], options_.labels));
    widths_.push_back(layers.head_width(h));
    check_positive_weight(heads_[h], widths_[h]);
    losses_.push_back(make_loss(runtime, heads_[h], widths_[h]));
    of_classes_.push_back(losses_[h] != nullptr && is_loss_of_classes(runtime, heads_[h].loss));
    falls_.push_back(falls_with_label(losses_[h].get(), widths_[h], !heads_[h].groups.empty()));
    values_.push_back(gives_value_itself(runtime, heads_[h], widths_[h]));
    groups_.emplace_back(heads_[h].groups.empty() ? std::vector<IdFeature>()
                                                  : std::vector<IdFeature>{{heads_[h].groups}});
  }
}

std::vector<Prediction> HeadLosses::predictions() const {
  std::vector<Prediction> out;
  for (size_t h = 0; h < heads_.size(); ++h) {
    const int64_t classes = of_classes_[h] ? widths_[h] : 0;
    if (predicts(h))
      out.push_back({heads_[h].name, labels_[h], losses_[h] == nullptr, where_[h], classes, !values_[h]});
  }
  return out;
}

std::string HeadLosses::why_no_metrics(size_t head) const {
  if (predicts(head)) return {};
  if (falls_[head])
    return str_cat("its loss ", heads_[head].loss, " compares distances, which are small for the label 1: let a layer ",
                   "\"affine\" with factor = -1 take \"", heads_[head].input,
                   "\", and a head of weight = 0 that layer");
  return str_cat("it has ", widths_[head], " values for each sample: let a head of weight = 0 take one value instead",
                 widths_[head] == 2 ? ", such as the second less the first" : "");
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
    const WeightedLabels to(smoothed(heads_[head], labels, smoothed_), weights);
    if (const double gamma = heads_[head].focal_gamma; gamma != 0) return focal_loss(input, to, gamma, grad, scale);
    return binary_cross_entropy_with_logits(input, to, grad, scale);
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
  const auto is_loss = [&](const std::string& layer, const char* groups) {
    try {
      (void)make_loss(runtime, {.name = layer, .input = "", .loss = layer, .groups = groups}, 1);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  for (const LayerChoice& layer : layer_choices(runtime, kDLCPU)) {
    if (is_loss(layer.layer, "") || is_loss(layer.layer, "group")) out.push_back(layer.layer);
  }
  return out;
}

}  // namespace tessera

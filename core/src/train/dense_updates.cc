#include "train/dense_updates.h"

#include <algorithm>
#include <utility>

#include "tessera/device.h"

namespace tessera {
namespace {
constexpr const char *kTrained = "trained", *kUpdates = checkpoint::kAveragesState;
}  // namespace

GradientSums::GradientSums(ParameterList parameters, int64_t batches)
    : parameters_(std::move(parameters)), sums_(parameters_.size()), most_(batches) {}

bool GradientSums::add(int64_t samples, int64_t step) {
  const auto weight = static_cast<float>(samples);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& p = *parameters_[i];
    if (!sums_[i].defined()) sums_[i] = zeros_like(p.value);
    float* sum = sums_[i].data<float>();
    if (batches_ == 0) std::fill_n(sum, p.value.numel(), 0.0f);
    if (!p.grad.defined()) continue;
    const float* grad = p.grad.data<float>();
    for (int64_t k = 0; k < p.value.numel(); ++k) sum[k] += weight * grad[k];
    p.grad = {};
  }
  samples_ += samples;
  ++batches_;
  return step % most_ == 0;
}

bool GradientSums::take() {
  if (batches_ == 0) return false;
  const float each = samples_ > 0 ? 1.0f / static_cast<float>(samples_) : 0.0f;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    float* sum = sums_[i].data<float>();
    for (int64_t k = 0; k < sums_[i].numel(); ++k) sum[k] *= each;
    parameters_[i]->grad = sums_[i];
  }
  batches_ = samples_ = 0;
  return true;
}

AveragingOptimizer::AveragingOptimizer(KeyedOptimizerPtr optimizer, double decay)
    : OptimizerWrapper(std::move(optimizer)), decay_(decay), items_(inner().params()), others_(items_.size()) {}

void AveragingOptimizer::show(bool averages) {
  if (averages == averages_) return;
  averages_ = averages;
  for (size_t i = 0; i < items_.size(); ++i) {
    float* value = items_[i].parameter->value.data<float>();
    if (others_[i].defined()) std::swap_ranges(value, value + others_[i].numel(), others_[i].data<float>());
  }
}

void AveragingOptimizer::step() {
  show(false);
  for (size_t i = 0; i < items_.size(); ++i) {
    if (!others_[i].defined()) others_[i] = items_[i].parameter->value.clone();
  }
  inner().step();
  updates_ += 1;
  const auto part = static_cast<float>(1 - std::min(decay_, (1 + updates_) / (10 + updates_)));
  for (size_t i = 0; i < items_.size(); ++i) {
    float* average = others_[i].data<float>();
    const float* value = items_[i].parameter->value.data<float>();
    for (int64_t k = 0; k < others_[i].numel(); ++k) average[k] += part * (value[k] - average[k]);
  }
}

std::vector<std::pair<std::string, OptimizerState>> AveragingOptimizer::state() const {
  std::vector<std::pair<std::string, OptimizerState>> out = inner().state();
  for (size_t i = 0; i < items_.size(); ++i) {
    if (!others_[i].defined()) continue;
    const std::string& key = items_[i].key;
    auto at = std::find_if(out.begin(), out.end(), [&](const auto& entry) { return entry.first == key; });
    if (at == out.end()) at = out.insert(out.end(), {key, {}});
    at->second.emplace_back(kTrained, averages_ ? others_[i] : items_[i].parameter->value);
    at->second.emplace_back(kUpdates, Tensor::scalar(static_cast<float>(updates_)));
  }
  return out;
}

void AveragingOptimizer::set_state(std::string_view key, const OptimizerState& given) {
  const auto item = std::find_if(items_.begin(), items_.end(), [&](const Item& i) { return i.key == key; });
  OptimizerState rest;
  for (const auto& [name, value] : given) {
    if (name != kTrained && name != kUpdates) rest.emplace_back(name, value);
  }
  inner().set_state(key, rest);
  if (item == items_.end()) return;
  Tensor& other = others_[static_cast<size_t>(item - items_.begin())];
  other = {};
  averages_ = true;
  for (const auto& [name, value] : given) {
    if (name == kUpdates) updates_ = value.item();
    if (name != kTrained) continue;
    if (value.shape() != item->parameter->value.shape() || value.dtype() != DType::kFloat32)
      fail(Code::kInvalidArgument, "parameter \"", key, "\" needs a state \"", kTrained,
           "\" of its own shape, float32");
    other = value.clone();
  }
}

}  // namespace tessera

// A model without tables. Its scores are a known function of the input, so that every answer can be checked; it can be
// blocked, and can fail.
#pragma once

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "serve/json_text.h"
#include "tessera/error.h"
#include "tessera/predictor.h"

namespace tessera::serve {

struct FakeOptions {
  std::string version = "0000000000000001";
  int64_t dense_inputs = 2;
  bool is_weighted = false;
  BoundsCheckMode bounds_check = BoundsCheckMode::kFatal;
  std::vector<ModelOutput> outputs = {{"score"}};
};

// Features "user" (ids 0..999) and "item" (0..99), one table each.
class FakePredictor : public Predictor {
 public:
  explicit FakePredictor(const FakeOptions& options = {}) {
    model_.name = "fake";
    model_.version = options.version;
    model_.type = "dlrm";
    model_.dense_inputs = options.dense_inputs;
    model_.is_weighted = options.is_weighted;
    model_.bounds_check = options.bounds_check;
    for (const auto& [name, rows] : {std::pair<const char*, int64_t>{"user", 1000}, {"item", 100}}) {
      model_.features.push_back({name, rows, {std::string(name) + "_table"}});
      ModelTable table;
      table.name = std::string(name) + "_table";
      table.rows = table.ids = rows;
      table.dim = 4;
      table.features = {name};
      model_.tables.push_back(table);
    }
    model_.outputs = options.outputs;
    bad_ids_.resize(2);
  }

  // Value w of output o for a score; the first value of the first output is the score itself.
  static float value(float score, size_t o, size_t w) { return score + static_cast<float>(10 * o + w); }
  // The score of sample b, computed individually.
  static float score(const PredictInput& input, int64_t b) {
    double sum = 0;
    const auto n = static_cast<size_t>(input.batch), wide = input.dense.size() / n, at = static_cast<size_t>(b);
    for (size_t i = 0; i < wide; ++i) sum += (i + 1.0) * input.dense[at * wide + i];
    double factor = 1;
    for (const PredictInput::Feature& f : input.features) {
      size_t first = 0;
      for (size_t s = 0; s < at; ++s) first += static_cast<size_t>(f.lengths[s]);
      for (size_t i = first; i < first + static_cast<size_t>(f.lengths[at]); ++i) {
        sum += factor * 0.001 * static_cast<double>(f.values[i]) * (f.weights.empty() ? 1 : f.weights[i]);
      }
      factor = -2;
    }
    return static_cast<float>(1 / (1 + std::exp(-sum)));
  }

  const ModelDescription& model() const override { return model_; }
  std::string why_not(const PredictInput& input) const override {
    for (size_t f = 0; f < model_.features.size(); ++f) {
      for (int64_t id : input.features[f].values) {
        if (model_.bounds_check != BoundsCheckMode::kFatal || (id >= 0 && id < model_.features[f].ids)) continue;
        return str_cat("feature ", model_.features[f].name, " has id ", id, "; ids are below ", model_.features[f].ids);
      }
    }
    return "";
  }
  void predict_outputs(const PredictInput& input, std::span<const std::span<float>> outputs) override {
    {
      std::unique_lock lock(mutex_);
      ++calls_;
      largest_ = std::max(largest_, input.batch);
      arrived_.notify_all();
      open_.wait(lock, [this] { return !held_; });
      if (!failure_.empty()) fail(code_, failure_);
      ++stats_.predictions;
      stats_.samples += static_cast<uint64_t>(input.batch);
      for (size_t f = 0; f < model_.features.size(); ++f) {
        for (int64_t id : input.features[f].values) bad_ids_[f] += id < 0 || id >= model_.features[f].ids;
      }
    }
    for (int64_t b = 0; b < input.batch; ++b) {
      // A poisoned value that why_not() does not notice.
      if (input.dense.size() > 0 && input.dense[static_cast<size_t>(b) * input.dense.size() / input.batch] == 666.0f) {
        fail(Code::kInvalidArgument, "poisoned");
      }
      for (size_t o = 0; o < outputs.size(); ++o) fill(outputs[o], o, input, b);
    }
  }
  PredictorStats stats() const override {
    const std::lock_guard lock(mutex_);
    PredictorStats out = stats_;
    out.bad_ids = bad_ids_;
    return out;
  }

  bool usable() const override { return usable_; }
  void break_down() { usable_ = false; }

  void hold() {
    const std::lock_guard lock(mutex_);
    held_ = true;
  }
  void let_go() {
    {
      const std::lock_guard lock(mutex_);
      held_ = false;
    }
    open_.notify_all();
  }
  void fail_with(Code code, const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    code_ = code, failure_ = sentence;
  }
  // Waits until predict() has been called n times; false after 20 s.
  bool wait_for_calls(int n) {
    std::unique_lock lock(mutex_);
    return arrived_.wait_for(lock, std::chrono::seconds(20), [&] { return calls_ >= n; });
  }
  int calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  int64_t largest_batch() const {
    const std::lock_guard lock(mutex_);
    return largest_;
  }

 private:
  void fill(std::span<float> values, size_t o, const PredictInput& input, int64_t b) const {
    const auto width = static_cast<size_t>(model_.outputs[o].width), first = static_cast<size_t>(b) * width;
    for (size_t w = 0; !values.empty() && w < width; ++w) values[first + w] = value(score(input, b), o, w);
  }

  ModelDescription model_;
  mutable std::mutex mutex_;
  std::condition_variable open_, arrived_;
  std::atomic<bool> usable_{true};
  bool held_ = false;
  int calls_ = 0;
  int64_t largest_ = 0;
  Code code_ = Code::kOk;
  std::string failure_;
  PredictorStats stats_;
  std::vector<uint64_t> bad_ids_;
};

// A client's samples, which can be sent as JSON or as binary tensors.
struct Sample {
  std::vector<float> dense{0, 0};
  std::vector<int64_t> user, item;
  std::vector<float> item_weights;  // empty: none
};

// Two samples; the second one's user has no ids.
inline const std::vector<Sample> kSamples = {{{0.5f, -1.25f}, {3, 999}, {7}, {}}, {{0.1f, 2}, {}, {0, 1, 99}, {}}};

class Message {
 public:
  explicit Message(std::vector<Sample> samples) : samples_(std::move(samples)) {
    for (const Sample& s : samples_) {
      dense_.insert(dense_.end(), s.dense.begin(), s.dense.end());
      values_[0].insert(values_[0].end(), s.user.begin(), s.user.end());
      values_[1].insert(values_[1].end(), s.item.begin(), s.item.end());
      lengths_[0].push_back(static_cast<int32_t>(s.user.size()));
      lengths_[1].push_back(static_cast<int32_t>(s.item.size()));
      weights_.insert(weights_.end(), s.item_weights.begin(), s.item_weights.end());
    }
    features_ = {{values_[0], lengths_[0], {}}, {values_[1], lengths_[1], weights_}};
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  PredictInput input() const { return {static_cast<int64_t>(samples_.size()), dense_, features_}; }
  std::vector<float> scores() const {
    std::vector<float> out;
    for (size_t b = 0; b < samples_.size(); ++b) out.push_back(FakePredictor::score(input(), static_cast<int64_t>(b)));
    return out;
  }

  // Values of output o of the model, `width` per sample.
  std::vector<float> values(size_t o, size_t width = 1) const {
    std::vector<float> out;
    for (const float score : scores()) {
      for (size_t w = 0; w < width; ++w) out.push_back(FakePredictor::value(score, o, w));
    }
    return out;
  }

  std::string json(const std::string& extra = "") const {
    std::string out = "{" + extra + "\"inputs\":[";
    tensor(out, "dense", "FP32", {samples_.size(), samples_[0].dense.size()}, dense_, nullptr);
    values(out, nullptr);
    return out + "]}";
  }
  // First JSON, *json_bytes of it, then the tensors.
  std::string binary(size_t* json_bytes) const {
    std::string out = "{\"parameters\":{\"binary_data_output\":true},\"inputs\":[", bytes;
    tensor(out, "dense", "FP32", {samples_.size(), samples_[0].dense.size()}, dense_, &bytes);
    values(out, &bytes);
    out += "]}";
    *json_bytes = out.size();
    return out + bytes;
  }

 private:
  void values(std::string& out, std::string* bytes) const {
    for (size_t f = 0; f < 2; ++f) {
      const std::string name = f == 0 ? "user" : "item";
      out += ',';
      tensor(out, name + ".values", "INT64", {values_[f].size()}, values_[f], bytes);
      out += ',';
      tensor(out, name + ".lengths", "INT32", {lengths_[f].size()}, lengths_[f], bytes);
    }
    if (weights_.empty()) return;
    out += ',';
    tensor(out, "item.weights", "FP32", {weights_.size()}, weights_, bytes);
  }
  template <class T>
  static void tensor(std::string& out, const std::string& name, const char* type, const std::vector<size_t>& shape,
                     const std::vector<T>& data, std::string* bytes) {
    out += R"({"name":")" + name + R"(","datatype":")" + type + R"(","shape":[)";
    for (size_t i = 0; i < shape.size(); ++i) out += (i > 0 ? "," : "") + std::to_string(shape[i]);
    const size_t size = data.size() * sizeof(T);
    if (bytes != nullptr) {
      out += R"(],"parameters":{"binary_data_size":)" + std::to_string(size) + "}}";
      if (size > 0) bytes->append(reinterpret_cast<const char*>(data.data()), size);
      return;
    }
    out += "],\"data\":[";
    for (size_t i = 0; i < data.size(); ++i) {
      if (i > 0) out += ',';
      if constexpr (std::is_same_v<T, float>) {
        append_number(out, data[i]);
      } else {
        out += std::to_string(data[i]);
      }
    }
    out += "]}";
  }

  std::vector<Sample> samples_;
  std::vector<float> dense_, weights_;
  std::vector<int64_t> values_[2];
  std::vector<int32_t> lengths_[2];
  std::vector<PredictInput::Feature> features_;
};

}  // namespace tessera::serve

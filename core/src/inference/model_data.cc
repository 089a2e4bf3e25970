#include "tessera/predictor.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "config/json.h"
#include "tessera/data.h"
#include "tessera/sdk/nearest.h"

namespace tessera {
namespace {

template <class T>
void copy_numbers(const Tensor& from, std::vector<T>& to) {
  to.resize(static_cast<size_t>(from.numel()));
  if (from.dtype() == DType::kInt32)
    std::copy_n(from.data<int32_t>(), from.numel(), to.begin());
  else
    std::transform(from.data<int64_t>(), from.data<int64_t>() + from.numel(), to.begin(),
                   [](int64_t v) { return static_cast<T>(v); });
}

}  // namespace

std::string looked_up_columns(const ModelDescription& model) {
  if (model.encoding.empty()) return "";
  std::set<std::string> wanted;
  for (const ModelFeature& f : model.features) wanted.insert(f.name);
  nlohmann::ordered_json encoding = config::parse_json(model.encoding, {"the model's encoding of columns"});
  for (const auto& column : encoding["columns"]) {
    if (!wanted.contains(column["name"]) || !column.contains("cross")) continue;
    for (const auto& part : column["cross"]) wanted.insert(part.get<std::string>());
  }
  nlohmann::ordered_json kept = nlohmann::ordered_json::array();
  for (auto& column : encoding["columns"]) {
    if (column["as"] != "ids" || wanted.contains(column["name"])) kept.push_back(std::move(column));
  }
  if (kept.size() == encoding["columns"].size()) return model.encoding;
  encoding["columns"] = std::move(kept);
  return encoding.dump();
}

std::string needed_columns(const ModelDescription& model) {
  const std::string looked_up = looked_up_columns(model);
  if (looked_up.empty()) return "";
  const auto encoding = config::parse_json(looked_up, {"the model's encoding of columns"});
  std::vector<std::string> names;
  for (const auto& column : encoding["columns"]) {
    if (column["as"] == "label" || column["as"] == "weight" || column.contains("cross")) continue;
    const auto field = column.contains("column") ? column["column"] : column["name"];
    const std::string name = str_cat('"', field.get<std::string>(), '"');
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string out;
  for (size_t i = 0; i < names.size(); ++i)
    out += str_cat(i == 0 ? "" : i + 1 == names.size() ? " and " : ", ", names[i]);
  return out;
}

BatchInput::BatchInput(const ModelDescription& model, const std::vector<DataColumn>& columns, int64_t dense_inputs) {
  if (dense_inputs != model.dense_inputs) {
    fail(Code::kInvalidArgument, "the data has ", dense_inputs, " dense values a sample, but the model takes ",
         model.dense_inputs);
  }
  for (const ModelFeature& feature : model.features) {
    const auto at =
        std::find_if(columns.begin(), columns.end(), [&](const DataColumn& c) { return c.name == feature.name; });
    if (at == columns.end() && !feature.needed) {
      column_of_.push_back(kNoColumn);
      continue;
    }
    if (at == columns.end()) {
      fail(Code::kInvalidArgument, "the model takes feature \"", feature.name,
           "\", but the data has no such column, only ", sdk::joined(columns, &DataColumn::name));
    }
    column_of_.push_back(static_cast<size_t>(at - columns.begin()));
  }
  features_.resize(model.features.size());
}

const PredictInput& BatchInput::from(const Batch& batch) {
  const auto samples = static_cast<size_t>(batch.labels.numel());
  copy_numbers(batch.sparse.values(), values_);
  copy_numbers(batch.sparse.lengths(), lengths_);
  const Tensor& weights = batch.sparse.weights_or_null();
  const std::span<const float> all_weights = weights.defined() ? weights.span<float>() : std::span<const float>();
  const std::vector<int64_t>& begin = batch.sparse.offset_per_key();
  for (size_t f = 0; f < features_.size(); ++f) {
    const size_t column = column_of_[f];
    if (column == kNoColumn) {
      no_lengths_.assign(samples, 0);
      features_[f] = {{}, no_lengths_, {}};
      continue;
    }
    const auto first = static_cast<size_t>(begin[column]), last = static_cast<size_t>(begin[column + 1]);
    features_[f] = {{values_.data() + first, last - first},
                    {lengths_.data() + column * samples, samples},
                    weights.defined() ? all_weights.subspan(first, last - first) : all_weights};
  }
  input_ = {static_cast<int64_t>(samples), batch.dense.span<float>(), features_};
  return input_;
}

void predict_all(Predictor& predictor, const Dataset& data, const Samples& samples, int64_t batch,
                 const std::vector<size_t>& widths, const ValuesSink& sink) {
  BatchInput input(predictor.model(), data.columns, static_cast<int64_t>(data.dense.size()));
  BatchReader reader(samples, {.batch = batch});
  std::vector<std::vector<float>> values(widths.size());
  std::vector<std::span<float>> outputs(widths.size());
  for (Batch b; reader.next(b);) {
    for (size_t o = 0; o < widths.size(); ++o) {
      values[o].resize(static_cast<size_t>(b.labels.numel()) * widths[o]);
      outputs[o] = values[o];
    }
    predictor.predict_outputs(input.from(b), outputs);
    sink(values, b);
  }
}

}  // namespace tessera

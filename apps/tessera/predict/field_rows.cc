#include "predict/field_rows.h"

#include <algorithm>
#include <map>

namespace tessera::cli {
namespace {

// The field of the files behind each column of the model.
std::map<std::string, std::string> encoded_fields(const ModelDescription& model) {
  std::map<std::string, std::string> out;
  if (model.encoding.empty()) return out;
  const ColumnEncoding columns(model.encoding);
  for (const std::string& name : columns.names()) {
    const std::string& field = columns.column(name)->column;
    out[name] = field.empty() ? name : field;
  }
  return out;
}

}  // namespace

void Bags::add(const PredictInput::Feature& part) {
  values.insert(values.end(), part.values.begin(), part.values.end());
  weights.insert(weights.end(), part.weights.begin(), part.weights.end());
  for (const int32_t n : part.lengths) lengths.push_back(n), begins.push_back(begins.back() + n);
}

Bags Bags::in_order(const std::vector<uint32_t>& order) const {
  Bags out;
  for (const uint32_t row : order) out.add(rows(row, 1));
  return out;
}

PredictInput::Feature Bags::rows(size_t first, size_t count) const {
  const auto from = static_cast<size_t>(begins[first]), size = static_cast<size_t>(begins[first + count]) - from;
  return {std::span(values).subspan(from, size), std::span(lengths).subspan(first, count),
          weights.empty() ? std::span<const float>() : std::span(weights).subspan(from, size)};
}

FieldRows read_rows(const ModelDescription& model, const Dataset& data, const std::vector<Samples>& parts,
                    int64_t batch, int64_t most) {
  FieldRows out;
  out.width = static_cast<size_t>(model.dense_inputs);
  out.features.resize(model.features.size());
  BatchInput input(model, data.columns, model.dense_inputs);
  for (const Samples& part : parts) {
    BatchReader reader(part, {.batch = batch});
    for (Batch some; static_cast<int64_t>(out.count) < most && reader.next(some); some = Batch()) {
      const PredictInput& rows = input.from(some);
      for (size_t f = 0; f < out.features.size(); ++f) out.features[f].add(rows.features[f]);
      out.dense.insert(out.dense.end(), rows.dense.begin(), rows.dense.end());
      out.count += static_cast<size_t>(rows.batch);
      out.batches.push_back(std::move(some));
    }
  }
  return out;
}

std::vector<Field> fields_of(const ModelDescription& model, const Dataset& data) {
  const std::map<std::string, std::string> fields = encoded_fields(model);
  std::vector<Field> out;
  const auto field = [&](const std::string& column) -> Field& {
    const auto known = fields.find(column);
    const std::string& name = known == fields.end() ? column : known->second;
    const auto at = std::find_if(out.begin(), out.end(), [&](const Field& f) { return f.name == name; });
    return at != out.end() ? *at : out.emplace_back(Field{name, {}, {}});
  };
  for (size_t f = 0; f < model.features.size(); ++f) {
    if (model.features[f].needed) field(model.features[f].name).features.push_back(f);
  }
  for (size_t d = 0; d < data.dense.size(); ++d) field(data.dense[d]).dense.push_back(d);
  return out;
}

}  // namespace tessera::cli

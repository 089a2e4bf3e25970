#include "onnx/features.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>

namespace tessera::cli {

FeatureWriter::FeatureWriter(GraphWriter& graph, const InferenceModel& model, TablePlace place, std::string data_file,
                             ColumnWriter* columns)
    : g_(graph), model_(model), place_(place), data_file_(std::move(data_file)), columns_(columns) {
  int64_t column = 0;
  for (size_t t = 0; t < model.tables.size(); ++t) {
    const EmbeddingBagConfig& table = model.tables[t].config;
    const bool pooled = table.pooling != PoolingType::kNone;
    for (const std::string& feature : table.feature_names) {
      parts_.push_back({t, feature, pooled ? column : -1});
      if (pooled) column += table.embedding_dim;
    }
  }
}

const FeatureWriter::Ids& FeatureWriter::ids_of(const std::string& feature) {
  const auto [at, added] = ids_.emplace(feature, Ids{});
  if (!added) return at->second;
  const std::string length = feature + " length";
  Ids& out = at->second;
  out.ids = columns_ ? columns_->rows_of(feature) : g_.input(feature, OnnxType::kInt64, {"batch", length});
  const std::string there = g_.node("Not", {g_.node("Equal", {out.ids, g_.integer(-1)})});
  const std::string lengths = g_.sum_over(g_.cast(there, OnnxType::kInt64), 1);
  const std::string longest = g_.node("Slice", {g_.node("Shape", {out.ids}), g_.integers({1}), g_.integers({2})});
  out.rows = std::make_shared<Rows>(Rows{lengths, longest});
  if (model_.description.is_weighted) out.weights = g_.input(feature + ".weights", OnnxType::kFloat, {"batch", length});
  return out;
}

std::string FeatureWriter::table_rows(size_t table) {
  const auto [at, added] = tables_.emplace(table, "");
  if (added) at->second = dequantized(table);
  return at->second;
}

std::string FeatureWriter::dequantized(size_t table) {
  const QuantizedTable& from = model_.tables[table];
  const EmbeddingBagConfig& config = from.config;
  const std::string name = config.name + ".weight";
  const Tensor rows = dequantize_rows(from.rows, config.row_format.value(), config.embedding_dim);
  if (place_ == TablePlace::kInside) return g_.tensor(name, rows);
  std::ofstream out(data_file_, std::ios::binary | (data_bytes_ == 0 ? std::ios::trunc : std::ios::app));
  const int64_t bytes = rows.numel() * static_cast<int64_t>(sizeof(float)), offset = data_bytes_;
  out.write(reinterpret_cast<const char*>(rows.data<float>()), bytes);
  out.close();
  if (!out) fail(Code::kUnavailable, "cannot write ", data_file_, ": ", std::generic_category().message(errno));
  data_bytes_ += bytes;
  return g_.external(name, {rows.size(0), rows.size(1)}, std::filesystem::path(data_file_).filename(), offset, bytes);
}

// Returns the row of each id, and in *valid whether the id has a row: bool [batch, length]. An id that requests may not
// have gets a row after the last one, which makes the runtime fail.
std::string FeatureWriter::index_of(size_t table, const Ids& ids, std::string* valid) {
  const EmbeddingBagConfig& config = model_.tables[table].config;
  if (config.any_id || (config.remapping && !config.remapping->is_array()))
    fail(Code::kUnimplemented, "table \"", config.name,
         "\" finds rows of ids in an index, which cannot be written as ONNX: --tables input leaves the tables out");
  const std::string zero = g_.integer(0);
  const int64_t ids_there = config.remapping ? config.remapping->ids() : config.num_embeddings;
  std::string index = ids.ids;
  if (model_.description.bounds_check == BoundsCheckMode::kFatal) {
    *valid = g_.node("Not", {g_.node("Equal", {index, g_.integer(-1)})});
    index = g_.node("Where", {g_.node("Less", {index, zero}), g_.integer(ids_there), index});
  } else {
    *valid = g_.node(
        "And", {g_.node("Not", {g_.node("Less", {index, zero})}), g_.node("Less", {index, g_.integer(ids_there)})});
  }
  index = g_.node("Where", {*valid, index, zero});
  if (!config.remapping) return index;
  const Tensor rows = Tensor::empty({ids_there}, DType::kInt64);
  for (int64_t id = 0; id < ids_there; ++id) rows.data<int64_t>()[id] = config.remapping->row(id);
  index = g_.node("Gather", {g_.tensor(config.name + ".rows_of_ids", rows), index});
  const std::string kept = g_.node("Not", {g_.node("Less", {index, zero})});
  *valid = g_.node("And", {*valid, kept});
  return g_.node("Where", {kept, index, zero});
}

OnnxValue FeatureWriter::rows_from_outside(const Part& part) {
  const EmbeddingBagConfig& config = model_.tables[part.table].config;
  const std::string name = config.feature_names.size() == 1 ? config.name : str_cat(config.name, '.', part.feature);
  const std::string dim = std::to_string(config.embedding_dim);
  if (part.column >= 0) return {g_.input(name, OnnxType::kFloat, {"batch", dim}), config.embedding_dim};
  const std::string rows = g_.input(name, OnnxType::kFloat, {"batch", name + " length", dim});
  const std::string longest = g_.node("Slice", {g_.node("Shape", {rows}), g_.integers({1}), g_.integers({2})});
  return {rows, config.embedding_dim,
          std::make_shared<Rows>(Rows{g_.input(name + ".lengths", OnnxType::kInt64, {"batch"}), longest})};
}

OnnxValue FeatureWriter::looked_up(const Part& part) {
  if (place_ == TablePlace::kOutside) return rows_from_outside(part);
  const EmbeddingBagConfig& config = model_.tables[part.table].config;
  const Ids& ids = ids_of(part.feature);
  std::string valid;
  const std::string index = index_of(part.table, ids, &valid);
  const std::string here = g_.unsqueeze(valid, -1);
  std::string rows = g_.node("Gather", {table_rows(part.table), index});
  if (config.pooling == PoolingType::kMax) {
    const std::string none = g_.number(std::numeric_limits<float>::lowest());
    const std::string front =
        g_.node("Pad", {g_.node("Where", {here, rows, none}), g_.integers({0, 1, 0, 0, 0, 0}), none});
    const std::string most =
        g_.node("ReduceMax", {front}, {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}});
    const std::string any = g_.node("Greater", {most, none});
    return {g_.node("Where", {any, most, g_.number(0)}), config.embedding_dim};
  }
  rows = g_.node("Where", {here, rows, g_.number(0)});
  if (config.pooling == PoolingType::kNone) return {rows, config.embedding_dim, ids.rows};
  if (!ids.weights.empty()) rows = g_.multiply(rows, g_.unsqueeze(ids.weights, -1));
  std::string out = g_.sum_over(rows, 1);
  if (config.pooling == PoolingType::kMean) {
    const std::string count = g_.cast(g_.unsqueeze(ids.rows->lengths, -1), OnnxType::kFloat);
    out = g_.divide(out, g_.maximum(count, g_.number(1)));
  }
  return {out, config.embedding_dim};
}

// Returns the pooled values of features that are adjacent columns.
OnnxValue FeatureWriter::pooled_columns(const GraphInput& in) {
  GraphWriter::Names names;
  int64_t at = in.column;
  for (size_t p = 0; p < parts_.size(); ++p) {
    if (parts_[p].column != at || at >= in.column + in.width) continue;
    const auto [found, added] = looked_up_.emplace(p, OnnxValue{});
    if (added) found->second = looked_up(parts_[p]);
    names.push_back(found->second.name);
    at += found->second.width;
  }
  TESSERA_CHECK(at == in.column + in.width, "an input has whole features");
  return {g_.concat(names), in.width};
}

OnnxValue FeatureWriter::input(const GraphInput& in) {
  if (in.from == GraphInput::kDense) {
    const auto given = [&] {
      return g_.input("dense", OnnxType::kFloat, {"batch", std::to_string(model_.graph.dense_width)});
    };
    if (dense_.empty()) dense_ = columns_ ? columns_->dense() : given();
    if (in.width == model_.graph.dense_width) return {dense_, in.width};
    return {g_.node("Slice", {dense_, g_.integers({in.column}), g_.integers({in.column + in.width}), g_.integers({1})}),
            in.width};
  }
  if (in.from == GraphInput::kPooled) return pooled_columns(in);
  if (in.from == GraphInput::kIds) {
    const IdFeature& feature = model_.graph.ids.at(static_cast<size_t>(in.column));
    const Ids& ids = ids_of(feature.name);
    if (feature.sequence >= 0) return {g_.unsqueeze(ids.ids, -1), 1, ids.rows, true};
    return {g_.node("Slice", {ids.ids, g_.integers({0}), g_.integers({1}), g_.integers({1})}), 1, nullptr, true};
  }
  int64_t sequence = 0;
  for (size_t p = 0; p < parts_.size(); ++p) {
    if (parts_[p].column >= 0 || sequence++ != in.column) continue;
    const auto [found, added] = looked_up_.emplace(p, OnnxValue{});
    if (added) found->second = looked_up(parts_[p]);
    return found->second;
  }
  fail(Code::kInternal, "the graph has no sequence ", in.column);
}

}  // namespace tessera::cli

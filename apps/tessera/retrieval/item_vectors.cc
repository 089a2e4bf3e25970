#include "retrieval/item_vectors.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "checkpoint/safetensors.h"
#include "tessera/data.h"
#include "tessera/error.h"
#include "tessera/sdk/nearest.h"

namespace tessera::retrieval {
namespace {

// The first row of a part of `rows` rows, and the part's size.
std::pair<int64_t, int64_t> rows_of(int64_t rows, const ItemPart& part) {
  const int64_t each = (rows + part.parts - 1) / part.parts, first = std::min(rows, part.part * each);
  return {first, std::min(rows, first + each) - first};
}

// The first row of the table that training draws as an item.
int64_t first_item(const InferenceModel& model, const ModelTable& table) {
  int64_t first = table.rows;
  bool drawn = false;
  for (const DrawnInput& d : model.graph.drawn) {
    if (std::find(table.features.begin(), table.features.end(), d.feature) == table.features.end()) continue;
    first = std::min(first, d.first);
    drawn = true;
  }
  return drawn ? first : 0;
}

// The number of words of the table's vocabulary; unset if its ids are not all words.
std::optional<int64_t> words_of(const InferenceModel& model, const std::string& table) {
  if (model.description.encoding.empty()) return std::nullopt;
  const auto words = ColumnEncoding(model.description.encoding).words(table);
  return words ? std::make_optional<int64_t>(std::ssize(*words)) : std::nullopt;
}

}  // namespace

ItemRows item_rows(const InferenceModel& model, const ModelTable& table) {
  ItemRows out{first_item(model, table), table.rows};
  const std::optional<int64_t> words = words_of(model, table.name);
  if (words) out = {std::max<int64_t>(out.first, 1), std::min(out.end, *words + 1)};  // row 0 is of all other texts
  out.end = std::max(out.first, out.end);
  return out;
}

ItemVectors item_vectors(const InferenceModel& model, const std::string& items, const ItemPart& part) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(items, ignored)) {
    const checkpoint::SafetensorsReader file{checkpoint::InputFile(items)};
    const checkpoint::StoredTensor* vectors = file.find(kVectors);
    if (vectors == nullptr || vectors->dtype != DType::kFloat32 || vectors->shape.size() != 2)
      fail(Code::kInvalidArgument, items, " has no float32 tensor \"", kVectors,
           "\" [items, values]: tessera predict --vectors writes such files");
    const Tensor all = file.read(kVectors);
    const auto [first, count] = rows_of(all.size(0), part);
    if (count == all.size(0)) return {all, 0, count};
    const auto values = all.span<float>().subspan(static_cast<size_t>(first * all.size(1)));
    return {Tensor::from<float>(values.first(static_cast<size_t>(count * all.size(1))), {count, all.size(1)}), first,
            all.size(0)};
  }
  const auto& tables = model.description.tables;
  const auto at = std::find_if(tables.begin(), tables.end(), [&](const ModelTable& t) { return t.name == items; });
  if (at == tables.end())
    fail(Code::kNotFound, "--items: \"", items, "\" is neither a file nor a table of the model, which has ",
         sdk::joined(tables, &ModelTable::name));
  const QuantizedTable& table = model.tables[static_cast<size_t>(at - tables.begin())];
  if (table.config.remapping)
    fail(Code::kInvalidArgument, "--items: the rows of table \"", items, "\" have ids of their own: name a file");
  const ItemRows item = item_rows(model, *at);
  const int64_t before = item.first, all = item.end - item.first;
  const auto [first, count] = rows_of(all, part);
  const Tensor rows = slice_rows(table, {before + first, count, 0, at->dim});
  return {dequantize_rows(rows, at->format, at->dim), before + first, all};
}

void write_vectors(const std::string& path, const Tensor& vectors) {
  checkpoint::SafetensorsWriter file(path, {{kVectors, {DType::kFloat32, vectors.shape()}}});
  file.write(kVectors, vectors);
  file.file().sync();
}

}  // namespace tessera::retrieval

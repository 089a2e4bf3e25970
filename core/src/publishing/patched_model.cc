#include "publishing/patched_model.h"

#include <algorithm>
#include <cstring>

#include "inference/manifest.h"
#include "inference/packed_model.h"
#include "tessera/abi/draft/on_demand.h"

namespace tessera::publishing {
namespace {

const QuantizedTable* find(const InferenceModel& model, const std::string& name) {
  for (const QuantizedTable& t : model.tables) {
    if (t.config.name == name) return &t;
  }
  return nullptr;
}

bool has_keys(const QuantizedTable& table) {
  return table.config.remapping != nullptr && table.config.remapping->keys().defined();
}

// Ids are row numbers and ascend. `kept`: rows to write; null: all.
void write_rows(QuantizedTable& table, const DeltaTable& delta, const std::vector<RowRange>* kept) {
  const int64_t stride = table.rows.size(1);
  auto* const rows = table.rows.data<uint8_t>();
  const auto* from = delta.rows.data<uint8_t>();
  size_t range = 0;
  for (const int64_t id : delta.ids.span<int64_t>()) {
    while (kept != nullptr && range < kept->size() && id >= (*kept)[range].end) ++range;
    const bool read = kept == nullptr || (range < kept->size() && id >= (*kept)[range].first);
    if (read) std::memcpy(rows + id * stride, from, static_cast<size_t>(stride));
    from += stride;
  }
}

// Handles rows with their own ids, including the row that other ids share. Remaining rows keep their order, and new
// ones follow. All of it goes into new memory.
void write_keyed(QuantizedTable& table, const DeltaTable& delta) {
  const IndexRemapping& before = *table.config.remapping;
  const int64_t stride = table.rows.size(1), old = before.keys().numel();
  const auto ids = delta.ids.span<int64_t>();
  std::vector<int64_t> place(static_cast<size_t>(old));
  for (const int64_t id : delta.removed.span<int64_t>()) {
    if (const int64_t row = before.own_row(id); row >= 0) place[static_cast<size_t>(row)] = -1;
  }
  int64_t rows = 0;
  for (int64_t& p : place) p = p < 0 ? -1 : rows++;
  const int64_t stay = rows;
  rows += std::count_if(ids.begin(), ids.end(), [&](int64_t id) { return before.own_row(id) < 0; });
  Tensor keys = Tensor::empty({rows}, DType::kInt64), values = Tensor::empty({rows, stride}, DType::kUInt8);
  const auto put = [&](int64_t row, int64_t id, const uint8_t* from) {
    keys.data<int64_t>()[row] = id;
    std::memcpy(values.data<uint8_t>() + row * stride, from, static_cast<size_t>(stride));
  };
  for (int64_t r = 0; r < old; ++r) {
    if (place[static_cast<size_t>(r)] >= 0)
      put(place[static_cast<size_t>(r)], before.keys().data<int64_t>()[r], table.rows.data<uint8_t>() + r * stride);
  }
  int64_t next = stay;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t row = before.own_row(ids[i]);
    put(row < 0 ? next++ : place[static_cast<size_t>(row)], ids[i],
        delta.rows.data<uint8_t>() + static_cast<int64_t>(i) * stride);
  }
  table.config.remapping = IndexRemapping::keyed(before.ids(), keys, IndexRemapping::seats_of(keys));
  table.config.num_embeddings = rows;
  table.figures.reset();  // they belong to the base
  table.rows = std::move(values);
}

}  // namespace

PatchedModel::PatchedModel(const std::string& base)
    : model_(inference::open_packed_model(base, inference::MappedFile::kPrivate)) {}

void PatchedModel::check(const Delta& delta, const std::string& path) const {
  const auto other = [&](const auto&... what) { fail(Code::kDataLoss, path, " belongs to another model: ", what...); };
  if (delta.tables.size() != model_.tables.size())
    other("it has ", delta.tables.size(), " tables, and this one ", model_.tables.size());
  for (const DeltaTable& d : delta.tables) {
    const QuantizedTable* table = find(model_, d.name);
    if (table == nullptr) other("it has a table \"", d.name, '"');
    if (d.rows.dim() != 2 || d.rows.size(1) != table->rows.size(1) || d.ids.dim() != 1 || d.removed.dim() != 1)
      other("rows of its table \"", d.name, "\" have another size");
    const auto ids = d.ids.span<int64_t>();
    const int64_t last = has_keys(*table) ? TSR_SHARED_ROW_ID : table->config.num_embeddings - 1;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] > last || (i > 0 && ids[i] <= ids[i - 1]))
        other("id ", ids[i], " of its table \"", d.name, "\" is out of range or order");
    }
    if (d.removed.numel() > 0 && !has_keys(*table)) other("it removes rows of table \"", d.name, '"');
    for (const int64_t id : d.removed.span<int64_t>()) {
      if (id < 0 || std::binary_search(ids.begin(), ids.end(), id))
        other("it removes id ", id, " but has a row for it");
    }
  }
  for (const auto& [name, value] : model_.dense) {
    const auto at = delta.dense.find(name);
    if (at == delta.dense.end() || at->second.shape() != value.shape() || at->second.dtype() != value.dtype())
      other("its parameter \"", name, "\" is missing or of another size");
  }
}

void PatchedModel::apply(const Delta& delta, const KeptRows* kept) {
  bool sizes_changed = false;
  for (const DeltaTable& d : delta.tables) {
    auto& table = const_cast<QuantizedTable&>(*find(model_, d.name));
    if (!has_keys(table)) {
      const auto ranges = kept == nullptr ? KeptRows::const_iterator{} : kept->find(d.name);
      write_rows(table, d, kept == nullptr || ranges == kept->end() ? nullptr : &ranges->second);
      continue;
    }
    write_keyed(table, d);
    sizes_changed = true;
  }
  for (auto& [name, value] : model_.dense) value = delta.dense.at(name);
  if (sizes_changed) inference::complete(model_);
}

}  // namespace tessera::publishing

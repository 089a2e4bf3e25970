#include "tessera/quantization.h"

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstring>
#include <utility>

#include "sparse/arrays.h"
#include "tessera/abi/draft/on_demand.h"
#include "tessera/embedding_modules.h"
#include "tessera/sdk/random.h"

namespace tessera {
namespace {

uint8_t* bytes_of(const Tensor& rows) { return static_cast<uint8_t*>(rows.raw()); }

void require_stored(const Tensor& rows, std::string_view table) {
  if (rows.defined() && rows.dtype() == DType::kUInt8 && rows.dim() == 2) return;
  fail(Code::kInvalidArgument, "the stored rows of table \"", table, "\" must be uint8 [rows, bytes of a row]");
}

void require_multiple(RowFormat format, int64_t dim, std::string_view table) {
  const int64_t multiple = sdk::info_of(format).dim_multiple;
  if (dim % multiple == 0) return;
  fail(Code::kInvalidArgument, "table \"", table, "\" has ", dim, " columns, but rows quantize to ", to_string(format),
       " in multiples of ", multiple, " columns: choose ",
       dim % sdk::info_of(RowFormat::kInt8).dim_multiple == 0 ? "int8, or " : "", "a format of floats");
}

Tensor stored_rows(int64_t rows, RowFormat format, int64_t dim, int64_t alignment) {
  TESSERA_CHECK(alignment >= 1, "alignment ", alignment);
  return Tensor::zeros({rows, sdk::row_bytes(format, dim, alignment)}, DType::kUInt8);
}

// Encodes float32 [count, dim] as rows [first, first + count) of `out`.
void encode_rows(const float* values, int64_t count, int64_t dim, RowFormat format, std::string_view table,
                 int64_t first, const Tensor& out) {
  const int64_t stride = out.size(1);
  for (int64_t i = 0; i < count; ++i) {
    const float* row = values + i * dim;
    const int64_t at = sdk::first_non_finite(row, dim);
    if (at >= 0) {
      fail(Code::kInvalidArgument, "table \"", table, "\", row ", first + i, ": its value ", row[at], " in column ", at,
           " is not finite and cannot be quantized");
    }
    if (const int64_t clipped = sdk::first_clipped(format, row, dim); clipped >= 0) {
      fail(Code::kInvalidArgument, "table \"", table, "\", row ", first + i, ": its value ", row[clipped],
           " in column ", clipped, " is beyond the largest of ", to_string(format), ", ", sdk::Float8{}.largest(),
           ": choose another format for this table");
    }
    sdk::encode_row(format, row, dim, bytes_of(out) + (first + i) * stride);
  }
}

}  // namespace

RowFormat row_format_from(std::string_view name) {
  if (const sdk::RowFormatInfo* info = sdk::row_format_named(name)) return info->format;
  std::string known;
  for (const sdk::RowFormatInfo& info : sdk::kRowFormats) known += str_cat(known.empty() ? "" : ", ", info.name);
  fail(Code::kInvalidArgument, "unknown row format \"", name, "\": one of ", known);
}

struct IndexRemapping::Map {
  boost::unordered_flat_map<int64_t, int64_t> rows;
};

IndexRemapping::IndexRemapping() = default;
IndexRemapping::~IndexRemapping() = default;

void IndexRemapping::note(int64_t row) {
  if (row < -1)
    fail(Code::kInvalidArgument, "a remapping says row ", row, ": rows are counted from 0, -1 is a pruned one");
  rows_needed_ = std::max(rows_needed_, row + 1);
}

std::shared_ptr<const IndexRemapping> IndexRemapping::array(const Tensor& rows) {
  std::shared_ptr<IndexRemapping> out(new IndexRemapping);
  out->ids_ = rows.numel();
  out->array_ = rows.to(DType::kInt64).to_vector<int64_t>();
  for (int64_t row : out->array_) out->note(row);
  return out;
}

std::shared_ptr<const IndexRemapping> IndexRemapping::hash(int64_t ids, const Tensor& keys, const Tensor& rows) {
  if (keys.numel() != rows.numel()) {
    fail(Code::kInvalidArgument, "a remapping has ", keys.numel(), " ids for ", rows.numel(), " rows");
  }
  std::shared_ptr<IndexRemapping> out(new IndexRemapping);
  out->ids_ = ids;
  out->map_ = std::make_unique<Map>();
  out->map_->rows.reserve(static_cast<size_t>(keys.numel()));
  for (int64_t i = 0; i < keys.numel(); ++i) {
    const int64_t key = sparse::integer_at(keys, i), row = sparse::integer_at(rows, i);
    if (key < 0 || key >= ids)
      fail(Code::kInvalidArgument, "a remapping has the id ", key, ", but ids are below ", ids);
    out->note(row);
    if (!out->map_->rows.emplace(key, row).second)
      fail(Code::kInvalidArgument, "a remapping has the id ", key, " twice");
  }
  return out;
}

namespace {

constexpr int32_t kNoRow = -1;

// Returns the slot of the hash table where the search for an id begins. `seats` is a power of two.
uint64_t first_seat(int64_t id, int64_t seats) {
  return sdk::mixed(static_cast<uint64_t>(id) + sdk::kGoldenStep) & static_cast<uint64_t>(seats - 1);
}

// Returns the row of an id. At a free slot it returns stop(slot).
template <class Stop>
int64_t find_key(const Tensor& keys, const Tensor& seats, int64_t id, const Stop& stop) {
  const int64_t count = seats.numel(), rows = keys.numel();
  const int32_t* seat = seats.data<int32_t>();
  uint64_t at = first_seat(id, count);
  for (int64_t looked = 0; looked < count; ++looked, at = (at + 1) & static_cast<uint64_t>(count - 1)) {
    const int64_t row = seat[at];
    if (row == kNoRow) return stop(at);
    if (row >= 0 && row < rows && keys.data<int64_t>()[row] == id) return row;
  }
  return -1;
}

}  // namespace

Tensor IndexRemapping::seats_of(const Tensor& keys) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (keys.numel() > kMost)
    fail(Code::kUnimplemented, "a table has ", keys.numel(), " rows with ids of their own, but at most ", kMost,
         " can be found by them");
  int64_t count = 2;
  while (count < 2 * keys.numel()) count *= 2;
  Tensor seats = Tensor::empty({count}, DType::kInt32);
  std::fill_n(seats.data<int32_t>(), count, kNoRow);
  for (int64_t i = 0; i < keys.numel(); ++i) {
    const int64_t id = keys.data<int64_t>()[i];
    if (id < 0) fail(Code::kInvalidArgument, "the id ", id, " of row ", i, " is below 0");
    const int64_t other = find_key(keys, seats, id, [&](uint64_t seat) {
      seats.data<int32_t>()[seat] = static_cast<int32_t>(i);
      return i;
    });
    if (other != i) fail(Code::kInvalidArgument, "rows ", other, " and ", i, " both belong to id ", id);
  }
  return seats;
}

std::shared_ptr<const IndexRemapping> IndexRemapping::keyed(int64_t ids, const Tensor& keys, const Tensor& seats) {
  if (keys.dtype() != DType::kInt64 || seats.dtype() != DType::kInt32 || seats.numel() < 1 ||
      (seats.numel() & (seats.numel() - 1)) != 0) {
    fail(Code::kInvalidArgument, "an index of keys is int64 [rows] and int32 [a power of two]");
  }
  std::shared_ptr<IndexRemapping> out(new IndexRemapping);
  out->ids_ = ids;
  out->keys_ = keys;
  out->seats_ = seats;
  out->rows_needed_ = keys.numel();
  return out;
}

int64_t IndexRemapping::own_row(int64_t id) const {
  return find_key(keys_, seats_, id, [](uint64_t) { return int64_t{-1}; });
}

int64_t IndexRemapping::row(int64_t id) const {
  if (keys_.defined()) return find_key(keys_, seats_, id, [this](uint64_t) { return own_row(TSR_SHARED_ROW_ID); });
  if (map_ == nullptr) return array_[static_cast<size_t>(id)];
  const auto found = map_->rows.find(id);
  return found == map_->rows.end() ? -1 : found->second;
}

std::vector<QuantizedTable> validated(std::vector<QuantizedTable> tables) {
  const std::vector<EmbeddingBagConfig> configs = validated(configs_of(tables));
  for (size_t t = 0; t < tables.size(); ++t) {
    EmbeddingBagConfig& config = tables[t].config = configs[t];
    if (!config.row_format) fail(Code::kInvalidArgument, "table \"", config.name, "\" names no row format");
    require_stored(tables[t].rows, config.name);
    const int64_t bytes = sdk::row_bytes(*config.row_format, config.embedding_dim);
    if (config.embedding_dim * sdk::info_of(*config.row_format).bits % 8 != 0) {
      fail(Code::kInvalidArgument, "table \"", config.name, "\" has ", config.embedding_dim,
           " columns, which do not fill whole bytes in ", to_string(*config.row_format));
    }
    if (tables[t].rows.size(0) != config.num_embeddings || tables[t].rows.size(1) < bytes) {
      fail(Code::kInvalidArgument, "table \"", config.name, "\" has ", config.num_embeddings, " rows of ",
           config.embedding_dim, " columns in ", to_string(*config.row_format), ", at least ", bytes,
           " bytes each, but the stored rows are [", tables[t].rows.size(0), ", ", tables[t].rows.size(1), "]");
    }
    if (config.remapping != nullptr && config.remapping->rows_needed() > config.num_embeddings) {
      fail(Code::kInvalidArgument, "table \"", config.name, "\": its remapping names row ",
           config.remapping->rows_needed() - 1, ", but only ", config.num_embeddings, " rows are stored");
    }
  }
  return tables;
}

std::vector<EmbeddingBagConfig> configs_of(const std::vector<QuantizedTable>& tables) {
  std::vector<EmbeddingBagConfig> out;
  out.reserve(tables.size());
  for (const QuantizedTable& t : tables) out.push_back(t.config);
  return out;
}

Tensor quantize_rows(const Tensor& weights, RowFormat format, std::string_view table, int64_t alignment) {
  if (weights.dim() != 2 || (weights.dtype() != DType::kFloat32 && weights.dtype() != DType::kFloat16)) {
    fail(Code::kInvalidArgument, "the weights of table \"", table, "\" must be float32 or float16 [rows, columns]");
  }
  const int64_t dim = weights.size(1);
  require_multiple(format, dim, table);
  Tensor out = stored_rows(weights.size(0), format, dim, alignment);
  const Tensor values = weights.to(DType::kFloat32);
  encode_rows(values.data<float>(), weights.size(0), dim, format, table, 0, out);
  return out;
}

Tensor dequantize_rows(const Tensor& rows, RowFormat format, int64_t dim) {
  require_stored(rows, "");
  TESSERA_CHECK(rows.size(1) >= sdk::row_bytes(format, dim), "rows of ", rows.size(1), " bytes");
  Tensor out = Tensor::empty({rows.size(0), dim});
  for (int64_t r = 0; r < rows.size(0); ++r) {
    sdk::decode_row(format, bytes_of(rows) + r * rows.size(1), dim, out.data<float>() + r * dim);
  }
  return out;
}

Tensor import_int8_sbfloat(const Tensor& fused, std::string_view table, int64_t alignment) {
  constexpr int64_t kScaleAndBias = 8;
  if (fused.dim() != 2 || fused.dtype() != DType::kUInt8 || fused.size(1) <= kScaleAndBias) {
    fail(Code::kInvalidArgument, "table \"", table,
         "\": rows of the int8 recipe with float32 scale and bias must be uint8 [rows, columns + 8]");
  }
  const int64_t dim = fused.size(1) - kScaleAndBias;
  Tensor out = stored_rows(fused.size(0), RowFormat::kInt8, dim, alignment);
  for (int64_t r = 0; r < fused.size(0); ++r) {
    const uint8_t* row = bytes_of(fused) + r * fused.size(1);
    float scale_and_bias[2];
    std::memcpy(scale_and_bias, row + dim, kScaleAndBias);
    if (sdk::first_non_finite(scale_and_bias, 2) >= 0) {
      fail(Code::kInvalidArgument, "table \"", table, "\", row ", r, ": its scale ", scale_and_bias[0], " or bias ",
           scale_and_bias[1], " is not finite");
    }
    sdk::int8_from_sbfloat(row, dim, bytes_of(out) + r * out.size(1));
  }
  return out;
}

Tensor slice_rows(const QuantizedTable& table, const RowSlice& slice) {
  const EmbeddingBagConfig& config = table.config;
  const sdk::RowFormatInfo& info = sdk::info_of(*config.row_format);
  Tensor rows = table.rows.narrow(slice.row, slice.count);
  if (slice.col == 0 && slice.cols == config.embedding_dim) return rows;
  if (slice.col * info.bits % 8 != 0 || slice.cols * info.bits % 8 != 0) {
    fail(Code::kInvalidArgument, "table \"", config.name, "\": columns ", slice.col, " to ", slice.col + slice.cols - 1,
         " of a row in ", info.name, " are not whole bytes: split at multiples of ", 8 / info.bits);
  }
  Tensor out = stored_rows(slice.count, info.format, slice.cols, 1);
  const int64_t codes = slice.cols * info.bits / 8;
  for (int64_t r = 0; r < slice.count; ++r) {
    const uint8_t* from = bytes_of(rows) + r * rows.size(1);
    uint8_t* to = bytes_of(out) + r * out.size(1);
    std::copy_n(from, info.header, to);
    std::copy_n(from + info.header + slice.col * info.bits / 8, codes, to + info.header);
  }
  return out;
}

std::vector<QuantizedTable> quantize(const EmbeddingTables& collection, const QuantizeOptions& options) {
  constexpr int64_t kValuesAtOnce = int64_t{1} << 20;
  for (const auto& [name, format] : options.formats) (void)collection.table_index(name);
  for (const auto& [name, rows] : options.first_rows) (void)collection.table_index(name);
  std::vector<QuantizedTable> out;
  for (const EmbeddingBagConfig& table : collection.tables()) {
    QuantizedTable made{table, {}};
    const auto format = options.formats.find(table.name);
    made.config.row_format = format == options.formats.end() ? options.format : format->second;
    made.config.optimizer = {};
    if (const auto kept = options.first_rows.find(table.name); kept != options.first_rows.end()) {
      if (kept->second < 1 || kept->second > table.num_embeddings) {
        fail(Code::kInvalidArgument, "table \"", table.name, "\" cannot keep its first ", kept->second, " rows of ",
             table.num_embeddings);
      }
      made.config.num_embeddings = kept->second;
    }
    require_multiple(*made.config.row_format, table.embedding_dim, table.name);
    made.rows =
        stored_rows(made.config.num_embeddings, *made.config.row_format, table.embedding_dim, options.alignment);
    const EmbeddingTables::Place at = collection.place(table.name);
    const int64_t step = std::max<int64_t>(1, kValuesAtOnce / table.embedding_dim);
    std::vector<float> values;
    for (int64_t row = 0; row < made.config.num_embeddings; row += step) {
      const int64_t count = std::min(step, made.config.num_embeddings - row);
      values.resize(static_cast<size_t>(count * table.embedding_dim));
      at.lookup->read_rows(at.table, row, count, values.data());
      encode_rows(values.data(), count, table.embedding_dim, *made.config.row_format, table.name, row, made.rows);
    }
    out.push_back(std::move(made));
  }
  return out;
}

}  // namespace tessera

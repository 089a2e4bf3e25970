// tessera/quantized_table.h - tables for inference: stored rows with 2 to 32 bits per value.
//
//   auto tables = quantize(collection, {.format = RowFormat::kInt8, .formats = {{"film", RowFormat::kInt4}}});
//
// A row's bytes are those of sdk/row_format.h, which are FBGEMM's. All functions here are [any-thread].
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/embedding_configs.h"
#include "tessera/tensor.h"

namespace tessera {

class EmbeddingTables;

RowFormat row_format_from(std::string_view name);  // "int8", "int4", "int2", "fp16", "fp32", "fp8"; kInvalidArgument

// Maps ids to stored rows, for tables with pruned rows. Immutable; threads may share it.
class IndexRemapping {
 public:
  // rows: int32 or int64, one per id: its stored row; -1: pruned.
  static std::shared_ptr<const IndexRemapping> array(const Tensor& rows);
  // The same as a hash map, for tables of which little is left: id keys[i] has row rows[i]. Other ids below `ids` were
  // pruned. keys and rows are int32 or int64.
  static std::shared_ptr<const IndexRemapping> hash(int64_t ids, const Tensor& keys, const Tensor& rows);
  // For rows with their own ids: row i belongs to id keys[i], int64 [rows]. Other ids below `ids` have no row. `seats`,
  // int32 [a power of two], come from seats_of(). Both may be borrowed memory, such as a mapped file, and are not read
  // here.
  static std::shared_ptr<const IndexRemapping> keyed(int64_t ids, const Tensor& keys, const Tensor& seats);
  // kInvalidArgument: an id occurs twice or is negative. kUnimplemented: there are more than 2^30 keys.
  static Tensor seats_of(const Tensor& keys);
  ~IndexRemapping();

  int64_t ids() const { return ids_; }                  // valid ids are [0, ids())
  int64_t rows_needed() const { return rows_needed_; }  // one more than the largest row
  int64_t row(int64_t id) const;                        // for a valid id; -1: pruned
  // Only for keyed(): the row that belongs only to this id; -1: none. Ids without one may share a row, see row().
  int64_t own_row(int64_t id) const;
  bool is_array() const { return map_ == nullptr && !keys_.defined(); }
  const Tensor& keys() const { return keys_; }  // of keyed(); else undefined
  const Tensor& seats() const { return seats_; }

 private:
  struct Map;
  IndexRemapping();
  void note(int64_t row);

  int64_t ids_ = 0;
  int64_t rows_needed_ = 0;
  std::vector<int64_t> array_;
  std::unique_ptr<Map> map_;
  Tensor keys_, seats_;
};

struct QuantizedTable {
  // row_format is set, and num_embeddings counts the rows in `rows`. With a remapping, valid ids are those that it
  // knows.
  EmbeddingBagConfig config;
  // uint8 [num_embeddings, bytes from row to row]. May be borrowed memory, such as a mapped file, because it is only
  // read.
  Tensor rows;
  std::optional<RowFigures> figures = {};  // of on-demand tables, from the training that wrote them
};

// Checks that names, sizes, formats and remappings fit, and fills in features. kInvalidArgument names the table.
std::vector<QuantizedTable> validated(std::vector<QuantizedTable> tables);
std::vector<EmbeddingBagConfig> configs_of(const std::vector<QuantizedTable>& tables);

// Packs float32 or float16 [rows, dim] to uint8 [rows, row bytes rounded up to `alignment`]. kInvalidArgument: a row
// has NaN or infinity (with table and row number), or the format cannot have the dim (int8: multiples of 2, int4: 4,
// int2: 8).
Tensor quantize_rows(const Tensor& weights, RowFormat format, std::string_view table, int64_t alignment = 1);
// Unpacks to float32 [rows, dim].
Tensor dequantize_rows(const Tensor& rows, RowFormat format, int64_t dim);
// Converts uint8 [rows, dim + 8], the INT8 format of checkpoints and communication with float32 scale and bias after
// the codes, to rows of a kInt8 table. Codes stay the same; scale and bias are rounded to half. kInvalidArgument: a
// row's scale or bias is not finite (with table and row number).
Tensor import_int8_sbfloat(const Tensor& fused, std::string_view table, int64_t alignment = 1);
// Takes columns [col, col + cols) of stored rows [row, row + count), with scale and bias of the whole rows. Shares the
// memory if all columns are wanted. kInvalidArgument: a column split is inside a byte.
struct RowSlice {
  int64_t row = 0, count = 0, col = 0, cols = 0;
};
Tensor slice_rows(const QuantizedTable& table, const RowSlice& slice);

struct QuantizeOptions {
  RowFormat format = RowFormat::kInt8;
  std::map<std::string, RowFormat> formats = {};  // of tables that differ
  int64_t alignment = 1;                          // of rows, in bytes; FBGEMM's unsharded tables have 16
  // Tables of which only the first rows are kept: name to number of rows. Later ids are then out of range.
  std::map<std::string, int64_t> first_rows = {};
};
// Quantizes the tables of a float collection. Rows pass through float32 in blocks. kNotFound: a table is not in it.
std::vector<QuantizedTable> quantize(const EmbeddingTables& collection, const QuantizeOptions& options);

}  // namespace tessera

// tessera/quantized_table.h - tables that only infer: rows of 2 to 32 bits per value, as they are stored and looked up.
//
//   auto tables = quantize(collection, {.format = RowFormat::kInt8, .formats = {{"film", RowFormat::kInt4}}});
//
// The bytes of a row are those of sdk/row_format.h, which are FBGEMM's. Functions here are [any-thread].
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
#include "tessera/row_figures.h"
#include "tessera/tensor.h"

namespace tessera {

class EmbeddingTables;

RowFormat row_format_from(std::string_view name);  // "int8", "int4", "int2", "fp16", "fp32", "fp8"; kInvalidArgument

// Which stored row an id has where rows of a table were pruned. Immutable; shared by threads.
class IndexRemapping {
 public:
  // rows: int32 or int64, one per id: its stored row, or -1 where that was pruned.
  static std::shared_ptr<const IndexRemapping> array(const Tensor& rows);
  // The same as a hash map, for tables of which little is left: id keys[i] has row rows[i]; other ids below `ids` were
  // pruned. keys and rows: int32 or int64.
  static std::shared_ptr<const IndexRemapping> hash(int64_t ids, const Tensor& keys, const Tensor& rows);
  // For rows that have ids of their own: row i is that of id keys[i], int64 [rows]; other ids below `ids` have none.
  // `seats`, int32 [a power of two], are what seats_of() gives. Both may be borrowed memory, such as a mapped file:
  // they are only read, and nothing of them here.
  static std::shared_ptr<const IndexRemapping> keyed(int64_t ids, const Tensor& keys, const Tensor& seats);
  // kInvalidArgument: an id is there twice, or below 0. kUnimplemented: more than 2^30 keys.
  static Tensor seats_of(const Tensor& keys);
  ~IndexRemapping();

  int64_t ids() const { return ids_; }                  // valid ones are [0, ids())
  int64_t rows_needed() const { return rows_needed_; }  // one more than the largest row
  int64_t row(int64_t id) const;                        // of a valid id; -1: pruned
  // Only for keyed(): the row whose key this is. Others may share one with all that have none (row()); -1: no row is.
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
  // row_format is set; num_embeddings counts the rows in `rows`. With a remapping, ids are those that it knows.
  EmbeddingBagConfig config;
  // uint8 [num_embeddings, bytes from row to row]. May be borrowed memory, such as a mapped file: it is only read.
  Tensor rows;
  std::optional<RowFigures> figures = {};  // of rows that came on demand, by the training that wrote them
};

// Names, sizes, formats and remappings fit; features filled in. kInvalidArgument names the table.
std::vector<QuantizedTable> validated(std::vector<QuantizedTable> tables);
std::vector<EmbeddingBagConfig> configs_of(const std::vector<QuantizedTable>& tables);

// float32 or float16 [rows, dim] to uint8 [rows, row bytes rounded up to `alignment`]. kInvalidArgument: a row with NaN
// or infinity, by table and row number; a dim that the format cannot have (int8: 2, int4: 4, int2: multiples of 8).
Tensor quantize_rows(const Tensor& weights, RowFormat format, std::string_view table, int64_t alignment = 1);
// Back to float32 [rows, dim].
Tensor dequantize_rows(const Tensor& rows, RowFormat format, int64_t dim);
// uint8 [rows, dim + 8]: the INT8 recipe with float32 scale and bias behind the codes, as checkpoints and communication
// use it, to the rows of a kInt8 table: the same codes, scale and bias rounded to half. kInvalidArgument: a row whose
// scale or bias is not finite, by table and row number.
Tensor import_int8_sbfloat(const Tensor& fused, std::string_view table, int64_t alignment = 1);
// Columns [col, col + cols) of stored rows [row, row + count): each keeps the scale and bias of its whole row. Shares
// the memory where all columns are wanted. kInvalidArgument if a column split would lie inside a byte.
struct RowSlice {
  int64_t row = 0, count = 0, col = 0, cols = 0;
};
Tensor slice_rows(const QuantizedTable& table, const RowSlice& slice);

struct QuantizeOptions {
  RowFormat format = RowFormat::kInt8;
  std::map<std::string, RowFormat> formats = {};  // of tables that differ
  int64_t alignment = 1;                          // of rows, in bytes; FBGEMM's unsharded tables have 16
  // Tables of which only the first rows are kept: name to their number. Ids beyond are out of range then.
  std::map<std::string, int64_t> first_rows = {};
};
// The tables of a float collection. Rows pass through float32 in pieces. kNotFound: a table that is not in it.
std::vector<QuantizedTable> quantize(const EmbeddingTables& collection, const QuantizeOptions& options);

}  // namespace tessera

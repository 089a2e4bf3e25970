// checkpoint.json: a checkpoint's contents except the tensors, and the checksums that show damage. docs/checkpoints.md
// describes the format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "tessera/embedding_configs.h"
#include "tessera/lookup.h"

namespace tessera::checkpoint {

inline constexpr const char* kManifestFile = "checkpoint.json";
// Prefixes of tensor files: "model.safetensors", or "model-00001-of-00003.safetensors".
inline constexpr const char* kModel = "model";
inline constexpr const char* kOptimizer = "optimizer";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";

// A table as stored in a checkpoint.
struct TableEntry {
  std::string parameter;  // "sparse_arch.embedding_bag_collection.embedding_bags.film.weight"
  std::string name;       // "film"
  int64_t rows = 0, dim = 0;
  DType dtype = DType::kFloat32;
  OptimizerSpec optimizer;
  double learning_rate = 0;           // at the time of saving; for information
  std::vector<Lookup::State> states;  // float32
  std::vector<int64_t> cuts;          // column widths; a state kept per row has one value for each cut
  int64_t extra_words = 0;            // 4-byte words per row and cut that only the kernel understands
  std::string kernel;  // the kernel that wrote extra_words, with its options; "": an earlier version wrote them
  // Number of rows stored with their ids, which are below `rows`. Set for on-demand rows and for changed rows; unset:
  // all rows [0, rows) are stored.
  std::optional<int64_t> keys;
  bool changes = false;  // with `keys`: only rows that changed since the base, which has all rows
  // Number of the base's ids that have no row any more. Set with `changes` if rows come on demand.
  std::optional<int64_t> removed;
  std::vector<int64_t> table_extras;  // extra bytes that the kernel stored for each shard
  std::optional<RowFigures> figures;  // with `keys`; for information

  int64_t stored_rows() const { return keys.value_or(rows); }
  bool on_demand() const { return keys.has_value() && (!changes || removed.has_value()); }
  StoredTensor weight() const;             // type and shape
  StoredTensor state(size_t k) const;      // [rows], [rows, cuts] or [rows, dim]
  std::string state_name(size_t k) const;  // "<parameter>/film.momentum1"
  int64_t state_width(size_t k) const;     // values per row
  std::string state_list() const;          // "momentum1 (per row), momentum2", or "none"
  StoredTensor extra() const;              // int32 [rows, cuts * extra_words]
  std::string extra_name() const;          // "<parameter>/film.extra"
  int64_t extra_width() const { return static_cast<int64_t>(cuts.size()) * extra_words; }
  StoredTensor key_list() const;                     // int64 [keys]
  std::string keys_name() const;                     // "<parameter>/film.keys"
  StoredTensor removed_list() const;                 // int64 [removed]
  std::string removed_name() const;                  // "<parameter>/film.removed"
  std::string table_extra_name(size_t shard) const;  // "<parameter>/film.table_extra.0", uint8
};

struct Manifest {
  using File = StoredFile;
  // The checkpoint beside it that these changes apply to.
  struct Base {
    std::string name;  // its directory: "save-3"
    uint32_t crc = 0;  // CRC-32 of its checkpoint.json
  };
  int world_size = 1;    // of the job that wrote it; for information
  std::string progress;  // the caller's text
  std::vector<TableEntry> tables;
  std::vector<std::pair<std::string, int64_t>> steps;  // number of updates, by collection
  // Settings of the dense optimizer as "name = value", one list for each group. Names must match; values may differ.
  std::vector<std::vector<std::string>> dense_optimizer;
  std::vector<File> files;
  std::optional<Base> base;

  const TableEntry* find(const std::string& parameter) const;  // nullptr: none
  // Returns the tensor files of a kind, kModel or kOptimizer. kDataLoss: there are none. `path`: the manifest's own.
  std::vector<File> files_of(const std::string& kind, const std::string& path) const;
  std::string json() const;
  // kDataLoss: the manifest is damaged. kUnimplemented: it has a newer format. Both errors name `path`.
  static Manifest from_json(const std::string& text, const std::string& path);
};

Manifest manifest_in(const std::string& directory);
// Opens a file that the manifest in `directory` lists. kDataLoss: it is missing or has another size.
InputFile open_listed(const std::string& directory, const Manifest::File& file);
[[noreturn]] void fail_wrong_sum(const std::string& directory, const Manifest::File& file);

// "model.safetensors.index.json": says which file has which tensor, for Hugging Face's readers.
std::string index_name(const std::string& kind);
// True if a file of a checkpoint may have this name.
bool is_file_name(const std::string& name);

// A tensor file that is to be written.
struct TensorFile {
  std::string name;
  StoredTensors tensors;
};
int64_t bytes_of(const StoredTensors& tensors);
// Splits tensors the way Hugging Face's readers expect: "model.safetensors", or several files with one for each large
// table. `tables` has the tensors of each table, which stay together. kInvalidArgument: two tensors have the same name.
std::vector<TensorFile> split_by_table(const std::string& kind, StoredTensors others,
                                       const std::vector<StoredTensors>& tables);
// The text of index_name(): {"metadata": {"total_size": bytes}, "weight_map": {tensor: file}}.
std::string index_of(const std::vector<TensorFile>& files);

}  // namespace tessera::checkpoint

// A reader over record batches: rows of columns from files that an ArrowOpener opens.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "columnar/column.h"
#include "columnar/source.h"
#include "files.h"
#include "tessera/sdk/draft/reader.h"

namespace tessera_readers {

class ColumnarReader : public tessera::sdk::Reader {
 public:
  // `endings` select a directory's files by name.
  ColumnarReader(std::vector<std::string_view> endings, ArrowFiles source)
      : endings_(std::move(endings)), from_(std::move(source)) {}

  const char* opens(const std::string& path) { return first_match(path, endings_).empty() ? nullptr : ""; }
  void open(std::string_view path, int64_t block_bytes) override;
  const std::vector<std::string>& files() const override { return files_; }
  const std::vector<tessera::sdk::ReaderColumn>& columns() const override { return columns_; }
  const std::vector<tessera::sdk::ReaderBlock>& blocks() const override { return blocks_; }
  void select(std::span<const tessera::sdk::ReaderWant> wants) override;
  std::span<const tsr_reader_values> read(int64_t block) override;

 private:
  struct FileColumn {
    std::string name;
    std::optional<ArrowType> type;          // unset if columns of this type cannot be read
    std::string about;                      // name of the Arrow type; for a folder's key: "the key of a folder"
    std::optional<std::string> value = {};  // value of all rows, for a folder's key
    bool key = false;                       // a key of the file's folders, which is not in the file
  };
  // The place of a block in its file: rows [first, ...) of a unit, which is read in batches of `batch` rows.
  struct Place {
    int64_t unit = 0, first = 0, batch = 0;
  };

  void scan(std::string_view path, int64_t file, int64_t block_bytes);
  void list_columns();
  void list_others();
  const FileColumn& find(const std::string& name, size_t file) const;
  void check_units(const tessera::sdk::ReaderWant& want) const;
  void check(const tessera::sdk::ReaderWant& want) const;
  void append_batch(const tessera::sdk::ReaderBlock& block, int64_t rows);
  void start_file(int64_t file);
  void start_unit(const Place& place);
  void take(const tessera::sdk::ReaderBlock& block, const Place& place);
  [[noreturn]] void damaged(const tessera::sdk::ReaderBlock& block, const Place& place, const std::string& why);
  bool readable(const tessera::sdk::ReaderBlock& block, const Place& place, int column);

  std::vector<std::string_view> endings_;
  ArrowFiles from_;
  std::vector<std::string> files_;
  // per file: its own columns in their order, then its folders' keys
  std::vector<std::vector<FileColumn>> file_columns_;
  std::vector<tessera::sdk::ReaderColumn> columns_;  // of the first file
  std::vector<tessera::sdk::ReaderBlock> blocks_;
  std::vector<Place> places_;  // per block
  std::vector<tessera::sdk::ReaderWant> wants_;

  // The open file, the batches of one of its units, and the batch whose rows come next.
  std::unique_ptr<ArrowSource> source_;
  int64_t source_file_ = -1, unit_ = -1;
  std::vector<ArrowColumn> selected_;      // per want
  std::vector<int> indices_;               // indices in the file of the selected columns, ascending and unique
  std::vector<const FileColumn*> wanted_;  // per want
  std::vector<size_t> children_;           // per want: index of the batch's child; unused for keys
  ArrowOwner<ArrowArrayStream> stream_;
  ArrowOwner<ArrowArray> batch_;
  int64_t next_row_ = 0;                     // within the unit
  int64_t batch_first_ = 0, batch_end_ = 0;  // range of the unit's rows in the batch
  std::vector<tsr_reader_values> values_;
};

}  // namespace tessera_readers

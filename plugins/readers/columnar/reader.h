// A reader over record batches: rows of columns out of files that an ArrowOpener opens.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "columnar/column.h"
#include "columnar/source.h"
#include "tessera/sdk/draft/reader.h"

namespace tessera_readers {

class ColumnarReader : public tessera::sdk::Reader {
 public:
  // `endings`: of the names of a directory's files.
  ColumnarReader(std::vector<std::string_view> endings, ArrowOpener opener)
      : endings_(std::move(endings)), opener_(std::move(opener)) {}

  void open(std::string_view path, int64_t block_bytes) override;
  const std::vector<std::string>& files() const override { return files_; }
  const std::vector<tessera::sdk::ReaderColumn>& columns() const override { return columns_; }
  const std::vector<tessera::sdk::ReaderBlock>& blocks() const override { return blocks_; }
  void select(std::span<const tessera::sdk::ReaderWant> wants) override;
  std::span<const tsr_reader_values> read(int64_t block) override;

 private:
  struct FileColumn {
    std::string name;
    std::optional<ArrowType> type;          // empty: columns of this type cannot be read
    std::string about;                      // the Arrow type's name; of a folder's key: "the key of a folder"
    std::optional<std::string> value = {};  // of all rows: that of a folder's key
    bool key = false;                       // of the file's folders: there is no such column in the file
  };
  // Where a block lies in its file: rows [first, ...) of a unit, which is read in batches of so many.
  struct Place {
    int64_t unit = 0, first = 0, batch = 0;
  };

  void scan(std::string_view path, int64_t file, int64_t block_bytes);
  void list_columns();
  const FileColumn& find(const std::string& name, size_t file) const;
  void check(const tessera::sdk::ReaderWant& want) const;
  void append_batch(const tessera::sdk::ReaderBlock& block, int64_t rows);
  void start_file(int64_t file);
  void start_unit(const Place& place);
  void take(const tessera::sdk::ReaderBlock& block, const Place& place);
  [[noreturn]] void damaged(const tessera::sdk::ReaderBlock& block, const Place& place, const std::string& why);
  bool readable(const tessera::sdk::ReaderBlock& block, const Place& place, int column);

  std::vector<std::string_view> endings_;
  ArrowOpener opener_;
  std::vector<std::string> files_;
  std::vector<std::vector<FileColumn>> file_columns_;  // by file: its own, in their order, then its folders' keys
  std::vector<tessera::sdk::ReaderColumn> columns_;    // of the first file
  std::vector<tessera::sdk::ReaderBlock> blocks_;
  std::vector<Place> places_;  // by block
  std::vector<tessera::sdk::ReaderWant> wants_;

  // What is open: a file, the batches of one of its units, and the batch whose rows come next.
  std::unique_ptr<ArrowSource> source_;
  int64_t source_file_ = -1, unit_ = -1;
  std::vector<ArrowColumn> selected_;      // by want
  std::vector<int> indices_;               // of the selected columns in the file, ascending, each once
  std::vector<const FileColumn*> wanted_;  // by want
  std::vector<size_t> children_;           // by want: which of a batch's; unused for keys
  ArrowOwner<ArrowArrayStream> stream_;
  ArrowOwner<ArrowArray> batch_;
  int64_t next_row_ = 0;                     // of the unit
  int64_t batch_first_ = 0, batch_end_ = 0;  // rows of the unit in the batch
  std::vector<tsr_reader_values> values_;
};

}  // namespace tessera_readers

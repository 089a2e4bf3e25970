// Reads files through a reader plugin (abi/draft/reader.h): their blocks of rows, and the columns of each block.
#pragma once

#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tessera/abi/draft/reader.h"
#include "tessera/config.h"
#include "tessera/runtime.h"

namespace tessera::data {

struct FileBlock {
  int64_t file = 0, first_row = 0, rows = 0, bytes = 0;
  bool behind = false;      // cheap to read only after the previous block
  int64_t rows_before = 0;  // in all blocks before it
};

// A column of the files: tsr_reader_column.
struct FileColumn {
  std::string name;
  int32_t type = TSR_READER_TEXT;
  bool list = false, weighted = false;
  std::string about = {};  // the type in the format's words: "struct<a: int64>"
};

// A wanted column: tsr_reader_want.
struct WantedColumn {
  std::string name;
  int32_t type = TSR_READER_TEXT;
  bool list = false, weighted = false;
  char separator = ' ';
  bool operator==(const WantedColumn&) const = default;
};

tsr_reader_want raw_want(const WantedColumn& want);           // borrows the name of `want`
std::vector<FileColumn> columns_of(const Component& reader);  // readable columns

class ReaderComponent {
 public:
  // Opens the files in `path`. `reader`: the component's name, with options as Runtime::create() takes them.
  ReaderComponent(const Runtime& runtime, const std::string& reader, const std::string& path, int64_t block_bytes);

  const std::vector<FileBlock>& blocks() const { return blocks_; }
  int64_t files() const { return files_; }  // their number
  std::string file(int64_t i) const;
  std::vector<FileColumn> columns() const { return columns_of(*part_); }  // of the first file
  // Columns of the first file that cannot be read; `about` gives their type.
  std::vector<FileColumn> unreadable_columns() const;
  // An option for the reader of a model that is trained on these files; empty: none.
  std::string settled() const;
  // Selects the columns that read() gives. kNotFound: there is no column of that name.
  void select(const std::vector<WantedColumn>& wants);
  // Calls body(values) with one entry for each selected column, valid during the call. [any-thread]; calls are
  // serialized.
  using Body = std::function<void(std::span<const tsr_reader_values>)>;
  void read(int64_t block, const Body& body) const;

 private:
  const tsr_reader& api() const { return part_->api<tsr_reader>(); }

  ComponentPtr part_;
  int64_t files_ = 0;
  std::vector<FileBlock> blocks_;
  mutable std::mutex mutex_;  // held during calls of the component
  mutable std::vector<tsr_reader_values> values_;
};

}  // namespace tessera::data

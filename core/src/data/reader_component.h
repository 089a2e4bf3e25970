// Files through a reader plugin (abi/draft/reader.h): which blocks of rows they have, and the columns of each.
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
  bool behind = false;      // cheap to read only behind the block before
  int64_t rows_before = 0;  // of all blocks before it
};

// A column of the files, as tsr_reader_column.
struct FileColumn {
  std::string name;
  int32_t type = TSR_READER_TEXT;
  bool list = false, weighted = false;
  std::string about = {};  // the type in the format's words: "struct<a: int64>"
};

// A wanted column, as tsr_reader_want.
struct WantedColumn {
  std::string name;
  int32_t type = TSR_READER_TEXT;
  bool list = false, weighted = false;
  char separator = ' ';
  bool operator==(const WantedColumn&) const = default;
};

tsr_reader_want raw_want(const WantedColumn& want);           // whose name is the other's
std::vector<FileColumn> columns_of(const Component& reader);  // those that can be read

class ReaderComponent {
 public:
  // Opens the files that `path` means. `reader`: the part's name, with options as Runtime::create() takes them.
  ReaderComponent(const Runtime& runtime, const std::string& reader, const std::string& path, int64_t block_bytes);

  const std::vector<FileBlock>& blocks() const { return blocks_; }
  std::string file(int64_t i) const;
  std::vector<FileColumn> columns() const { return columns_of(*part_); }  // of the first file
  // Columns of the first file that nothing can be read of; `about` says their type.
  std::vector<FileColumn> unreadable_columns() const;
  // Which columns read() gives. kNotFound: there is none of such a name.
  void select(const std::vector<WantedColumn>& wants);
  // body(values), one for each selected column, valid while it runs. [any-thread], one after the other.
  using Body = std::function<void(std::span<const tsr_reader_values>)>;
  void read(int64_t block, const Body& body) const;

 private:
  const tsr_reader& api() const { return part_->api<tsr_reader>(); }

  ComponentPtr part_;
  std::vector<FileBlock> blocks_;
  mutable std::mutex mutex_;  // held while the part is asked
  mutable std::vector<tsr_reader_values> values_;
};

}  // namespace tessera::data

// Divides text files into blocks of whole records, and reads the text of a block again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "record_reader.h"
#include "tessera/sdk/draft/reader.h"

namespace tessera_readers {

class TextBlocks {
 public:
  explicit TextBlocks(CsvFormat format = {}) : format_(format) {}

  const std::vector<tessera::sdk::ReaderBlock>& all() const { return blocks_; }
  const tessera::sdk::ReaderBlock& operator[](int64_t i) const { return blocks_[static_cast<size_t>(i)]; }
  // Adds the blocks of file number `file` from the next record of `records` on. Returns the number of rows. Records for
  // which is_row(record) is false are no rows.
  template <class IsRow>
  int64_t add(int64_t file, int64_t block_bytes, RecordReader& records, const IsRow& is_row);
  // The text of a block, valid until the next call.
  std::string_view load(int64_t block, const std::vector<std::string>& files);
  [[noreturn]] void changed(const tessera::sdk::ReaderBlock& block, const std::string& path) const;

 private:
  // The place of a block's text in its file.
  struct Place {
    int64_t offset = 0, bytes = 0;
  };

  CsvFormat format_;
  std::vector<tessera::sdk::ReaderBlock> blocks_;
  std::vector<Place> places_;  // per block
  std::unique_ptr<TextFile> open_file_;
  std::vector<char> text_;
};

template <class IsRow>
int64_t TextBlocks::add(int64_t file, int64_t block_bytes, RecordReader& records, const IsRow& is_row) {
  std::string_view record;
  int64_t row = 0, begin = records.offset();
  const size_t first_block = blocks_.size();
  while (records.next(record, row)) {
    if (blocks_.size() == first_block || begin - places_.back().offset >= block_bytes) {
      blocks_.push_back({file, row, 0, 0, records.compressed() && blocks_.size() > first_block});
      places_.push_back({begin, 0});
    }
    row += is_row(record) ? 1 : 0;
    begin = records.offset();
    blocks_.back().rows = row - blocks_.back().first_row;
    places_.back().bytes = begin - places_.back().offset;
    blocks_.back().bytes = places_.back().bytes;
  }
  return row;
}

}  // namespace tessera_readers

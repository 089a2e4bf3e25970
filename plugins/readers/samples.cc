#include "samples.h"

#include <algorithm>

#include "tessera/sdk/fields.h"
#include "tessera/sdk/nearest.h"

namespace tessera_readers {

using tessera::sdk::fail;
using tessera::sdk::ReaderBlock;
using tessera::sdk::ReaderColumn;
using tessera::sdk::ReaderWant;

void SampleColumn::clear() {
  floats_.clear();
  doubles_.clear();
  integers_.clear();
  text_.clear();
  lists_.assign(1, 0);
  texts_.assign(1, 0);
}

void SampleColumn::add(std::string_view text) {
  text_ += text;
  texts_.push_back(static_cast<int64_t>(text_.size()));
}

tsr_reader_values SampleColumn::values() const {
  const bool text = column_.type == TSR_READER_TEXT;
  const void* const values = text                                 ? static_cast<const void*>(text_.data())
                             : column_.type == TSR_READER_FLOAT32 ? static_cast<const void*>(floats_.data())
                             : column_.type == TSR_READER_FLOAT64 ? static_cast<const void*>(doubles_.data())
                                                                  : static_cast<const void*>(integers_.data());
  return {sizeof(tsr_reader_values),
          0,
          values,
          text ? texts_.data() : nullptr,
          column_.list ? lists_.data() : nullptr,
          nullptr,
          nullptr};
}

void SampleReader::start(const std::vector<ReaderColumn>& columns) {
  files_.clear();
  blocks_ = TextBlocks(kLines);
  listed_ = columns;
  columns_.clear();
  for (const ReaderColumn& column : columns) columns_.emplace_back(column);
  selected_.clear();
  pipe_.reset();
}

int64_t SampleReader::add_file(const std::string& path, int64_t block_bytes) {
  RecordReader records(path, kLines);
  files_.push_back(path);
  return blocks_.add(std::ssize(files_) - 1, block_bytes, records, [](std::string_view) { return true; });
}

void SampleReader::select(std::span<const ReaderWant> wants) {
  selected_.clear();
  for (const ReaderWant& want : wants) {
    const auto found =
        std::find_if(listed_.begin(), listed_.end(), [&](const ReaderColumn& c) { return c.name == want.name; });
    if (found == listed_.end()) {
      std::vector<std::string> names;
      for (const ReaderColumn& c : listed_) names.push_back(c.name);
      fail(TSR_NOT_FOUND, tessera::sdk::unknown_name("column", want.name, names));
    }
    if (want.type != found->type || want.list != found->list || want.weighted)
      fail(TSR_UNIMPLEMENTED, "column \"", want.name, "\" has another type: it can only be read as it is described");
    selected_.push_back(static_cast<size_t>(found - listed_.begin()));
  }
}

std::span<const tsr_reader_values> SampleReader::values() {
  values_.clear();
  for (const size_t i : selected_) values_.push_back(columns_[i].values());
  return values_;
}

std::span<const tsr_reader_values> SampleReader::read(int64_t block) {
  const ReaderBlock& b = blocks()[static_cast<size_t>(block)];
  const std::string& file = files_[static_cast<size_t>(b.file)];
  for (SampleColumn& column : columns_) column.clear();
  std::string_view text = text_of(block);
  if (text.ends_with('\n')) text.remove_suffix(1);
  int64_t line = b.first_row;
  while (line - b.first_row < b.rows && !tessera::sdk::finished(text)) {
    const std::string_view whole = tessera::sdk::cut(text, '\n');
    add_line(record_of(whole.data(), whole.data() + whole.size()), {file, ++line}, columns_);
  }
  if (line - b.first_row != b.rows || !tessera::sdk::finished(text)) blocks_.changed(b, file);
  return values();
}

void SampleReader::follow(std::string_view path, std::string_view position) {
  if (!position.empty()) fail(TSR_UNIMPLEMENTED, "a pipe can be read only once: it has no position");
  pipe_ = std::make_unique<RecordReader>(std::string(path), kLines);
  taken_ = 0;
}

tessera::sdk::Arrived SampleReader::next(int64_t most, double wait_s) {
  if (wrong_ != nullptr) std::rethrow_exception(std::exchange(wrong_, nullptr));
  for (SampleColumn& column : columns_) column.clear();
  tessera::sdk::Arrived out{.first_row = taken_, .where = pipe_->path().c_str()};
  try {
    for (; out.rows < most && !out.last && pipe_->wait(out.rows > 0 ? 0 : wait_s, taken_);) {
      std::string_view line;
      out.last = !pipe_->next(line, taken_);
      if (out.last) break;
      add_line(line, {pipe_->path(), taken_ + 1}, columns_);
      ++out.rows;
      ++taken_;
    }
  } catch (...) {
    if (out.rows == 0) throw;
    wrong_ = std::current_exception();
  }
  out.values = values();
  return out;
}

}  // namespace tessera_readers

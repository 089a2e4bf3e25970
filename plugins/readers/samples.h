// Base class of readers of text files with one sample per line, whose columns the reader knows by itself.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/sdk/draft/arriving.h"
#include "tessera/sdk/error.h"
#include "text_blocks.h"

namespace tessera_readers {

// The place of a line, for errors.
struct LinePlace {
  const std::string& file;
  int64_t line;  // from 1
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    tessera::sdk::fail(TSR_INVALID_ARGUMENT, file, ":", line, ": ", parts...);
  }
};

// A column, and its values in the lines that were read last.
class SampleColumn {
 public:
  explicit SampleColumn(tessera::sdk::ReaderColumn column) : column_(std::move(column)) {}

  const tessera::sdk::ReaderColumn& column() const { return column_; }
  void clear();
  // These add a value of the column's type. After the values of a list comes end_list().
  void add(float value) { floats_.push_back(value); }
  void add(double value) { doubles_.push_back(value); }
  void add(int64_t value) { integers_.push_back(value); }
  void add(std::string_view text);
  void end_list() { lists_.push_back(static_cast<int64_t>(integers_.size())); }
  tsr_reader_values values() const;

 private:
  tessera::sdk::ReaderColumn column_;
  std::vector<float> floats_;
  std::vector<double> doubles_;
  std::vector<int64_t> integers_, lists_, texts_;
  std::string text_;
};

class SampleReader : public tessera::sdk::ArrivingReader {
 public:
  const std::vector<std::string>& files() const override { return files_; }
  const std::vector<tessera::sdk::ReaderColumn>& columns() const override { return listed_; }
  const std::vector<tessera::sdk::ReaderBlock>& blocks() const override { return blocks_.all(); }
  void select(std::span<const tessera::sdk::ReaderWant> wants) override;
  std::span<const tsr_reader_values> read(int64_t block) override;
  void follow(std::string_view path, std::string_view position) override;
  tessera::sdk::Arrived next(int64_t most, double wait_s) override;
  std::string position() const override {
    tessera::sdk::fail(TSR_UNIMPLEMENTED, "lines of a pipe can be read only once: they have no position");
  }

 protected:
  // Quotes have no meaning in these lines.
  static constexpr CsvFormat kLines{'\t', false};

  // Forgets all files and columns, and sets the columns.
  void start(const std::vector<tessera::sdk::ReaderColumn>& columns);
  // Adds a file and its blocks; returns the number of its lines.
  int64_t add_file(const std::string& path, int64_t block_bytes);
  // Adds the values of a line to all columns().
  virtual void add_line(std::string_view line, const LinePlace& place, std::vector<SampleColumn>& columns) const = 0;
  virtual std::string_view text_of(int64_t block) { return blocks_.load(block, files_); }

  std::vector<std::string> files_;
  TextBlocks blocks_{kLines};

 private:
  std::span<const tsr_reader_values> values();

  std::vector<tessera::sdk::ReaderColumn> listed_;
  std::vector<SampleColumn> columns_;  // by index in listed_
  std::vector<size_t> selected_;
  std::vector<tsr_reader_values> values_;
  std::unique_ptr<RecordReader> pipe_;
  int64_t taken_ = 0;         // number of lines read from the pipe
  std::exception_ptr wrong_;  // thrown after the lines of the pipe that were returned
};

}  // namespace tessera_readers

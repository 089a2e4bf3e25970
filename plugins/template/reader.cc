// SPDX-License-Identifier: Apache-2.0 OR MIT
// acme.logs: text files with one row per line, "clicked=1 user=17 tags=3,4". The first line has all columns.
#include <glob.h>
#include <tessera/sdk/draft/reader.h>
#include <tessera/sdk/nearest.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

using namespace tessera::sdk;

// The rows of a block in one column that is wanted: Arrow's layouts, as tsr_reader_values describes them.
class Selected {
 public:
  explicit Selected(ReaderWant want) : want_(std::move(want)) { clear(); }
  const std::string& name() const { return want_.name; }

  void clear() {
    bytes_.clear(), floats_.clear(), doubles_.clear(), integers_.clear(), present_.clear();
    texts_ = lists_ = {0};
  }
  void add_row(std::string_view field) {
    if (!want_.list) {
      present_.push_back(!field.empty());
      add(field);
      return;
    }
    while (!field.empty()) {
      const size_t end = std::min(field.find(want_.separator), field.size());
      add(field.substr(0, end));
      field.remove_prefix(std::min(end + 1, field.size()));
    }
    lists_.push_back(count());
  }
  tsr_reader_values values() const {
    const void* all = bytes_.data();
    if (want_.type == TSR_READER_FLOAT32) all = floats_.data();
    if (want_.type == TSR_READER_FLOAT64) all = doubles_.data();
    if (want_.type == TSR_READER_INT64) all = integers_.data();
    return {sizeof(tsr_reader_values),
            0,
            all,
            want_.type == TSR_READER_TEXT ? texts_.data() : nullptr,
            want_.list ? lists_.data() : nullptr,
            nullptr,
            want_.list ? nullptr : present_.data()};
  }

 private:
  int64_t count() const {
    if (want_.type == TSR_READER_TEXT) return static_cast<int64_t>(texts_.size()) - 1;
    if (want_.type == TSR_READER_FLOAT64) return static_cast<int64_t>(doubles_.size());
    return static_cast<int64_t>(want_.type == TSR_READER_FLOAT32 ? floats_.size() : integers_.size());
  }
  void add(std::string_view text) {
    if (want_.type == TSR_READER_FLOAT32) return number(text, floats_);
    if (want_.type == TSR_READER_FLOAT64) return number(text, doubles_);
    if (want_.type == TSR_READER_INT64) return number(text, integers_);
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    texts_.push_back(static_cast<int64_t>(bytes_.size()));
  }
  template <class T>
  void number(std::string_view text, std::vector<T>& to) {
    T& value = to.emplace_back();  // 0 if the row has no value
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (!text.empty() && (error != std::errc() || end != text.data() + text.size()))
      fail(TSR_INVALID_ARGUMENT, "column \"", want_.name, "\" has \"", text, "\", where a number is wanted");
  }

  ReaderWant want_;
  std::vector<char> bytes_;
  std::vector<float> floats_;
  std::vector<double> doubles_;
  std::vector<int64_t> integers_, texts_, lists_;
  std::vector<uint8_t> present_;
};

class Logs : public Reader {
 public:
  // Finds the files, the columns, and blocks of whole lines of about block_bytes bytes.
  void open(std::string_view path, int64_t block_bytes) override {
    find_files(std::string(path));
    columns_.clear(), blocks_.clear(), begins_.clear(), selected_.clear();
    for (size_t f = 0; f < files_.size(); ++f) {
      std::ifstream in(files_[f], std::ios::binary);
      int64_t at = 0, row = 0;
      for (std::string line; std::getline(in, line); ++row, at += static_cast<int64_t>(line.size()) + 1) {
        if (columns_.empty()) find_columns(line);
        if (row == 0 || blocks_.back().bytes >= block_bytes) {
          blocks_.push_back({.file = static_cast<int64_t>(f), .first_row = row});
          begins_.push_back(at);
        }
        ++blocks_.back().rows;
        blocks_.back().bytes += static_cast<int64_t>(line.size()) + 1;
      }
    }
  }
  const std::vector<std::string>& files() const override { return files_; }
  const std::vector<ReaderColumn>& columns() const override { return columns_; }
  const std::vector<ReaderBlock>& blocks() const override { return blocks_; }

  void select(std::span<const ReaderWant> wants) override {
    std::vector<std::string> known;
    for (const ReaderColumn& c : columns_) known.push_back(c.name);
    selected_.clear();
    for (const ReaderWant& want : wants) {
      if (std::find(known.begin(), known.end(), want.name) == known.end())
        fail(TSR_NOT_FOUND, unknown_name("column", want.name, known));
      if (want.weighted) fail(TSR_UNIMPLEMENTED, "column \"", want.name, "\" has no weights");
      selected_.emplace_back(want);
    }
  }

  std::span<const tsr_reader_values> read(int64_t block) override {
    const ReaderBlock& b = blocks_[static_cast<size_t>(block)];
    const std::string& file = files_[static_cast<size_t>(b.file)];
    for (Selected& column : selected_) column.clear();
    std::ifstream in(file, std::ios::binary);
    in.seekg(begins_[static_cast<size_t>(block)]);
    std::string line;
    for (int64_t row = b.first_row; row < b.first_row + b.rows; ++row) {
      if (!std::getline(in, line)) fail(TSR_DATA_LOSS, file, " has no row ", row + 1, " any more");
      try {
        for (Selected& column : selected_) column.add_row(field_of(line, column.name()));
      } catch (const Failure& wrong) {
        fail(wrong.code(), file, ", row ", row + 1, ": ", wrong.what());
      }
    }
    values_.clear();
    for (const Selected& column : selected_) values_.push_back(column.values());
    return values_;
  }

 private:
  // A file, a pattern, or all that is in a directory; in ascending order.
  void find_files(const std::string& path) {
    files_.clear();
    glob_t found{};
    const std::string pattern = std::filesystem::is_directory(path) ? path + "/*" : path;
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0) files_.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    if (files_.empty()) fail(TSR_NOT_FOUND, "there is no file ", path);
  }
  void find_columns(std::string_view line) {
    while (!line.empty()) {
      const std::string_view word = line.substr(0, line.find(' '));
      if (const size_t sign = word.find('='); sign != word.npos)
        columns_.push_back({std::string(word.substr(0, sign))});
      line.remove_prefix(std::min(word.size() + 1, line.size()));
    }
  }
  static std::string_view field_of(std::string_view line, std::string_view name) {
    while (!line.empty()) {
      const std::string_view word = line.substr(0, line.find(' '));
      if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=')
        return word.substr(name.size() + 1);
      line.remove_prefix(std::min(word.size() + 1, line.size()));
    }
    return {};
  }

  std::vector<std::string> files_;
  std::vector<ReaderColumn> columns_;
  std::vector<ReaderBlock> blocks_;
  std::vector<int64_t> begins_;  // by block: its first byte
  std::vector<Selected> selected_;
  std::vector<tsr_reader_values> values_;
};

TESSERA_PLUGIN("acme-logs", "1.0.0",
               component<Logs>({.id = "acme.logs", .version = "1.0.0", .about = "lines of name=value"}));

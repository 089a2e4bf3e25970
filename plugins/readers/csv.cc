// The readers csv and tsv: tessera.reader/draft-1 over text files with a header, plain, gzip or zstd.
#include <algorithm>
#include <cstring>
#include <memory>

#include "csv_column.h"
#include "csv_records.h"
#include "files.h"
#include "tessera/sdk/draft/reader.h"
#include "tessera/sdk/nearest.h"
#include "text_file.h"

namespace tessera_readers {
namespace {

using tessera::sdk::fail;
using tessera::sdk::Options;
using tessera::sdk::ReaderBlock;
using tessera::sdk::ReaderColumn;
using tessera::sdk::ReaderWant;

constexpr std::string_view kEndings[] = {".csv",    ".tsv",     ".txt",     ".csv.gz", ".tsv.gz",
                                         ".txt.gz", ".csv.zst", ".tsv.zst", ".txt.zst"};
constexpr size_t kLongestRecord = size_t{16} << 20;

// A record without its line end, whose `line` is LF or the end of the file.
std::string_view record_of(const char* begin, const char* line) {
  std::string_view out(begin, static_cast<size_t>(line - begin));
  if (out.ends_with('\r')) out.remove_suffix(1);
  return out;
}

// The records of one file, one after the other, through a buffer.
class RecordReader {
 public:
  RecordReader(const std::string& path, CsvFormat format) : file_(path), ends_(format), buffer_(kBuffer) {}

  bool compressed() const { return file_.compressed(); }
  int64_t offset() const { return base_ + static_cast<int64_t>(begin_); }  // of the next record, in the text
  // False at the end. Valid until the next call. `number`, for errors: how many rows came before.
  bool next(std::string_view& record, int64_t rows_before) {
    for (;;) {
      const char* at = buffer_.data() + begin_;
      const char* end = buffer_.data() + end_;
      const char* line = ends_.find(at, end);
      if (line == nullptr && !at_end_) {
        fill(rows_before);
        continue;
      }
      if (line == nullptr && at == end) return false;
      record = record_of(at, line != nullptr ? line : end);
      begin_ = line != nullptr ? static_cast<size_t>(line + 1 - buffer_.data()) : end_;
      return true;
    }
  }
  bool quoted() const { return ends_.quoted(); }

 private:
  static constexpr size_t kBuffer = size_t{1} << 20;

  void fill(int64_t rows_before) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    base_ += static_cast<int64_t>(begin_);
    end_ -= begin_;
    begin_ = 0;
    if (end_ == buffer_.size() && end_ >= kLongestRecord) {
      fail(TSR_INVALID_ARGUMENT, file_.path(), ", row ", rows_before + 1, " is longer than ", kLongestRecord,
           " bytes: a quote may not be closed");
    }
    if (!damage_.empty()) fail(TSR_DATA_LOSS, file_.path(), " ", damage_, " behind row ", rows_before);
    if (end_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
    try {
      const size_t got = file_.read(buffer_.data() + end_, buffer_.size() - end_);
      at_end_ = got < buffer_.size() - end_;
      end_ += got;
    } catch (const Damaged& e) {  // there may be rows before the damage
      end_ += e.read();
      damage_ = e.what();
    }
    ends_.start_buffer();
  }

  TextFile file_;
  RecordEnds ends_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  int64_t base_ = 0;  // in the text, of the buffer
  bool at_end_ = false;
  std::string damage_;  // behind the buffer
};

class Csv : public tessera::sdk::Reader {
 public:
  Csv(Options& options, char delimiter)
      : format_{delimiter, options.flag("quotes", true)}, missing_words_(options.flag("missing_words", false)) {
    const std::string given = options.string("delimiter", std::string(1, delimiter));
    if (given.size() != 1 || given == "\n" || given == "\"")
      fail(TSR_INVALID_ARGUMENT, "delimiter is \"", given, "\", but must be one character, and no quote");
    format_.delimiter = given[0];
  }

  void open(std::string_view path, int64_t block_bytes) override {
    files_ = files_of(path, kEndings);
    headers_.clear();
    columns_.clear();
    blocks_.clear();
    places_.clear();
    open_file_.reset();
    selected_.clear();
    for (size_t i = 0; i < files_.size(); ++i) scan(static_cast<int64_t>(i), std::max<int64_t>(block_bytes, 1));
    for (const std::string& name : headers_.front()) columns_.push_back({name});
  }
  const std::vector<std::string>& files() const override { return files_; }
  const std::vector<ReaderColumn>& columns() const override { return columns_; }
  const std::vector<ReaderBlock>& blocks() const override { return blocks_; }

  void select(std::span<const ReaderWant> wants) override {
    selected_.clear();
    for (const ReaderWant& want : wants) {
      if (want.type < TSR_READER_TEXT || want.type > TSR_READER_INT64)
        fail(TSR_UNIMPLEMENTED, "values of type ", want.type, " are not known here");
      for (size_t i = 0; i < files_.size(); ++i) require(want.name, i);
      selected_.emplace_back(want, missing_words_);
    }
  }

  std::span<const tsr_reader_values> read(int64_t block) override {
    load(block);
    const ReaderBlock& b = blocks_[static_cast<size_t>(block)];
    for (CsvColumn& column : selected_) column.start_block(b.rows);
    const std::vector<std::string>& header = headers_[static_cast<size_t>(b.file)];
    std::vector<CsvColumn*> targets(header.size(), nullptr);
    for (CsvColumn& column : selected_)
      targets[static_cast<size_t>(std::find(header.begin(), header.end(), column.want().name) - header.begin())] =
          &column;
    parse(b, targets);
    values_.clear();
    for (const CsvColumn& column : selected_) values_.push_back(column.values());
    return values_;
  }

 private:
  // Where a block's text is in its file.
  struct Place {
    int64_t offset = 0, bytes = 0;
  };

  bool is_blank(std::string_view record, size_t columns) const { return record.empty() && columns > 1; }

  void scan(int64_t file, int64_t block_bytes) {
    const std::string& path = files_[static_cast<size_t>(file)];
    RecordReader records(path, format_);
    std::string_view record;
    if (!records.next(record, 0)) fail(TSR_INVALID_ARGUMENT, path, " is empty: its first line must name the columns");
    headers_.push_back(header_of(record, path));
    const size_t columns = headers_.back().size();
    int64_t row = 0, begin = records.offset();
    const size_t first_block = blocks_.size();
    while (records.next(record, row)) {
      if (blocks_.size() == first_block || begin - places_.back().offset >= block_bytes) {
        blocks_.push_back({file, row, 0, 0, records.compressed() && blocks_.size() > first_block});
        places_.push_back({begin, 0});
      }
      row += is_blank(record, columns) ? 0 : 1;
      begin = records.offset();
      blocks_.back().rows = row - blocks_.back().first_row;
      places_.back().bytes = begin - places_.back().offset;
      blocks_.back().bytes = places_.back().bytes;
    }
  }

  std::vector<std::string> header_of(std::string_view record, const std::string& path) const {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (record.starts_with(kByteOrderMark)) record.remove_prefix(kByteOrderMark.size());
    if (record.find('\0') != std::string_view::npos)
      fail(TSR_INVALID_ARGUMENT, path,
           " is no text: its first line, which must name the columns, has a byte of value 0");
    std::vector<std::string> names;
    std::string scratch;
    const char* at = record.data();
    const char* const end = at + record.size();
    for (;; ++at) {
      std::string_view name;
      if (!next_field(at, end, format_, scratch, name))
        fail(TSR_INVALID_ARGUMENT, path, ": a quote of the header is not closed, or has text behind it");
      if (std::find(names.begin(), names.end(), name) != names.end())
        fail(TSR_INVALID_ARGUMENT, path, ": two columns of the header are named \"", name, "\"");
      names.emplace_back(name);
      if (at == end) return names;
    }
  }

  void require(const std::string& column, size_t file) const {
    const std::vector<std::string>& header = headers_[file];
    if (std::find(header.begin(), header.end(), column) != header.end()) return;
    fail(TSR_NOT_FOUND, files_[file], " has no column \"", column, "\"; the nearest is \"",
         tessera::sdk::nearest_name(column, header), "\"", other_delimiter(header));
  }

  static const char* other_delimiter(const std::vector<std::string>& header) {
    return header.size() == 1 ? "; is the delimiter another one?" : "";
  }

  // The text of a block into text_.
  void load(int64_t block) {
    const ReaderBlock& b = blocks_[static_cast<size_t>(block)];
    const Place& place = places_[static_cast<size_t>(block)];
    const std::string& path = files_[static_cast<size_t>(b.file)];
    if (!open_file_ || open_file_->path() != path) open_file_ = std::make_unique<TextFile>(path);
    text_.resize(static_cast<size_t>(place.bytes));
    size_t got = 0;
    try {
      if (open_file_->offset() != place.offset) open_file_->seek(place.offset);
      got = open_file_->read(text_.data(), text_.size());
    } catch (const Damaged& e) {
      fail(TSR_DATA_LOSS, path, " ", e.what(), " behind row ", b.first_row);
    }
    if (got < text_.size()) changed(b);
  }

  [[noreturn]] void changed(const ReaderBlock& b) const {
    fail(TSR_DATA_LOSS, files_[static_cast<size_t>(b.file)], " has changed since it was opened, behind row ",
         b.first_row);
  }

  void parse(const ReaderBlock& b, const std::vector<CsvColumn*>& targets) {
    RecordEnds ends(format_);
    const char* at = text_.data();
    const char* const end = at + text_.size();
    int64_t row = b.first_row;
    while (at < end) {
      const char* line = ends.find(at, end);
      const std::string_view record = record_of(at, line != nullptr ? line : end);
      at = line != nullptr ? line + 1 : end;
      if (is_blank(record, targets.size())) continue;
      if (++row - b.first_row > b.rows) break;
      ends.quoted() ? parse_quoted(b, row, record, targets) : parse_plain(b, row, record, targets);
    }
    if (row - b.first_row != b.rows) changed(b);
  }

  void parse_plain(const ReaderBlock& b, int64_t row, std::string_view record, const std::vector<CsvColumn*>& targets) {
    const char* at = record.data();
    const char* const end = at + record.size();
    const char delimiter = format_.delimiter;
    const size_t columns = targets.size();
    for (size_t c = 0;; ++c, ++at) {
      if (c == columns) wrong_length(b, row, record);
      if (targets[c] == nullptr) {
        while (at < end && *at != delimiter) ++at;
      } else {
        try {
          at = targets[c]->take(at, end, delimiter);
        } catch (const WrongField& e) {
          wrong(b, row, c, e.what());
        }
      }
      if (at < end) continue;
      if (c + 1 < columns) wrong_length(b, row, record);
      return;
    }
  }

  void parse_quoted(const ReaderBlock& b, int64_t row, std::string_view record,
                    const std::vector<CsvColumn*>& targets) {
    const char* at = record.data();
    const char* const end = at + record.size();
    for (size_t c = 0;; ++c, ++at) {
      if (c == targets.size()) wrong_length(b, row, record);
      std::string_view field;
      if (!next_field(at, end, format_, scratch_, field))
        wrong(b, row, c, "a quote is not closed, or has text behind it");
      try {
        if (targets[c] != nullptr) targets[c]->add(field);
      } catch (const WrongField& e) {
        wrong(b, row, c, e.what());
      }
      if (at < end) continue;
      if (c + 1 < targets.size()) wrong_length(b, row, record);
      return;
    }
  }

  [[noreturn]] void wrong(const ReaderBlock& b, int64_t row, size_t column, const char* what) const {
    const auto file = static_cast<size_t>(b.file);
    fail(TSR_INVALID_ARGUMENT, files_[file], ", row ", row, ", column \"", headers_[file][column], "\": ", what);
  }

  [[noreturn]] void wrong_length(const ReaderBlock& b, int64_t row, std::string_view record) {
    size_t fields = 0;
    const char* const end = record.data() + record.size();
    for (const char* at = record.data();; ++at) {
      std::string_view field;
      ++fields;
      if (!next_field(at, end, format_, scratch_, field) || at == end) break;
    }
    const auto file = static_cast<size_t>(b.file);
    const std::vector<std::string>& header = headers_[file];
    const std::string last = fields < header.size() ? ", so column \"" + header[fields] + "\" is missing" : "";
    fail(TSR_INVALID_ARGUMENT, files_[file], ", row ", row, " has ", fields, fields == 1 ? " field" : " fields",
         ", but the header has ", header.size(), last, other_delimiter(header));
  }

  CsvFormat format_;
  bool missing_words_;
  std::vector<std::string> files_;
  std::vector<std::vector<std::string>> headers_;  // by file
  std::vector<ReaderColumn> columns_;              // of the first file
  std::vector<ReaderBlock> blocks_;
  std::vector<Place> places_;  // by block
  std::vector<CsvColumn> selected_;
  std::unique_ptr<TextFile> open_file_;
  std::vector<char> text_;
  std::string scratch_;
  std::vector<tsr_reader_values> values_;
};

class Comma : public Csv {
 public:
  explicit Comma(Options& options) : Csv(options, ',') {}
};

class Tab : public Csv {
 public:
  explicit Tab(Options& options) : Csv(options, '\t') {}
};

}  // namespace

TESSERA_PLUGIN("tessera-readers", "1.0.0",
               tessera::sdk::component<Comma>({.id = "csv",
                                               .version = "1.0.0",
                                               .about = "comma-separated text with a header, plain, gzip or zstd"}),
               tessera::sdk::component<Tab>({.id = "tsv", .version = "1.0.0", .about = "the same with tabs between"}));

}  // namespace tessera_readers

// The readers csv and tsv: tessera.reader/draft-1 over text files with a header, plain, gzip or zstd, and over a pipe
// tessera.reader.pipe/draft-1.
#include <algorithm>
#include <array>
#include <memory>

#include "csv_column.h"
#include "csv_pipe.h"
#include "csv_rows.h"
#include "files.h"
#include "record_reader.h"
#include "tessera/sdk/draft/arriving.h"
#include "text_file.h"

namespace tessera_readers {
namespace {

using tessera::sdk::Arrived;
using tessera::sdk::fail;
using tessera::sdk::Options;
using tessera::sdk::ReaderBlock;
using tessera::sdk::ReaderColumn;
using tessera::sdk::ReaderWant;

constexpr std::string_view kEndings[] = {".csv",    ".tsv",     ".txt",     ".csv.gz", ".tsv.gz",
                                         ".txt.gz", ".csv.zst", ".tsv.zst", ".txt.zst"};

// iconv(3)'s name; null for UTF-8, which needs no conversion.
const char* encoding_of(const std::string& name) {
  constexpr std::array<std::array<const char*, 2>, 10> kNames = {{{"utf-8", nullptr},
                                                                  {"utf8", nullptr},
                                                                  {"utf-16", "UTF-16"},
                                                                  {"utf-16le", "UTF-16LE"},
                                                                  {"utf-16be", "UTF-16BE"},
                                                                  {"latin-1", "ISO-8859-1"},
                                                                  {"latin1", "ISO-8859-1"},
                                                                  {"iso-8859-1", "ISO-8859-1"},
                                                                  {"windows-1252", "WINDOWS-1252"},
                                                                  {"cp1252", "WINDOWS-1252"}}};
  for (const auto& [known, iconv] : kNames) {
    if (name == known) return iconv;
  }
  fail(TSR_INVALID_ARGUMENT, "encoding is \"", name,
       "\", but must be utf-8, utf-16 (which begins with a byte-order mark), utf-16le, utf-16be, latin-1 or "
       "windows-1252");
}

class Csv : public tessera::sdk::ArrivingReader {
 public:
  Csv(Options& options, char delimiter)
      : format_{delimiter, options.flag("quotes", true)}, missing_words_(options.flag("missing_words", false)) {
    const std::string given = options.string("delimiter", std::string(1, delimiter));
    if (given.size() != 1 || given == "\n" || given == "\"")
      fail(TSR_INVALID_ARGUMENT, "delimiter is \"", given, "\", but must be one character that is not a quote");
    format_.delimiter = given[0];
    format_.encoding = encoding_of(options.string("encoding", "utf-8"));
  }

  void open(std::string_view path, int64_t block_bytes) override {
    close();
    files_ = files_of(path, kEndings);
    for (size_t i = 0; i < files_.size(); ++i) scan(static_cast<int64_t>(i), std::max<int64_t>(block_bytes, 1));
    for (const std::string& name : rows_.front().header()) columns_.push_back({name});
  }
  const std::vector<std::string>& files() const override { return files_; }
  const std::vector<ReaderColumn>& columns() const override { return columns_; }
  const std::vector<ReaderBlock>& blocks() const override { return blocks_; }

  void select(std::span<const ReaderWant> wants) override {
    selected_.clear();
    for (const ReaderWant& want : wants) {
      if (want.type < TSR_READER_TEXT || want.type > TSR_READER_FLOAT64)
        fail(TSR_UNIMPLEMENTED, "values of type ", want.type, " are not known here");
      for (const CsvRows& file : rows_) file.require(want.name);
      if (pipe_) pipe_->rows().require(want.name);
      selected_.emplace_back(want, missing_words_);
    }
    if (pipe_) pipe_->rows().direct(selected_);
  }

  std::span<const tsr_reader_values> read(int64_t block) override {
    load(block);
    const ReaderBlock& b = blocks_[static_cast<size_t>(block)];
    for (CsvColumn& column : selected_) column.start_block(b.rows);
    parse(b);
    return values();
  }

  void follow(std::string_view path, std::string_view position) override {
    if (!position.empty()) fail(TSR_UNIMPLEMENTED, "a pipe can be read only once: it has no position");
    close();
    pipe_ = std::make_unique<CsvPipe>(std::string(path), format_);
    for (const std::string& name : pipe_->rows().header()) columns_.push_back({name});
  }
  Arrived next(int64_t most, double wait_s) override {
    Arrived out;
    out.first_row = pipe_->taken();
    out.rows = pipe_->next(most, wait_s, selected_);
    out.last = pipe_->ended();
    out.where = pipe_->where();
    out.values = values();
    return out;
  }
  std::string position() const override { fail(TSR_UNIMPLEMENTED, "a pipe can be read only once: it has no position"); }

 private:
  // The place of a block's text in its file.
  struct Place {
    int64_t offset = 0, bytes = 0;
  };

  void close() {
    files_.clear();
    rows_.clear();
    columns_.clear();
    blocks_.clear();
    places_.clear();
    open_file_.reset();
    pipe_.reset();
    selected_.clear();
  }

  std::span<const tsr_reader_values> values() {
    values_.clear();
    for (const CsvColumn& column : selected_) values_.push_back(column.values());
    return values_;
  }

  void scan(int64_t file, int64_t block_bytes) {
    const std::string& path = files_[static_cast<size_t>(file)];
    RecordReader records(path, format_);
    std::string_view record;
    if (!records.next(record, 0)) fail(TSR_INVALID_ARGUMENT, path, " is empty: its first line must name the columns");
    rows_.emplace_back(path, format_, record);
    int64_t row = 0, begin = records.offset();
    const size_t first_block = blocks_.size();
    while (records.next(record, row)) {
      if (blocks_.size() == first_block || begin - places_.back().offset >= block_bytes) {
        blocks_.push_back({file, row, 0, 0, records.compressed() && blocks_.size() > first_block});
        places_.push_back({begin, 0});
      }
      row += rows_.back().is_blank(record) ? 0 : 1;
      begin = records.offset();
      blocks_.back().rows = row - blocks_.back().first_row;
      places_.back().bytes = begin - places_.back().offset;
      blocks_.back().bytes = places_.back().bytes;
    }
  }

  // Loads the text of a block into text_.
  void load(int64_t block) {
    const ReaderBlock& b = blocks_[static_cast<size_t>(block)];
    const Place& place = places_[static_cast<size_t>(block)];
    const std::string& path = files_[static_cast<size_t>(b.file)];
    if (!open_file_ || open_file_->path() != path) open_file_ = std::make_unique<TextFile>(path, format_.encoding);
    text_.resize(static_cast<size_t>(place.bytes));
    size_t got = 0;
    try {
      if (open_file_->offset() != place.offset) open_file_->seek(place.offset);
      got = open_file_->read(text_.data(), text_.size());
    } catch (const Damaged& e) {
      fail(TSR_DATA_LOSS, path, " ", e.what(), " after row ", b.first_row);
    }
    if (got < text_.size()) changed(b);
  }

  [[noreturn]] void changed(const ReaderBlock& b) const {
    fail(TSR_DATA_LOSS, files_[static_cast<size_t>(b.file)], " has changed since it was opened, after row ",
         b.first_row);
  }

  void parse(const ReaderBlock& b) {
    CsvRows& rows = rows_[static_cast<size_t>(b.file)];
    rows.direct(selected_);
    RecordEnds ends(format_);
    const char* at = text_.data();
    const char* const end = at + text_.size();
    int64_t row = b.first_row;
    while (at < end) {
      const char* line = ends.find(at, end);
      const std::string_view record = record_of(at, line != nullptr ? line : end);
      at = line != nullptr ? line + 1 : end;
      if (rows.is_blank(record)) continue;
      if (++row - b.first_row > b.rows) break;
      rows.parse(row, record, ends.quoted());
    }
    if (row - b.first_row != b.rows) changed(b);
  }

  CsvFormat format_;
  bool missing_words_;
  std::vector<std::string> files_;
  std::vector<CsvRows> rows_;          // per file
  std::vector<ReaderColumn> columns_;  // of the first file
  std::vector<ReaderBlock> blocks_;
  std::vector<Place> places_;  // per block
  std::vector<CsvColumn> selected_;
  std::unique_ptr<TextFile> open_file_;
  std::unique_ptr<CsvPipe> pipe_;  // used in place of files
  std::vector<char> text_;
  std::vector<tsr_reader_values> values_;
};

class Comma : public Csv {
 public:
  explicit Comma(Options& options) : Csv(options, ',') {}
  const void* extension(std::string_view id) const { return tessera::sdk::pipe_extension<Comma>(id); }
};

class Tab : public Csv {
 public:
  explicit Tab(Options& options) : Csv(options, '\t') {}
  const void* extension(std::string_view id) const { return tessera::sdk::pipe_extension<Tab>(id); }
};

}  // namespace

TESSERA_PLUGIN("tessera-readers", "1.0.0",
               tessera::sdk::component<Comma>({.id = "csv",
                                               .version = "1.0.0",
                                               .about = "comma-separated text with a header, plain, gzip or zstd"}),
               tessera::sdk::component<Tab>({.id = "tsv", .version = "1.0.0", .about = "the same with tabs between"}));

}  // namespace tessera_readers

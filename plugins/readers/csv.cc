// The readers csv and tsv: tessera.reader/draft-1 over text files with a header, plain, gzip or zstd, and over a pipe
// tessera.reader.pipe/draft-1.
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <unordered_set>

#include "csv_column.h"
#include "csv_pipe.h"
#include "csv_rows.h"
#include "files.h"
#include "tessera/sdk/draft/arriving.h"
#include "tessera/sdk/draft/reader_paths.h"
#include "text_blocks.h"

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

constexpr char kAnyDelimiter = '\0';

// The delimiter that the ending of a name implies.
struct TextKind {
  char delimiter;
  std::string_view ending;
};
constexpr std::array<TextKind, 3> kKinds = {{{',', ".csv"}, {'\t', ".tsv"}, {kAnyDelimiter, ".txt"}}};

// The delimiter that Excel's line `sep=;` names; else the most frequent one in the header, if `own` is not in it.
char delimiter_in(const std::string& file, char own) {
  constexpr size_t kLongest = size_t{1} << 16;
  std::string text(kLongest, '\0');
  std::error_code ignored;
  try {  // a pipe can be read only once
    text.resize(std::filesystem::is_regular_file(file, ignored) ? TextFile(file).read(text.data(), kLongest) : 0);
  } catch (const std::exception&) {  // open() reports the error
    text.clear();
  }
  std::string_view line, rest = without_mark(text);
  do {
    const size_t end = std::min(rest.find('\n'), rest.size());
    line = record_of(rest.data(), rest.data() + end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  } while (!rest.empty() && is_blank_line(line, own));
  if (const char named = named_delimiter(line); named != 0) return named;
  const auto count = [&](char c) { return std::count(line.begin(), line.end(), c); };
  if (own != kAnyDelimiter && count(own) > 0) return own;
  constexpr std::string_view kAll = ",\t;|";
  const char most = *std::max_element(kAll.begin(), kAll.end(), [&](char a, char b) { return count(a) < count(b); });
  return count(most) > 0 ? most : own == kAnyDelimiter ? ',' : own;
}

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

  // tsv opens text with tabs, csv any other. The first lines of files decide.
  const char* opens(const std::string& path) {
    const bool tabs = format_.delimiter == '\t';
    for (const auto& [own, ending] : kKinds) {
      std::vector<std::string_view> endings;
      std::copy_if(std::begin(kEndings), std::end(kEndings), std::back_inserter(endings),
                   [&, ending = ending](std::string_view end) { return end.starts_with(ending); });
      const std::string file = first_match(path, endings);
      if (file.empty()) continue;
      const char delimiter = delimiter_in(file, own);
      if ((delimiter == '\t') == tabs) return delimiter == ';' ? "delimiter=;" : delimiter == '|' ? "delimiter=|" : "";
    }
    return nullptr;
  }
  void open(std::string_view path, int64_t block_bytes) override {
    close();
    files_ = files_of(path, kEndings);
    for (size_t i = 0; i < files_.size(); ++i) scan(static_cast<int64_t>(i), std::max<int64_t>(block_bytes, 1));
    for (const std::string& name : rows_.front().header()) columns_.push_back({name});
    list_others();
  }
  const std::vector<std::string>& files() const override { return files_; }
  const std::vector<ReaderColumn>& columns() const override { return columns_; }
  const std::vector<ReaderBlock>& blocks() const override { return blocks_.all(); }

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
    const ReaderBlock& b = blocks_[block];
    for (CsvColumn& column : selected_) column.start_block(b.rows);
    parse(b, blocks_.load(block, files_));
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
  void close() {
    files_.clear();
    rows_.clear();
    columns_.clear();
    blocks_ = TextBlocks(format_);
    pipe_.reset();
    selected_.clear();
  }

  // Lists the columns that the first file lacks and others have. They cannot be read.
  void list_others() {
    std::unordered_set<std::string> known(rows_.front().header().begin(), rows_.front().header().end());
    for (const CsvRows& file : rows_) {
      for (const std::string& name : file.header()) {
        if (known.insert(name).second) columns_.push_back({name, TSR_READER_UNREADABLE});
      }
    }
  }

  std::span<const tsr_reader_values> values() {
    values_.clear();
    for (const CsvColumn& column : selected_) values_.push_back(column.values());
    return values_;
  }

  void scan(int64_t file, int64_t block_bytes) {
    const std::string& path = files_[static_cast<size_t>(file)];
    RecordReader records(path, format_);
    rows_.emplace_back(path, format_, header_of(records, format_));
    blocks_.add(file, block_bytes, records, [&](std::string_view row) { return !rows_.back().is_blank(row); });
  }

  void parse(const ReaderBlock& b, std::string_view text) {
    CsvRows& rows = rows_[static_cast<size_t>(b.file)];
    rows.direct(selected_);
    RecordEnds ends(format_);
    const char* at = text.data();
    const char* const end = at + text.size();
    int64_t row = b.first_row;
    while (at < end) {
      const char* line = ends.find(at, end);
      const std::string_view record = record_of(at, line != nullptr ? line : end);
      at = line != nullptr ? line + 1 : end;
      if (rows.is_blank(record)) continue;
      if (++row - b.first_row > b.rows) break;
      rows.parse(row, record, ends.quoted());
    }
    if (row - b.first_row != b.rows) blocks_.changed(b, files_[static_cast<size_t>(b.file)]);
  }

  CsvFormat format_;
  bool missing_words_;
  std::vector<std::string> files_;
  std::vector<CsvRows> rows_;          // per file
  std::vector<ReaderColumn> columns_;  // of the first file
  TextBlocks blocks_;
  std::vector<CsvColumn> selected_;
  std::unique_ptr<CsvPipe> pipe_;  // used in place of files
  std::vector<tsr_reader_values> values_;
};

class Comma : public Csv {
 public:
  explicit Comma(Options& options) : Csv(options, ',') {}
  const void* extension(std::string_view id) const {
    const void* const paths = tessera::sdk::paths_extension<Comma>(id);
    return paths != nullptr ? paths : tessera::sdk::pipe_extension<Comma>(id);
  }
};

class Tab : public Csv {
 public:
  explicit Tab(Options& options) : Csv(options, '\t') {}
  const void* extension(std::string_view id) const {
    const void* const paths = tessera::sdk::paths_extension<Tab>(id);
    return paths != nullptr ? paths : tessera::sdk::pipe_extension<Tab>(id);
  }
};

}  // namespace

TESSERA_PLUGIN("tessera-readers", "1.0.0",
               tessera::sdk::component<Comma>({.id = "csv",
                                               .version = "1.0.0",
                                               .about = "comma-separated text with a header, plain, gzip or zstd"}),
               tessera::sdk::component<Tab>({.id = "tsv", .version = "1.0.0", .about = "the same with tabs between"}));

}  // namespace tessera_readers

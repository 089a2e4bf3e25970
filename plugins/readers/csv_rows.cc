#include "csv_rows.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "tessera/sdk/other_columns.h"

namespace tessera_readers {
namespace {

using tessera::sdk::fail;

// Refuses texts that are no CSV, which would give strange names of columns.
void refuse_other_texts(std::string_view header, const std::string& file) {
  for (const std::string_view begin : {"{\"", "[{", "[["}) {
    if (header.starts_with(begin))
      fail(TSR_INVALID_ARGUMENT, file, " begins as JSON, not CSV: write it as CSV or Parquet first, for example with ",
           "pandas.read_json(...).to_csv(\"data.csv\", index=False)");
  }
  for (const std::string_view begin : {"<!", "<?xml", "<html", "<table"}) {
    if (header.starts_with(begin)) fail(TSR_INVALID_ARGUMENT, file, " begins as HTML or XML, not CSV");
  }
  const size_t cr = header.find('\r');
  if (cr != std::string_view::npos && header.substr(cr, 2) != "\r\n")
    fail(TSR_INVALID_ARGUMENT, file,
         ": a CR without LF is in the header; if its lines end in CR, write LF instead, as ", "tr '\\r' '\\n' does");
}

std::vector<std::string> names_of(std::string_view record, const std::string& file, CsvFormat format) {
  record = without_mark(record);
  if (record.starts_with("\xff\xfe") || record.starts_with("\xfe\xff"))
    fail(TSR_INVALID_ARGUMENT, file,
         " begins like UTF-16: the reader's option encoding=utf-16 (reader = \"csv?encoding=utf-16\") reads it");
  if (record.find('\0') != std::string_view::npos)
    fail(TSR_INVALID_ARGUMENT, file,
         " is not a text: its first line, which must name the columns, has a byte of value 0; ",
         "UTF-16 without a byte-order mark is read with the reader's option encoding=utf-16le or utf-16be");
  refuse_other_texts(record, file);
  std::vector<std::string> names;
  std::string scratch;
  const char* at = record.data();
  std::unordered_set<std::string> known;
  const char* const end = at + record.size();
  for (;; ++at) {
    std::string_view name;
    if (!next_field(at, end, format, scratch, name))
      fail(TSR_INVALID_ARGUMENT, file, ": a quote of the header is not closed, or has text after it");
    if (!known.emplace(name).second)
      fail(TSR_INVALID_ARGUMENT, file, ": two columns of the header ",
           name.empty() ? "have no name: name them, or take them out of the file"
                        : "are named \"" + std::string(name) + "\": rename one of them");
    names.emplace_back(name);
    if (at == end) return names;
  }
}

}  // namespace

std::string_view header_of(RecordReader& records, CsvFormat format) {
  std::string_view record;
  while (records.next(record, 0)) {
    const std::string_view line = without_mark(record);
    const char named = named_delimiter(line);
    if (named != 0 && named != format.delimiter)
      fail(TSR_INVALID_ARGUMENT, records.path(), " begins with \"sep=", named,
           "\", which names another delimiter than \"", format.delimiter, "\": set reader = \"",
           named == '\t' ? "tsv" : std::string("csv?delimiter=") + named, "\"");
    if (named == 0 && !is_blank_line(line, format.delimiter)) return record;
  }
  fail(TSR_INVALID_ARGUMENT, records.path(), " is empty: its first line must name the columns");
}

CsvRows::CsvRows(std::string file, CsvFormat format, std::string_view header)
    : file_(std::move(file)), format_(format), header_(names_of(header, file_, format)), targets_(header_.size()) {
  for (size_t c = 0; c < header_.size(); ++c) places_.emplace(header_[c], c);
}

void CsvRows::require(const std::string& column) const {
  if (places_.contains(column)) return;
  fail(TSR_NOT_FOUND, file_, " has no column \"", column, "\"", tessera::sdk::other_columns(column, header_),
       other_delimiter());
}

const char* CsvRows::other_delimiter() const {
  return header_.size() == 1 ? "; does the file have another delimiter, or lines above its header?" : "";
}

void CsvRows::direct(std::vector<CsvColumn>& columns) {
  targets_.assign(header_.size(), nullptr);
  for (CsvColumn& column : columns) column.also = std::exchange(targets_[places_.at(column.want().name)], &column);
}

void CsvRows::parse(int64_t row, std::string_view record, bool quoted) {
  quoted ? parse_quoted(row, record) : parse_plain(row, record);
}

void CsvRows::parse_plain(int64_t row, std::string_view record) {
  const char* at = record.data();
  const char* const end = at + record.size();
  const char delimiter = format_.delimiter;
  CsvColumn* const* const targets = targets_.data();
  const size_t columns = targets_.size();
  for (size_t c = 0;; ++c, ++at) {
    if (c == columns) wrong_length(row, record);
    if (targets[c] == nullptr) {
      while (at < end && *at != delimiter) ++at;
    } else {
      try {
        const char* const begin = at;
        at = targets[c]->take(at, end, delimiter);
        for (CsvColumn* also = targets[c]->also; also != nullptr; also = also->also)
          also->add({begin, static_cast<size_t>(at - begin)});
      } catch (const WrongField& e) {
        wrong(row, c, e.what());
      }
    }
    if (at < end) continue;
    if (c + 1 < columns) wrong_length(row, record);
    return;
  }
}

void CsvRows::parse_quoted(int64_t row, std::string_view record) {
  const char* at = record.data();
  const char* const end = at + record.size();
  for (size_t c = 0;; ++c, ++at) {
    if (c == targets_.size()) wrong_length(row, record);
    std::string_view field;
    if (!next_field(at, end, format_, scratch_, field))
      wrong(row, c, "a quote is not closed, or has text after it; a quote inside of a field is written twice");
    try {
      for (CsvColumn* target = targets_[c]; target != nullptr; target = target->also) target->add(field);
    } catch (const WrongField& e) {
      wrong(row, c, e.what());
    }
    if (at < end) continue;
    if (c + 1 < targets_.size()) wrong_length(row, record);
    return;
  }
}

void CsvRows::wrong(int64_t row, size_t column, const char* what) const {
  fail(TSR_INVALID_ARGUMENT, file_, ", row ", row, ", column \"", header_[column], "\": ", what);
}

void CsvRows::wrong_length(int64_t row, std::string_view record) {
  size_t fields = 0;
  const char* const end = record.data() + record.size();
  for (const char* at = record.data();; ++at) {
    std::string_view field;
    ++fields;
    if (!next_field(at, end, format_, scratch_, field) || at == end) break;
  }
  const std::string last = fields < header_.size() ? ", so column \"" + header_[fields] + "\" is missing" : "";
  fail(TSR_INVALID_ARGUMENT, file_, ", row ", row, " has ", fields, fields == 1 ? " field" : " fields",
       ", but the header has ", header_.size(), last, other_delimiter());
}

}  // namespace tessera_readers

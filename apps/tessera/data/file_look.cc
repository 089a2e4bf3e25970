#include "data/file_look.h"

#include <algorithm>
#include <iostream>
#include <span>

#include "data/encoding.h"
#include "data/fitting_reader.h"
#include "data/hyperloglog.h"
#include "tessera/sdk/random.h"

namespace tessera::cli {
namespace {

struct Looked {
  std::vector<ColumnLook> columns;
  int64_t rows = 0, of = 0;                               // rows that were looked at, and rows in the files
  HyperLogLog distinct;                                   // of the rows that were looked at
  std::vector<std::pair<std::string, FieldBytes>> files;  // with their names
  std::vector<uint64_t> hashes;                           // of the rows, if they are to be kept
};

// A line that is redrawn while rows are looked at.
class LookProgress {
 public:
  LookProgress(bool shown, int64_t rows) : shown_(shown && rows > kLarge), rows_(rows) {}
  ~LookProgress() {
    if (drawn_ >= 0) std::cerr << "\r\033[K" << std::flush;
  }
  LookProgress(const LookProgress&) = delete;
  LookProgress& operator=(const LookProgress&) = delete;

  void report(int64_t done) {
    const int64_t percent = 100 * done / rows_;
    if (!shown_ || percent == drawn_) return;
    std::cerr << "\rlooking at rows: " << done << " of " << rows_ << " (" << percent << " %)\033[K" << std::flush;
    drawn_ = percent;
  }

 private:
  static constexpr int64_t kLarge = 100000;  // rows from which on a look takes noticeable time
  bool shown_;
  int64_t rows_, drawn_ = -1;
};

// `tail` is the index, in this block, of the first row of the last tenth.
void look_at(std::span<const tsr_reader_values> values, int64_t rows, int64_t tail, FieldBytes& encoding, Looked& out) {
  std::vector<uint64_t> hashes(static_cast<size_t>(rows));  // one for each row
  std::vector<ColumnLook>& columns = out.columns;
  for (size_t c = 0; c < columns.size(); ++c) {
    const auto* bytes = static_cast<const char*>(values[c].values);
    const int64_t* texts = values[c].texts;
    const int64_t* lists = values[c].lists;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t begin = lists != nullptr ? lists[row] : row, end = lists != nullptr ? lists[row + 1] : row + 1;
      uint64_t& hash = hashes[static_cast<size_t>(row)];
      for (int64_t i = begin; i < end; ++i) {
        const std::string_view field(bytes + texts[i], static_cast<size_t>(texts[i + 1] - texts[i]));
        look_at_field(field, encoding);
        hash = sdk::mixed(hash + columns[c].add(field, row >= tail));
      }
      if (lists != nullptr) columns[c].end_list(end - begin);
      hash = sdk::mixed(hash + c);
    }
  }
  for (const uint64_t hash : hashes) out.distinct.add(hash);
  if (out.hashes.capacity() > 0) out.hashes.insert(out.hashes.end(), hashes.begin(), hashes.end());
}

// Divides a bound on the values of all columns among them.
ColumnLook::Room room_of(size_t columns) {
  constexpr size_t kValues = 4000000, kBytes = size_t{256} << 20;
  ColumnLook::Room room;
  room.values = std::clamp<size_t>(kValues / std::max<size_t>(columns, 1), 1000, room.values);
  room.bytes = std::clamp<size_t>(kBytes / std::max<size_t>(columns, 1), size_t{64} << 10, room.bytes);
  return room;
}

// Looks at all rows, or at blocks spread as evenly as possible; at the first rows if none can be skipped.
Looked look_at_rows(data::ReaderComponent& files, int64_t most, bool keep_rows, bool progress) {
  Looked out;
  const std::vector<data::FileColumn> columns = files.columns();
  for (const data::FileColumn& c : columns)
    out.columns.emplace_back(c.name, c.list, c.weighted, room_of(columns.size()));
  files.select(all_texts(columns));
  const int64_t blocks = std::ssize(files.blocks());
  bool anywhere = true;
  for (const data::FileBlock& b : files.blocks()) out.of += b.rows, anywhere = anywhere && !b.behind;
  if (most == 0) most = out.of;
  constexpr int64_t kKept = 10000000;
  if (keep_rows && std::min(most, out.of) <= kKept) out.hashes.reserve(static_cast<size_t>(std::min(most, out.of)));
  const int64_t some = anywhere && out.of > most ? std::max<int64_t>(1, blocks * most / out.of) : blocks;
  const int64_t tail = std::min(most, out.of) - std::min(most, out.of) / 10;
  for (int64_t i = 0; i < files.files(); ++i) out.files.emplace_back(files.file(i), FieldBytes());
  if (!out.files.empty()) {
    for (const data::FileColumn& c : columns) look_at_field(c.name, out.files[0].second);
  }
  LookProgress line(progress, std::min(most, out.of));
  for (int64_t i = 0; i < some && out.rows < most; ++i) {
    const int64_t block = i * blocks / some;
    const int64_t here = std::min(most - out.rows, files.blocks()[static_cast<size_t>(block)].rows);
    FieldBytes& encoding = out.files[static_cast<size_t>(files.blocks()[static_cast<size_t>(block)].file)].second;
    files.read(block, [&](std::span<const tsr_reader_values> values) {
      look_at(values, here, tail - out.rows, encoding, out);
    });
    out.rows += here;
    line.report(out.rows);
  }
  return out;
}

std::string with_option(const std::string& reader, const std::string& option) {
  return str_cat(reader, reader.find('?') == std::string::npos ? "?" : "&", option);
}

// The reader with the option that treats words such as NA as missing numbers; empty if it has no such option.
std::string with_missing_words(const Runtime& runtime, const std::string& reader) {
  std::string out = with_option(reader, "missing_words=true");
  try {
    runtime.create(TSR_READER_KIND, out);
    return out;
  } catch (const Error& e) {
    if (e.code() != Code::kInvalidArgument) throw;
    return {};
  }
}

// Adds columns from which no values can be read, with the names of their types. A column without a type is one that
// the first file lacks.
void add_unreadable(const data::ReaderComponent& files, std::vector<ColumnSeen>& columns) {
  for (const data::FileColumn& c : files.unreadable_columns()) {
    ColumnSeen seen{.name = c.name, .unknown_type = c.about, .in_some_files = c.about.empty()};
    columns.push_back(std::move(seen));
  }
}

// True if commas separate the fields, or a column has numbers with a decimal point, so that a comma is hardly one.
bool has_points(const std::vector<ColumnSeen>& columns, const std::string& reader) {
  if ((reader == "csv" || reader.starts_with("csv?")) && reader.find("delimiter=") == std::string::npos) return true;
  const auto has_point = [](const ListText::Value& v) { return v.text.find('.') != std::string::npos; };
  return std::any_of(columns.begin(), columns.end(), [&](const ColumnSeen& c) {
    return c.form == Form::kNumbers && std::any_of(c.values.begin(), c.values.end(), has_point);
  });
}

}  // namespace

FilesSeen look_at_files(const Runtime& runtime, const LookOptions& options) {
  FittingReader found;
  Looked looked;
  const auto look = [&](const std::string& encoding) {
    std::vector<std::string> readers = options.readers;
    for (std::string& reader : readers)
      reader = encoding.empty() ? reader : with_option(reader, "encoding=" + encoding);
    found = fitting_reader(runtime, readers, options.path);
    looked = look_at_rows(*found.files, options.rows, options.keep_rows, options.progress);
  };
  const std::string encoding = options.text ? encoding_of(options.path) : "";
  look(encoding);
  // The bytes of compressed files, and of several files, are known once they are read.
  if (const std::string other = options.text && encoding.empty() ? encoding_of_fields(looked.files) : "";
      !other.empty())
    look(other);
  FilesSeen out;
  out.rows = looked.rows, out.of = looked.of, out.distinct_rows = looked.distinct.count();
  out.row_hashes = std::move(looked.hashes);
  std::sort(out.row_hashes.begin(), out.row_hashes.end());
  out.reader = found.name;
  out.missing_words_reader = with_missing_words(runtime, found.name);
  for (const ColumnLook& column : looked.columns) out.columns.push_back(column.seen(!out.missing_words_reader.empty()));
  const bool points = has_points(out.columns, found.name);
  for (ColumnSeen& column : out.columns) column.points_elsewhere = points;
  add_unreadable(*found.files, out.columns);
  return out;
}

}  // namespace tessera::cli

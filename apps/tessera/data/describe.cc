#include "data/describe.h"

#include <algorithm>
#include <span>

#include "data/column_look.h"
#include "data/columns_toml.h"
#include "data/fitting_reader.h"

namespace tessera::cli {
namespace {

struct Looked {
  std::vector<ColumnLook> columns;
  int64_t rows = 0, of = 0;  // that were looked at, that there are
};

void look_at(std::span<const tsr_reader_values> values, int64_t rows, std::vector<ColumnLook>& columns) {
  for (size_t c = 0; c < columns.size(); ++c) {
    const auto* bytes = static_cast<const char*>(values[c].values);
    const int64_t* texts = values[c].texts;
    const int64_t fields = values[c].lists != nullptr ? values[c].lists[rows] : rows;
    for (int64_t i = 0; i < fields; ++i)
      columns[c].add({bytes + texts[i], static_cast<size_t>(texts[i + 1] - texts[i])});
  }
}

// Of a large file some blocks, as far from each other as can be; behind what cannot be skipped, the first ones.
Looked look_at_some(data::ReaderPart& files, int64_t most) {
  Looked out;
  const std::vector<data::FileColumn> columns = files.columns();
  for (const data::FileColumn& c : columns) out.columns.emplace_back(c.name, c.list, c.weighted);
  files.select(all_texts(columns));
  const int64_t blocks = std::ssize(files.blocks());
  bool anywhere = true;
  for (const data::FileBlock& b : files.blocks()) out.of += b.rows, anywhere = anywhere && !b.behind;
  const int64_t some = anywhere && out.of > most ? std::max<int64_t>(1, blocks * most / out.of) : blocks;
  for (int64_t i = 0; i < some && out.rows < most; ++i) {
    const int64_t block = i * blocks / some;
    const int64_t here = std::min(most - out.rows, files.blocks()[static_cast<size_t>(block)].rows);
    files.read(block, [&](std::span<const tsr_reader_values> values) { look_at(values, here, out.columns); });
    out.rows += here;
  }
  return out;
}

// The reader with an option by which words as NA are no numbers; empty: it has none such.
std::string with_missing_words(const Runtime& runtime, const std::string& reader) {
  std::string out = cat(reader, reader.find('?') == reader.npos ? "?" : "&", "missing_words=true");
  try {
    runtime.create(TSR_READER_KIND, out);
    return out;
  } catch (const Error& e) {
    if (e.code() != Code::kInvalidArgument) throw;
    return {};
  }
}

}  // namespace

std::string describe_files(const Runtime& runtime, const DescribeOptions& options) {
  const FittingReader found = fitting_reader(runtime, options.readers, options.path);
  const Looked looked = look_at_some(*found.files, options.rows);
  const std::string with_words = with_missing_words(runtime, found.name);
  std::vector<ColumnSeen> seen;
  for (const ColumnLook& column : looked.columns) seen.push_back(column.seen(!with_words.empty()));
  const ColumnsToml columns = columns_toml(seen, options.label);
  const std::string order =
      columns.time.empty() ? ""
                           : cat("# order_by = ", quoted(columns.time), "   # the newest rows are the test then\n");
  return cat("# Made by `tessera data describe` out of ", looked.rows, " of ", looked.of,
             " rows: look at it before you train.\n"
             "#   tessera train --config THIS_FILE\n\n[data]\nreader = ",
             quoted(columns.missing_words ? with_words : found.name), "\npath = ", quoted(options.path),
             "\nbatch = 256\nepochs = 1\ntest_fraction = 0.1                   # the last rows\n", order, columns.text);
}

}  // namespace tessera::cli

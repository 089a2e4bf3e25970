// A data set out of a reader part's files.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "data/columns.h"
#include "data/hold_out.h"
#include "data/readers.h"
#include "data/row_order.h"
#include "data/sample_stream.h"
#include "tessera/sdk/nearest.h"

namespace tessera::data {
namespace {

using Pieces = std::vector<BlockPiece>;

// What is in memory at a time: a window that is used, the next one, and a block of text.
struct Budget {
  int64_t all, window, block;
  explicit Budget(double mib) : all(static_cast<int64_t>(mib * (1 << 20))), window(all / 2), block(all / 128) {
    block = std::clamp<int64_t>(block, int64_t{4} << 10, int64_t{1} << 20);
  }
};

void check_reader(const Runtime& runtime, const std::string& reader) {
  const std::string id = reader.substr(0, reader.find_first_of("?:("));
  if (!runtime.has(TSR_READER_KIND, id)) {
    std::vector<std::string> known = reader_names();
    for (const std::string& part : runtime.ids(TSR_READER_KIND)) known.push_back(part);
    std::string all;
    for (const std::string& name : known) all += cat(all.empty() ? "" : ", ", name);
    fail(Code::kInvalidArgument, "there is no reader \"", reader, "\": set data.reader to one of ", all,
         "; the nearest is \"", sdk::nearest_name(id, known), "\"");
  }
}

std::unique_ptr<ReaderPart> open(const Runtime& runtime, const std::string& reader, const std::string& path,
                                 const Budget& budget) {
  check_reader(runtime, reader);
  return std::make_unique<ReaderPart>(runtime, reader, path, budget.block);
}

int64_t rows_of(const ReaderPart& part, int64_t limit) {
  int64_t rows = 0;
  for (const FileBlock& block : part.blocks()) rows += block.rows;
  return limit > 0 ? std::min(rows, limit) : rows;
}

// Rows [begin, end) of all pieces.
Pieces rows_between(const Pieces& pieces, int64_t begin, int64_t end) {
  Pieces out;
  int64_t first = 0;  // of the piece
  for (const BlockPiece& p : pieces) {
    const int64_t from = std::max(begin - first, int64_t{0}), to = std::min(end - first, p.rows);
    if (from < to) out.push_back({p.block, p.first + from, to - from});
    first += p.rows;
  }
  return out;
}

// The first rows of all blocks, as many as data.limit allows.
Pieces pieces_of(const ReaderPart& part, int64_t limit) {
  Pieces out;
  for (int64_t i = 0; i < std::ssize(part.blocks()); ++i)
    out.push_back({i, 0, part.blocks()[static_cast<size_t>(i)].rows});
  return rows_between(out, 0, rows_of(part, limit));
}

struct Parts {
  Pieces files;        // of data.path
  Pieces train, test;  // the test part is at their end, or of other files
  int64_t train_rows = 0;
  // Where samples are in memory in the order of data.order_by: which row of `files` each place has. `train` and `test`
  // are of no meaning then, but for other files.
  std::vector<uint32_t> rows;

  // The place of each row.
  std::vector<uint32_t> places() const {
    std::vector<uint32_t> out(rows.size());
    for (size_t place = 0; place < rows.size(); ++place) out[rows[place]] = static_cast<uint32_t>(place);
    return out;
  }
};

// From the rows that are trained on, and not from those that `held` keeps back.
void learn(const ReaderPart& part, const Parts& parts, const HoldOut& held, bool streamed, Columns& columns) {
  const std::vector<uint32_t> places = parts.places();
  const int64_t samples = parts.train_rows;
  int64_t before = 0;
  for (const BlockPiece& piece : places.empty() ? parts.train : parts.files) {
    const FileBlock& block = part.blocks()[static_cast<size_t>(piece.block)];
    const std::string file = part.file(block.file);
    part.read(piece.block, [&](std::span<const tsr_reader_values> values) {
      const auto back = [&](int64_t row) {
        const int64_t place = places.empty() ? before + row : places[static_cast<size_t>(before + row)];
        return place >= samples || held.takes(place, samples, piece.block, streamed);
      };
      for (int64_t row = 0, end = 0; row < piece.rows; row = end + 1) {  // runs of rows
        for (end = row; end < piece.rows && !back(end);) ++end;
        if (row < end) columns.learn({file, block.first_row, piece.first + row, end - row}, values);
      }
    });
    before += piece.rows;
  }
}

int64_t memory_of(const ReaderPart& part, const Pieces& pieces, const Columns& columns) {
  int64_t bytes = 0;
  for (const BlockPiece& piece : pieces)
    bytes += columns.memory_of(piece.rows, part.blocks()[static_cast<size_t>(piece.block)].bytes);
  return bytes;
}

Samples samples_of(std::shared_ptr<const ColumnFiles> files, const Pieces& pieces, bool keep, const Budget& budget) {
  const auto stream = std::make_shared<const SampleStream>(std::move(files), pieces, budget.window);
  if (keep) return finish(stream->load(pieces));
  Samples out;
  out.streamed = stream;
  return out;
}

// All in memory, in the order of data.order_by.
void take_ordered(std::shared_ptr<const ColumnFiles> files, const Parts& parts, const Budget& budget, Dataset* set) {
  const Examples all = SampleStream(std::move(files), {}, budget.window).load(parts.files);
  Examples ordered(static_cast<size_t>(all.num_dense()), all.columns(), all.label_form());
  for (const uint32_t row : parts.rows) ordered.add_sample(all, row);
  ordered.note_bad_id(all.bad_id());
  Examples test = ordered.split_off(parts.train_rows);
  set->train = finish(std::move(ordered));
  set->test = finish(std::move(test));
}

}  // namespace

void describe(const Columns& columns, Dataset* set) {
  set->labels = columns.labels();
  set->binary_labels = columns.label_form().binary;
  set->weighted_samples = columns.label_form().weighted;
  set->dense = columns.dense();
  set->columns = columns.ids();
}

Dataset describe_files(const Runtime& runtime, const Config& config, const std::string& encoding) {
  check_reader(runtime, config.data.reader);
  const Columns columns = encoding.empty() ? Columns(config) : Columns(encoding, "the model's encoding of columns");
  Dataset set;
  set.name = std::filesystem::path(config.data.path).filename();
  describe(columns, &set);
  return set;
}

Dataset read_files(const Runtime& runtime, const Config& config, const std::string& encoding, bool needs_label) {
  const DataConfig& data = config.data;
  Columns columns = encoding.empty() ? Columns(config) : Columns(encoding, "the model's encoding of columns");
  if (!encoding.empty() && !config.columns.empty()) columns.require_same(Columns(config));
  const Budget budget(data.buffer_mib);
  ColumnFiles train{open(runtime, data.reader, data.path, budget), nullptr}, test;
  columns.meet(train.part->columns(), needs_label);
  const int64_t rows = rows_of(*train.part, data.limit);
  Parts parts{.files = pieces_of(*train.part, data.limit), .train_rows = rows};
  if (!data.test_path.empty()) {
    test.part = open(runtime, data.reader, data.test_path, budget);
    test.part->select(columns.wanted());
    parts.test = pieces_of(*test.part, data.limit);
  } else {
    parts.train_rows -= static_cast<int64_t>(static_cast<double>(rows) * data.test_fraction);
  }
  const int64_t test_bytes = test.part ? memory_of(*test.part, parts.test, columns) : 0;
  const bool keep = memory_of(*train.part, parts.files, columns) + test_bytes <= budget.all;
  if (!data.order_by.empty()) parts.rows = order_rows(*train.part, data.order_by, keep, parts.files);
  train.part->select(columns.wanted());
  parts.train = rows_between(parts.files, 0, parts.train_rows);
  if (!test.part) parts.test = rows_between(parts.files, parts.train_rows, rows);
  if (columns.must_learn()) learn(*train.part, parts, HoldOut::of(config), !keep, columns);
  columns.finish_learning();

  train.columns = std::make_shared<const Columns>(columns);
  test.columns = train.columns;
  const auto train_files = std::make_shared<const ColumnFiles>(std::move(train));
  const auto test_files = test.part ? std::make_shared<const ColumnFiles>(std::move(test)) : train_files;
  Dataset set;
  set.name = std::filesystem::path(data.path).filename();
  describe(columns, &set);
  set.encoding = columns.json();
  set.labelled = columns.labelled();
  if (parts.rows.empty()) {
    set.train = samples_of(train_files, parts.train, keep, budget);
    set.test = samples_of(test_files, parts.test, keep, budget);
  } else {
    take_ordered(train_files, parts, budget, &set);
    if (test_files != train_files) set.test = samples_of(test_files, parts.test, keep, budget);
  }
  return set;
}

}  // namespace tessera::data

// A data set out of a reader part's files.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "data/columns.h"
#include "data/hold_out.h"
#include "data/readers.h"
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
    fail(Code::kInvalidArgument, "there is no reader \"", reader, "\"; the nearest is \"", sdk::nearest_name(id, known),
         "\"");
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

// Rows [begin, end) of all blocks.
Pieces pieces_of(const ReaderPart& part, int64_t begin, int64_t end) {
  Pieces out;
  int64_t first = 0;  // of the block
  for (int64_t i = 0; i < std::ssize(part.blocks()); ++i) {
    const int64_t rows = part.blocks()[static_cast<size_t>(i)].rows;
    const int64_t from = std::max(begin - first, int64_t{0}), to = std::min(end - first, rows);
    if (from < to) out.push_back({i, from, to - from});
    first += rows;
  }
  return out;
}

// From the rows that are trained on, and not from those that `held` keeps back.
void learn(const ReaderPart& part, const Pieces& pieces, const HoldOut& held, bool streamed, Columns& columns) {
  int64_t samples = 0, before = 0;
  for (const BlockPiece& piece : pieces) samples += piece.rows;
  for (const BlockPiece& piece : pieces) {
    const FileBlock& block = part.blocks()[static_cast<size_t>(piece.block)];
    const std::string file = part.file(block.file);
    part.read(piece.block, [&](std::span<const tsr_reader_values> values) {
      const auto back = [&](int64_t row) { return held.takes(before + row, samples, piece.block, streamed); };
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

}  // namespace

Dataset describe_files(const Runtime& runtime, const Config& config, const std::string& encoding) {
  check_reader(runtime, config.data.reader);
  const Columns columns = encoding.empty() ? Columns(config) : Columns(encoding, "the model's encoding of columns");
  Dataset set;
  set.name = std::filesystem::path(config.data.path).filename();
  set.labels = columns.labels();
  set.dense = columns.dense();
  set.columns = columns.ids();
  return set;
}

Dataset read_files(const Runtime& runtime, const Config& config, const std::string& encoding, bool needs_label) {
  const DataConfig& data = config.data;
  Columns columns = encoding.empty() ? Columns(config) : Columns(encoding, "the model's encoding of columns");
  if (!encoding.empty() && !config.columns.empty()) columns.require_same(Columns(config));
  const Budget budget(data.buffer_mib);
  ColumnFiles train{open(runtime, data.reader, data.path, budget), nullptr}, test;
  columns.meet(train.part->columns(), needs_label);
  train.part->select(columns.wanted());
  const int64_t rows = rows_of(*train.part, data.limit);
  int64_t train_rows = rows;
  Pieces test_pieces;
  if (!data.test_path.empty()) {
    test.part = open(runtime, data.reader, data.test_path, budget);
    test.part->select(columns.wanted());
    test_pieces = pieces_of(*test.part, 0, rows_of(*test.part, data.limit));
  } else {
    train_rows -= static_cast<int64_t>(static_cast<double>(rows) * data.test_fraction);
    test_pieces = pieces_of(*train.part, train_rows, rows);
  }
  const Pieces train_pieces = pieces_of(*train.part, 0, train_rows);
  const ReaderPart& test_part = test.part ? *test.part : *train.part;
  const bool keep =
      memory_of(*train.part, train_pieces, columns) + memory_of(test_part, test_pieces, columns) <= budget.all;
  if (columns.must_learn()) learn(*train.part, train_pieces, HoldOut::of(config), !keep, columns);
  columns.finish_learning();

  train.columns = std::make_shared<const Columns>(columns);
  test.columns = train.columns;
  const auto train_files = std::make_shared<const ColumnFiles>(std::move(train));
  const auto test_files = test.part ? std::make_shared<const ColumnFiles>(std::move(test)) : train_files;
  Dataset set;
  set.name = std::filesystem::path(data.path).filename();
  set.labels = columns.labels();
  set.dense = columns.dense();
  set.columns = columns.ids();
  set.encoding = columns.json();
  set.labelled = columns.labelled();
  set.train = samples_of(train_files, train_pieces, keep, budget);
  set.test = samples_of(test_files, test_pieces, keep, budget);
  return set;
}

}  // namespace tessera::data

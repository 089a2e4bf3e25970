// Reads a data set from a reader plugin's files.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <numeric>

#include "data/columns.h"
#include "data/hold_out.h"
#include "data/readers.h"
#include "data/row_order.h"
#include "data/sample_stream.h"
#include "data/test_split.h"
#include "tessera/sdk/nearest.h"

namespace tessera::data {
namespace {

using Pieces = std::vector<BlockPiece>;

// The memory limits: the window in use, the next one, and a block of text.
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
    for (const std::string& name : known) all += str_cat(all.empty() ? "" : ", ", name);
    fail(Code::kInvalidArgument, "there is no reader \"", reader, "\": set data.reader to one of ", all,
         "; the nearest is \"", sdk::nearest_name(id, known), "\"");
  }
}

// Chooses the test rows if the job does not.
TestSplit::Rows default_test(const DataConfig& data) {
  return data.order_by.empty() ? TestSplit::Rows::kRandom : TestSplit::Rows::kLast;
}

std::unique_ptr<ReaderComponent> open(const Runtime& runtime, const std::string& reader, const std::string& path,
                                      const Budget& budget) {
  check_reader(runtime, reader);
  return std::make_unique<ReaderComponent>(runtime, reader, path, budget.block);
}

int64_t rows_of(const ReaderComponent& part, int64_t limit) {
  int64_t rows = 0;
  for (const FileBlock& block : part.blocks()) rows += block.rows;
  return limit > 0 ? std::min(rows, limit) : rows;
}

int64_t rows_in(const Pieces& pieces) {
  int64_t rows = 0;
  for (const BlockPiece& piece : pieces) rows += piece.rows;
  return rows;
}

// Returns rows [begin, end) of all pieces.
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

// Takes the first rows of all blocks, as many as data.limit allows.
Pieces pieces_of(const ReaderComponent& part, int64_t limit) {
  Pieces out;
  for (int64_t i = 0; i < std::ssize(part.blocks()); ++i)
    out.push_back({i, 0, part.blocks()[static_cast<size_t>(i)].rows});
  return rows_between(out, 0, rows_of(part, limit));
}

// The division of the rows of data.path.
struct Parts {
  Pieces files;        // of data.path
  Pieces train, test;  // streams read those of their rows that train_choice and test_choice take
  RowChoice train_choice, test_choice;
  int64_t train_rows = 0;
  // Set for samples in memory that are not in file order: the training rows and the test rows of `files`. The pieces
  // above are then unused, except those of other files.
  bool ordered = false;
  std::vector<uint32_t> train_order, test_order;
};

// Divides rows in memory: all of `order` except the test rows are for training.
void divide_order(const std::vector<uint32_t>& order, std::vector<uint32_t> test, Parts* parts) {
  std::vector<bool> is_test(order.size());
  for (const uint32_t row : test) is_test[row] = true;
  for (const uint32_t row : order) {
    if (!is_test[row]) parts->train_order.push_back(row);
  }
  parts->ordered = true;
  parts->train_rows = std::ssize(parts->train_order);
  parts->test_order = std::move(test);
}

// Makes the end of `from` the test.
void divide_end(const Pieces& from, int64_t rows, int64_t test_rows, Parts* parts) {
  parts->train_rows = rows - test_rows;
  parts->train = rows_between(from, 0, parts->train_rows);
  parts->test = rows_between(from, parts->train_rows, rows);
}

// Makes the newest rows by the time column the test. The others stay in their order.
void divide_newest(ReaderComponent& part, const TestSplit& test, bool keep, std::vector<uint32_t> order, Parts* parts) {
  const OrderColumn column{"data.test", test.of, true};
  Pieces by_time = parts->files;
  if (keep) {
    const std::vector<uint32_t> times = order_rows(part, column, true, by_time);
    if (order.empty()) {
      order.resize(times.size());
      std::iota(order.begin(), order.end(), 0U);
    }
    return divide_order(order, {times.end() - test.count(std::ssize(times)), times.end()}, parts);
  }
  if (!test.order_by.empty() && test.order_by != test.of)
    fail(Code::kInvalidArgument, "data.order_by = \"", test.order_by, "\" and data.test = \"time:", test.of,
         "\" name two columns, but rows that do not fit data.buffer_mib can have only one order: name one column, or "
         "raise data.buffer_mib");
  (void)order_rows(part, column, false, by_time);
  const int64_t rows = rows_in(by_time);
  divide_end(by_time, rows, test.count(rows), parts);
  if (!test.order_by.empty()) return;
  std::sort(parts->train.begin(), parts->train.end(),
            [](const BlockPiece& a, const BlockPiece& b) { return a.block < b.block; });
}

void divide(ReaderComponent& part, const TestSplit& test, uint64_t seed, bool keep, Parts* parts) {
  std::vector<uint32_t> order;  // of rows in memory; empty: file order
  if (!test.order_by.empty()) order = order_rows(part, {"data.order_by", test.order_by}, keep, parts->files);
  const int64_t rows = rows_in(parts->files);
  if (test.rows == TestSplit::Rows::kNewest) return divide_newest(part, test, keep, std::move(order), parts);
  if (test.rows == TestSplit::Rows::kRandom && test.fraction > 0) {
    const auto random = std::make_shared<const RandomRows>(test.fraction, seed);
    if (!order.empty()) {
      std::vector<uint32_t> taken;
      std::copy_if(order.begin(), order.end(), std::back_inserter(taken),
                   [&](uint32_t row) { return random->takes(row); });
      return divide_order(order, std::move(taken), parts);
    }
    parts->train = parts->test = parts->files;
    parts->train_choice = {random, false};
    parts->test_choice = {random, true};
    parts->train_rows = rows - random->count(rows);
    return;
  }
  const int64_t test_rows = test.rows == TestSplit::Rows::kFile ? 0 : test.count(rows);
  if (order.empty()) return divide_end(parts->files, rows, test_rows, parts);
  divide_order(order, {order.end() - test_rows, order.end()}, parts);
}

// Maps rows to their places among the training rows, in reading order.
class Places {
 public:
  explicit Places(const Parts& parts) : parts_(parts) {
    if (!parts.ordered) return;
    by_row_.assign(parts.train_order.size() + parts.test_order.size(), -1);
    for (size_t place = 0; place < parts.train_order.size(); ++place)
      by_row_[parts.train_order[place]] = static_cast<int64_t>(place);
  }
  const Pieces& pieces() const { return parts_.ordered ? parts_.files : parts_.train; }
  // Returns the place of the next row, whose position in the block is `row`; -1: it is a test row.
  int64_t next(const FileBlock& block, int64_t row) {
    if (parts_.ordered) return by_row_[static_cast<size_t>(next_++)];
    return parts_.train_choice.takes(block, row) ? next_++ : -1;
  }

 private:
  const Parts& parts_;
  std::vector<int64_t> by_row_;
  int64_t next_ = 0;
};

// Learns from the training rows, except those that `held` holds out.
void learn(const ReaderComponent& part, const Parts& parts, const HoldOut& held, bool streamed, Columns& columns) {
  Places places(parts);
  for (const BlockPiece& piece : places.pieces()) {
    const FileBlock& block = part.blocks()[static_cast<size_t>(piece.block)];
    const std::string file = part.file(block.file);
    part.read(piece.block, [&](std::span<const tsr_reader_values> values) {
      const auto back = [&](int64_t row) {  // called once for each row
        const int64_t place = places.next(block, piece.first + row);
        return place < 0 || held.takes(place, parts.train_rows, piece.block, streamed);
      };
      for (int64_t row = 0, end = 0; row < piece.rows; row = end + 1) {  // consecutive training rows
        for (end = row; end < piece.rows && !back(end);) ++end;
        if (row < end) columns.learn({file, block.first_row, piece.first + row, end - row}, values);
      }
    });
  }
}

int64_t memory_of(const ReaderComponent& part, const Pieces& pieces, const Columns& columns) {
  int64_t bytes = 0;
  for (const BlockPiece& piece : pieces)
    bytes += columns.memory_of(piece.rows, part.blocks()[static_cast<size_t>(piece.block)].bytes);
  return bytes;
}

Samples samples_of(std::shared_ptr<const ColumnFiles> files, const Pieces& pieces, bool keep, const Budget& budget,
                   RowChoice choice = {}) {
  const auto stream = std::make_shared<const SampleStream>(std::move(files), pieces, budget.window, std::move(choice));
  if (keep) return finish(stream->load(stream->pieces()));
  Samples out;
  out.streamed = stream;
  return out;
}

// Reads all samples into memory once, then divides them.
void take_from_memory(std::shared_ptr<const ColumnFiles> files, const Parts& parts, const Budget& budget,
                      Dataset* set) {
  const SampleStream stream(std::move(files), parts.files, budget.window);
  Examples all = stream.load(stream.pieces());
  const auto in_order = [&](const std::vector<uint32_t>& rows) {
    Examples out(static_cast<size_t>(all.num_dense()), all.columns(), all.label_form());
    for (const uint32_t row : rows) out.add_sample(all, row);
    return out;
  };
  if (parts.ordered) {
    Examples train = in_order(parts.train_order);
    train.note_bad_id(all.bad_id());
    set->test = finish(in_order(parts.test_order));
    set->train = finish(std::move(train));
  } else {
    set->test = finish(all.take_out(0, [&](int64_t row) { return parts.test_choice.random->takes(row); }));
    set->train = finish(std::move(all));
  }
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
  (void)TestSplit::from(config.data, default_test(config.data));
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
  const TestSplit test_split = TestSplit::from(data, default_test(data));
  const Budget budget(data.buffer_mib);
  ColumnFiles train{open(runtime, data.reader, data.path, budget), nullptr}, test;
  columns.meet(train.part->columns(), needs_label);
  Parts parts{.files = pieces_of(*train.part, data.limit)};
  if (test_split.rows == TestSplit::Rows::kFile) {
    test.part = open(runtime, data.reader, test_split.of, budget);
    test.part->select(columns.wanted());
  }
  const Pieces test_files = test.part ? pieces_of(*test.part, data.limit) : Pieces();
  const int64_t test_bytes = test.part ? memory_of(*test.part, test_files, columns) : 0;
  const bool keep = memory_of(*train.part, parts.files, columns) + test_bytes <= budget.all;
  divide(*train.part, test_split, static_cast<uint64_t>(config.job.seed), keep, &parts);
  if (test.part) parts.test = test_files;
  train.part->select(columns.wanted());
  if (columns.must_learn()) learn(*train.part, parts, HoldOut::of(config), !keep, columns);
  columns.finish_learning();

  train.columns = std::make_shared<const Columns>(columns);
  test.columns = train.columns;
  const auto train_files = std::make_shared<const ColumnFiles>(std::move(train));
  const bool from_file = test.part != nullptr;
  Dataset set;
  set.name = std::filesystem::path(data.path).filename();
  describe(columns, &set);
  test_split.describe(&set);
  set.encoding = columns.json();
  set.labelled = columns.labelled();
  const bool at_once = keep && (parts.ordered || parts.train_choice.random);
  if (at_once)
    take_from_memory(train_files, parts, budget, &set);
  else
    set.train = samples_of(train_files, parts.train, keep, budget, parts.train_choice);
  if (from_file)
    set.test = samples_of(std::make_shared<const ColumnFiles>(std::move(test)), parts.test, keep, budget);
  else if (!at_once)
    set.test = samples_of(train_files, parts.test, keep, budget, parts.test_choice);
  return set;
}

}  // namespace tessera::data

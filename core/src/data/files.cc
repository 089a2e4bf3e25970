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
#include "tessera/sdk/draft/reader_paths.h"

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

// How the files of a job are read.
struct Form {
  DataConfig data;  // data.reader is set
  Columns columns;
  TestSplit test = {};
  bool described = false;        // by the reader, in place of [[column]]s or a model's encoding
  bool own_past = false;         // a row has values of rows before it
  bool takes_rows = false;       // texts are hashed to data.rows
  std::string name = {};         // the data set's
  int64_t test_files = 0;        // the last files of the reader are the test part
  int64_t validation_files = 0;  // those before are for validation
};

// Texts that are hashed get data.rows rows if their reader does not say how many. Returns true if there are any.
bool fill_rows(const DataConfig& data, nlohmann::ordered_json& columns) {
  std::vector<nlohmann::ordered_json*> hashed;
  for (auto& column : columns) {
    if (column.is_object() && column.value("ids", "") == "hash" && !column.contains("rows")) hashed.push_back(&column);
  }
  if (hashed.empty()) return false;
  const std::vector<int64_t> rows = rows_of(data, hashed.size());
  for (size_t i = 0; i < rows.size(); ++i) (*hashed[i])["rows"] = rows[i];
  return true;
}

config::JsonSource description_source(const DataConfig& data) {
  return {str_cat("the description of the reader \"", data.reader, '"'), Code::kInternal};
}

// The reader's description of its columns is read like the encoding of a model that was trained on them.
Form described_form(const DataConfig& data, nlohmann::ordered_json all) {
  all["reader"] = data.reader;
  const bool takes_rows = fill_rows(data, all["columns"]);
  return {data, Columns(all.dump(), description_source(data).name), {}, true, false, takes_rows};
}

Form column_form(const Config& job, const std::string& encoding) {
  return encoding.empty() ? Form{job.data, Columns(job)}
                          : Form{job.data, Columns(encoding, "the model's encoding of columns")};
}

TestSplit test_of(const Form& form) {
  const DataConfig& data = form.data;
  if (form.own_past && !test_file(data).empty())
    fail(Code::kInvalidArgument, "the histories of the test rows of ", test_file(data),
         " would lack the events of data.path: let data.path name all files, and set history.split or data.test");
  const bool last = form.described || !data.order_by.empty();
  if (form.test_files == 0) return TestSplit::from(data, last ? TestSplit::Rows::kLast : TestSplit::Rows::kRandom);
  const bool share = data.test_fraction != 0 && data.test_fraction != DataConfig().test_fraction;
  require_no_test_keys(data);
  if (share)
    fail(Code::kInvalidArgument, "data.test_fraction has no effect: the data of the reader \"", data.reader,
         "\" come with a test part: leave it out");
  return {TestSplit::Rows::kFile, "", 0, ""};
}

Form form_of(const Runtime& runtime, const Config& config, const std::string& encoding) {
  Config job = config;
  choose_reader(runtime, job);
  const config::JsonSource source = description_source(job.data);
  const std::string description = description_of(runtime, job.data.reader, job.data.path);
  const auto known = description.empty() ? nlohmann::ordered_json::object() : config::parse_json(description, source);
  const config::JsonObject object(known, source);
  const bool described = known.contains("columns");
  if (described && !config.columns.empty())
    fail(Code::kInvalidArgument, "[[column]] \"", config.columns[0].name[0], "\" has no effect: the reader \"",
         job.data.reader, "\" knows the columns of its files: leave it out, or set data.reader");
  Form form = described ? described_form(job.data, known) : column_form(job, encoding);
  form.name = object.get<std::string>("name", "");
  form.test_files = object.get<int64_t>("test_files", 0);
  form.validation_files = object.get<int64_t>("validation_files", 0);
  form.own_past = object.get<bool>("own_past", false);
  form.test = test_of(form);
  form.test.take_formats(config.columns);
  if (form.name.empty()) {
    const std::string& path = job.data.path;
    const size_t end = sdk::is_url(path) ? path.find('?') : path.npos;  // options of a store
    form.name = std::filesystem::path(path.substr(0, end)).filename();
  }
  return form;
}

std::unique_ptr<ReaderComponent> open(const Runtime& runtime, const std::string& reader, const std::string& path,
                                      const Budget& budget) {
  return std::make_unique<ReaderComponent>(runtime, reader, path, budget.block);
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

// Takes the first rows of the files [begin, end), as many as data.limit allows.
Pieces pieces_of(const ReaderComponent& part, int64_t begin, int64_t end, int64_t limit) {
  Pieces out;
  for (int64_t i = 0; i < std::ssize(part.blocks()); ++i) {
    const FileBlock& block = part.blocks()[static_cast<size_t>(i)];
    if (block.file >= begin && block.file < end) out.push_back({i, 0, block.rows});
  }
  return limit > 0 ? rows_between(out, 0, std::min(rows_in(out), limit)) : out;
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
  const OrderColumn column{"data.test", test.of, test.format_of(test.of), test.times.contains(test.of), true};
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
  if (!test.order_by.empty())
    order = order_rows(
        part, {"data.order_by", test.order_by, test.format_of(test.order_by), test.times.contains(test.order_by)}, keep,
        parts->files);
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
  for (const Columns::Vector& v : columns.vectors())
    set->dense.insert(set->dense.end(), static_cast<size_t>(v.width), v.name);
  set->columns = columns.ids();
}

Dataset describe_files(const Runtime& runtime, const Config& config, const std::string& encoding) {
  const Form form = form_of(runtime, config, encoding);
  if (!config.data.rows.empty() && !form.takes_rows)
    fail(Code::kInvalidArgument, "data.rows has no effect: the reader \"", form.data.reader,
         "\" does not use it: leave it out, or set data.reader");
  Dataset set{.name = form.name};
  describe(form.columns, &set);
  return set;
}

// A test on rows of training would praise the model for its memory.
void refuse_trained_file(const std::string& train, const std::string& test) {
  std::error_code ignored;
  const bool same = train == test || std::filesystem::equivalent(train, test, ignored);
  if (same)
    fail(Code::kInvalidArgument, "data.test names the training file itself, ", test,
         ": name other rows, or set data.test = \"random\"");
}

Dataset read_files(const Runtime& runtime, const Config& config, const std::string& encoding, bool needs_label) {
  Form form = form_of(runtime, config, encoding);
  const DataConfig& data = form.data;
  Columns& columns = form.columns;
  if (!form.described && !encoding.empty() && !config.columns.empty()) columns.require_same(Columns(config));
  const Budget budget(data.buffer_mib);
  ColumnFiles train{open(runtime, data.reader, data.path, budget), nullptr}, test;
  columns.meet(train.part->columns(), needs_label);
  if (encoding.empty()) columns.settle(train.part->settled());
  const int64_t files = train.part->files(), test_files_begin = files - form.test_files,
                train_files_end = test_files_begin - form.validation_files;
  Parts parts{.files = pieces_of(*train.part, 0, train_files_end, data.limit)};
  Pieces test_files = pieces_of(*train.part, test_files_begin, files, data.limit);
  const Pieces validation = pieces_of(*train.part, train_files_end, test_files_begin, data.limit);
  if (!form.test.of.empty() && form.test.rows == TestSplit::Rows::kFile) {
    refuse_trained_file(data.path, form.test.of);
    test.part = open(runtime, data.reader, form.test.of, budget);
    columns.require_same_units(test.part->columns());
    test.part->select(columns.wanted());
    test_files = pieces_of(*test.part, 0, test.part->files(), data.limit);
  }
  const int64_t test_bytes = memory_of(test.part ? *test.part : *train.part, test_files, columns) +
                             memory_of(*train.part, validation, columns);
  const bool keep = form.described || memory_of(*train.part, parts.files, columns) + test_bytes <= budget.all;
  divide(*train.part, form.test, static_cast<uint64_t>(config.job.seed), keep, &parts);
  if (form.test.rows == TestSplit::Rows::kFile) parts.test = std::move(test_files);
  train.part->select(columns.wanted());
  if (columns.must_learn()) learn(*train.part, parts, HoldOut::of(config), !keep, columns);
  columns.finish_learning();

  train.columns = std::make_shared<const Columns>(columns);
  test.columns = train.columns;
  const auto train_files = std::make_shared<const ColumnFiles>(std::move(train));
  const bool from_file = test.part != nullptr;
  Dataset set{.name = form.name};
  describe(columns, &set);
  if (form.test_files == 0) form.test.describe(&set);
  if (!form.described) set.encoding = columns.json();
  set.labelled = columns.labelled();
  if (!validation.empty()) set.validation = samples_of(train_files, validation, keep, budget);
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

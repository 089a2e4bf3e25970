// tessera/data.h - training data, in compact memory or read again in each epoch, as batches for one of several ranks.
//
//   Dataset set = read_dataset(runtime, config);
//   BatchReader train(set.train, {.batch = 128, .rank = r, .world_size = w, .seed = 1, .shuffle = true});
//   for (int64_t epoch = 0; epoch < 3; ++epoch) {
//     train.start_epoch(epoch);
//     for (Batch batch; train.next(batch);) ...
//   }
//
// The global batches depend only on data, seed and epoch, not on the number of ranks, so losses of different world
// sizes can be compared. All batches are full except the last two of an epoch, which share the rest equally. A very
// small last batch would hurt, because adaptive optimizers take a full step for any batch's mean gradient.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/config.h"
#include "tessera/jagged_tensor.h"
#include "tessera/tensor.h"

struct tsr_reader_values;  // abi/draft/reader.h

namespace tessera {

class Runtime;

namespace data {
class Columns;
class Examples;      // labels, dense values and bags of many samples, in a few flat arrays
class SampleStream;  // samples in files, with one window of them in memory at a time
class SampleCursor;
struct SampleRef;
}  // namespace data
using ExamplesPtr = std::shared_ptr<const data::Examples>;

// The samples of one part of a data set: all in memory, or streamed from files. If both are null, there are none.
struct Samples {
  ExamplesPtr kept;
  std::shared_ptr<const data::SampleStream> streamed;

  Samples() = default;
  Samples(ExamplesPtr examples) : kept(std::move(examples)) {}
  explicit operator bool() const { return kept || streamed; }
  int64_t size() const;
  // All samples in memory, or some thousands of the streamed ones, for statistics.
  ExamplesPtr some() const;
};

// The result of a reader. `columns` are in the order of every batch's keys.
struct Dataset {
  std::string name;  // "movielens-small"
  std::vector<std::string> labels = {"label"};
  bool binary_labels = true;        // only 0 and 1; else any numbers
  bool weighted_samples = false;    // samples have weights
  std::vector<std::string> dense;   // names of the dense inputs; a vector's name occurs once for each of its values
  std::vector<DataColumn> columns;  // name, table rows, pooling, weights
  Samples train;
  Samples test;
  Samples validation;         // rows that the reader keeps for validation.split = "data"; none: it keeps none
  std::string test_split;     // the choice of test rows: "10 % of the rows, random"; empty: the reader's own part
  bool test_is_last = false;  // the test rows are the end of the files, in file order
  // The encoding of the files' columns with learned vocabularies, as JSON. It is saved with a model, so that later data
  // are read in the same way. Empty for readers without one.
  std::string encoding;
  bool labelled = true;  // false: the files have no labels, and all labels are 0
  int64_t train_rows() const { return train.size(); }
  int64_t test_rows() const { return test.size(); }
  // kInvalidArgument, with file and line: an id is no row of its column. For streamed samples this is thrown while they
  // are read. Readers keep such ids. A job with bounds_check "fatal" calls this before it begins; one that drops or
  // counts such ids does not.
  void require_known_ids() const;
};

// Reads the data that `config` names, with one pass over each file. kInvalidArgument, with file and line: a bad row
// (ids out of range are not an error here: Dataset::require_known_ids). kNotFound: a missing file. kDataLoss: a damaged
// gzip file. `seed` is used by the synthetic reader and for a random test part.
//
// This function has only the reader `synthetic`: uniform or Zipf-distributed ids (row 0 is the most frequent), normal
//   dense values, and labels drawn from a hidden logistic model of both, so that training has something to find.
Dataset read_dataset(const DataConfig& config, uint64_t seed);

// Also reads with reader plugins. `data.reader` names one; if it is empty, the plugins say which of them opens
// `data.path`. The [[column]]s describe the columns, unless the reader knows them. Its files are read
// once to find their blocks, and again if a column learns from the training rows. Samples are kept in memory if they
// take at most data.buffer_mib, and are streamed otherwise. Columns do not learn from rows that `config.validation`
// holds out. `encoding`: that of an earlier Dataset, instead of learning. kInvalidArgument: the [[column]]s contradict
// it.
Dataset read_dataset(const Runtime& runtime, const Config& config, const std::string& encoding = "");

// Returns what is known of the data before samples are read: names of dense inputs and columns. A column has 1 row if
// only samples tell how many there are.
Dataset describe_dataset(const Runtime& runtime, const Config& config, const std::string& encoding = "");

// Reads data for predictions in the same way: its files may lack the labels.
Dataset read_unlabelled(const Runtime& runtime, const Config& config, const std::string& encoding);

// data.reader, or the reader that opens data.path if it is empty. kInvalidArgument: none or several do.
std::string reader_of(const Runtime& runtime, const DataConfig& data);
// Sets data.reader to that reader, inside the one that makes histories if there is a [history], which is then cleared.
// A second call changes nothing.
void choose_reader(const Runtime& runtime, Config& config);
// A reader's description of its columns and files, as JSON; empty: it has none, so that the job must have [[column]]s.
// kInvalidArgument, with the nearest name: there is no such reader.
std::string description_of(const Runtime& runtime, const std::string& reader, const std::string& path);

// The file of test rows in the config; empty: none.
std::string test_file(const DataConfig& config);
// Changes the config so that its data has no test and validation parts, and rows keep the order of the files.
void read_undivided(Config& config);
// The rows to train on, and those that config.validation holds out. Meanwhile samples in memory are there twice.
std::pair<Samples, Samples> hold_out(const Config& config, const Dataset& data);

// Encodes values of columns as the training of a model did, from Dataset::encoding. `tessera serve` encodes requests by
// it. All of it is [any-thread].
class ColumnEncoding {
 public:
  // kDataLoss: the error names `source`.
  explicit ColumnEncoding(const std::string& encoding, const std::string& source = "the model's encoding of columns");

  const std::string& reader() const;  // of the training data
  std::vector<std::string> names() const, labels() const, dense() const;
  // Vectors, whose values follow the dense ones of each sample.
  struct Vector {
    std::string name;
    int64_t width;
  };
  std::vector<Vector> vectors() const;
  int64_t dense_width() const;  // dense values and those of vectors
  // Null: there is no such column.
  const ColumnConfig* column(const std::string& name) const;
  // True if some column reads the column `field` of the files.
  bool reads(const std::string& field) const;
  // TSR_READER_TEXT, ...: the type in which its values are read. Texts are parsed with `take`, `decimal` and `strip`.
  static int32_t type_of(const ColumnConfig& column);
  // True if a column of ids is made of numbers, and these are in text, whatever the reader could do.
  static bool numbers_in_text(const ColumnConfig& column);
  // The texts of rows 1, 2, ... of a table; unset: not all of its ids are from a vocabulary.
  std::optional<std::vector<std::string>> words(const std::string& table) const;

  struct Ids {
    std::vector<int64_t> values, begins;  // row r: [begins[r], begins[r + 1])
    std::vector<float> weights;           // empty: all 1
  };
  // encode() takes a column of ids that is no cross. cross() takes a cross, with its parts' ids in the order of
  // ColumnConfig::cross.
  void encode(const std::string& name, int64_t rows, const tsr_reader_values& values, Ids& out) const;
  void cross(const std::string& name, std::span<const Ids* const> parts, Ids& out) const;
  // The model's input for a value of a dense column; infinite if it is too large for a float32. NaN: there is no value,
  // and the column has `missing`.
  float dense_value(const std::string& name, double value) const;
  // The number in a text of a dense column; NaN: missing. kInvalidArgument: the text is no number.
  double dense_number(const std::string& name, std::string_view text) const;

 private:
  std::shared_ptr<const data::Columns> columns_;
};

// One rank's slice of one global batch. BatchReader::next fills it and reuses the memory of the previous batch. A
// caller that keeps two batches needs two objects, and tensors of a Batch are invalid after it is refilled.
class Batch {
 public:
  Tensor dense;  // float32 [B, dense inputs]
  // Keys are the columns. Values are int32, or int64 if a table has more than 2^31 - 1 rows. Lengths and offsets are
  // int32, or int64 if there are that many ids. If any column has weights, the ids of all others have weight 1.
  KeyedJaggedTensor sparse;
  Tensor labels;                     // float32 [B]; the first label if there are several
  Tensor further_labels;             // float32 [labels - 1, B]; undefined: none
  Tensor sample_weights;             // float32 [B], factors of the losses; undefined: 1
  Tensor label(size_t which) const;  // [B]
  int64_t global_size = 0;           // samples of this batch on all ranks; B may be 0 if it is less than the world size

 private:
  friend class BatchReader;
  struct Buffers {
    Tensor dense, labels, further_labels, sample_weights, values, lengths, offsets, weights;
  };
  Buffers buffers_;
};

struct BatchReaderOptions {
  int64_t batch = 128;  // samples of all ranks together
  int rank = 0;
  int world_size = 1;
  uint64_t seed = 1;
  bool shuffle = false;  // a new order in each epoch; false: file order
};

class BatchReader {
 public:
  // kInvalidArgument: a batch below 1, or a rank outside the world.
  BatchReader(Samples samples, BatchReaderOptions options);
  ~BatchReader();
  BatchReader(BatchReader&&) noexcept;
  BatchReader& operator=(BatchReader&&) noexcept;

  // Goes to the first batch of `epoch`, whose number determines the shuffled order. The constructor starts epoch 0.
  void start_epoch(int64_t epoch);
  // Goes to batch `index` of the current epoch, to continue a run.
  void seek(int64_t index);
  int64_t batches() const;                        // per epoch, including the short last ones; the same on all ranks
  int64_t position() const { return position_; }  // index of the next batch
  // Rank r of W gets the samples [n * r / W, n * (r + 1) / W) of the global batch's n samples. If they are streamed, it
  // gets those of the blocks that it reads, so that shares are equal on average. False at the end of the epoch.
  bool next(Batch& batch);

 private:
  int64_t first_sample(int64_t batch) const;  // position of a batch's first sample in the epoch
  void fill(Batch& batch) const;              // from refs_
  void fill_labels(Batch& batch) const;

  Samples samples_;
  BatchReaderOptions options_;
  std::vector<uint32_t> order_;                 // of samples in memory; empty: file order
  std::unique_ptr<data::SampleCursor> cursor_;  // of streamed samples
  std::vector<data::SampleRef> refs_;           // of the batch
  int64_t position_ = 0;
};

// Counts ids that are not in a model's vocabularies.
//
//   UnknownIdCounter counter(dataset.encoding);
//   for (Batch batch; reader.next(batch);) counter.add(batch.sparse);
//   for (const UnknownIds& ids : counter.counts()) puts(ids.warning().c_str());
//
// A value that is not in a vocabulary becomes row 0 of its table. A few are ordinary. If nearly all are unknown, the
// data differ from the training data, or are written in another way.
struct UnknownIds {
  std::string column;
  int64_t ids = 0, unknown = 0;

  // True if all ids are unknown, or at least half of 20 or more.
  bool are_many() const;
  // "user: 100 % of the 1200 ids were not in the vocabulary"; empty unless are_many().
  std::string warning() const;
};

class UnknownIdCounter {
 public:
  // `encoding`: that of a Dataset or a ModelDescription; empty: there is no vocabulary.
  explicit UnknownIdCounter(const std::string& encoding);

  // Counts the features that are columns with a vocabulary; int64 or int32.
  void add(const KeyedJaggedTensor& sparse);
  const std::vector<UnknownIds>& counts() const { return counts_; }  // of columns with a vocabulary, in their order

 private:
  std::vector<UnknownIds> counts_;
};

}  // namespace tessera

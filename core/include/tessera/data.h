// tessera/data.h - training data: in compact memory, or read anew in each epoch, handed out as batches for one rank of
// many.
//
//   Dataset set = read_dataset(runtime, config);
//   BatchReader train(set.train, {.batch = 128, .rank = r, .world_size = w, .seed = 1, .shuffle = true});
//   for (int64_t epoch = 0; epoch < 3; ++epoch) {
//     train.start_epoch(epoch);
//     for (Batch batch; train.next(batch);) ...
//   }
//
// The global batches depend on data, seed and epoch alone, never on the number of ranks, so losses of different world
// sizes can be compared. All are full but the last two of an epoch, which share the rest equally: adaptive optimizers
// take a step of full length for the mean gradient of any batch, and one of a few samples would end the epoch badly.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/config.h"
#include "tessera/jagged_tensor.h"
#include "tessera/tensor.h"

namespace tessera {

class Runtime;

namespace data {
class Examples;      // labels, dense values and bags of many samples, a few flat arrays
class SampleStream;  // samples in files, a window of which is in memory at a time
class SampleCursor;
struct SampleRef;
}  // namespace data
using ExamplesPtr = std::shared_ptr<const data::Examples>;

// The samples of a part of a data set: all in memory, or streamed from their files. Both null: none.
struct Samples {
  ExamplesPtr kept;
  std::shared_ptr<const data::SampleStream> streamed;

  Samples() = default;
  Samples(ExamplesPtr examples) : kept(std::move(examples)) {}
  explicit operator bool() const { return kept || streamed; }
  int64_t size() const;
  // All that are kept, or some thousands of those streamed, for statistics.
  ExamplesPtr some() const;
};

// The result of a reader. `columns` are in the order of the keys of every batch.
struct Dataset {
  std::string name;  // "movielens-small"
  std::vector<std::string> labels = {"label"};
  bool binary_labels = true;        // 0 and 1 alone; else any numbers
  bool weighted_samples = false;    // samples have weights
  std::vector<std::string> dense;   // names of the dense inputs
  std::vector<DataColumn> columns;  // name, table rows, pooling, weights
  Samples train;
  Samples test;
  std::string test_split;     // which rows the test has: "10 % of the rows, random"; empty: as the reader has them
  bool test_is_last = false;  // they are the end of the files, in the order of those
  // The encoding of the files' columns, learned vocabularies included, as JSON. It is saved with a model, so that
  // what it predicts is read likewise. Empty: of other readers.
  std::string encoding;
  bool labelled = true;  // false: data::read_files() was asked to do without labels where there are none, and all are 0
  int64_t train_rows() const { return train.size(); }
  int64_t test_rows() const { return test.size(); }
  // kInvalidArgument with file and line where an id is none of its column's rows; of samples that are streamed, when
  // they are read. Reading keeps such ids: a job whose bounds_check is "fatal" asks for this before it begins, one that
  // drops or counts them does not.
  void require_known_ids() const;
};

// Reads what `config` names, whole, with one pass over each file. Bad rows are kInvalidArgument with file and line (ids
// outside a column's rows are not: Dataset::require_known_ids), missing files kNotFound, damaged gzip files kDataLoss.
// `seed` matters to the synthetic reader and to a random test part.
//
// prepared: a directory with meta.json, train.tsv and test.tsv, each also as .gz. One sample a line: label, dense
// values
//   (comma-separated), then one field per column, a comma-separated list of rows that may be empty, all between tabs.
// movielens-100k: a directory with ml-100k.inter, .item and .user (RecBole's column format); see
//   prepare_movielens_100k.
// criteo-tsv: a file of lines label, 13 integers, 26 categories in hexadecimal, between tabs. A dense value is
//   ln(1 + max(x, 0)), an empty one 0. A category's row is mix(fnv1a("C1=" + text)) mod rows, an empty one like any
//   other text. The test part is the last test_fraction of the rows unless `test` says otherwise.
// synthetic: ids uniform or Zipf-distributed (row 0 the most frequent), dense values normal, and labels drawn from a
//   hidden logistic model of both, so that training has something to find.
Dataset read_dataset(const DataConfig& config, uint64_t seed);

// The same, and what reader plugins read: `data.reader` names one, the [[column]]s say what its columns are. Its files
// are read once to find their blocks, and once more where a column learns from the training rows; samples are kept
// where they take at most data.buffer_mib, and streamed otherwise. Nothing is learned from rows that
// `config.validation` keeps back. `encoding`: of an earlier Dataset, instead of learning; kInvalidArgument where
// [[column]]s that are given say otherwise.
Dataset read_dataset(const Runtime& runtime, const Config& config, const std::string& encoding = "");

// The result of the same call, as far as it is known before samples are read: names of the dense inputs and
// columns, no samples. A column has 1 row where only samples tell how many there are.
Dataset describe_dataset(const Runtime& runtime, const Config& config, const std::string& encoding = "");

// Names for DataConfig::reader that are no reader plugins, ascending.
std::vector<std::string> reader_names();

// The prepared text (train.tsv, test.tsv) that the raw MovieLens-100K files in `directory` give, and its meta.json
// without row counts. `split`: "user" (the last floor(n/5) rows of each user are test) or "time" (the last fifth of
// all).
struct PreparedText {
  std::string train, test, meta;
};
PreparedText prepare_movielens_100k(const std::string& directory, const std::string& split);

// One rank's slice of one global batch. Filled by BatchReader::next, which reuses the memory of the batch before: a
// caller that keeps two batches at once uses two objects, and no tensor taken from a Batch survives its refilling.
class Batch {
 public:
  Tensor dense;              // float32 [B, dense inputs]
  KeyedJaggedTensor sparse;  // keys: the columns; values int32, or int64 where a table has more than 2^31 - 1 rows;
                             // lengths and offsets int32, or int64 where there are as many ids; weights where a
                             // column has some, 1 for the ids of all others
  Tensor labels;             // float32 [B], of data with several the first
  Tensor further_labels;     // float32 [labels - 1, B]; undefined: there are none
  Tensor sample_weights;     // float32 [B], what losses are multiplied with; undefined: 1
  Tensor label(size_t which) const;  // [B]
  int64_t global_size = 0;  // samples of this batch on all ranks; B may be 0 where it is smaller than the world

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
  bool shuffle = false;  // a new order in each epoch; false: the order of the files
};

class BatchReader {
 public:
  // kInvalidArgument for a batch below 1 or a rank outside the world.
  BatchReader(Samples samples, BatchReaderOptions options);
  ~BatchReader();
  BatchReader(BatchReader&&) noexcept;
  BatchReader& operator=(BatchReader&&) noexcept;

  // Goes to the first batch of `epoch`, which names the shuffled order. Epoch 0 is started by the constructor.
  void start_epoch(int64_t epoch);
  // Goes to batch `index` of the current epoch: to continue a run.
  void seek(int64_t index);
  int64_t batches() const;                        // per epoch, the last short ones included; the same on all ranks
  int64_t position() const { return position_; }  // index of the batch that next() gives
  // Rank r of W gets the samples [n * r / W, n * (r + 1) / W) of the n in the global batch; if they are streamed, those
  // of the blocks that it reads, so that shares are equal on average. False at the end of the epoch.
  bool next(Batch& batch);

 private:
  int64_t first_sample(int64_t batch) const;  // of a batch of the epoch, in its order
  void fill(Batch& batch) const;              // with refs_
  void fill_labels(Batch& batch) const;

  Samples samples_;
  BatchReaderOptions options_;
  std::vector<uint32_t> order_;                 // of samples that are kept; empty: the file's
  std::unique_ptr<data::SampleCursor> cursor_;  // through those streamed
  std::vector<data::SampleRef> refs_;           // of the batch
  int64_t position_ = 0;
};

}  // namespace tessera

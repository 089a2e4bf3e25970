// Samples that are read again in each epoch: blocks of a reader plugin, with one window of them in memory at a time.
//
// An epoch is a sequence of windows. Its blocks come in a shuffled order, and the samples of a window are shuffled like
// samples in memory. So batches depend only on data, seed and epoch. A rank reads its own share of each window's
// blocks, so all ranks together read the files once. A position is a number of samples of the epoch; the blocks' sizes
// tell where it is, on any number of ranks.
#pragma once

#include <atomic>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "data/columns.h"
#include "data/examples.h"
#include "data/reader_component.h"
#include "data/task_thread.h"
#include "data/test_split.h"
#include "tessera/data.h"

namespace tessera::data {

// Rows of a block.
struct BlockPiece {
  int64_t block = 0, first = 0, rows = 0;
  int64_t samples = 0;  // how many of the rows a stream takes; counted by the stream
};

// Selects the rows that a stream takes.
struct RowChoice {
  std::shared_ptr<const RandomRows> random;  // null: all
  bool test = false;                         // the rows that `random` takes; else the others
  bool takes(const FileBlock& block, int64_t row) const {
    return !random || random->takes(block.rows_before + row) == test;
  }
};

// Files and the encoding of their columns.
struct ColumnFiles {
  std::unique_ptr<ReaderComponent> part;
  std::shared_ptr<const Columns> columns;

  int64_t memory_of(const BlockPiece& piece) const;
  void append(const BlockPiece& piece, Examples& examples) const;  // [any-thread]
};

class SampleStream {
 public:
  // `window_bytes`: size of the samples of a window.
  SampleStream(std::shared_ptr<const ColumnFiles> files, std::vector<BlockPiece> pieces, int64_t window_bytes,
               RowChoice choice = {});

  int64_t size() const { return size_; }
  bool takes(const BlockPiece& piece, int64_t row) const {
    return choice_.takes(files_->part->blocks()[static_cast<size_t>(piece.block)], piece.first + row);
  }
  const Examples& form() const { return form_; }  // columns and dense inputs, no samples
  const std::vector<BlockPiece>& pieces() const { return pieces_; }
  // Returns a stream of other rows of the same files.
  std::shared_ptr<const SampleStream> with(std::vector<BlockPiece> pieces) const;
  // Reads at most `most` samples, from all over the part if that is cheap.
  ExamplesPtr some(int64_t most) const;
  uint64_t hash() const;  // as in content_hash()
  // After this an id without a row is an error that names file, row and column.
  void require_known_ids() const { known_ids_ = true; }

  struct Window {
    std::vector<BlockPiece> pieces;
    int64_t first = 0, size = 0;  // number of samples of the epoch before it, and in it
  };
  std::vector<Window> epoch(uint64_t seed, bool shuffle) const;
  // Reads all samples of some pieces, into the memory of samples that are no longer needed.
  Examples load(std::span<const BlockPiece> pieces, std::unique_ptr<Examples> memory = nullptr) const;

 private:
  bool goes_on(size_t piece) const;  // true: it continues the previous piece and is cheap to read only after it
  void append(const BlockPiece& piece, Examples& examples) const;

  std::shared_ptr<const ColumnFiles> files_;
  std::vector<BlockPiece> pieces_;
  RowChoice choice_;
  Examples form_;
  int64_t window_bytes_, size_ = 0;
  mutable std::atomic<bool> known_ids_ = false;
};

// A sample in memory.
struct SampleRef {
  const Examples* examples;
  int64_t index;
};

// Walks one rank through the epochs of a stream. A thread reads the next window while one is in use.
class SampleCursor {
 public:
  SampleCursor(std::shared_ptr<const SampleStream> stream, BatchReaderOptions options)
      : stream_(std::move(stream)), options_(options) {}
  void start_epoch(int64_t epoch);
  // Gets this rank's samples among [begin, end) of the epoch, valid until the next call.
  void take(int64_t begin, int64_t end, std::vector<SampleRef>& out);

 private:
  struct Loaded {
    size_t window = 0;
    Examples own;                 // samples of this rank's blocks
    int64_t first = 0;            // number of the window's samples before them
    std::vector<uint32_t> order;  // of the window's samples; empty: stored order
  };
  Loaded load(size_t window, std::unique_ptr<Examples> memory) const;
  void begin_to_load(size_t window);
  void forget_next();
  const Loaded& loaded(size_t window);
  void drop_first();
  std::unique_ptr<Examples> take_spare();

  std::shared_ptr<const SampleStream> stream_;
  BatchReaderOptions options_;
  uint64_t seed_ = 0;  // of the epoch
  std::vector<SampleStream::Window> windows_;
  std::deque<Loaded> loaded_;
  std::vector<std::unique_ptr<Examples>> spare_;  // memory of used windows
  std::future<Loaded> next_;                      // the window after the last one loaded
  TaskThread reader_;                             // last member, because its task uses those above
};

}  // namespace tessera::data

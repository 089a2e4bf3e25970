// A file that only this process knows, and what reads and writes many pieces of it at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>

namespace extras {

// The system moves whole blocks at such addresses between the disk and memory without a copy of its own.
inline constexpr uint64_t kBlockBytes = 4096;

// Memory that starts with a block, and grows.
class BlockBuffer {
 public:
  BlockBuffer() = default;
  // Earlier contents may be lost.
  char* room(size_t bytes) {
    if (bytes > bytes_) grow(bytes);
    return memory_.get();
  }
  // Earlier contents stay.
  char* keep(size_t bytes) {
    if (bytes <= bytes_) return memory_.get();
    const std::unique_ptr<char, Free> old = std::move(memory_);
    const size_t had = bytes_;
    grow(std::max(bytes, 2 * had));
    if (had > 0) std::memcpy(memory_.get(), old.get(), had);
    return memory_.get();
  }
  char* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  void grow(size_t bytes) {
    bytes_ = (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    memory_.reset(static_cast<char*>(std::aligned_alloc(kBlockBytes, bytes_)));
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  std::unique_ptr<char, Free> memory_;
  size_t bytes_ = 0;
};

// Bytes of a file, and where in memory they come from or go. Offset, size and memory are those of whole blocks, but
// what is read may also be a part of `PieceIo::bounce` bytes of whole blocks.
struct Piece {
  char* memory;
  uint64_t bytes;
  uint64_t offset;  // in the file
};

enum class Direction { kRead, kWrite };

// Moves pieces of one open file, all of them before it returns; used by one thread at a time. 0, or the errno of one
// that failed; EIO where the file ends before a piece.
class PieceIo {
 public:
  virtual ~PieceIo() = default;
  virtual int move(Direction direction, std::span<const Piece> pieces) = 0;
  virtual const char* name() const = 0;
};

struct PieceIoShape {
  int depth = 64;                 // requests under way: a ring's entries, or threads
  uint64_t bounce = kBlockBytes;  // most bytes of the whole blocks around a piece that is none
};

// pread and pwrite on threads of its own, which are started when there is enough to do.
std::unique_ptr<PieceIo> thread_io(int file, const PieceIoShape& shape);
// io_uring; the file, and the memory around pieces that are no whole blocks, are registered with it. Null where this
// build or the kernel has none.
std::unique_ptr<PieceIo> uring_io(int file, const PieceIoShape& shape);

struct RowFileOptions {
  std::string directory = "/var/tmp";
  std::string io = "auto";  // "uring", "threads", or what there is
  int64_t depth = 64;       // requests under way; of threads there are at most 16
  bool operator==(const RowFileOptions&) const = default;
};

// A file in a directory, which has lost its name by the time it is there: it takes room until it is closed, and is gone
// whatever ends the process. It goes past the page cache where the file system allows that (O_DIRECT).
// One thread may read() while another one is in write() or read_back().
class RowFile {
 public:
  // `table`: for the sentences of its failures.
  RowFile(const RowFileOptions& options, std::string table, uint64_t bounce);
  ~RowFile();
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;

  void read(std::span<const Piece> pieces) { check(Direction::kRead, reader_->move(Direction::kRead, pieces)); }
  void write(std::span<const Piece> pieces) { check(Direction::kWrite, writer_->move(Direction::kWrite, pieces)); }
  // Called by the thread that writes.
  void read_back(std::span<const Piece> pieces) { check(Direction::kRead, writer_->move(Direction::kRead, pieces)); }
  const char* io() const { return reader_->name(); }

 private:
  void check(Direction direction, int error) const;

  std::string directory_, table_;
  int file_;
  std::unique_ptr<PieceIo> reader_, writer_;
};

}  // namespace extras

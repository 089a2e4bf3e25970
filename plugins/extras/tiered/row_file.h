// A file private to this process, and ways to read and write many pieces of it at once.
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

// The system moves whole blocks at aligned addresses between disk and memory without copying.
inline constexpr uint64_t kBlockBytes = 4096;

// Memory aligned to a block, which grows.
class BlockBuffer {
 public:
  BlockBuffer() = default;
  // Returns at least this many bytes. Earlier content may be lost.
  char* room(size_t bytes) {
    if (bytes > bytes_) grow(bytes);
    return memory_.get();
  }
  // The same, but earlier content stays.
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

// A range of a file, and its address in memory. Offset, size and address are multiples of a block. For reading, they
// need not be, if the whole blocks around the piece have at most PieceIoShape::bounce bytes.
struct Piece {
  char* memory;
  uint64_t bytes;
  uint64_t offset;  // offset in the file
};

enum class Direction { kRead, kWrite };

// Moves pieces of one open file, and returns when all are done. Only one thread may use it at a time. Returns 0, or the
// errno of a failed piece, which is EIO if the file ends before the piece.
class PieceIo {
 public:
  virtual ~PieceIo() = default;
  virtual int move(Direction direction, std::span<const Piece> pieces) = 0;
  virtual const char* name() const = 0;
};

struct PieceIoShape {
  int depth = 64;                 // requests in flight: entries of a ring, or threads
  uint64_t bounce = kBlockBytes;  // the most bytes of the whole blocks around an unaligned piece
};

// Uses pread and pwrite on threads of its own, which start when there is enough to do.
std::unique_ptr<PieceIo> thread_io(int file, const PieceIoShape& shape);
// Uses io_uring. The file, and the memory for unaligned pieces, are registered with it. Null if this build or the
// kernel lacks io_uring.
std::unique_ptr<PieceIo> uring_io(int file, const PieceIoShape& shape);

struct RowFileOptions {
  std::string directory = "/var/tmp";
  std::string io = "auto";  // "uring", "threads", or "auto" for whatever is available
  int64_t depth = 64;       // requests in flight; at most 16 threads
  bool operator==(const RowFileOptions&) const = default;
};

// A file in a directory, unlinked as soon as it is open: it uses space until it is closed, however the process ends. It
// bypasses the page cache if the file system allows that (O_DIRECT). One thread may read() while another one is in
// write() or read_back().
class RowFile {
 public:
  // `table` is named in failures.
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

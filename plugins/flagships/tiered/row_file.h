// A file that only this process knows, and what reads and writes many pieces of it at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace flagships {

// Bytes of a file, and where in memory they come from or go.
struct Piece {
  char* memory;
  uint64_t bytes;
  uint64_t offset;  // in the file
};

enum class Direction { kRead, kWrite };

// Moves pieces of one open file, all of them before it returns; used by one thread at a time. 0, or the errno of one
// that failed. What is read behind the file's end is 0.
class PieceIo {
 public:
  virtual ~PieceIo() = default;
  virtual int move(Direction direction, std::span<const Piece> pieces) = 0;
  virtual const char* name() const = 0;
};

// pread and pwrite on `threads` threads of its own, which are started when there is enough to do.
std::unique_ptr<PieceIo> thread_io(int file, int threads);
// io_uring with `depth` requests under way. Null where this build or the kernel has none.
std::unique_ptr<PieceIo> uring_io(int file, unsigned depth);

struct RowFileOptions {
  std::string directory = "/var/tmp";
  std::string io = "auto";  // "uring", "threads", or what there is
  int64_t depth = 64;       // requests under way: a ring's entries, or threads, of which there are at most 16
};

// A file in a directory, which has lost its name by the time it is there: it takes room until it is closed, and is gone
// whatever ends the process.
class RowFile {
 public:
  // `table`: for the sentences of its failures.
  RowFile(const RowFileOptions& options, std::string table);
  ~RowFile();
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;

  void read(std::span<const Piece> pieces) { move(Direction::kRead, pieces); }
  void write(std::span<const Piece> pieces) { move(Direction::kWrite, pieces); }
  const char* io() const { return io_->name(); }

 private:
  void move(Direction direction, std::span<const Piece> pieces);

  std::string directory_, table_;
  int file_;
  std::unique_ptr<PieceIo> io_;
};

}  // namespace flagships

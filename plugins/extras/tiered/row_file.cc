#include "row_file.h"

#include <fcntl.h>
#include <tessera/sdk/error.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace extras {
namespace {

using tessera::sdk::fail;

// Moves whole blocks; returns 0 or errno.
int move_blocks(int file, Direction direction, const Piece& piece) {
  for (uint64_t done = 0; done < piece.bytes;) {
    char* const at = piece.memory + done;
    const auto offset = static_cast<off_t>(piece.offset + done);
    const ssize_t n = direction == Direction::kRead ? pread(file, at, piece.bytes - done, offset)
                                                    : pwrite(file, at, piece.bytes - done, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return direction == Direction::kRead ? EIO : ENOSPC;
    done += static_cast<uint64_t>(n);
  }
  return 0;
}

int move_one(int file, Direction direction, const Piece& piece, BlockBuffer& bounce) {
  const uint64_t begin = piece.offset / kBlockBytes * kBlockBytes;
  const uint64_t end = (piece.offset + piece.bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  if (begin == piece.offset && end == piece.offset + piece.bytes &&
      reinterpret_cast<uintptr_t>(piece.memory) % kBlockBytes == 0)
    return move_blocks(file, direction, piece);
  if (direction == Direction::kWrite) return EINVAL;
  char* const around = bounce.room(end - begin);
  if (const int error = move_blocks(file, direction, {around, end - begin, begin}); error != 0) return error;
  std::memcpy(piece.memory, around + (piece.offset - begin), piece.bytes);
  return 0;
}

class ThreadIo final : public PieceIo {
 public:
  ThreadIo(int file, int threads) : file_(file), most_(threads) {}
  ~ThreadIo() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  int move(Direction direction, std::span<const Piece> pieces) override {
    constexpr size_t kFew = 2;  // faster than waking another thread
    {
      const std::lock_guard lock(mutex_);
      direction_ = direction;
      pieces_ = pieces;
      next_ = 0;
      error_ = 0;
      if (pieces.size() > kFew) {
        start();
        ++round_;
      }
    }
    changed_.notify_all();
    work(bounce_);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return at_work_ == 0; });
    pieces_ = {};
    return error_;
  }
  const char* name() const override { return "threads"; }

 private:
  // If the system cannot start a thread, the existing threads do the work.
  void start() {
    try {
      while (threads_.size() + 1 < static_cast<size_t>(most_)) threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
      most_ = static_cast<int>(threads_.size()) + 1;
    }
  }
  void run() {
    BlockBuffer bounce;
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
      if (next_ >= pieces_.size()) continue;  // others have done everything
      ++at_work_;
      lock.unlock();
      work(bounce);
      lock.lock();
      if (--at_work_ == 0) changed_.notify_all();
    }
  }
  void work(BlockBuffer& bounce) {
    for (size_t i = next_.fetch_add(1); i < pieces_.size(); i = next_.fetch_add(1)) {
      if (const int error = move_one(file_, direction_, pieces_[i], bounce); error != 0) error_ = error;
    }
  }

  const int file_;
  int most_;
  BlockBuffer bounce_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  uint64_t round_ = 0;
  int at_work_ = 0;  // number of threads that use the queue
  Direction direction_ = Direction::kRead;
  std::span<const Piece> pieces_;
  std::atomic<size_t> next_{0};
  std::atomic<int> error_{0};
};

int open_nameless(const std::string& directory, const std::string& table) {
  std::string path = directory + "/tessera-rows-XXXXXX";
  const int file = mkostemp(path.data(), O_CLOEXEC);
  if (file < 0) {
    fail(TSR_NOT_FOUND, "table \"", table, "\": no file can be made in \"", directory, "\": ", std::strerror(errno),
         "; give the table a \"directory\" on a local disk");
  }
  unlink(path.c_str());
  fcntl(file, F_SETFL, O_DIRECT);                // file systems without O_DIRECT use the page cache, which also works
  posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);  // disables read-ahead
  return file;
}

std::unique_ptr<PieceIo> chosen_io(int file, const RowFileOptions& options, const PieceIoShape& shape) {
  constexpr int kMostThreads = 16;
  if (options.io != "threads") {
    if (auto ring = uring_io(file, shape)) return ring;
    if (options.io == "uring")
      fail(TSR_UNIMPLEMENTED,
           "io \"uring\" is not available: this build, or this machine's kernel, has no io_uring; \"auto\" uses "
           "threads instead");
  }
  return thread_io(file, {std::min(shape.depth, kMostThreads), shape.bounce});
}

}  // namespace

std::unique_ptr<PieceIo> thread_io(int file, const PieceIoShape& shape) {
  return std::make_unique<ThreadIo>(file, shape.depth);
}

RowFile::RowFile(const RowFileOptions& options, std::string table, uint64_t bounce)
    : directory_(options.directory), table_(std::move(table)), file_(open_nameless(directory_, table_)) {
  constexpr int kLargeWrites = 4;  // more long writes at the same time are not faster
  try {
    reader_ = chosen_io(file_, options, {static_cast<int>(options.depth), bounce});
    writer_ = chosen_io(file_, options, {kLargeWrites, 0});
  } catch (...) {
    reader_.reset();
    close(file_);
    throw;
  }
}

RowFile::~RowFile() {
  reader_.reset();
  writer_.reset();
  close(file_);
}

void RowFile::check(Direction direction, int error) const {
  if (error == 0) return;
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  fail(full ? TSR_RESOURCE_EXHAUSTED : TSR_UNAVAILABLE, "table \"", table_, "\": its file in \"", directory_,
       "\" cannot be ", direction == Direction::kRead ? "read" : "written", ": ", std::strerror(error),
       full ? "; make room there, or give the table another \"directory\", and continue from the last checkpoint"
            : "; continue from the last checkpoint, with another \"directory\" where the disk is broken");
}

}  // namespace extras

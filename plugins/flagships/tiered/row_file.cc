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

namespace flagships {
namespace {

using tessera::sdk::fail;

// One piece; 0 or errno.
int move_one(int file, Direction direction, const Piece& piece) {
  for (uint64_t done = 0; done < piece.bytes;) {
    char* const at = piece.memory + done;
    const auto offset = static_cast<off_t>(piece.offset + done);
    const ssize_t n = direction == Direction::kRead ? pread(file, at, piece.bytes - done, offset)
                                                    : pwrite(file, at, piece.bytes - done, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0 && direction == Direction::kWrite) return ENOSPC;
    if (n == 0) {
      std::memset(at, 0, piece.bytes - done);
      return 0;
    }
    done += static_cast<uint64_t>(n);
  }
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
    constexpr size_t kFew = 2;  // done before another thread would be awake
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
    work();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return at_work_ == 0; });
    pieces_ = {};
    return error_;
  }
  const char* name() const override { return "threads"; }

 private:
  // A machine that gives no thread leaves the work to those there are.
  void start() {
    try {
      while (threads_.size() + 1 < static_cast<size_t>(most_)) threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
      most_ = static_cast<int>(threads_.size()) + 1;
    }
  }
  void run() {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
      if (next_ >= pieces_.size()) continue;  // the others have done it all
      ++at_work_;
      lock.unlock();
      work();
      lock.lock();
      if (--at_work_ == 0) changed_.notify_all();
    }
  }
  void work() {
    for (size_t i = next_.fetch_add(1); i < pieces_.size(); i = next_.fetch_add(1)) {
      if (const int error = move_one(file_, direction_, pieces_[i]); error != 0) error_ = error;
    }
  }

  const int file_;
  int most_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  uint64_t round_ = 0;
  int at_work_ = 0;  // threads that look at what follows
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
  posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);  // a hint: reading ahead would read rows that nobody wants
  return file;
}

std::unique_ptr<PieceIo> chosen_io(int file, const RowFileOptions& options) {
  constexpr int64_t kMostThreads = 16;
  if (options.io != "threads") {
    if (auto ring = uring_io(file, static_cast<unsigned>(options.depth))) return ring;
    if (options.io == "uring")
      fail(TSR_UNIMPLEMENTED,
           "io \"uring\" is not there: this build, or this machine's kernel, has no io_uring; "
           "\"auto\" takes threads then");
  }
  return thread_io(file, static_cast<int>(std::min(options.depth, kMostThreads)));
}

}  // namespace

std::unique_ptr<PieceIo> thread_io(int file, int threads) { return std::make_unique<ThreadIo>(file, threads); }

RowFile::RowFile(const RowFileOptions& options, std::string table)
    : directory_(options.directory), table_(std::move(table)), file_(open_nameless(directory_, table_)) {
  try {
    io_ = chosen_io(file_, options);
  } catch (...) {
    close(file_);
    throw;
  }
}

RowFile::~RowFile() {
  io_.reset();
  close(file_);
}

void RowFile::move(Direction direction, std::span<const Piece> pieces) {
  if (pieces.empty()) return;
  const int error = io_->move(direction, pieces);
  if (error == 0) return;
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  fail(full ? TSR_RESOURCE_EXHAUSTED : TSR_UNAVAILABLE, "table \"", table_, "\": its file in \"", directory_,
       "\" cannot be ", direction == Direction::kRead ? "read" : "written", ": ", std::strerror(error),
       full ? "; make room there, or give the table another \"directory\", and go on from the last checkpoint"
            : "; go on from the last checkpoint, with another \"directory\" where the disk is broken");
}

}  // namespace flagships

// PieceIo by io_uring, where there is one.
#include "row_file.h"

#ifdef TIERED_URING
#include <liburing.h>

#include <cerrno>
#include <cstring>
#include <vector>
#endif

namespace flagships {

#ifdef TIERED_URING
namespace {

class UringIo final : public PieceIo {
 public:
  UringIo(int file, unsigned depth) : file_(file), depth_(depth) {
    ready_ = io_uring_queue_init(depth, &ring_, 0) == 0;
  }
  ~UringIo() override {
    if (ready_) io_uring_queue_exit(&ring_);
  }
  UringIo(const UringIo&) = delete;
  UringIo& operator=(const UringIo&) = delete;
  bool ready() const { return ready_; }

  int move(Direction direction, std::span<const Piece> pieces) override {
    left_.assign(pieces.begin(), pieces.end());
    todo_.resize(left_.size());
    for (size_t i = 0; i < todo_.size(); ++i) todo_[i] = todo_.size() - 1 - i;  // the first one is taken first
    unsigned under_way = 0;
    int error = 0;
    while (under_way > 0 || (!todo_.empty() && error == 0)) {
      while (under_way < depth_ && !todo_.empty() && error == 0) {
        ask(direction, todo_.back());
        todo_.pop_back();
        ++under_way;
      }
      const int submitted = io_uring_submit_and_wait(&ring_, 1);
      if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY) return -submitted;
      io_uring_cqe* done = nullptr;
      while (io_uring_peek_cqe(&ring_, &done) == 0) {
        const auto i = static_cast<size_t>(io_uring_cqe_get_data64(done));
        const int result = done->res;
        io_uring_cqe_seen(&ring_, done);
        --under_way;
        if (const int failed = take(direction, i, result); failed != 0) error = failed;
      }
    }
    return error;
  }
  const char* name() const override { return "uring"; }

 private:
  void ask(Direction direction, size_t i) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);  // there is one: a round submits all that it has asked
    const Piece& p = left_[i];
    if (direction == Direction::kRead) {
      io_uring_prep_read(sqe, file_, p.memory, static_cast<unsigned>(p.bytes), p.offset);
    } else {
      io_uring_prep_write(sqe, file_, p.memory, static_cast<unsigned>(p.bytes), p.offset);
    }
    io_uring_sqe_set_data64(sqe, i);
  }
  // What became of a piece: it is over, or the rest of it waits again.
  int take(Direction direction, size_t i, int result) {
    Piece& p = left_[i];
    if (result == -EINTR || result == -EAGAIN) {
      todo_.push_back(i);
      return 0;
    }
    if (result < 0) return -result;
    if (result == 0 && direction == Direction::kWrite && p.bytes > 0) return ENOSPC;
    if (result == 0) std::memset(p.memory, 0, p.bytes);
    const auto n = result == 0 ? p.bytes : static_cast<uint64_t>(result);
    p = {p.memory + n, p.bytes - n, p.offset + n};
    if (p.bytes > 0) todo_.push_back(i);
    return 0;
  }

  const int file_;
  const unsigned depth_;
  io_uring ring_{};
  bool ready_ = false;
  std::vector<Piece> left_;
  std::vector<size_t> todo_;  // pieces that are not under way, the last one first
};

}  // namespace

std::unique_ptr<PieceIo> uring_io(int file, unsigned depth) {
  auto out = std::make_unique<UringIo>(file, depth);
  if (!out->ready()) return nullptr;
  return out;
}
#else
std::unique_ptr<PieceIo> uring_io(int, unsigned) { return nullptr; }
#endif

}  // namespace flagships

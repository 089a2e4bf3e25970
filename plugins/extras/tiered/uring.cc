// PieceIo with io_uring, if available.
#include "row_file.h"

#ifdef TIERED_URING
#include <liburing.h>

#include <cerrno>
#include <cstring>
#include <vector>
#endif

namespace extras {

#ifdef TIERED_URING
namespace {

class UringIo final : public PieceIo {
 public:
  UringIo(int file, const PieceIoShape& shape) : file_(file), depth_(static_cast<unsigned>(shape.depth)) {
    const auto open = [&](unsigned flags) { return io_uring_queue_init(depth_, &ring_, flags) == 0; };
    ready_ = open(IORING_SETUP_COOP_TASKRUN) || open(0);  // kernels before 5.19 refuse the flag
    if (!ready_) return;
    registered_ = io_uring_register_files(&ring_, &file_, 1) == 0;
    requests_.resize(depth_);
    for (unsigned i = depth_; i > 0; --i) free_.push_back(i - 1);
    bounce_ = shape.bounce;
    if (bounce_ == 0) return;
    const iovec all{around_.room(depth_ * bounce_), depth_ * bounce_};
    fixed_ = io_uring_register_buffers(&ring_, &all, 1) == 0;  // a limit on locked memory may forbid this
  }
  ~UringIo() override {
    if (ready_) io_uring_queue_exit(&ring_);
  }
  UringIo(const UringIo&) = delete;
  UringIo& operator=(const UringIo&) = delete;
  bool ready() const { return ready_; }

  int move(Direction direction, std::span<const Piece> pieces) override {
    size_t next = 0;
    int error = 0;
    unsigned under_way = 0;
    while (under_way > 0 || (next < pieces.size() && error == 0)) {
      for (; !free_.empty() && next < pieces.size() && error == 0; ++next) {
        const unsigned i = free_.back();
        error = begin(direction, pieces[next], i);
        if (error != 0) break;
        free_.pop_back();
        ask(direction, i);
        ++under_way;
      }
      if (under_way == 0) break;
      const int submitted = io_uring_submit_and_wait(&ring_, 1);
      if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY) return -submitted;
      io_uring_cqe* done = nullptr;
      while (io_uring_peek_cqe(&ring_, &done) == 0) {
        const auto i = static_cast<unsigned>(io_uring_cqe_get_data64(done));
        const int result = done->res;
        io_uring_cqe_seen(&ring_, done);
        const int failed = take(direction, i, result);
        if (failed == 0 && requests_[i].left.bytes > 0 && error == 0) {
          ask(direction, i);  // asks for the rest
          continue;
        }
        if (failed != 0) error = failed;
        free_.push_back(i);
        --under_way;
      }
    }
    return error;
  }
  const char* name() const override { return "uring"; }

 private:
  struct Request {
    Piece piece{}, left{};  // the piece, and the blocks that are not done
    bool bounces = false;   // true if data goes through the ring's memory
  };

  char* around(unsigned i) const { return around_.data() + i * bounce_; }
  int begin(Direction direction, const Piece& piece, unsigned i) {
    const uint64_t first = piece.offset / kBlockBytes * kBlockBytes;
    const uint64_t end = (piece.offset + piece.bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    const bool whole = first == piece.offset && end == piece.offset + piece.bytes &&
                       reinterpret_cast<uintptr_t>(piece.memory) % kBlockBytes == 0;
    if (!whole && (direction == Direction::kWrite || end - first > bounce_)) return EINVAL;
    requests_[i] = {piece, whole ? piece : Piece{around(i), end - first, first}, !whole};
    return 0;
  }

  void ask(Direction direction, unsigned i) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);  // never null, because a round submits all its requests
    const Piece& p = requests_[i].left;
    const int file = registered_ ? 0 : file_;
    const auto bytes = static_cast<unsigned>(p.bytes);
    if (direction == Direction::kWrite) {
      io_uring_prep_write(sqe, file, p.memory, bytes, p.offset);
    } else if (fixed_ && requests_[i].bounces) {
      io_uring_prep_read_fixed(sqe, file, p.memory, bytes, p.offset, 0);
    } else {
      io_uring_prep_read(sqe, file, p.memory, bytes, p.offset);
    }
    if (registered_) sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, i);
  }
  // Handles the result of a request. Returns an errno, or 0 if the request succeeded, perhaps with blocks left.
  int take(Direction direction, unsigned i, int result) {
    Request& r = requests_[i];
    if (result == -EINTR || result == -EAGAIN) return 0;
    if (result < 0) return -result;
    if (result == 0) return direction == Direction::kRead ? EIO : ENOSPC;
    const auto n = static_cast<uint64_t>(result);
    r.left = {r.left.memory + n, r.left.bytes - n, r.left.offset + n};
    if (r.left.bytes == 0 && r.bounces)
      std::memcpy(r.piece.memory, around(i) + r.piece.offset % kBlockBytes, r.piece.bytes);
    return 0;
  }

  const int file_;
  const unsigned depth_;
  io_uring ring_{};
  bool ready_ = false, registered_ = false, fixed_ = false;
  uint64_t bounce_ = 0;
  BlockBuffer around_;
  std::vector<Request> requests_;
  std::vector<unsigned> free_;
};

}  // namespace

std::unique_ptr<PieceIo> uring_io(int file, const PieceIoShape& shape) {
  auto out = std::make_unique<UringIo>(file, shape);
  if (!out->ready()) return nullptr;
  return out;
}
#else
std::unique_ptr<PieceIo> uring_io(int, const PieceIoShape&) { return nullptr; }
#endif

}  // namespace extras

// Rows in host memory.
#include <algorithm>

#include "distributed/device_executor.h"
#include "distributed/host_row_moves.h"

namespace tessera {
namespace {

class HostMover final : public RowMover {
 public:
  explicit HostMover(Workers workers) : host_(workers) {}

  void take(bool) override {}
  void combine(const Tensor& packed, const Tensor& spread) override {
    host_.combine(moves, packed.data<float>(), spread.data<float>());
  }
  void split(const Tensor& packed, const Tensor& spread) override {
    host_.split(moves, packed.data<float>(), spread.data<float>());
  }
  void combine_target(size_t target, const Tensor& rows, const Tensor& spread) override {
    host_.combine_target(moves, moves.targets[target], rows.data<float>(), spread.data<float>());
  }
  void finish(const Tensor&) override {}

 private:
  HostRowMoves host_;
};

class HostExecutor final : public RowExecutor {
 public:
  explicit HostExecutor(Workers workers) : workers_(workers) {}

  std::unique_ptr<RowMover> mover(bool) override { return std::make_unique<HostMover>(workers_); }
  void wait() override {}
  Tensor upload(const Buffer& from, Buffer&, int64_t n) override { return from.tensor().first({n}); }
  Tensor bring(const Tensor& gradient) override { return gradient; }
  Tensor bring(std::span<const Piece> pieces, int64_t elements) override {
    put_together(pieces, gradient_.ensure(elements).first({elements}));
    return gradient_.tensor().first({elements});
  }

 private:
  Workers workers_;
  Buffer gradient_{DType::kFloat32};
};

}  // namespace

void put_together(std::span<const RowExecutor::Piece> pieces, const Tensor& to) {
  std::fill_n(to.data<float>(), to.numel(), 0.0f);
  for (const RowExecutor::Piece& piece : pieces)
    std::copy_n(in_host_memory(piece.from).data<float>(), piece.from.numel(), to.data<float>() + piece.begin);
}

std::unique_ptr<RowExecutor> row_executor(const DeviceStreamPtr& stream, Workers workers) {
  if (stream) return std::make_unique<DeviceExecutor>(stream);
  return std::make_unique<HostExecutor>(workers);
}

}  // namespace tessera

#include "distributed/device_executor.h"

#include <algorithm>

#include "distributed/device_row_lists.h"
#include "distributed/inverse_moves.h"

namespace tessera {
namespace {

class DeviceMover final : public RowMover {
 public:
  DeviceMover(const DeviceStreamPtr& stream, DeviceExecutor& executor)
      : stream_(stream), executor_(executor), lists_(stream) {
    packed_.on_device(stream);
  }

  void take(bool) override {
    lists_.list(moves);
    lists_.upload(moves.scales);
    executor_.record();
  }
  void combine(const Tensor& packed, const Tensor& spread) override { lists_.combine(packed, spread); }
  void split(const Tensor& packed, const Tensor& spread) override { lists_.split(packed, spread); }
  void combine_target(size_t target, const Tensor& rows, const Tensor&) override {
    const int64_t n = rows.numel();
    packed();
    if (n) stream_->copy(rows.reshape({n}), packed_.tensor().narrow(run_of(target).begin, n));
  }
  void finish(const Tensor& spread) override { lists_.combine(packed(), spread); }

 private:
  const RowRun& run_of(size_t target) const { return moves.of(moves.targets[target]).front(); }
  // Returns memory for the only run of each target.
  const Tensor& packed() {
    int64_t elements = 0;
    for (const RowRun& run : moves.runs) elements = std::max(elements, run.begin + run.rows * run.stride);
    return packed_.ensure(elements);
  }

  DeviceStreamPtr stream_;
  DeviceExecutor& executor_;
  DeviceRowLists lists_;
  Buffer packed_{DType::kFloat32};
};

class DeviceInverseMover final : public RowMover {
 public:
  DeviceInverseMover(const DeviceStreamPtr& stream, DeviceExecutor& executor) : executor_(executor), inverse_(stream) {}

  void take(bool both_ways) override {
    inverse_.list(moves, both_ways);
    executor_.record();
  }
  void combine(const Tensor& packed, const Tensor& spread) override { inverse_.collapse(packed, spread); }
  void split(const Tensor& packed, const Tensor& spread) override { inverse_.expand(spread, packed); }
  void combine_target(size_t, const Tensor&, const Tensor&) override { TESSERA_CHECK(false, "they come together"); }
  void finish(const Tensor&) override {}

 private:
  DeviceExecutor& executor_;
  InverseMoves inverse_;
};

}  // namespace

DeviceExecutor::DeviceExecutor(const DeviceStreamPtr& stream) : stream_(stream), uploaded_(stream) {
  staged_.pinned(stream);
  gradient_.on_device(stream);
}

std::unique_ptr<RowMover> DeviceExecutor::mover(bool repeating) {
  if (repeating) return std::make_unique<DeviceInverseMover>(stream_, *this);
  return std::make_unique<DeviceMover>(stream_, *this);
}

Tensor DeviceExecutor::upload(const Buffer& from, Buffer& there, int64_t n) {
  Tensor to = there.ensure(n).first({n});
  if (n) stream_->copy(from.tensor().first({n}), to);
  record();
  return to;
}

Tensor DeviceExecutor::bring(const Tensor& gradient) {
  if (gradient.stream()) return gradient;
  const int64_t n = gradient.numel();
  std::copy_n(gradient.data<float>(), n, staged_.ensure(n).data<float>());
  return upload(staged_, gradient_, n);
}

// Either all pieces are on the device already, or all are joined in host memory here and copied together.
Tensor DeviceExecutor::bring(std::span<const Piece> pieces, int64_t elements) {
  if (!std::all_of(pieces.begin(), pieces.end(), [](const Piece& p) { return p.from.stream() != nullptr; })) {
    put_together(pieces, staged_.ensure(elements).first({elements}));
    return upload(staged_, gradient_, elements);
  }
  Tensor to = gradient_.ensure(elements).first({elements});
  stream_->fill(to, 0);
  for (const Piece& piece : pieces) stream_->copy(piece.from, to.narrow(piece.begin, piece.from.numel()));
  return to;
}

}  // namespace tessera

// The mover of a step's rows, in host memory or on a device. It is chosen once, when a step's buffers
// are made; what is behind it no stage asks.
#pragma once

#include <memory>
#include <span>

#include "distributed/buffer.h"
#include "distributed/row_moves.h"
#include "distributed/workers.h"
#include "tessera/device.h"

namespace tessera {

// Moves of one kind, batch by batch. Tensors of rows are where the executor's are; on a device all calls only enqueue.
class RowMover {
 public:
  virtual ~RowMover() = default;

  RowMoves moves;  // of the batch: to be listed, and then left as it is until the next batch

  // The moves are listed. `both_ways`: both of combine and split will be asked for, of repeating ones otherwise split.
  virtual void take(bool both_ways) = 0;
  // See row_moves.h.
  virtual void combine(const Tensor& packed, const Tensor& spread) = 0;
  virtual void split(const Tensor& packed, const Tensor& spread) = 0;
  // combine() where packed rows come target by target, and each has one run: `rows` are the run's, and may go when this
  // returns. Behind finish() all targets are there.
  virtual void combine_target(size_t target, const Tensor& rows, const Tensor& spread) = 0;
  virtual void finish(const Tensor& spread) = 0;
};

class RowExecutor {
 public:
  virtual ~RowExecutor() = default;

  // `repeating`: of targets whose runs repeat bags. Lives no longer than this.
  virtual std::unique_ptr<RowMover> mover(bool repeating = false) = 0;
  // Waits until the host may write again what uploads and movers were given.
  virtual void wait() = 0;
  // The first n elements of a step's own buffer where kernels take them: these, or a copy in `there`.
  virtual Tensor upload(const Buffer& from, Buffer& there, int64_t n) = 0;

  // The output's gradient as the caller has it, where the rows are: itself, or a copy until the next call.
  virtual Tensor bring(const Tensor& gradient) = 0;
  // The same in pieces, each at its element of `elements`; 0 where there is none.
  struct Piece {
    Tensor from;
    int64_t begin;
  };
  virtual Tensor bring(std::span<const Piece> pieces, int64_t elements) = 0;
};

// `stream` null: host memory, where `workers` move the rows.
std::unique_ptr<RowExecutor> row_executor(const DeviceStreamPtr& stream, Workers workers);

}  // namespace tessera

// Moves a step's rows, in host memory or on a device. The executor is chosen once, when a step's buffers are made, and
// no stage needs to know which one it is.
#pragma once

#include <memory>
#include <span>

#include "distributed/buffer.h"
#include "distributed/row_moves.h"
#include "distributed/workers.h"
#include "tessera/device.h"

namespace tessera {

// Moves of one kind, listed anew for each batch. Tensors of rows are in the executor's memory. On a device all calls
// only enqueue.
class RowMover {
 public:
  virtual ~RowMover() = default;

  RowMoves moves;  // the batch's moves; after take() they must not change until the next batch

  // Called when the moves are listed. `both_ways`: combine() and split() will both be called. Otherwise only one is;
  // for repeating moves that is split().
  virtual void take(bool both_ways) = 0;
  // See row_moves.h.
  virtual void combine(const Tensor& packed, const Tensor& spread) = 0;
  virtual void split(const Tensor& packed, const Tensor& spread) = 0;
  // Does what combine() does, for one target that has one run. Call it for every target. `rows` are the run's packed
  // rows, and may be freed when it returns. After finish() all targets are complete.
  virtual void combine_target(size_t target, const Tensor& rows, const Tensor& spread) = 0;
  virtual void finish(const Tensor& spread) = 0;
};

class RowExecutor {
 public:
  virtual ~RowExecutor() = default;

  // `repeating`: runs of a target may repeat bags. The mover must not outlive this object.
  virtual std::unique_ptr<RowMover> mover(bool repeating = false) = 0;
  // Waits until the host may overwrite the data that uploads and movers were given.
  virtual void wait() = 0;
  // Returns the first n elements of a step's own buffer in the memory of the kernels: the buffer itself, or a copy in
  // `there`.
  virtual Tensor upload(const Buffer& from, Buffer& there, int64_t n) = 0;

  // Returns the output's gradient in the memory of the rows: the caller's tensor, or a copy that is valid until the
  // next call.
  virtual Tensor bring(const Tensor& gradient) = 0;
  // The same for a gradient in pieces. Each begins at element `begin` of the result; elements without a piece are 0.
  struct Piece {
    Tensor from;
    int64_t begin;
  };
  virtual Tensor bring(std::span<const Piece> pieces, int64_t elements) = 0;
};

// `stream` null: host memory, where `workers` move the rows.
std::unique_ptr<RowExecutor> row_executor(const DeviceStreamPtr& stream, Workers workers);

}  // namespace tessera

// Row moves in the form that a device takes (abi/draft/device_ops.h, tsr_row_moves): lists in its memory say where each
// row of a target comes from, so one call moves all rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "distributed/buffer.h"
#include "distributed/row_moves.h"
#include "tessera/device.h"

namespace tessera {

class DeviceRowLists {
 public:
  explicit DeviceRowLists(const DeviceStreamPtr& stream);

  void clear();
  // Lists the moves of `moves`. No target may repeat bags, no run may be local, and packed rows must be contiguous.
  void list(const RowMoves& moves);
  // `scale`: index of the target's first scale among those given to upload(); -1: none.
  void add_target(int64_t rows, int64_t cols, int64_t begin, int64_t stride, int64_t scale = -1);
  // Adds a run to the last target.
  void add_run(int64_t begin, int64_t index, int64_t col, int64_t cols);
  // Adds an index with entries -1, which the caller then fills. Returns the place of its first entry.
  int64_t add_index(int64_t rows);
  int32_t* index(int64_t begin) { return index_.data() + begin; }

  // Copies the lists to the device. They must not change until the stream has reached this point.
  void upload(std::span<const float> scales);
  // Moves rows from packed to spread, or back. Both tensors are on the device.
  void combine(const Tensor& packed, const Tensor& spread) const;
  void split(const Tensor& packed, const Tensor& spread) const;

 private:
  tsr_row_moves lists(const char* at) const;
  template <class Move>
  void on_host(const Tensor& packed, const Tensor& spread, bool to_spread, const Move& move) const;

  DeviceStreamPtr stream_;
  std::vector<tsr_row_target> targets_;
  std::vector<tsr_row_run> runs_;
  std::vector<int32_t> index_;
  int64_t most_elements_ = 0;
  int64_t runs_at_ = 0, index_at_ = 0, scales_at_ = 0;  // offsets in bytes, equal in both buffers
  Buffer host_{DType::kUInt8}, device_{DType::kUInt8};
};

}  // namespace tessera

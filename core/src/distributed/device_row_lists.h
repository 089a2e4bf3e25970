// Row moves as a device takes the work: lists in its memory (abi/draft/device_ops.h, tsr_row_moves), which say for each
// row of a target where it comes from, so that one call moves them all.
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
  // The lists that a RowMoves says: nothing repeats, no run stays, and packed rows lie one behind the other.
  void list(const RowMoves& moves);
  // `scale`: where the target's scales begin among those given to upload(); -1: none.
  void add_target(int64_t rows, int64_t cols, int64_t begin, int64_t stride, int64_t scale = -1);
  // The lists of the last target.
  void add_run(int64_t begin, int64_t index, int64_t col, int64_t cols);
  // The entries of an index, to be filled by the caller: -1 everywhere. Returns where they begin.
  int64_t add_index(int64_t rows);
  int32_t* index(int64_t begin) { return index_.data() + begin; }

  // Copies the lists to the device. They must not change until the stream has come so far.
  void upload(std::span<const float> scales);
  // packed -> spread and back, both on the device.
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
  int64_t runs_at_ = 0, index_at_ = 0, scales_at_ = 0;  // bytes, in both buffers
  Buffer host_{DType::kUInt8}, device_{DType::kUInt8};
};

}  // namespace tessera

// Pooled rows that several samples share by inverse indices, on a device: what expand() and collapse() of
// sharded_modules.cc do on the host.
#pragma once

#include <memory>
#include <vector>

#include "distributed/checked_batch.h"
#include "distributed/device_row_lists.h"

namespace tessera {

class InverseMoves {
 public:
  explicit InverseMoves(const DeviceStreamPtr& stream);

  // Lists what goes where for a batch that expands, and copies it to the device; enqueues only. Row i of slot s begins
  // at element row_begin[s] + i * dim of `rows`. `backward`: collapse() follows.
  void upload(const Wiring& wiring, const CheckedBatch& batch, const std::vector<int64_t>& row_begin, bool backward);

  // [batch, output width]: sample b of a slot takes row inverse[b]. Its memory is used again when nobody holds it.
  Tensor expand(const Tensor& rows);
  // The way back: rows that several samples took sum their gradients, rows without a sample get 0.
  Tensor collapse(const Tensor& grad);

 private:
  // Sums of at most kMostSources packed rows each. A row with more samples is summed in several levels, so that the
  // lists grow with the samples and rows, and not with the samples of the most wanted row.
  static constexpr int64_t kMostSources = 8;
  struct Level {
    explicit Level(const DeviceStreamPtr& stream) : moves(stream) { sums.on_device(stream); }
    DeviceRowLists moves;
    Buffer sums{DType::kFloat32};
    int64_t elements = 0;
  };
  // What a slot's rows, or parts of them, are summed from: entries [first[i], first[i + 1]) of `order`.
  struct Sources {
    std::vector<int64_t> first;
    std::vector<int32_t> order;
    int64_t begin = 0;  // of entry 0 among the level's packed rows
  };
  void list_sources(const Wiring& wiring, const CheckedBatch& batch);
  void list_level(const Wiring& wiring, const std::vector<int64_t>& row_begin, bool last, Level& level);

  DeviceStreamPtr stream_;
  int64_t batch_ = 0, width_ = 0;
  DeviceRowLists expand_, gather_;  // gather: each slot's gradients, sample by sample
  Tensor output_;
  Buffer samples_{DType::kFloat32};  // as gathered
  std::vector<Sources> sources_;     // by slot
  std::vector<std::unique_ptr<Level>> levels_;
  size_t used_levels_ = 0;
};

}  // namespace tessera

// Row moves on a device whose runs repeat bags: samples share rows by inverse indices.
#pragma once

#include <memory>
#include <vector>

#include "distributed/device_row_lists.h"
#include "distributed/row_moves.h"

namespace tessera {

class InverseMoves {
 public:
  explicit InverseMoves(const DeviceStreamPtr& stream);

  // Lists the moves and copies the lists to the device; it only enqueues. Each target must have one run, whose rows are
  // contiguous. `backward`: collapse() will follow.
  void list(const RowMoves& moves, bool backward);

  // Copies to every packed row the spread row of its bag.
  void expand(const Tensor& spread, const Tensor& packed) const { expand_.combine(spread, packed); }
  // Sets every spread row to the sum of its packed rows; 0 if it has none.
  void collapse(const Tensor& packed, const Tensor& spread) const;

 private:
  // The most packed rows that one sum adds up. A row with more samples is summed in several levels. So the size of the
  // lists depends on the number of samples and rows, and not on the row with the most samples.
  static constexpr int64_t kMostSources = 8;
  struct Level {
    explicit Level(const DeviceStreamPtr& stream) : moves(stream) { sums.on_device(stream); }
    DeviceRowLists moves;
    Buffer sums{DType::kFloat32};
    int64_t elements = 0;
  };
  // The sources of a target's rows, or of partial sums of them: entries [first[i], first[i + 1]) of `order`.
  struct Sources {
    std::vector<int64_t> first;
    std::vector<int32_t> order;
    int64_t begin = 0;  // place of entry 0 among the level's packed rows
  };
  void list_sources(const RowMoves& moves);
  void list_level(const RowMoves& moves, bool last, Level& level);

  DeviceStreamPtr stream_;
  DeviceRowLists expand_, gather_;   // gather_ gives each target's packed rows, sample by sample
  Buffer samples_{DType::kFloat32};  // the gathered rows
  std::vector<Sources> sources_;     // by target
  std::vector<std::unique_ptr<Level>> levels_;
  size_t used_levels_ = 0;
};

}  // namespace tessera

// Moves whose runs repeat bags, on a device: rows that several samples share by inverse indices.
#pragma once

#include <memory>
#include <vector>

#include "distributed/device_row_lists.h"
#include "distributed/row_moves.h"

namespace tessera {

class InverseMoves {
 public:
  explicit InverseMoves(const DeviceStreamPtr& stream);

  // Lists what goes where, and copies it to the device; enqueues only. Each target has one run, and its rows lie one
  // behind the other. `backward`: collapse() follows.
  void list(const RowMoves& moves, bool backward);

  // Every packed row becomes its bag's spread row.
  void expand(const Tensor& spread, const Tensor& packed) const { expand_.combine(spread, packed); }
  // Every spread row becomes the sum of its packed rows, 0 where it has none.
  void collapse(const Tensor& packed, const Tensor& spread) const;

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
  // The sources of a target's rows, or of parts of them: entries [first[i], first[i + 1]) of `order`.
  struct Sources {
    std::vector<int64_t> first;
    std::vector<int32_t> order;
    int64_t begin = 0;  // of entry 0 among the level's packed rows
  };
  void list_sources(const RowMoves& moves);
  void list_level(const RowMoves& moves, bool last, Level& level);

  DeviceStreamPtr stream_;
  DeviceRowLists expand_, gather_;   // gather: each target's packed rows, sample by sample
  Buffer samples_{DType::kFloat32};  // as gathered
  std::vector<Sources> sources_;     // by target
  std::vector<std::unique_ptr<Level>> levels_;
  size_t used_levels_ = 0;
};

}  // namespace tessera

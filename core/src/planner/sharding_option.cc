#include "tessera/planner.h"

#include <algorithm>

#include "tessera/abi/sharder.h"
#include "tessera/error.h"

namespace tessera {

Perf& Perf::operator+=(const Perf& other) {
  fwd_compute += other.fwd_compute;
  fwd_comms += other.fwd_comms;
  bwd_compute += other.bwd_compute;
  bwd_comms += other.bwd_comms;
  prefetch_compute += other.prefetch_compute;
  storage_reads += other.storage_reads;
  input_dist_comms += other.input_dist_comms;
  return *this;
}

void Shards::push_back(const Shard& shard) {
  const size_t index = size_++;
  if (!runs_.empty()) {
    Run& last = runs_.back();
    const Shard& f = last.first;
    const auto n = static_cast<int64_t>(last.count);
    const bool alike =
        f.rows == shard.rows && f.cols == shard.cols && f.storage == shard.storage && f.perf == shard.perf;
    if (alike && n == 1) {
      last.row_step = shard.row - f.row;
      last.col_step = shard.col - f.col;
    }
    if (alike && shard.row == f.row + n * last.row_step && shard.col == f.col + n * last.col_step) {
      ++last.count;
      return;
    }
  }
  runs_.push_back({shard, index, 1, 0, 0, shard.perf.total()});
}

const Shards::Run& Shards::run_of(size_t i) const {
  TESSERA_CHECK(i < size_);
  const auto next =
      std::upper_bound(runs_.begin(), runs_.end(), i, [](size_t index, const Run& run) { return index < run.begin; });
  return *std::prev(next);
}

Shard Shards::operator[](size_t i) const {
  const Run& run = run_of(i);
  Shard shard = run.first;
  const auto step = static_cast<int64_t>(i - run.begin);
  shard.row += step * run.row_step;
  shard.col += step * run.col_step;
  return shard;
}

const char* ShardingOption::partition_by() const {
  switch (placement) {
    case TSR_PLACE_ANY_RANK:
      return "device";
    case TSR_PLACE_EVERY_RANK:
      return "uniform";
    case TSR_PLACE_HOSTS:
      return "multi_host";
    default:
      return "host";
  }
}

}  // namespace tessera

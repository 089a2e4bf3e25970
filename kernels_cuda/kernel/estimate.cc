#include "kernel/estimate.h"

#include <algorithm>
#include <cmath>

#include "gpu/sort.h"
#include "kernel/config.h"
#include "tessera/sdk/cost.h"

namespace tessera::gpu {
namespace {

constexpr double kSector = 32;                // unit in which memory is read, in bytes
constexpr double kEfficiency = 0.7;           // fraction of the memory's speed for scattered rows
constexpr double kCacheSpeed = 3;             // relative to the memory's
constexpr double kIndexBytes = 8;             // of an id or an offset
constexpr double kEntryBytes = 16;            // of an entry (gpu/gradient.h)
constexpr double kSortedBytes = 2 * (4 + 4);  // a pass of the sort reads and writes a key and an index

double sectors(double bytes) { return std::ceil(bytes / kSector) * kSector; }

}  // namespace

tsr_estimate estimate_by_bytes(const DeviceFigures& device, const tsr_workload& work, double row_bytes,
                               double state_bytes) {
  const double held = static_cast<double>(work.rows) * (row_bytes + state_bytes);
  const double reuse = work.reuse_bytes > 0 ? work.reuse_bytes : held;
  const double distinct = work.distinct > 0 ? std::min(work.distinct, work.ids) : work.ids;
  const double speed = device.bytes_per_second * kEfficiency;
  const double row_speed = reuse <= device.cache_bytes ? speed * kCacheSpeed : speed;
  const double output = static_cast<double>(work.dim) * 4;
  const double weight = work.weighted != 0 ? 4 : 0;
  const double key_bits = std::log2(std::max(2.0, static_cast<double>(work.rows)));
  const double passes = sort_passes(static_cast<int32_t>(std::ceil(key_bits)));
  tsr_estimate out{};
  out.struct_size = sizeof(out);
  out.bytes = static_cast<uint64_t>(held);
  // If another id of the step has loaded a row, it is in the cache.
  out.forward_seconds = distinct * sectors(row_bytes) / row_speed +
                        (work.ids - distinct) * sectors(row_bytes) / (speed * kCacheSpeed) +
                        (work.ids * (kIndexBytes + weight) + work.bags * (output + kIndexBytes)) / speed;
  out.backward_seconds = 2 * distinct * (sectors(row_bytes) + sectors(state_bytes)) / row_speed +
                         work.ids * (kIndexBytes + weight + 2 * kEntryBytes + passes * kSortedBytes) / speed +
                         work.ids * sectors(output) / (speed * kCacheSpeed) + work.bags * output / speed;
  return out;
}

tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work) {
  const sdk::OptimizerRef optimizer(config.optimizer);
  double state_bytes = 0;
  for (uint32_t k = 0; k < optimizer.num_states(); ++k)
    state_bytes += 4 * static_cast<double>(optimizer.state_width(k, work.dim));
  const double row_bytes =
      static_cast<double>(work.dim * bytes_of(storage_of(config.weight_dtype, "the type of rows")));
  if (work.machine != nullptr && work.machine->num_row_costs > 0)
    return sdk::estimate_by_figures(*work.machine, work, row_bytes, state_bytes);
  const int device = config.device.device_type == kDLCPU ? 0 : config.device.device_id;
  return estimate_by_bytes(device_figures(device), work, row_bytes, state_bytes);
}

}  // namespace tessera::gpu

#include "modules/device_bounds.h"

#include <algorithm>
#include <limits>

#include "tessera/device.h"

namespace tessera {
namespace {

constexpr int64_t kUnread = std::numeric_limits<int64_t>::max();  // rows of features that no table reads

// Returns the rows of the features if these are runs of equally many bags that cover the whole batch, which is what the
// device checks. Empty: they are not.
std::vector<int64_t> rows_by_run(const BoundsInput& input) {
  const int64_t all = input.offsets.numel() - 1;
  const int64_t bags = input.features.empty() ? 0 : input.features[0].bags;
  if (bags == 0 || all % bags != 0) return {};
  std::vector<int64_t> rows(static_cast<size_t>(all / bags), kUnread);
  for (const BoundsFeature& f : input.features) {
    const bool plain = f.bags == bags && f.first_bag % bags == 0 && f.padding_idx < 0 && !f.pruned && !f.remapping;
    if (!plain) return {};
    int64_t& of_run = rows[static_cast<size_t>(f.first_bag / bags)];
    of_run = std::min(of_run, f.rows);
  }
  return rows;
}

// The host reads only once here.
bool is_clean(const BoundsInput& input, const std::vector<int64_t>& rows) {
  DeviceStream& stream = *input.ids.stream();
  const DLTensor ids = input.ids.dl(), offsets = input.offsets.dl();
  const auto runs = static_cast<int32_t>(rows.size());
  const tsr_jagged jagged{sizeof(jagged), runs, (input.offsets.numel() - 1) / runs, &ids, &offsets, nullptr};
  const Tensor report = stream.empty({static_cast<int64_t>(sizeof(tsr_bounds_report))}, DType::kUInt8);
  stream.check_bounds(jagged, stream.upload(Tensor::from(rows)), report);
  const Tensor found = stream.to_host(report);
  return std::all_of(found.data<uint8_t>(), found.data<uint8_t>() + found.numel(), [](uint8_t b) { return b == 0; });
}

}  // namespace

CheckedIds check_bounds_on_device(BoundsCheckMode mode, const BoundsInput& input) {
  DeviceStream& stream = *input.ids.stream();
  if (!input.offsets.stream() || (input.weights.defined() && !input.weights.stream()))
    fail(Code::kInvalidArgument, "ids are on a device, but not their offsets and weights: copy all of them there");
  if (!input.always_copy && stream.handles_jagged()) {
    const std::vector<int64_t> rows = rows_by_run(input);
    if (!rows.empty() && is_clean(input, rows)) return {};
  }
  BoundsInput host = input;
  host.ids = stream.to_host(input.ids);
  host.offsets = stream.to_host(input.offsets);
  if (input.weights.defined()) host.weights = stream.to_host(input.weights);
  CheckedIds out = check_bounds(mode, host);
  for (Tensor* t : {&out.ids, &out.offsets, &out.weights, &out.positions, &out.lengths}) {
    if (t->defined()) *t = stream.to_device(*t);
  }
  return out;
}

}  // namespace tessera

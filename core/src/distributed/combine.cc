#include "distributed/combine.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace tessera {
namespace {

void copy_row(const float* from, int64_t n, float* to) { std::memcpy(to, from, n * sizeof(float)); }
void scale_row(const float* from, float scale, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = scale * from[i];
}
void add_row(const float* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}
void add_scaled_row(const float* from, float scale, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] += scale * from[i];
}

// Calls body(cols), with the usual widths as constants: copies of a known length are a few instructions.
template <class Body>
void with_width(int64_t cols, const Body& body) {
  switch (cols) {
    case 8:
      return body(std::integral_constant<int64_t, 8>{});
    case 16:
      return body(std::integral_constant<int64_t, 16>{});
    case 32:
      return body(std::integral_constant<int64_t, 32>{});
    case 64:
      return body(std::integral_constant<int64_t, 64>{});
    case 128:
      return body(std::integral_constant<int64_t, 128>{});
    default:
      return body(cols);
  }
}

// What a pass over the bags of one arrival needs.
struct ArrivalRows {
  ArrivalRows(const Arrival& arrival, const LaneMap& map, const Step& step) {
    float* rows = step.home_rows.data<float>();
    if (arrival.lane >= 0) {
      const int stream = map.lanes()[arrival.lane].stream;
      order = step.bag_order.data() + step.lengths_begin[stream];
      bags = step.sent[stream].bags;
      full = step.sent[stream].full_bags;
      row = rows + step.lane_begin[arrival.lane];
    } else {
      const int64_t begin = step.host_lengths_begin[arrival.host_sum];
      order = step.host_bag_order.data() + begin;
      bags = step.host_lengths_begin[arrival.host_sum + 1] - begin;
      full = step.host_full_bags[arrival.host_sum];
      row = rows + step.host_sum_begin[arrival.host_sum];
    }
    const int64_t mean = step.mean_begin[arrival.slot];
    scale = mean < 0 ? nullptr : step.mean_scale.data() + mean;
  }
  const int32_t* order;  // bags with a row, then those without
  int64_t bags, full;
  float* row;
  const float* scale;
};

// out: row of bag 0, at the arrival's first column.
template <class Width>
void combine_arrival(const ArrivalRows& from, bool first, Width cols, int64_t stride, float* out) {
  const float* row = from.row;
  const auto each = [&](const auto& put) {
    for (int64_t k = 0; k < from.full; ++k, row += cols) put(from.order[k], out + from.order[k] * stride);
  };
  if (first) {
    for (int64_t k = from.full; k < from.bags; ++k) std::fill_n(out + from.order[k] * stride, cols, 0.0f);
  }
  if (first && from.scale)
    each([&](int64_t bag, float* to) { scale_row(row, from.scale[bag], cols, to); });
  else if (first)
    each([&](int64_t, float* to) { copy_row(row, cols, to); });
  else if (from.scale)
    each([&](int64_t bag, float* to) { add_scaled_row(row, from.scale[bag], cols, to); });
  else
    each([&](int64_t, float* to) { add_row(row, cols, to); });
}

template <class Width>
void split_arrival(const ArrivalRows& to, Width cols, int64_t stride, const float* grad) {
  float* row = to.row;
  if (to.scale) {
    for (int64_t k = 0; k < to.full; ++k, row += cols)
      scale_row(grad + to.order[k] * stride, to.scale[to.order[k]], cols, row);
  } else {
    for (int64_t k = 0; k < to.full; ++k, row += cols) copy_row(grad + to.order[k] * stride, cols, row);
  }
}

}  // namespace

void combine_pooled(const LaneMap& map, const std::vector<Arrival>& arrivals, const Step& step,
                    const std::vector<SlotBags>& slots, const std::vector<SlotView>& out) {
  for (size_t s = 0; s < map.slots().size(); ++s) {
    if (!map.slots()[s].starts_at_zero) continue;
    for (int64_t b = 0; b < slots[s].bags; ++b) std::fill_n(out[s].data + b * out[s].stride, map.slots()[s].dim, 0.0f);
  }
  for (const Arrival& a : arrivals) {
    const ArrivalRows from(a, map, step);
    const SlotView& to = out[a.slot];
    with_width(a.cols, [&](auto cols) { combine_arrival(from, a.first, cols, to.stride, to.data + a.col); });
  }
}

void split_pooled(const LaneMap& map, const std::vector<Arrival>& arrivals, Step& step,
                  const std::vector<SlotView>& grad) {
  for (const Arrival& a : arrivals) {
    const ArrivalRows to(a, map, step);
    const SlotView& from = grad[a.slot];
    with_width(a.cols, [&](auto cols) { split_arrival(to, cols, from.stride, from.data + a.col); });
  }
}

void combine_sequence(const LaneMap& map, const Step& step, const std::vector<SlotView>& out) {
  for (size_t i = 0; i < map.lanes().size(); ++i) {
    const Lane& lane = map.lanes()[i];
    const SlotView& to = out[map.streams()[lane.stream].slot];
    const int64_t* positions = step.positions.data() + step.positions_begin[lane.stream];
    const float* rows = step.home_rows.data<float>() + step.lane_begin[i];
    for (int64_t k = 0; k < step.sent[lane.stream].ids; ++k)
      copy_row(rows + k * lane.cols, lane.cols, to.data + positions[k] * to.stride + lane.col);
  }
}

void split_sequence(const LaneMap& map, Step& step, const std::vector<SlotView>& grad) {
  for (size_t i = 0; i < map.lanes().size(); ++i) {
    const Lane& lane = map.lanes()[i];
    const SlotView& from = grad[map.streams()[lane.stream].slot];
    const int64_t* positions = step.positions.data() + step.positions_begin[lane.stream];
    float* rows = step.home_rows.data<float>() + step.lane_begin[i];
    for (int64_t k = 0; k < step.sent[lane.stream].ids; ++k)
      copy_row(from.data + positions[k] * from.stride + lane.col, lane.cols, rows + k * lane.cols);
  }
}

}  // namespace tessera

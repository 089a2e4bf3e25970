#include "distributed/combine.h"

#include <algorithm>
#include <cstring>

namespace tessera {
namespace {

void copy_row(const float* from, int64_t n, float* to) { std::memcpy(to, from, n * sizeof(float)); }
void scale_row(const float* from, float scale, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = scale * from[i];
}
void add_row(const float* from, float scale, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] += scale * from[i];
}

// What a pass over the bags of one arrival needs.
struct ArrivalRows {
  ArrivalRows(const Arrival& arrival, const LaneMap& map, const Step& step) {
    float* rows = step.home_rows.data<float>();
    if (arrival.lane >= 0) {
      const int stream = map.lanes()[arrival.lane].stream;
      lengths = step.lengths.data() + step.lengths_begin[stream];
      bags = step.sent[stream].bags;
      row = rows + step.lane_begin[arrival.lane];
    } else {
      const int64_t begin = step.host_lengths_begin[arrival.host_sum];
      lengths = step.host_lengths.data() + begin;
      bags = step.host_lengths_begin[arrival.host_sum + 1] - begin;
      row = rows + step.host_sum_begin[arrival.host_sum];
    }
    const int64_t mean = step.mean_begin[arrival.slot];
    scale = mean < 0 ? nullptr : step.mean_scale.data() + mean;
  }
  const int32_t* lengths;  // 0: no row
  int64_t bags;
  float* row;
  const float* scale;
};

}  // namespace

void combine_pooled(const LaneMap& map, const std::vector<Arrival>& arrivals, const Step& step,
                    const std::vector<int64_t>& slot_bags, const std::vector<SlotView>& out) {
  for (size_t s = 0; s < map.slots().size(); ++s) {
    if (!map.slots()[s].starts_at_zero) continue;
    for (int64_t b = 0; b < slot_bags[s]; ++b) std::fill_n(out[s].data + b * out[s].stride, map.slots()[s].dim, 0.0f);
  }
  for (const Arrival& a : arrivals) {
    const ArrivalRows from(a, map, step);
    const float* row = from.row;
    float* to = out[a.slot].data + a.col;
    for (int64_t b = 0; b < from.bags; ++b, to += out[a.slot].stride) {
      if (!from.lengths[b]) {
        if (a.first) std::fill_n(to, a.cols, 0.0f);
        continue;
      }
      if (!a.first)
        add_row(row, from.scale ? from.scale[b] : 1.0f, a.cols, to);
      else if (from.scale)
        scale_row(row, from.scale[b], a.cols, to);
      else
        copy_row(row, a.cols, to);
      row += a.cols;
    }
  }
}

void split_pooled(const LaneMap& map, const std::vector<Arrival>& arrivals, Step& step,
                  const std::vector<SlotView>& grad) {
  for (const Arrival& a : arrivals) {
    const ArrivalRows to(a, map, step);
    float* row = to.row;
    const float* from = grad[a.slot].data + a.col;
    for (int64_t b = 0; b < to.bags; ++b, from += grad[a.slot].stride) {
      if (!to.lengths[b]) continue;
      if (to.scale)
        scale_row(from, to.scale[b], a.cols, row);
      else
        copy_row(from, a.cols, row);
      row += a.cols;
    }
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

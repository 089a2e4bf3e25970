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

// What a pass over one lane needs to know of it.
struct LaneRows {
  LaneRows(const LaneMap& map, const Step& step, int lane_index) {
    const Lane& lane = map.lanes()[lane_index];
    slot = map.streams()[lane.stream].slot;
    lengths = step.lengths.data() + step.lengths_begin[lane.stream];
    bags = step.sent[lane.stream].bags;
    scale = step.mean_begin[slot] < 0 ? nullptr : step.mean_scale.data() + step.mean_begin[slot];
    rows = step.home_rows.data<float>() + step.lane_begin[lane_index];
    col = lane.col;
    cols = lane.cols;
    first = lane.first;
  }
  int slot;
  const int32_t* lengths;
  int64_t bags;
  const float* scale;
  float* rows;
  int64_t col, cols;
  bool first;
};

}  // namespace

void lay_out_home(const LaneMap& map, int world_size, bool sequence, Step& step) {
  step.home_counts.assign(world_size, 0);
  step.lane_begin.resize(map.lanes().size());
  int64_t at = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    const int64_t begin = at;
    for (int i = map.lane_begin(rank); i < map.lane_begin(rank + 1); ++i) {
      const StreamPiece& piece = step.sent[map.lanes()[i].stream];
      step.lane_begin[i] = at;
      at += (sequence ? piece.ids : piece.full_bags) * map.lanes()[i].cols;
    }
    step.home_counts[rank] = at - begin;
  }
  step.home_rows.ensure(at);
}

void combine_pooled(const LaneMap& map, const Step& step, const std::vector<int64_t>& slot_bags,
                    const std::vector<SlotView>& out) {
  for (size_t s = 0; s < map.slots().size(); ++s) {
    if (!map.slots()[s].starts_at_zero) continue;
    for (int64_t b = 0; b < slot_bags[s]; ++b) std::fill_n(out[s].data + b * out[s].stride, map.slots()[s].dim, 0.0f);
  }
  for (int i : map.combine_order()) {
    const LaneRows lane(map, step, i);
    const float* row = lane.rows;
    float* to = out[lane.slot].data + lane.col;
    for (int64_t b = 0; b < lane.bags; ++b, to += out[lane.slot].stride) {
      if (!lane.lengths[b]) {
        if (lane.first) std::fill_n(to, lane.cols, 0.0f);
        continue;
      }
      if (!lane.first)
        add_row(row, lane.scale ? lane.scale[b] : 1.0f, lane.cols, to);
      else if (lane.scale)
        scale_row(row, lane.scale[b], lane.cols, to);
      else
        copy_row(row, lane.cols, to);
      row += lane.cols;
    }
  }
}

void split_pooled(const LaneMap& map, Step& step, const std::vector<SlotView>& grad) {
  for (size_t i = 0; i < map.lanes().size(); ++i) {
    const LaneRows lane(map, step, static_cast<int>(i));
    float* row = lane.rows;
    const float* from = grad[lane.slot].data + lane.col;
    for (int64_t b = 0; b < lane.bags; ++b, from += grad[lane.slot].stride) {
      if (!lane.lengths[b]) continue;
      if (lane.scale)
        scale_row(from, lane.scale[b], lane.cols, row);
      else
        copy_row(from, lane.cols, row);
      row += lane.cols;
    }
  }
}

void combine_sequence(const LaneMap& map, const Step& step, const std::vector<SlotView>& out) {
  for (size_t i = 0; i < map.lanes().size(); ++i) {
    const LaneRows lane(map, step, static_cast<int>(i));
    const int stream = map.lanes()[i].stream;
    const int64_t* positions = step.positions.data() + step.positions_begin[stream];
    for (int64_t k = 0; k < step.sent[stream].ids; ++k) {
      copy_row(lane.rows + k * lane.cols, lane.cols,
               out[lane.slot].data + positions[k] * out[lane.slot].stride + lane.col);
    }
  }
}

void split_sequence(const LaneMap& map, Step& step, const std::vector<SlotView>& grad) {
  for (size_t i = 0; i < map.lanes().size(); ++i) {
    const LaneRows lane(map, step, static_cast<int>(i));
    const int stream = map.lanes()[i].stream;
    const int64_t* positions = step.positions.data() + step.positions_begin[stream];
    for (int64_t k = 0; k < step.sent[stream].ids; ++k) {
      copy_row(grad[lane.slot].data + positions[k] * grad[lane.slot].stride + lane.col, lane.cols,
               lane.rows + k * lane.cols);
    }
  }
}

}  // namespace tessera

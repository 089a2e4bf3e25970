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
  ArrivalRows(const Arrival& arrival, const Wiring& wiring, const HomeRows& all) {
    if (arrival.lane >= 0) {
      const int stream = wiring.lanes()[arrival.lane].stream;
      order = all.routed.bag_order.data() + all.routed.lengths_begin[stream];
      full = all.routed.sent[stream].full_bags;
      row = arrival.stays ? nullptr : all.data + all.wire.lane_begin[arrival.lane];
    } else {
      const int64_t begin = all.wire.host_lengths_begin[arrival.host_sum];
      order = all.wire.host_bag_order.data() + begin;
      full = all.wire.host_full_bags[arrival.host_sum];
      row = all.data + all.wire.host_sum_begin[arrival.host_sum];
    }
    const int64_t mean = all.routed.mean_begin[arrival.slot];
    scale = mean < 0 ? nullptr : all.routed.mean_scale.data() + mean;
  }
  const int32_t* order;  // bags with a row
  int64_t full;
  float* row;  // the first; null: they stay
  const float* scale;
};

// Rows of the output are far apart, so that no hardware foresees them: they are asked for this many bags ahead.
constexpr int64_t kBagsAhead = 8;
constexpr int64_t kCacheLine = 64 / sizeof(float);

// The output's rows of one slot, or their gradient's, at an arrival's first column.
template <class Width, class T>
struct SpreadRows {
  T* begin;  // of bag 0
  int64_t stride;
  Width cols;

  T* of(int32_t bag) const { return begin + bag * stride; }
  void ask_for(int32_t bag) const {
    for (int64_t i = 0; i < cols; i += kCacheLine) __builtin_prefetch(of(bag) + i, !std::is_const_v<T>);
  }
  // body(bag, row) for bags that are listed in `order`.
  template <class Body>
  void each(const int32_t* order, int64_t bags, const Body& body) const {
    const int64_t ahead = std::max<int64_t>(bags - kBagsAhead, 0);
    for (int64_t k = 0; k < ahead; ++k) {
      ask_for(order[k + kBagsAhead]);
      body(order[k], of(order[k]));
    }
    for (int64_t k = ahead; k < bags; ++k) body(order[k], of(order[k]));
  }
};

void mark_written(const ArrivalRows& there, std::vector<uint8_t>& written) {
  for (int64_t k = 0; k < there.full; ++k) written[there.order[k]] = 1;
}

template <class Width>
void fill_unwritten(CombineScratch& scratch, const SpreadRows<Width, float>& out) {
  if (scratch.written.empty() || std::memchr(scratch.written.data(), 0, scratch.written.size()) == nullptr) return;
  scratch.unwritten.resize(scratch.written.size());
  int64_t n = 0;
  for (size_t b = 0; b < scratch.written.size(); ++b) {
    scratch.unwritten[n] = static_cast<int32_t>(b);
    n += scratch.written[b] == 0;
  }
  out.each(scratch.unwritten.data(), n, [&](int32_t, float* to) { std::fill_n(to, out.cols, 0.0f); });
}

// The only arrival of its columns.
template <class Width>
void combine_one(const ArrivalRows& from, const SpreadRows<Width, float>& out) {
  const Width cols = out.cols;
  const float* row = from.row;
  const auto each = [&](const auto& put) {
    out.each(from.order, from.full, [&](int32_t bag, float* to) {
      put(bag, to);
      row += cols;
    });
  };
  if (from.scale)
    each([&](int32_t bag, float* to) { scale_row(row, from.scale[bag], cols, to); });
  else
    each([&](int32_t, float* to) { copy_row(row, cols, to); });
}

// One of several arrivals of the same columns: the first one with a row for a bag writes it, later ones add to it.
template <class Width>
void combine_one_of(const ArrivalRows& from, const SpreadRows<Width, float>& out, uint8_t* written) {
  const Width cols = out.cols;
  const float* row = from.row;
  out.each(from.order, from.full, [&](int32_t bag, float* to) {
    const bool again = written[bag];
    written[bag] = 1;
    if (from.scale && again)
      add_scaled_row(row, from.scale[bag], cols, to);
    else if (from.scale)
      scale_row(row, from.scale[bag], cols, to);
    else if (again)
      add_row(row, cols, to);
    else
      copy_row(row, cols, to);
    row += cols;
  });
}

template <class Width>
void split_arrival(const ArrivalRows& to, const SpreadRows<Width, const float>& grad) {
  const Width cols = grad.cols;
  float* row = to.row;
  const auto each = [&](const auto& put) {
    grad.each(to.order, to.full, [&](int32_t bag, const float* from) {
      put(bag, from);
      row += cols;
    });
  };
  if (to.scale)
    each([&](int32_t bag, const float* from) { scale_row(from, to.scale[bag], cols, row); });
  else
    each([&](int32_t, const float* from) { copy_row(from, cols, row); });
}

}  // namespace

void combine_pooled(const RankWiring& own, const HomeRows& from_wire, const std::vector<SlotBags>& slots,
                    const std::vector<SlotView>& out, CombineScratch& scratch) {
  const Wiring& wiring = own.wiring;
  const std::vector<Arrival>& arrivals = own.arrivals;
  for (size_t s = 0; s < wiring.slots().size(); ++s) {
    if (!wiring.slots()[s].starts_at_zero) continue;
    for (int64_t b = 0; b < slots[s].bags; ++b)
      std::fill_n(out[s].data + b * out[s].stride, wiring.slots()[s].dim, 0.0f);
  }
  for (size_t begin = 0, end = 0; begin < arrivals.size(); begin = end) {
    end = end_of_columns(arrivals, begin);
    const Arrival& a = arrivals[begin];
    const SlotView& to = out[a.slot];
    with_width(a.cols, [&](auto cols) {
      const SpreadRows<decltype(cols), float> rows{to.data + a.col, to.stride, cols};
      const bool alone = a.first && end == begin + 1;
      if (alone) {
        const ArrivalRows from(a, wiring, from_wire);
        if (!a.stays) combine_one(from, rows);
        if (from.full == slots[a.slot].bags) return;
      }
      scratch.written.assign(slots[a.slot].bags, !a.first);
      for (size_t i = begin; i < end; ++i) {
        if (alone || arrivals[i].stays) mark_written(ArrivalRows(arrivals[i], wiring, from_wire), scratch.written);
      }
      for (size_t i = begin; i < end && !alone; ++i) {
        if (!arrivals[i].stays)
          combine_one_of(ArrivalRows(arrivals[i], wiring, from_wire), rows, scratch.written.data());
      }
      fill_unwritten(scratch, rows);
    });
  }
}

void split_pooled(const RankWiring& own, const std::vector<SlotView>& grad, const HomeRows& rows) {
  for (const Arrival& a : own.arrivals) {
    if (a.stays) continue;
    const SlotView& from = grad[a.slot];
    with_width(a.cols, [&](auto cols) {
      split_arrival(ArrivalRows(a, own.wiring, rows),
                    SpreadRows<decltype(cols), const float>{from.data + a.col, from.stride, cols});
    });
  }
}

void combine_sequence(const Wiring& wiring, const HomeRows& rows, const std::vector<SlotView>& out) {
  for (size_t i = 0; i < wiring.lanes().size(); ++i) {
    const Lane& lane = wiring.lanes()[i];
    const SlotView& to = out[wiring.streams()[lane.stream].slot];
    const int64_t* positions = rows.routed.positions.data() + rows.routed.positions_begin[lane.stream];
    const float* row = rows.data + rows.wire.lane_begin[i];
    for (int64_t k = 0; k < rows.routed.sent[lane.stream].ids; ++k)
      copy_row(row + k * lane.cols, lane.cols, to.data + positions[k] * to.stride + lane.col);
  }
}

void split_sequence(const Wiring& wiring, const std::vector<SlotView>& grad, const HomeRows& rows) {
  for (size_t i = 0; i < wiring.lanes().size(); ++i) {
    const Lane& lane = wiring.lanes()[i];
    const SlotView& from = grad[wiring.streams()[lane.stream].slot];
    const int64_t* positions = rows.routed.positions.data() + rows.routed.positions_begin[lane.stream];
    float* row = rows.data + rows.wire.lane_begin[i];
    for (int64_t k = 0; k < rows.routed.sent[lane.stream].ids; ++k)
      copy_row(from.data + positions[k] * from.stride + lane.col, lane.cols, row + k * lane.cols);
  }
}

}  // namespace tessera

// tessera/sdk/sharder.h - base class of a sharder: a pure function from a table and a topology to layouts.
//
// abi/sharder.h says what placements, combine rules and row sets mean. The object is used from several threads at once,
// hence const. A class C : Sharder may say how it is offered:
//   static constexpr uint32_t kFlags = TSR_SHARDER_WHEN_ASKED;
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/abi/sharder.h"
#include "tessera/sdk/plugin.h"

namespace tessera::sdk {

// Borrowed for the call.
struct Table {
  std::string_view name;
  int64_t rows;
  int64_t cols;
  int32_t pooling;  // TSR_POOLING_*; NONE: an EmbeddingCollection's table
  DLDataType dtype;
  std::span<const char* const> features;
};

struct Topology {
  uint32_t world_size;
  uint32_t local_world_size;               // ranks per host
  int32_t device_type;                     // DLDeviceType
  std::span<const uint64_t> device_bytes;  // free memory, one per rank
  uint32_t hosts() const { return world_size / local_world_size; }
};

struct Constraints {
  int64_t min_partition;  // least width of a column shard; 0: the sharder's default
  int64_t max_shards;     // 0: no limit. A sharder that cannot keep it proposes nothing
};

using Rectangle = tsr_rectangle;  // {row, rows, col, cols}

struct LayoutPart {
  int32_t placement = TSR_PLACE_ANY_RANK;
  int32_t combine = TSR_COMBINE_CONCAT;
  int32_t row_set = TSR_ROWS_RANGE;
  std::vector<Rectangle> rectangles = {};
};

// The parts' rectangles together cover the table once (or, in a REPLICA part, once each).
using Layout = std::vector<LayoutPart>;

struct Range {
  int64_t start;
  int64_t count;
};

// [0, total) in `pieces` blocks of ceil(total / pieces); later ones may be shorter or empty: TorchRec's row cuts.
inline std::vector<Range> cut_blocks(int64_t total, int64_t pieces) {
  const int64_t block = (total + pieces - 1) / pieces;
  std::vector<Range> out;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t start = std::min(i * block, total);
    out.push_back({start, std::min(block, total - start)});
  }
  return out;
}

class Sharder {
 public:
  virtual ~Sharder() = default;

  // Every layout on offer, best first. None: the table cannot be cut this way, which is not an error.
  virtual std::vector<Layout> propose(const Table& table, const Topology& topology,
                                      const Constraints& constraints) const = 0;

  // Override both for layouts with TSR_ROWS_ROUTED, and neither otherwise. All spans are of one length, and outputs are
  // written in full. Each is the inverse of the other, which the core checks.
  virtual void route(const Table&, uint32_t /*num_shards*/, std::span<const int64_t> /*ids*/,
                     std::span<int32_t> /*shards*/, std::span<int64_t> /*local_rows*/) const {}
  virtual void unroute(const Table&, uint32_t /*num_shards*/, uint32_t /*shard*/,
                       std::span<const int64_t> /*local_rows*/, std::span<int64_t> /*ids*/) const {}

  static constexpr const char* kKind = TSR_SHARDER_KIND;
  template <class C>
  static const tsr_sharder table;

 private:
  static Table view(const tsr_table& t) {
    return {t.name, t.rows, t.cols, t.pooling, t.dtype, {t.features, t.num_features}};
  }
  static void hand_over(const Layout& layout, const tsr_layout_sink* sink);

  template <class C>
  static tsr_code propose_slot(void* self, const tsr_table* table, const tsr_topology* topology,
                               const tsr_constraints* constraints, const tsr_layout_sink* sink,
                               tsr_error* err) noexcept {
    return guard(err, [&] {
      const Topology where{topology->world_size,
                           topology->local_world_size,
                           topology->device_type,
                           {topology->device_bytes, topology->device_bytes ? topology->world_size : 0}};
      const Constraints limits{constraints->min_partition, constraints->max_shards};
      const Sharder& sharder = *static_cast<C*>(self);
      for (const Layout& layout : sharder.propose(view(*table), where, limits)) hand_over(layout, sink);
    });
  }
  template <class C>
  static tsr_code route_slot(void* self, const tsr_table* table, uint32_t num_shards, int64_t n, const int64_t* ids,
                             int32_t* shards, int64_t* local_rows, tsr_error* err) noexcept {
    return guard(err, [&] {
      const auto size = static_cast<size_t>(n);
      static_cast<const C*>(self)->route(view(*table), num_shards, {ids, size}, {shards, size}, {local_rows, size});
    });
  }
  template <class C>
  static tsr_code unroute_slot(void* self, const tsr_table* table, uint32_t num_shards, uint32_t shard, int64_t n,
                               const int64_t* local_rows, int64_t* ids, tsr_error* err) noexcept {
    return guard(err, [&] {
      const auto size = static_cast<size_t>(n);
      static_cast<const C*>(self)->unroute(view(*table), num_shards, shard, {local_rows, size}, {ids, size});
    });
  }
  template <class C>
  static constexpr tsr_sharder make_table() {
    tsr_sharder t{sizeof(tsr_sharder), 0, &propose_slot<C>, nullptr, nullptr};
    if constexpr (requires { C::kFlags; }) t.flags = C::kFlags;
    constexpr bool routes = detail::overrides(&C::route, &Sharder::route);
    static_assert(routes == detail::overrides(&C::unroute, &Sharder::unroute),
                  "override route and unroute, or neither");
    if (routes) {
      t.route = &route_slot<C>;
      t.unroute = &unroute_slot<C>;
    }
    return t;
  }
};

template <class C>
constexpr tsr_sharder Sharder::table = Sharder::make_table<C>();

inline void Sharder::hand_over(const Layout& layout, const tsr_layout_sink* sink) {
  std::vector<tsr_layout_part> parts;
  for (const LayoutPart& p : layout) {
    parts.push_back({sizeof(tsr_layout_part), p.placement, p.combine, p.row_set,
                     static_cast<uint32_t>(p.rectangles.size()), sizeof(tsr_rectangle), p.rectangles.data()});
  }
  const tsr_layout raw{sizeof(tsr_layout), static_cast<uint32_t>(parts.size()), sizeof(tsr_layout_part), 0,
                       parts.data()};
  Call call;
  call.check(sink->add(sink, &raw, call.err()));
}

}  // namespace tessera::sdk

// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/sharder.h - base class of a sharder: a pure function from a table and a topology to layouts.
//
// abi/sharder.h explains placements, combine rules and row sets. Several threads use the object at once, so it is
// const. A class C : Sharder may declare how it is offered:
//   static constexpr uint32_t kFlags = TSR_SHARDER_WHEN_ASKED;
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/abi/sharder.h"
#include "tessera/sdk/plugin.h"
#include "tessera/sdk/tensor.h"

namespace tessera::sdk {
inline namespace v1 {

// Borrowed during the call.
struct Table {
  std::string_view name;
  int64_t rows;
  int64_t cols;
  int32_t pooling;  // TSR_POOLING_*; NONE: a table of an EmbeddingCollection
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
  int64_t max_shards;     // 0: no limit. A sharder that exceeds it proposes nothing
};

using Rectangle = tsr_rectangle;  // {row, rows, col, cols}

struct LayoutPart {
  int32_t placement = TSR_PLACE_ANY_RANK;
  int32_t combine = TSR_COMBINE_CONCAT;
  int32_t row_set = TSR_ROWS_RANGE;
  std::vector<Rectangle> rectangles = {};
};

// The parts' rectangles together cover the table once (in a REPLICA part, each covers it).
struct Layout {
  std::vector<LayoutPart> parts;
  int64_t cookie = 0;  // passed back to route and unroute
};

// The chosen layout, as route and unroute get it. Borrowed during the call.
struct Routed {
  Table table;
  Topology topology;  // device_bytes is empty
  uint32_t num_row_sets;
  int64_t cookie;
};

struct Range {
  int64_t start;
  int64_t count;
};

// Splits [0, total) into `pieces` blocks of ceil(total / pieces). Later blocks may be shorter or empty, like TorchRec's
// row splits.
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

  // Returns all possible layouts, best first. Empty: the table cannot be cut this way, which is not an error.
  virtual std::vector<Layout> propose(const Table& table, const Topology& topology,
                                      const Constraints& constraints) const = 0;

  // Override both for layouts with TSR_ROWS_ROUTED, and neither otherwise. All spans have the same length, and outputs
  // must be filled completely. Each is the inverse of the other; the core checks that.
  virtual void route(const Routed&, std::span<const int64_t> /*ids*/, std::span<int32_t> /*row_sets*/,
                     std::span<int64_t> /*local_rows*/) const {}
  virtual void unroute(const Routed&, std::span<const int32_t> /*row_sets*/, std::span<const int64_t> /*local_rows*/,
                       std::span<int64_t> /*ids*/) const {}

  static constexpr const char* kKind = TSR_SHARDER_KIND;
  template <class C>
  static const tsr_sharder table;

 private:
  static Table view(const tsr_table& t) {
    check_flags(t.flags, 0, "tsr_table");
    return {t.name, t.rows, t.cols, t.pooling, t.dtype, {t.features, t.num_features}};
  }
  static Topology view(const tsr_topology& t) {
    check_flags(t.flags, 0, "tsr_topology");
    return {t.world_size,
            t.local_world_size,
            t.device_type,
            {t.device_bytes, t.device_bytes == nullptr ? 0 : t.world_size}};
  }
  static void hand_over(const Layout& layout, const tsr_layout_sink* sink);

  template <class C>
  static tsr_code propose_slot(void* self, const tsr_table* table, const tsr_topology* topology,
                               const tsr_constraints* constraints, const tsr_layout_sink* sink,
                               tsr_error* err) noexcept {
    return guard(err, [&] {
      check_flags(constraints->flags, 0, "tsr_constraints");
      check_flags(sink->flags, 0, "tsr_layout_sink");
      const Constraints limits{constraints->min_partition, constraints->max_shards};
      const Sharder& sharder = *static_cast<C*>(self);
      for (const Layout& layout : sharder.propose(view(*table), view(*topology), limits)) hand_over(layout, sink);
    });
  }

  // The three tensors of a tsr_route, in host memory.
  struct Rows {
    explicit Rows(const tsr_route& r)
        : layout{view(*r.table), view(*r.topology), r.num_row_sets, r.cookie},
          ids(in_host<int64_t>(r.ids, "ids")),
          row_sets(in_host<int32_t>(r.row_sets, "row_sets")),
          local_rows(in_host<int64_t>(r.local_rows, "local_rows")) {
      check_flags(r.flags, 0, "tsr_route");
    }
    template <class T>
    static std::span<T> in_host(const DLTensor* tensor, const char* what) {
      if (tensor->device.device_type != kDLCPU)
        fail(TSR_UNIMPLEMENTED, what, " are on device type ", int{tensor->device.device_type},
             ", but this sharder routes rows in host memory");
      return elements<T>(*tensor, what);
    }
    Routed layout;
    std::span<int64_t> ids;
    std::span<int32_t> row_sets;
    std::span<int64_t> local_rows;
  };
  template <class C>
  static tsr_code route_slot(void* self, const tsr_route* route, tsr_error* err) noexcept {
    return guard(err, [&] {
      const Rows rows(*route);
      static_cast<const C*>(self)->route(rows.layout, rows.ids, rows.row_sets, rows.local_rows);
    });
  }
  template <class C>
  static tsr_code unroute_slot(void* self, const tsr_route* route, tsr_error* err) noexcept {
    return guard(err, [&] {
      const Rows rows(*route);
      static_cast<const C*>(self)->unroute(rows.layout, rows.row_sets, rows.local_rows, rows.ids);
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

// Returns the number of row sets of a part with routed rows (tsr_layout).
inline uint32_t row_sets_of(const LayoutPart& part) {
  if (part.row_set != TSR_ROWS_ROUTED) return 0;
  if (part.combine == TSR_COMBINE_REPLICA) return 1;
  return static_cast<uint32_t>(std::count_if(part.rectangles.begin(), part.rectangles.end(),
                                             [&](const Rectangle& r) { return r.col == part.rectangles[0].col; }));
}

// A layout that this host cannot run does not end the proposal, but a wrong one does.
inline void Sharder::hand_over(const Layout& layout, const tsr_layout_sink* sink) {
  std::vector<tsr_layout_part> parts;
  uint32_t row_sets = 0;
  for (const LayoutPart& p : layout.parts) {
    parts.push_back({sizeof(tsr_layout_part), 0, p.placement, p.combine, p.row_set,
                     static_cast<uint32_t>(p.rectangles.size()), sizeof(tsr_rectangle), 0, p.rectangles.data()});
    row_sets += row_sets_of(p);
  }
  const tsr_layout raw{
      sizeof(tsr_layout), 0, static_cast<uint32_t>(parts.size()), sizeof(tsr_layout_part), row_sets, 0, parts.data(),
      layout.cookie};
  Call call;
  const tsr_code code = sink->add(sink, &raw, call.err());
  if (code != TSR_UNIMPLEMENTED) call.check(code);
}

}  // namespace v1
}  // namespace tessera::sdk

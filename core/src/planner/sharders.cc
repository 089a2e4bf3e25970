#include "planner/sharders.h"

#include <algorithm>
#include <cstdio>

#include "plugin/calls.h"
#include "wiring/tiling.h"

namespace tessera {

namespace {

template <class T>
const T& element(const T* first, uint32_t stride, uint32_t i) {
  return *reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + static_cast<size_t>(stride) * i);
}

// The number of rectangles that each placement asks for.
std::string why_not_placed(const Layout& layout, const Topology& topology) {
  const size_t n = layout.rectangles.size();
  const size_t world = static_cast<size_t>(topology.world_size);
  const size_t local = static_cast<size_t>(topology.local_world_size);
  if (n == 0) return "it has no rectangles";
  switch (layout.placement) {
    case TSR_PLACE_ANY_RANK:
    case TSR_PLACE_IN_HOST:
      return "";
    case TSR_PLACE_ONE_HOST:
      return n <= local ? "" : cat(n, " rectangles do not fit the ", local, " ranks of one host");
    case TSR_PLACE_EVERY_RANK:
      return n == world ? "" : cat(n, " rectangles instead of one for each of ", world, " ranks");
    case TSR_PLACE_HOSTS:
      return n % local == 0 ? "" : cat(n, " rectangles are no multiple of the ", local, " ranks of a host");
    default:
      TESSERA_CHECK(false, "placement ", layout.placement);
  }
}

std::string why_not_combined(const Layout& layout, int64_t rows, int64_t cols) {
  const std::span<const tsr_rectangle> all(layout.rectangles);
  switch (layout.combine) {
    case TSR_COMBINE_CONCAT:
    case TSR_COMBINE_SUM:
    case TSR_COMBINE_HOST_SUM:
      if (layout.routed) return why_not_tiling_routed(all, rows, cols);
      if (layout.combine == TSR_COMBINE_CONCAT) {
        for (const tsr_rectangle& r : all) {
          if (r.rows != rows) return cat(text_of(r), " lacks rows, but the pieces are to be concatenated");
        }
      }
      return why_not_tiling(all, rows, cols);
    case TSR_COMBINE_REPLICA:
      if (layout.routed) return "its rows are routed, but every replica holds all of them";
      for (size_t i = 0; i < all.size(); ++i) {
        if (std::string text = why_not_tiling(all.subspan(i, 1), rows, cols); !text.empty()) return text;
      }
      return "";
    default:
      TESSERA_CHECK(false, "combine ", layout.combine);
  }
}

std::string why_other_row_sets(const Layout& layout, uint32_t told) {
  const auto& all = layout.rectangles;
  const auto count = layout.routed ? std::count_if(all.begin(), all.end(),
                                                   [&](const tsr_rectangle& r) { return r.col == all.front().col; })
                                   : 0;
  return count == told ? "" : cat("it says that it has ", told, " row sets, and has ", count);
}

// Receives what one propose() call offers.
struct Collector {
  int64_t rows;
  int64_t cols;
  const Topology& topology;
  bool can_route;
  std::vector<Layout> layouts;
  std::string refusal;  // of the last layout that was

  tsr_code refuse(tsr_error* err, const std::string& why, tsr_code code = TSR_INVALID_ARGUMENT) {
    refusal = cat("a layout was refused: ", why);
    if (err != nullptr) {
      err->code = code;
      std::snprintf(err->message, sizeof(err->message), "%s", refusal.c_str());
    }
    return code;
  }

  tsr_code add(const tsr_layout* raw, tsr_error* err) {
    if (raw == nullptr || !TSR_HAS(tsr_layout, raw, parts) || raw->num_parts == 0) return refuse(err, "it is empty");
    if (raw->num_parts > 1)
      return refuse(err, "it has several parts, and this core plans layouts of one part", TSR_UNIMPLEMENTED);
    const tsr_layout_part& part = element(raw->parts, raw->part_stride, 0);
    if (!TSR_HAS(tsr_layout_part, &part, rectangles) || part.rectangle_stride < sizeof(tsr_rectangle)) {
      return refuse(err, "it has no rectangles");
    }
    if (part.row_set != TSR_ROWS_RANGE && part.row_set != TSR_ROWS_ROUTED) {
      return refuse(err, cat("row set ", part.row_set, " is not known to this core"), TSR_UNIMPLEMENTED);
    }
    if (part.placement < TSR_PLACE_ANY_RANK || part.placement > TSR_PLACE_HOSTS)
      return refuse(err, cat("placement ", part.placement, " is not known to this core"), TSR_UNIMPLEMENTED);
    if (part.combine < TSR_COMBINE_CONCAT || part.combine > TSR_COMBINE_REPLICA)
      return refuse(err, cat("combine ", part.combine, " is not known to this core"), TSR_UNIMPLEMENTED);
    Layout layout{part.placement, part.combine, part.row_set == TSR_ROWS_ROUTED, {}, 0};
    if (TSR_FITS(tsr_layout, raw, cookie)) layout.cookie = raw->cookie;
    if (layout.routed && !can_route) return refuse(err, "its rows are routed, but the sharder has no route()");
    layout.rectangles.reserve(part.num_rectangles);
    for (uint32_t i = 0; i < part.num_rectangles; ++i) {
      layout.rectangles.push_back(element(part.rectangles, part.rectangle_stride, i));
    }
    std::string why = why_not_placed(layout, topology);
    if (why.empty()) why = why_not_combined(layout, rows, cols);
    if (why.empty()) why = why_other_row_sets(layout, raw->num_row_sets);
    if (!why.empty()) return refuse(err, why);
    layouts.push_back(std::move(layout));
    return TSR_OK;
  }
};

tsr_code add_to_collector(const tsr_layout_sink* sink, const tsr_layout* layout, tsr_error* err) {
  try {
    return static_cast<Collector*>(sink->self)->add(layout, err);
  } catch (const std::exception&) {  // nothing may cross into the plugin; only memory can be lacking here
    if (err != nullptr) {
      err->code = TSR_RESOURCE_EXHAUSTED;
      std::snprintf(err->message, sizeof(err->message), "out of memory while copying a layout");
    }
    return TSR_RESOURCE_EXHAUSTED;
  }
}

}  // namespace

Sharders::Sharders(const Runtime& runtime, const Topology& topology)
    : runtime_(runtime), topology_(topology), device_bytes_(static_cast<size_t>(topology.world_size)) {
  for (int r = 0; r < topology.world_size; ++r) {
    const Storage memory = topology.memory(r);
    device_bytes_[static_cast<size_t>(r)] = static_cast<uint64_t>(topology.accelerator() ? memory.hbm : memory.ddr);
  }
}

const tsr_sharder& Sharders::api_of(const std::string& sharding_type) {
  PartPtr& part = parts_[sharding_type];
  if (part == nullptr) part = runtime_.create(TSR_SHARDER_KIND, sharding_type);
  return part->api<tsr_sharder>();
}

std::vector<std::string> Sharders::offered() {
  std::vector<std::string> out;
  for (const std::string& id : runtime_.ids(TSR_SHARDER_KIND)) {
    try {
      if ((api_of(id).flags & TSR_SHARDER_WHEN_ASKED) == 0) out.push_back(id);
    } catch (const Error&) {  // not usable here: its line in the load report says why
    }
  }
  return out;
}

std::vector<Layout> Sharders::propose(const std::string& sharding_type, const EmbeddingBagConfig& table,
                                      const LayoutRequest& request) {
  const tsr_sharder& api = api_of(sharding_type);
  const PartPtr& part = parts_[sharding_type];
  if (!TSR_HAS(tsr_sharder, &api, propose)) fail(Code::kUnimplemented, "sharder ", sharding_type, " has no propose()");

  std::vector<const char*> features;
  for (const std::string& f : table.feature_names) features.push_back(f.c_str());
  const tsr_table raw_table{sizeof(tsr_table),
                            static_cast<int32_t>(table.pooling),
                            table.name.c_str(),
                            table.num_embeddings,
                            table.embedding_dim,
                            table.row_format ? sdk::info_of(*table.row_format).dtype : to_dl(table.data_type),
                            static_cast<uint32_t>(features.size()),
                            features.data()};
  const tsr_topology raw_topology{sizeof(tsr_topology), static_cast<uint32_t>(topology_.world_size),
                                  static_cast<uint32_t>(topology_.local_world_size), topology_.device_type,
                                  device_bytes_.data()};
  const tsr_constraints raw_constraints{sizeof(tsr_constraints), 0, request.min_partition, request.max_shards};
  const bool can_route = TSR_HAS(tsr_sharder, &api, route) && TSR_HAS(tsr_sharder, &api, unroute);
  Collector collector{table.num_embeddings, table.embedding_dim, topology_, can_route, {}, ""};
  const tsr_layout_sink sink{sizeof(tsr_layout_sink), 0, &collector, add_to_collector};
  AbiError err;
  const plugin::CallScope call(*part, "propose", table.name);
  const tsr_code code = api.propose(part->self(), &raw_table, &raw_topology, &raw_constraints, &sink, err.out());
  err.check(code, code == TSR_OK ? "" : cat("sharder ", sharding_type, ", table ", table.name));
  if (collector.layouts.empty() && !collector.refusal.empty())
    fail(Code::kUnimplemented, "sharder ", sharding_type, ", table ", table.name, ": ", collector.refusal,
         ", and it has no other");
  return std::move(collector.layouts);
}

}  // namespace tessera

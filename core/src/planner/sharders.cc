#include "planner/sharders.h"

#include <algorithm>
#include <cstdio>

#include "tessera/calls.h"
#include "wiring/tiling.h"

namespace tessera {

namespace {

template <class T>
const T& element(const T* first, uint32_t stride, uint32_t i) {
  return *reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + static_cast<size_t>(stride) * i);
}

// Why the part's number of rectangles does not suit its placement; empty if it does.
std::string why_not_placed(const tsr_layout_part& part, const Topology& topology) {
  const size_t n = part.num_rectangles;
  const size_t world = static_cast<size_t>(topology.world_size);
  const size_t local = static_cast<size_t>(topology.local_world_size);
  if (n == 0) return "it has no rectangles";
  switch (part.placement) {
    case TSR_PLACE_ONE_HOST:
      return n <= local ? "" : str_cat(n, " rectangles do not fit the ", local, " ranks of one host");
    case TSR_PLACE_EVERY_RANK:
      return n == world ? "" : str_cat(n, " rectangles instead of one for each of ", world, " ranks");
    case TSR_PLACE_HOSTS:
      return n % local == 0 ? "" : str_cat(n, " rectangles are not a multiple of the ", local, " ranks of a host");
    default:
      return "";
  }
}

// Why this core does not know the layout, or cannot run it; empty if it can.
std::string why_unknown(const tsr_layout& layout, const tsr_layout_part& part) {
  if (((layout.flags | part.flags) & TSR_MUST_UNDERSTAND) != 0) return "it has flags that this core does not know";
  if (part.row_set != TSR_ROWS_RANGE && part.row_set != TSR_ROWS_ROUTED)
    return str_cat("row set ", part.row_set, " is not known to this core");
  if (part.placement < TSR_PLACE_ANY_RANK || part.placement > TSR_PLACE_HOSTS)
    return str_cat("placement ", part.placement, " is not known to this core");
  if (part.combine < TSR_COMBINE_CONCAT || part.combine > TSR_COMBINE_REPLICA)
    return str_cat("combine ", part.combine, " is not known to this core");
  if (layout.num_parts > 1 && part.placement != TSR_PLACE_EVERY_RANK)
    return "it has several parts, of which this core places each on every rank";
  return "";
}

bool same(const tsr_rectangle& a, const tsr_rectangle& b) {
  return a.row == b.row && a.rows == b.rows && a.col == b.col && a.cols == b.cols;
}

// The rectangles that together make up the table, with only the first one of replicated rectangles.
std::vector<tsr_rectangle> distinct(const Layout& layout) {
  const bool all_copies = layout.combine == TSR_COMBINE_REPLICA;
  std::vector<tsr_rectangle> out;
  for (size_t i = 0; i < layout.rectangles.size(); ++i) {
    if (all_copies ? i == 0 : !layout.is_replicated(i) || i == layout.first_replicated)
      out.push_back(layout.rectangles[i]);
  }
  return out;
}

std::string why_not_covering(const Layout& layout, int64_t rows, int64_t cols, uint32_t row_sets) {
  const std::vector<tsr_rectangle> all = distinct(layout);
  if (layout.combine == TSR_COMBINE_CONCAT && !layout.routed) {
    for (const tsr_rectangle& r : all) {
      if (r.rows != rows) return str_cat(text_of(r), " lacks rows, but the rectangles are concatenated");
    }
  }
  if (!layout.routed) {
    if (row_sets > 0) return str_cat("it says that it has ", row_sets, " row sets, but its rows are ranges");
    return why_not_tiling(all, rows, cols);
  }
  if (layout.combine == TSR_COMBINE_REPLICA) return "its rows are routed, but every replica holds all of them";
  if (std::string why = why_not_tiling_routed(all, rows, cols); !why.empty()) return why;
  const auto cut = std::find_if(all.begin(), all.end(), [&](const tsr_rectangle& r) { return r.cols < cols; });
  const int64_t first = cut == all.end() ? 0 : cut->col;  // row sets are counted at this column
  const auto count =
      std::count_if(all.begin(), all.end(), [&](const tsr_rectangle& r) { return r.cols == cols || r.col == first; });
  return count == row_sets ? "" : str_cat("it says that it has ", row_sets, " row sets, and has ", count);
}

// True if the layout splits rows by ranges, which ids without a bound do not have.
bool cuts_ranges(const Layout& layout, const EmbeddingBagConfig& table) {
  return !layout.routed && std::any_of(layout.rectangles.begin(), layout.rectangles.end(),
                                       [&](const tsr_rectangle& r) { return r.rows != table.num_embeddings; });
}

// Receives the layouts that one propose() call offers.
class Collector {
 public:
  Collector(int64_t table_rows, int64_t table_cols, const Topology& where, bool routes)
      : rows(table_rows), cols(table_cols), topology(where), can_route(routes) {}
  int64_t rows;
  int64_t cols;
  const Topology& topology;
  bool can_route;
  std::vector<Layout> layouts;
  std::string refusal;  // why the last refused layout was refused

  tsr_code refuse(tsr_error* err, const std::string& why, tsr_code code = TSR_INVALID_ARGUMENT) {
    refusal = str_cat("a layout was refused: ", why);
    if (err != nullptr) {
      err->code = code;
      std::snprintf(err->message, sizeof(err->message), "%s", refusal.c_str());
    }
    return code;
  }

  tsr_code add(const tsr_layout* raw, tsr_error* err) {
    if (raw == nullptr || !TSR_HAS(tsr_layout, raw, parts) || raw->num_parts == 0) return refuse(err, "it is empty");
    Layout layout;
    layout.placement = element(raw->parts, raw->part_stride, 0).placement;
    layout.routed = element(raw->parts, raw->part_stride, 0).row_set == TSR_ROWS_ROUTED;
    if (TSR_FITS(tsr_layout, raw, cookie)) layout.cookie = raw->cookie;
    for (uint32_t i = 0; i < raw->num_parts; ++i) {
      const tsr_layout_part& part = element(raw->parts, raw->part_stride, i);
      if (!TSR_HAS(tsr_layout_part, &part, rectangles) || part.rectangle_stride < TSR_END_OF(tsr_rectangle, cols))
        return refuse(err, "it has no rectangles");
      if (const std::string why = why_unknown(*raw, part); !why.empty()) return refuse(err, why, TSR_UNIMPLEMENTED);
      if ((part.row_set == TSR_ROWS_ROUTED) != layout.routed)
        return refuse(err, "rows of one part are routed, and of another ranges");
      if (std::string why = why_not_placed(part, topology); !why.empty()) return refuse(err, why);
      if (raw->num_parts > 1 && part.combine == TSR_COMBINE_REPLICA && layout.num_replicated > 0)
        return refuse(err, "it has two parts that are copies, but this core supports one", TSR_UNIMPLEMENTED);
      if (std::string why = take(part, raw->num_parts > 1, layout); !why.empty()) return refuse(err, why);
    }
    if (layout.routed && !can_route) return refuse(err, "its rows are routed, but the sharder has no route()");
    if (layout.num_replicated == layout.rectangles.size() && layout.num_replicated > 0)
      return refuse(err, "it has several parts, and all are copies");
    const std::string why = why_not_covering(layout, rows, cols, raw->num_row_sets);
    if (!why.empty()) return refuse(err, why);
    layouts.push_back(std::move(layout));
    return TSR_OK;
  }

 private:
  std::string take(const tsr_layout_part& part, bool of_several, Layout& layout) const {
    const bool copies = part.combine == TSR_COMBINE_REPLICA;
    const tsr_rectangle& first = part.rectangles[0];
    if (copies && of_several) {
      layout.first_replicated = layout.rectangles.size();
      layout.num_replicated = part.num_rectangles;
      if (first.col != 0 || first.cols != cols) return str_cat(text_of(first), " is a copy, but lacks columns");
    } else {  // if there are several parts, their rows add up
      layout.combine = std::max({layout.combine, part.combine, of_several ? int{TSR_COMBINE_SUM} : part.combine});
    }
    for (uint32_t i = 0; i < part.num_rectangles; ++i) {
      const tsr_rectangle& r = element(part.rectangles, part.rectangle_stride, i);
      if (copies && !same(r, first)) return str_cat(text_of(r), " is not a copy of ", text_of(first));
      layout.rectangles.push_back(r);
    }
    return "";
  }
};

tsr_code add_to_collector(const tsr_layout_sink* sink, const tsr_layout* layout, tsr_error* err) {
  try {
    return static_cast<Collector*>(sink->self)->add(layout, err);
  } catch (const std::exception&) {  // no exception may reach the plugin; the only cause here is lack of memory
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
  ComponentPtr& part = parts_[sharding_type];
  if (part == nullptr) part = runtime_.create(TSR_SHARDER_KIND, sharding_type);
  return part->api<tsr_sharder>();
}

std::vector<std::string> Sharders::offered() {
  std::vector<std::string> out;
  for (const std::string& id : runtime_.ids(TSR_SHARDER_KIND)) {
    try {
      if ((api_of(id).flags & TSR_SHARDER_WHEN_ASKED) == 0) out.push_back(id);
    } catch (const Error&) {  // it cannot be used here; the load report says why
    }
  }
  return out;
}

std::vector<Layout> Sharders::propose(const std::string& sharding_type, const EmbeddingBagConfig& table,
                                      const LayoutRequest& request) {
  const tsr_sharder& api = api_of(sharding_type);
  const ComponentPtr& part = parts_[sharding_type];
  if (!TSR_HAS(tsr_sharder, &api, propose)) fail(Code::kUnimplemented, "sharder ", sharding_type, " has no propose()");

  std::vector<const char*> features;
  for (const std::string& f : table.feature_names) features.push_back(f.c_str());
  const tsr_table raw_table{sizeof(tsr_table),
                            0,
                            table.name.c_str(),
                            table.num_embeddings,
                            table.embedding_dim,
                            table.row_format ? sdk::info_of(*table.row_format).dtype : to_dl(table.data_type),
                            static_cast<int32_t>(table.pooling),
                            0,
                            static_cast<uint32_t>(features.size()),
                            features.data()};
  const tsr_topology raw_topology{sizeof(tsr_topology),
                                  0,
                                  static_cast<uint32_t>(topology_.world_size),
                                  static_cast<uint32_t>(topology_.local_world_size),
                                  topology_.device_type,
                                  0,
                                  device_bytes_.data()};
  const tsr_constraints raw_constraints{sizeof(tsr_constraints), 0, request.min_partition, request.max_shards};
  const bool can_route = TSR_HAS(tsr_sharder, &api, route) && TSR_HAS(tsr_sharder, &api, unroute);
  Collector collector(table.num_embeddings, table.embedding_dim, topology_, can_route);
  const tsr_layout_sink sink{sizeof(tsr_layout_sink), 0, &collector, add_to_collector};
  AbiError err;
  const plugin::CallScope call(*part, "propose", table.name);
  const tsr_code code = api.propose(part->self(), &raw_table, &raw_topology, &raw_constraints, &sink, err.out());
  err.check(code, code == TSR_OK ? "" : str_cat("sharder ", sharding_type, ", table ", table.name));
  if (collector.layouts.empty() && !collector.refusal.empty())
    fail(Code::kUnimplemented, "sharder ", sharding_type, ", table ", table.name, ": ", collector.refusal,
         ", and it proposes no other layout");
  if (table.any_id) std::erase_if(collector.layouts, [&](const Layout& l) { return cuts_ranges(l, table); });
  return std::move(collector.layouts);
}

}  // namespace tessera

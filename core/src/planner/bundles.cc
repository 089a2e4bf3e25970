#include "planner/bundles.h"

#include <algorithm>
#include <optional>

#include "planner/rank_rules.h"

namespace tessera {

namespace {

// Options of the same kind can share their ranks shard by shard.
struct Kind {
  int32_t placement;
  size_t shards;
  bool operator==(const Kind&) const = default;
};

Kind kind_of(const ShardingOption& o) { return {o.placement, o.shards.size()}; }

// The table's fastest option of a kind with this compute kernel; if there is none, the fastest with any kernel.
std::optional<size_t> fastest(const SearchSpace& space, size_t table, const Kind& kind, const std::string& kernel) {
  std::optional<size_t> best, best_of_kernel;
  for (size_t i = space.first[table]; i < space.first[table + 1]; ++i) {
    const ShardingOption& o = space.options[i];
    if (kind_of(o) != kind) continue;
    if (!best || o.total_perf < space.options[*best].total_perf) best = i;
    if (o.compute_kernel != kernel) continue;
    if (!best_of_kernel || o.total_perf < space.options[*best_of_kernel].total_perf) best_of_kernel = i;
  }
  return best_of_kernel ? best_of_kernel : best;
}

void join(std::string& text, const std::string& more) {
  if (text != more) text += " + " + more;
}

ShardingOption combined(const SearchSpace& space, const std::vector<size_t>& parts) {
  ShardingOption out = space.options[parts.front()];
  out.shards = {};
  out.total_storage = {};
  out.total_perf = out.largest_perf = 0;
  for (size_t p = 1; p < parts.size(); ++p) {
    const ShardingOption& o = space.options[parts[p]];
    out.name += " + " + o.name;
    join(out.sharding_type, o.sharding_type);
    join(out.compute_kernel, o.compute_kernel);
  }
  for (size_t i = 0; i < space.options[parts.front()].shards.size(); ++i) {
    Shard sum = space.options[parts.front()].shards[i];
    for (size_t p = 1; p < parts.size(); ++p) {
      const Shard& more = space.options[parts[p]].shards.run_of(i).first;
      sum.storage += more.storage;
      sum.perf += more.perf;
    }
    out.total_storage += sum.storage;
    out.total_perf += sum.perf.total();
    out.largest_perf = std::max(out.largest_perf, sum.perf.total());
    out.shards.push_back(sum);
  }
  return out;
}

void add_options(const SearchSpace& space, const std::vector<size_t>& group, Bundles& out) {
  std::vector<std::string> kernels;
  std::vector<Kind> kinds;
  for (const size_t table : group) {
    for (size_t i = space.first[table]; i < space.first[table + 1]; ++i) {
      const ShardingOption& o = space.options[i];
      if (std::find(kernels.begin(), kernels.end(), o.compute_kernel) == kernels.end()) {
        kernels.push_back(o.compute_kernel);
      }
      if (std::find(kinds.begin(), kinds.end(), kind_of(o)) == kinds.end()) kinds.push_back(kind_of(o));
    }
  }
  const size_t first = out.parts.size();
  for (const Kind& kind : kinds) {
    for (const std::string& kernel : kernels) {
      std::vector<size_t> parts;
      for (const size_t table : group) {
        if (const auto found = fastest(space, table, kind, kernel)) parts.push_back(*found);
      }
      const auto begin = out.parts.begin() + static_cast<std::ptrdiff_t>(first);
      if (parts.size() != group.size() || std::find(begin, out.parts.end(), parts) != out.parts.end()) continue;
      out.space.options.push_back(combined(space, parts));
      out.parts.push_back(std::move(parts));
    }
  }
  if (out.parts.size() > first) return;
  std::vector<std::string> names;
  for (const size_t table : group) names.push_back(space.options[space.first[table]].name);
  throw PlannerError(
      PlannerError::Kind::kNoOption,
      str_cat("tables ", list_text(names),
              " must be kept together, but no sharding gives all of them "
              "the same number of shards; allow all of them the same sharding types, or drop keep_together"));
}

}  // namespace

Bundles bundle(const SearchSpace& space) {
  std::vector<const std::vector<size_t>*> group_of(space.tables(), nullptr);
  for (const std::vector<size_t>& group : space.together) {
    for (const size_t table : group) group_of[table] = &group;
  }
  Bundles out;
  for (size_t table = 0; table < space.tables(); ++table) {
    if (group_of[table] != nullptr && group_of[table]->front() != table) continue;
    out.space.first.push_back(out.space.options.size());
    if (group_of[table] != nullptr) {
      out.tables.push_back(*group_of[table]);
      add_options(space, out.tables.back(), out);
      continue;
    }
    out.tables.push_back({table});
    for (size_t i = space.first[table]; i < space.first[table + 1]; ++i) {
      out.space.options.push_back(space.options[i]);
      out.parts.push_back({i});
    }
  }
  out.space.first.push_back(out.space.options.size());
  return out;
}

}  // namespace tessera

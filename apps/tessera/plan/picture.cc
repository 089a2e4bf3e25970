#include "plan/picture.h"

#include <algorithm>

#include "command.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

std::string count_of(size_t n, const char* noun) { return str_cat(n, " ", noun, n == 1 ? "" : "s"); }

// The plan as its file has it, with bytes and predicted time of each shard.
PageParts plan_with_costs(const PlanResult& result) {
  PageParts plan = PageParts::parse(result.plan.json());
  for (const size_t index : result.chosen) {
    const ShardingOption& option = result.space.options[index];
    for (PageParts& module : plan["modules"]) {
      if (module["path"] != option.path) continue;
      for (PageParts& table : module["tables"]) {
        if (table["name"] != option.name) continue;
        for (size_t i = 0; i < option.shards.size(); ++i) {
          table["shards"][i]["bytes"] = option.shards[i].storage.hbm + option.shards[i].storage.ddr;
          table["shards"][i]["us"] = 1000 * option.shards[i].perf.total();
        }
      }
    }
  }
  return plan;
}

}  // namespace

PageParts plan_page(const PlanResult& result) {
  const Topology& where = result.topology;
  double most = 0, slowest = 0;
  for (const Storage& s : result.rank_storage) most = std::max(most, static_cast<double>(s.hbm + s.ddr));
  for (const double ms : result.rank_perf) slowest = std::max(slowest, ms);
  const std::string ranks = count_of(static_cast<size_t>(where.world_size), "rank"),
                    hosts = count_of(static_cast<size_t>(where.hosts()), "host") + ", " + where.compute_device;
  PageParts facts = PageParts::array({{hosts, ranks}, {"in the plan", count_of(result.chosen.size(), "table")}});
  facts.push_back({"memory of the fullest rank", most, "bytes"});
  facts.push_back({"predicted time of the slowest rank", 1000 * slowest, "us"});
  return PageParts::array({{{"facts", facts}},
                           {{"plan", plan_with_costs(result)}},
                           {{"details", "The same as text"}, {"text", result.report()}}});
}

void write_picture(const std::string& path, const PlanResult& result) {
  if (!path.ends_with(".html")) throw UsageError("--picture " + path + ": the name must end with .html");
  write_page(path, "Sharding plan", plan_page(result));
}

}  // namespace tessera::cli

#include "planner/search.h"

#include <algorithm>

#include "tessera/error.h"

namespace tessera {

std::string describe(const ShardingOption& option, const PartitionFailure& failure) {
  const Storage& needed = option.shards.run_of(failure.shard).first.storage;
  std::string text = str_cat("shard ", failure.shard, " of table ", option.name, " (", option.sharding_type, ", ",
                             option.compute_kernel, ") needs ", needed.str());
  if (failure.rank < 0 || failure.missing == Storage{}) {
    return text + ", and no allowed ranks have room for all its shards";
  }
  const Storage& missing = failure.missing;
  return str_cat(text, ", and rank ", failure.rank, ", which comes closest, lacks ", missing.str(), " (",
                 std::max({missing.hbm, missing.ddr, missing.ssd}), " bytes)");
}

void SearchOutcome::note_failure(const SearchSpace& space, const std::vector<size_t>& options, std::string text) {
  Storage total;
  for (const size_t o : options) total += space.options[o].total_storage;
  if (!least || total < *least) least = total;
  failure = std::move(text);
}

}  // namespace tessera

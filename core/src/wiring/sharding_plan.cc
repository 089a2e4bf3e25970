#include "tessera/sharding.h"

namespace tessera {

std::vector<int> ParameterSharding::ranks() const {
  std::vector<int> out;
  out.reserve(shards.size());
  for (const ShardMetadata& s : shards) out.push_back(s.rank);
  return out;
}

std::vector<size_t> ParameterSharding::distinct() const {
  std::vector<size_t> out;
  bool seen = false;
  for (size_t s = 0; s < shards.size(); ++s) {
    if (is_replicated(s) && std::exchange(seen, true)) continue;
    out.push_back(s);
  }
  return out;
}

void EmbeddingModuleShardingPlan::add(const std::string& table, ParameterSharding sharding) {
  if (!index_.emplace(table, tables_.size()).second)
    fail(Code::kAlreadyExists, "table ", table, " is in the plan twice");
  tables_.emplace_back(table, std::move(sharding));
}

const ParameterSharding& EmbeddingModuleShardingPlan::at(const std::string& table) const {
  const auto known = index_.find(table);
  if (known == index_.end()) fail(Code::kNotFound, "the plan has no table named ", table);
  return tables_[known->second].second;
}

bool EmbeddingModuleShardingPlan::contains(const std::string& table) const { return index_.contains(table); }

const EmbeddingModuleShardingPlan& ShardingPlan::at(const std::string& path) const {
  for (const auto& [known, tables] : modules) {
    if (known == path) return tables;
  }
  fail(Code::kNotFound, "the plan has no module at \"", path, "\"");
}

}  // namespace tessera

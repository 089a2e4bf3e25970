#include <array>
#include <string_view>

#include "tessera/planner.h"

#include "config/fnv1a.h"

namespace tessera {

namespace {

// Adds the length after every text, so that neighbouring texts cannot be mistaken for other ones.
class Fingerprint {
 public:
  void add(std::string_view text) {
    state_ = fnv1a(text, state_);
    add(static_cast<int64_t>(text.size()));
  }
  void add(int64_t value) {
    std::array<char, 8> bytes;  // least significant first
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(static_cast<uint64_t>(value) >> 8 * i);
    state_ = fnv1a({bytes.data(), bytes.size()}, state_);
  }
  std::string text() const {
    std::string out(16, '0');
    uint64_t rest = state_;
    for (size_t i = out.size(); i-- > 0; rest >>= 4) out[i] = "0123456789abcdef"[rest & 15];
    return out;
  }

 private:
  uint64_t state_ = fnv1a("");
};

bool is_collection(const PlannerModule& module) { return module.kind != PlannerModule::Kind::kDense; }

// The numbers of rows and columns that the shards of a table cover.
std::pair<int64_t, int64_t> size_of(const ParameterSharding& sharding) {
  std::pair<int64_t, int64_t> out{0, 0};
  int64_t routed_rows = 0;
  for (const size_t i : sharding.distinct()) {
    const ShardMetadata& s = sharding.shards[i];
    out.first = std::max(out.first, s.row + s.rows);
    out.second = std::max(out.second, s.col + s.cols);
    if (s.col == sharding.shards.front().col) routed_rows += s.rows;
  }
  if (sharding.routed) out.first = routed_rows;
  return out;
}

const EmbeddingModuleShardingPlan* find(const ShardingPlan& plan, const std::string& path) {
  for (const auto& [known, tables] : plan.modules) {
    if (known == path) return &tables;
  }
  return nullptr;
}

void compare(const EmbeddingModuleShardingPlan& planned, const PlannerModule& module, std::string& out) {
  const auto here = [&](const std::string& table) {
    return str_cat("table ", table, " of module \"", module.path, "\"");
  };
  std::map<std::string, const EmbeddingBagConfig*> wanted;
  for (const EmbeddingBagConfig& table : module.tables) {
    wanted[table.name] = &table;
    if (!planned.contains(table.name)) {
      out += here(table.name) + ": the plan lacks it\n";
      continue;
    }
    const auto [rows, cols] = size_of(planned.at(table.name));
    if (rows == table.num_embeddings && cols == table.embedding_dim) continue;
    out += str_cat(here(table.name), ": the model has ", table.num_embeddings, " x ", table.embedding_dim,
                   ", the plan is for ", rows, " x ", cols, "\n");
  }
  for (const auto& [name, sharding] : planned.tables()) {
    if (!wanted.contains(name)) out += here(name) + ": the plan has it, but the model does not\n";
  }
}

}  // namespace

std::string model_hash(const std::vector<PlannerModule>& modules) {
  Fingerprint hash;
  for (const PlannerModule& m : modules) {
    if (!is_collection(m)) continue;
    hash.add(m.path);
    hash.add(static_cast<int64_t>(m.kind));
    for (const EmbeddingBagConfig& t : m.tables) {
      hash.add(t.name);
      hash.add(t.num_embeddings);
      hash.add(t.embedding_dim);
      hash.add(static_cast<int64_t>(t.data_type));
      if (t.row_format) hash.add(static_cast<int64_t>(*t.row_format));
      for (const std::string& f : t.feature_names) hash.add(f);
    }
  }
  return hash.text();
}

std::string plan_mismatch(const ShardingPlan& plan, const std::vector<PlannerModule>& modules) {
  std::string out;
  std::map<std::string, bool> known;
  for (const PlannerModule& m : modules) {
    if (!is_collection(m)) continue;
    known[m.path] = true;
    if (const EmbeddingModuleShardingPlan* planned = find(plan, m.path)) {
      compare(*planned, m, out);
    } else if (!m.tables.empty()) {
      out += str_cat("module \"", m.path, "\": the plan lacks it\n");
    }
  }
  for (const auto& [path, tables] : plan.modules) {
    if (!known.contains(path)) out += str_cat("module \"", path, "\": the plan has it, but the model does not\n");
  }
  if (out.empty() && !plan.model_hash.empty() && plan.model_hash != model_hash(modules)) {
    out =
        "sizes are the same, but data types, features or the order of tables are not; plan again, or take "
        "\"model_hash\" out of the plan to use it as it is\n";
  }
  return out;
}

}  // namespace tessera

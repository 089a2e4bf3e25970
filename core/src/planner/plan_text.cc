// A plan as text for people: TorchRec 1.9's tables, and the line of TorchRec's sharding tutorial.
#include <algorithm>
#include <functional>

#include "tessera/sharding.h"

namespace tessera {

namespace {

using Row = std::vector<std::string>;

// Joins columns by " | ", with centred headers, left-aligned cells, and no newline at the end. If a header needs an odd
// number of blanks, the extra one goes right in columns of even width and left in others, as in Python's str.center.
std::string tabulate(const Row& header, const std::vector<Row>& rows) {
  if (rows.empty()) return "\n";
  std::vector<size_t> width(header.size());
  for (size_t c = 0; c < header.size(); ++c) {
    width[c] = header[c].size();
    for (const Row& row : rows) width[c] = std::max(width[c], row[c].size());
  }
  const auto line = [&](const std::function<std::string(size_t)>& cell) {
    std::string text;
    for (size_t c = 0; c < header.size(); ++c) text += (c == 0 ? "" : " | ") + cell(c);
    return text;
  };
  std::string out = line([&](size_t c) {
    const size_t blanks = width[c] - header[c].size();
    const size_t left = blanks / 2 + (blanks & width[c] & 1);
    return std::string(left, ' ') + header[c] + std::string(blanks - left, ' ');
  });
  out += "\n" + line([&](size_t c) { return std::string(width[c], '-'); });
  for (const Row& row : rows) {
    out += "\n" + line([&](size_t c) { return row[c] + std::string(width[c] - row[c].size(), ' '); });
  }
  return out;
}

template <class T>
std::string bracketed(const std::vector<T>& items) {
  std::string out = "[";
  for (size_t i = 0; i < items.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(items[i]);
  return out + "]";
}

std::string pair_text(int64_t a, int64_t b) { return str_cat("[", a, ", ", b, "]"); }

// The shards that the texts show; TorchRec lists none for data-parallel tables.
const std::vector<ShardMetadata>& listed_shards(const ParameterSharding& sharding) {
  static const std::vector<ShardMetadata> kNone;
  return sharding.combine == ParameterSharding::Combine::kDataParallel ? kNone : sharding.shards;
}

// The name that a kernel had when the tutorial was written.
std::string old_kernel_name(const std::string& kernel) { return "batched_" + kernel; }

std::string quoted(const std::string& text) { return "'" + text + "'"; }

}  // namespace

std::string ShardingPlan::placement(int rank) const {
  const std::string device =
      compute_device == "cpu" ? compute_device : str_cat(compute_device, ":", rank % local_world_size);
  return str_cat("rank:", rank, "/", device);
}

std::string ShardingPlan::str() const {
  std::string out;
  for (const auto& [path, module] : modules) {
    std::vector<Row> parameters;
    std::vector<Row> shards;
    for (const auto& [name, sharding] : module.tables()) {
      parameters.push_back({name, sharding.sharding_type, sharding.compute_kernel, bracketed(sharding.ranks())});
      for (const ShardMetadata& s : listed_shards(sharding)) {
        shards.push_back({name, pair_text(s.row, s.col), pair_text(s.rows, s.cols), placement(s.rank)});
      }
    }
    out += (out.empty() ? "" : "\n\n") + ("module: " + path) + "\n\n" +
           tabulate({"param", "sharding type", "compute kernel", "ranks"}, parameters) + "\n\n" +
           tabulate({"param", "shard offsets", "shard sizes", "placement"}, shards);
  }
  return out;
}

std::string ShardingPlan::tutorial(const std::string& path) const {
  std::string out = "{" + quoted(path) + ": {";
  bool first_table = true;
  for (const auto& [name, sharding] : at(path).tables()) {
    out += str_cat(first_table ? "" : ", ", quoted(name),
                   ": ParameterSharding(sharding_type=", quoted(sharding.sharding_type),
                   ", compute_kernel=", quoted(old_kernel_name(sharding.compute_kernel)),
                   ", ranks=", bracketed(sharding.ranks()), ", sharding_spec=");
    first_table = false;
    const std::vector<ShardMetadata>& shards = listed_shards(sharding);
    std::string spec;
    for (const ShardMetadata& s : shards) {
      spec += str_cat(spec.empty() ? "" : ", ", "ShardMetadata(shard_offsets=", pair_text(s.row, s.col),
                      ", shard_sizes=", pair_text(s.rows, s.cols), ", placement=", placement(s.rank), ")");
    }
    out += shards.empty() ? "None)" : "EnumerableShardingSpec(shards=[" + spec + "]))";
  }
  return out + "}}";
}

}  // namespace tessera

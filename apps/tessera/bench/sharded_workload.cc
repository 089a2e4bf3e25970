#include "bench/sharded_workload.h"

#include <algorithm>
#include <set>

#include "options.h"
#include "tessera/sdk/random.h"

namespace tessera::cli {
namespace po = boost::program_options;

namespace {

// Distinct values of the 26 categorical columns of the Criteo Display Advertising Challenge (Kaggle, 2014).
constexpr int64_t kCriteoRows[] = {1460,  583,  10131227, 2202608, 305, 24,     12517,   633,   3,
                                   93145, 5683, 8351593,  3194,    27,  14992,  5461306, 10,    5652,
                                   2173,  4,    7046547,  18,      15,  286181, 105,     142572};

std::vector<int64_t> rows_of(const ShardedWorkload& w) {
  const bool criteo = w.rows.starts_with("criteo:");
  const int64_t n = integer_list("--rows", criteo ? w.rows.substr(7) : w.rows, 1).front();
  if (!criteo) return std::vector<int64_t>(w.tables, n);
  std::vector<int64_t> rows(std::begin(kCriteoRows), std::end(kCriteoRows));
  for (int64_t& r : rows) r = std::min(r, n);
  return rows;
}

// Tables that do not use all ranks take turns: those on one rank by rank, the others by host.
void take_turn(ParameterSharding& cut, size_t turn, const Topology& topology) {
  const auto world = static_cast<size_t>(topology.world_size);
  if (cut.shards.size() == 1) {
    cut.shards[0].rank = static_cast<int>(turn % world);
    return;
  }
  std::set<int> used;
  for (const ShardMetadata& s : cut.shards) used.insert(s.rank);
  if (used.size() == world) return;
  const int first = static_cast<int>(turn % static_cast<size_t>(topology.hosts())) * topology.local_world_size;
  for (ShardMetadata& s : cut.shards) s.rank = (s.rank + first) % topology.world_size;
}

}  // namespace

bool parse(Options& options, const std::vector<std::string>& args, ShardedBench* b) {
  ShardedWorkload& w = b->workload;
  auto add = options.add_options();
  add("nproc", po::value(&b->nproc),
      "number of ranks to start, one process each (default: 1, or the launcher's "
      "ranks)");
  add("tables", po::value(&w.tables)->default_value(w.tables), "number of tables");
  add("rows", po::value(&w.rows)->default_value(w.rows), "rows of each table, or criteo:CAP");
  add("dim", po::value(&b->dims)->default_value(b->dims), "columns of each table");
  add("batch", po::value(&b->batches)->default_value(b->batches), "samples per rank");
  add("pooling", po::value(&w.pooling)->default_value(w.pooling), "ids per bag");
  add("sharding", po::value(&w.sharding)->default_value(w.sharding), "id of the sharder for all tables");
  add("kernel", po::value(&b->kernel)->default_value(b->kernel), "kernel plugin");
  add("backend", po::value(&b->backend)->default_value(b->backend), "collective plugin");
  add("steps", po::value(&b->steps_per_round)->default_value(b->steps_per_round),
      "steps per round. --dim, --batch, --backend, --sharding and --kernel take several values, separated by "
      "commas, and all combinations are compared");
  if (!parse(options, args, &b->common)) return false;
  require_range({{"--tables", w.tables}, {"--pooling", w.pooling}, {"--steps", b->steps_per_round}});
  b->nproc = bench_ranks(b->nproc, 1);
  workload_tables(w);      // throws for invalid --rows here instead of in every rank
  (void)alternatives(*b);  // throws for lists with an empty item
  return true;
}

std::vector<ShardedBench> alternatives(const ShardedBench& b) {
  std::vector<ShardedBench> all{b};
  const auto choose = [&](const auto& from, const auto& apply) {
    std::vector<ShardedBench> chosen;
    for (const ShardedBench& one : all) {
      for (const auto& value : from) apply(chosen.emplace_back(one), value);
    }
    all = std::move(chosen);
  };
  choose(integer_list("--dim", b.dims, 1), [](ShardedBench& one, int64_t dim) { one.workload.dim = dim; });
  choose(integer_list("--batch", b.batches, 1), [](ShardedBench& one, int64_t batch) { one.workload.batch = batch; });
  choose(text_list("--backend", b.backend), [](ShardedBench& one, const std::string& id) { one.backend = id; });
  choose(text_list("--sharding", b.workload.sharding),
         [](ShardedBench& one, const std::string& id) { one.workload.sharding = id; });
  choose(text_list("--kernel", b.kernel), [](ShardedBench& one, const std::string& id) { one.kernel = id; });
  return all;
}

std::vector<EmbeddingBagConfig> workload_tables(const ShardedWorkload& w) {
  std::vector<EmbeddingBagConfig> tables;
  for (int64_t rows : rows_of(w)) {
    EmbeddingBagConfig t;
    t.name = str_cat("t", tables.size());
    t.num_embeddings = rows;
    t.embedding_dim = w.dim;
    t.feature_names = {str_cat("f", tables.size())};
    tables.push_back(std::move(t));
  }
  return tables;
}

EmbeddingModuleShardingPlan workload_plan(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables,
                                          const std::string& sharding, const Topology& topology,
                                          int64_t min_partition) {
  EmbeddingModuleShardingPlan plan;
  for (size_t t = 0; t < tables.size(); ++t) {
    ShardingRequest request{.sharding_type = sharding, .min_partition = min_partition};
    ParameterSharding cut = make_sharding(runtime, tables[t], request, topology);
    take_turn(cut, t, topology);
    plan.add(tables[t].name, std::move(cut));
  }
  return plan;
}

std::vector<KeyedJaggedTensor> workload_batches(const std::vector<EmbeddingBagConfig>& tables, const ShardedWorkload& w,
                                                int rank, int count) {
  std::vector<KeyedJaggedTensor> batches;
  sdk::Random random(100 + static_cast<uint64_t>(rank));
  const auto features = static_cast<int64_t>(tables.size());
  for (int i = 0; i < count; ++i) {
    Tensor ids = Tensor::empty({features * w.batch * w.pooling}, DType::kInt64);
    Tensor lengths = Tensor::empty({features * w.batch}, DType::kInt32);
    lengths.fill(static_cast<double>(w.pooling));
    int64_t* to = ids.data<int64_t>();
    std::vector<std::string> keys;
    for (const EmbeddingBagConfig& t : tables) {
      keys.push_back(t.feature_names[0]);
      for (int64_t k = 0; k < w.batch * w.pooling; ++k) {
        *to++ = static_cast<int64_t>(random.uniform() * static_cast<double>(t.num_embeddings));
      }
    }
    batches.push_back(KeyedJaggedTensor::from_lengths_sync(std::move(keys), ids, lengths));
  }
  return batches;
}

}  // namespace tessera::cli

#include "tessera/distributed_model_parallel.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <sstream>
#include <stop_token>

#include "config/fnv1a.h"
#include "distributed/gradient_buckets.h"
#include "planner/rank_rules.h"
#include "wiring/expected_step.h"

namespace tessera {
namespace {

// Pauses between two signs of life from a rank that plans. The first is short, because a short plan is sent at once.
constexpr std::chrono::milliseconds kFirstSign{2}, kSigns{250};

std::string describe(const PlannerModule& module) {
  std::ostringstream out;
  const bool sequence = module.kind == PlannerModule::Kind::kEmbeddingCollection;
  for (const EmbeddingBagConfig& t : module.tables) {
    out << "table \"" << t.name << "\" of module \"" << module.path << "\": " << t.num_embeddings << " x "
        << t.embedding_dim << ' ' << to_string(t.data_type) << ' ' << (sequence ? "sequence" : to_string(t.pooling))
        << ", features";
    for (const std::string& f : t.feature_names) out << ' ' << f;
    out << (t.use_index_dedup ? ", repeated rows once\n" : "\n");
  }
  if (module.kind == PlannerModule::Kind::kDense)
    out << "dense parameters of module \"" << module.path << "\": " << module.dense_bytes << " bytes\n";
  return out.str();
}

template <class T>
void describe(std::ostringstream& out, const char* name, const std::vector<T>& values, const std::vector<T>& usual) {
  if (values == usual) return;
  out << ' ' << name;
  for (const T& v : values) out << ' ' << v;
  out << ';';
}

// Describes only the constraints that are set.
std::string describe(const std::string& table, const ParameterConstraints& c) {
  const ParameterConstraints usual;
  std::ostringstream out;
  out.precision(17);
  out << "constraints of table \"" << table << "\":";
  describe(out, "sharding_types", c.sharding_types, usual.sharding_types);
  describe(out, "compute_kernels", c.compute_kernels, usual.compute_kernels);
  describe(out, "min_partition", std::vector{c.min_partition}, {usual.min_partition});
  describe(out, "max_shards", std::vector{c.max_shards}, {usual.max_shards});
  describe(out, "ranks", c.ranks, usual.ranks);
  describe(out, "forbidden_ranks", c.forbidden_ranks, usual.forbidden_ranks);
  describe(out, "keep_together", std::vector{c.keep_together}, {usual.keep_together});
  describe(out, "keep_apart", c.keep_apart, usual.keep_apart);
  describe(out, "pooling_factors", c.pooling_factors, usual.pooling_factors);
  describe(out, "num_poolings", c.num_poolings, usual.num_poolings);
  describe(out, "batch_sizes", c.batch_sizes, usual.batch_sizes);
  describe(out, "zipf_exponent", std::vector{c.zipf_exponent}, {usual.zipf_exponent});
  if (c.is_weighted) out << " weighted;";
  out << '\n';
  return out.str();
}

// Leaves out memory, because machines may differ in it and only rank 0's counts.
std::string describe(const std::vector<PlannerModule>& modules, const PlannerOptions& options) {
  std::string text = str_cat(
      "world size ", options.topology.world_size, ", ", options.topology.local_world_size, " per host, ",
      options.topology.compute_device, "\nbatch size ", options.batch_size, "\nsearch ",
      static_cast<int>(options.search), options.torchrec_limits ? " within TorchRec's limits" : "", "\ncost model ",
      options.cost_model, ", estimates of kernel ", options.kernel, ", time limit ", options.time_limit_s,
      " s\nbytes of 4096 floats in rows of 64 ", bytes_on_wire(options.wire, false, 4096, 64), ", of gradients ",
      bytes_on_wire(options.wire, true, 4096, 64), "\nstorage reservation of kind ",
      static_cast<int>(options.storage_reservation.kind), ", ", options.storage_reservation.percentage, '\n');
  for (const PlannerModule& m : modules) {
    text += describe(m);
    for (const EmbeddingBagConfig& t : m.tables) {
      const auto c = options.constraints.find(t.name);
      if (c != options.constraints.end()) text += describe(t.name, c->second);
    }
  }
  return text;
}

// Throws an error with the first line in which two descriptions differ.
void check_same(const std::string& mine, const std::string& theirs, int rank) {
  if (mine == theirs) return;
  std::istringstream a(mine), b(theirs);
  std::string x, y;
  while (true) {
    const bool has_x = static_cast<bool>(std::getline(a, x)), has_y = static_cast<bool>(std::getline(b, y));
    if (has_x && has_y && x == y) continue;
    throw Error(Code::kFailedPrecondition,
                str_cat("rank ", rank, " plans another model than rank 0: rank 0 has ", has_x ? x : "nothing more",
                        ", rank ", rank, " has ", has_y ? y : "nothing more"),
                rank);
  }
}

std::vector<PlannerModule> planner_modules(const ParallelModel& model) {
  std::vector<PlannerModule> modules;
  for (const auto& [path, c] : model.bag_collections)
    modules.push_back({path, PlannerModule::Kind::kEmbeddingBagCollection, c->tables(), 0});
  for (const auto& [path, c] : model.collections)
    modules.push_back({path, PlannerModule::Kind::kEmbeddingCollection, c->tables(), 0});
  int64_t bytes = 0;
  for (const ParameterPtr& p : model.dense) bytes += p->value.bytes();
  if (bytes && !modules.empty() && !modules.front().path.empty())
    modules.push_back({"dense", PlannerModule::Kind::kDense, {}, bytes});
  return modules;
}

ShardedModuleOptions options_for(const ShardedModuleOptions& common, const CollectionOptions& own) {
  ShardedModuleOptions options = common;
  if (!own.optimizer.name.empty()) options.optimizer = own.optimizer;
  if (own.kernel != "auto") options.kernel = own.kernel;
  if (own.bounds_check != BoundsCheckMode::kFatal) options.bounds_check = own.bounds_check;
  if (own.seed) options.seed = own.seed;
  options.is_weighted = own.is_weighted;
  return options;
}

template <class Map>
auto& find_path(Map& map, const std::string& path) {
  std::string known;
  for (auto& [name, value] : map) {
    if (name == path) return *value;
    known += " \"" + name + "\"";
  }
  fail(Code::kNotFound, "the model has no such collection \"", path, "\"; it has", known.empty() ? " none" : known);
}

// Returns the plan as text, or "!code" and the reason why there is none.
std::string plan_text(const Runtime& runtime, const std::vector<PlannerModule>& modules,
                      const PlannerOptions& options) {
  try {
    return EmbeddingShardingPlanner(runtime, options).plan(modules).plan.json();
  } catch (const Error& e) {
    return str_cat("!", static_cast<int>(e.code()), " ", e.what());
  } catch (const std::exception& e) {
    return str_cat("!", static_cast<int>(Code::kInternal), " ", e.what());
  }
}

// Rank 0 plans in another thread, and meanwhile tells the others that it is alive. So a plan may take longer than the
// deadline of an exchange, and a lost rank is still noticed.
std::string plan_of_rank_0(const Runtime& runtime, const std::vector<PlannerModule>& modules, PlannerOptions options,
                           const ProcessGroup& group) {
  if (group.world_size() == 1) return plan_text(runtime, modules, options);
  std::string text;
  if (group.rank() != 0) {
    while (text.empty()) text = group.all_gather_text("", "plan")[0];
    return text;
  }
  std::stop_source stop;  // stops a search whose result nobody needs any more
  const std::stop_callback from_caller(options.stop, [&] { stop.request_stop(); });
  options.stop = stop.get_token();
  std::future<std::string> plan = std::async(std::launch::async, [&] { return plan_text(runtime, modules, options); });
  try {
    for (auto pause = kFirstSign; plan.wait_for(pause) != std::future_status::ready;
         pause = std::min(pause * 2, kSigns))
      group.all_gather_text("", "plan");
    text = plan.get();
    group.all_gather_text(text, "plan");
  } catch (...) {
    stop.request_stop();
    throw;
  }
  return text;
}

// Checks that all ranks have the same plan. With different plans they would wait for each other in different
// operations.
void check_same_plan(const ShardingPlan& plan, const ProcessGroup& group) {
  const std::vector<uint64_t> digests = group.all_gather(fnv1a(plan.json()), "given plan");
  for (int rank = 1; rank < group.world_size(); ++rank) {
    if (digests[rank] == digests[0]) continue;
    throw Error(Code::kFailedPrecondition,
                str_cat("rank ", rank, " has another plan than rank 0: all ranks need the same one"), rank);
  }
}

}  // namespace

ShardingPlan collective_plan(const Runtime& runtime, const std::vector<PlannerModule>& modules,
                             const PlannerOptions& options, const ProcessGroup& group) {
  const std::string mine = describe(modules, options);
  const std::vector<uint64_t> digests = group.all_gather(fnv1a(mine), "what to plan");
  if (std::count(digests.begin(), digests.end(), digests[0]) != std::ssize(digests)) {
    const auto all = group.all_gather_text(mine, "what to plan");
    for (int rank = 1; rank < group.world_size(); ++rank) check_same(all[0], all[rank], rank);
  }
  const std::string text = plan_of_rank_0(runtime, modules, options, group);
  if (text.starts_with("!")) throw Error(static_cast<Code>(std::stoi(text.substr(1))), text.substr(text.find(' ') + 1));
  return ShardingPlan::from_json(text);
}

DistributedModelParallel::DistributedModelParallel(const Runtime& runtime, const ParallelModel& model,
                                                   std::shared_ptr<ProcessGroup> group,
                                                   DistributedModelParallelOptions options)
    : group_(std::move(group)), dense_(model.dense), buffers_(model.buffers), sum_(options.sum_dense_gradients) {
  if (options.plan) {
    plan_ = *options.plan;
    check_same_plan(plan_, *group_);
    if (plan_.world_size != group_->world_size()) {
      fail(Code::kInvalidArgument, "the plan is for ", plan_.world_size, " ranks, but this job has ",
           group_->world_size(), ": make a new plan, or start as many ranks");
    }
    const std::string mismatch = plan_mismatch(plan_, planner_modules(model));
    if (!mismatch.empty()) fail(Code::kInvalidArgument, "the plan was made for another model:\n", mismatch);
    if (options.planner) {
      const std::string broken = broken_constraints(plan_, planner_modules(model), options.planner->constraints);
      if (!broken.empty()) fail(Code::kInvalidArgument, "the plan breaks the tables' constraints:\n", broken);
    }
  } else {
    PlannerOptions planner = options.planner.value_or(PlannerOptions{});
    if (!options.planner) {
      planner.topology =
          Topology::of(group_->world_size(), group_->local_world_size(), compute_device(options.sharded.stream));
    }
    plan_ = collective_plan(runtime, planner_modules(model), planner, *group_);
  }
  for (const auto& [path, c] : model.bag_collections) {
    const EmbeddingBagCollectionSharder sharder(runtime, options_for(options.sharded, c->options()));
    bags_.emplace_back(
        path, std::make_unique<ShardedEmbeddingBagCollection>(sharder.shard(c->tables(), plan_.at(path), group_)));
  }
  for (const auto& [path, c] : model.collections) {
    ShardedModuleOptions sharded = options_for(options.sharded, c->options());
    sharded.need_indices = c->options().need_indices;
    const EmbeddingCollectionSharder sharder(runtime, sharded);
    collections_.emplace_back(
        path, std::make_unique<ShardedEmbeddingCollection>(sharder.shard(c->tables(), plan_.at(path), group_)));
  }
  const BucketOptions buckets{static_cast<int64_t>(options.bucket_mib * (1 << 20)), options.round_dense_gradients};
  gradients_ = std::make_unique<GradientBuckets>(dense_, group_, buckets);
  broadcast_dense();
}

DistributedModelParallel::DistributedModelParallel(DistributedModelParallel&&) noexcept = default;
DistributedModelParallel& DistributedModelParallel::operator=(DistributedModelParallel&&) noexcept = default;
DistributedModelParallel::~DistributedModelParallel() = default;

ShardedEmbeddingBagCollection& DistributedModelParallel::bags(const std::string& path) {
  return find_path(bags_, path);
}
ShardedEmbeddingCollection& DistributedModelParallel::collection(const std::string& path) {
  return find_path(collections_, path);
}

std::vector<std::pair<std::string, ShardedEmbeddings*>> DistributedModelParallel::sharded() {
  std::vector<std::pair<std::string, ShardedEmbeddings*>> out;
  for (auto& [path, c] : bags_) out.emplace_back(path, c.get());
  for (auto& [path, c] : collections_) out.emplace_back(path, c.get());
  return out;
}

ParameterList DistributedModelParallel::parameters() const {
  ParameterList out = dense_;
  const auto add = [&](const std::string& path, const ShardedEmbeddings& c) {
    const auto keys = c.state_dict_keys();
    for (size_t i = 0; i < keys.size(); ++i) {
      const EmbeddingBagConfig& t = c.tables()[i];
      auto p = std::make_shared<Parameter>();
      p->name = str_cat(path, path.empty() ? "" : ".", keys[i]);
      p->value = Tensor::empty({t.num_embeddings, t.embedding_dim}, t.data_type, kMeta);
      p->in_backward = true;
      out.push_back(std::move(p));
    }
  };
  for (const auto& [path, c] : bags_) add(path, *c);
  for (const auto& [path, c] : collections_) add(path, *c);
  return out;
}

KeyedOptimizerPtr DistributedModelParallel::fused_optimizer() {
  std::vector<CombinedOptimizer::Member> members;
  for (auto& [path, c] : bags_) members.push_back({path, c->fused_optimizer()});
  for (auto& [path, c] : collections_) members.push_back({path, c->fused_optimizer()});
  return std::make_shared<CombinedOptimizer>(std::move(members));
}

void DistributedModelParallel::broadcast_dense() {
  if (group_->world_size() == 1) return;
  for (size_t i = 0; i < dense_.size(); ++i) group_->broadcast(dense_[i]->value, 0, {"dense parameters", i}).wait();
  for (size_t i = 0; i < buffers_.size(); ++i) group_->broadcast(buffers_[i]->value, 0, {"dense buffers", i}).wait();
}

void DistributedModelParallel::gradients_finished(const ParameterList& parameters) { gradients_->finished(parameters); }
void DistributedModelParallel::gradients_finished() { gradients_->all_finished(); }

void DistributedModelParallel::all_reduce_gradients() {
  gradients_->all_reduce(sum_ ? 1.0f : 1.0f / static_cast<float>(group_->world_size()));
}

}  // namespace tessera

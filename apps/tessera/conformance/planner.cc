// Areas "plans" (whole plans and errors) and "planner" (the figures they are based on): tests/conformance/SHARDING.md.
#include "tessera/planner.h"

#include <cmath>

#include "conformance/runner.h"
#include "planner/greedy/partitioner.h"
#include "planner/reservation.h"
#include "planner/search_space.h"

namespace tessera::cli {
namespace {

EmbeddingBagConfig planned_table(const json& value, bool pooled) {
  EmbeddingBagConfig t;
  t.name = value.at("name");
  t.num_embeddings = value.at("num_embeddings");
  t.embedding_dim = value.at("embedding_dim");
  t.feature_names = value.at("feature_names").get<std::vector<std::string>>();
  t.data_type = dtype_from(value.at("data_type").get<std::string>());
  t.pooling = pooled ? PoolingType::kSum : PoolingType::kNone;
  return t;
}

PlannerModule module_from(const json& value) {
  PlannerModule m{.path = value.at("path")};
  const std::string& kind = value.at("class").get_ref<const std::string&>();
  if (kind == "Linear") {
    m.kind = PlannerModule::Kind::kDense;
    const auto in = value.at("in").get<int64_t>(), out = value.at("out").get<int64_t>();
    m.dense_bytes = (in * out + out) * static_cast<int64_t>(sizeof(float));
    return m;
  }
  if (kind != "EmbeddingBagCollection" && kind != "EmbeddingCollection") {
    throw SkipCase{"module class " + kind + " is not known"};
  }
  const bool pooled = kind == "EmbeddingBagCollection";
  m.kind = pooled ? PlannerModule::Kind::kEmbeddingBagCollection : PlannerModule::Kind::kEmbeddingCollection;
  for (const json& t : value.at("tables")) m.tables.push_back(planned_table(t, pooled));
  if (pooled) m.is_weighted = value.at("is_weighted").get<bool>();
  return m;
}

Topology topology_from(const json& value) {
  Topology t;
  const ComputeDevice device = ComputeDevice::named(value.at("compute_device"));
  t.world_size = value.at("world_size");
  t.local_world_size = value.at("local_world_size");
  t.compute_device = device.id;
  t.device_type = device.type;
  t.hbm_cap = value.at("hbm_cap");
  t.ddr_cap = value.value("ddr_cap", t.ddr_cap);
  t.ssd_cap = value.value("ssd_cap", t.ssd_cap);
  t.hbm_mem_bw = value.value("hbm_mem_bw", t.hbm_mem_bw);
  t.ddr_mem_bw = value.value("ddr_mem_bw", t.ddr_mem_bw);
  t.ssd_mem_bw = value.value("ssd_mem_bw", t.ssd_mem_bw);
  t.hbm_to_ddr_mem_bw = value.value("hbm_to_ddr_mem_bw", t.hbm_to_ddr_mem_bw);
  t.intra_host_bw = value.value("intra_host_bw", t.intra_host_bw);
  t.inter_host_bw = value.value("inter_host_bw", t.inter_host_bw);
  t.bwd_compute_multiplier = value.value("bwd_compute_multiplier", t.bwd_compute_multiplier);
  t.weighted_feature_bwd_compute_multiplier =
      value.value("weighted_feature_bwd_compute_multiplier", t.weighted_feature_bwd_compute_multiplier);
  return t;
}

template <class T>
void read(const json& object, const char* key, T& out) {
  if (const auto found = object.find(key); found != object.end() && !found->is_null()) out = found->get<T>();
}

ParameterConstraints constraints_from(const json& value) {
  ParameterConstraints c;
  read(value, "sharding_types", c.sharding_types);
  read(value, "compute_kernels", c.compute_kernels);
  read(value, "min_partition", c.min_partition);
  read(value, "pooling_factors", c.pooling_factors);
  read(value, "num_poolings", c.num_poolings);
  read(value, "batch_sizes", c.batch_sizes);
  read(value, "is_weighted", c.is_weighted);
  return c;
}

struct Problem {
  std::vector<PlannerModule> modules;
  PlannerOptions options;
};

Problem problem_from(const json& given) {
  Problem p;
  for (const json& m : given.at("modules")) p.modules.push_back(module_from(m));
  p.options.topology = topology_from(given.at("topology"));
  p.options.torchrec_limits = true;
  p.options.search = PlannerSearch::kTorchrec;
  p.options.time_limit_s = 0;
  p.options.cost_model = "torchrec";
  read(given, "batch_size", p.options.batch_size);
  if (p.options.batch_size == 0)
    p.options.batch_size = PlannerOptions{}.batch_size;  // TorchRec treats this as not given
  if (const auto found = given.find("constraints"); found != given.end() && found->is_object()) {
    for (const auto& [name, value] : found->items()) p.options.constraints[name] = constraints_from(value);
  }
  if (const auto found = given.find("storage_reservation"); found != given.end() && found->is_object()) {
    const bool fixed = found->at("kind") == "fixed_percentage";
    p.options.storage_reservation = {
        fixed ? StorageReservation::Kind::kFixedPercentage : StorageReservation::Kind::kHeuristical,
        found->at("percentage").get<double>()};
  }
  return p;
}

// Compares numbers of a case with the relative tolerance that it states.
class Numbers {
 public:
  Numbers(CaseContext& c, const char* key) : check_(c.check), rel_(c.tolerance.value(key, 0.0)) {}
  void compare(const std::string& field, const json& want, double got) const {
    if (want.is_null()) return check_.equal(field, want, json(got));
    const double w = want.get<double>();
    check_.number(field, w, std::fabs(got - w) <= rel_ * std::fabs(w) ? w : got);
  }

 private:
  Checker& check_;
  double rel_;
};

json shards_json(const ShardingPlan& plan, const ParameterSharding& sharding) {
  if (sharding.combine == ParameterSharding::Combine::kDataParallel) return nullptr;
  json out = json::array();
  for (const ShardMetadata& s : sharding.shards) {
    out.push_back({{"sizes", {s.rows, s.cols}}, {"offsets", {s.row, s.col}}, {"placement", plan.placement(s.rank)}});
  }
  return out;
}

json plan_json(const ShardingPlan& plan) {
  json out = json::object();
  for (const auto& [path, module] : plan.modules) {
    json& tables = out[path] = json::object();
    for (const auto& [name, sharding] : module.tables()) {
      tables[name] = {{"sharding_type", sharding.sharding_type},
                      {"compute_kernel", sharding.compute_kernel},
                      {"ranks", sharding.ranks()},
                      {"shards", shards_json(plan, sharding)}};
    }
  }
  return out;
}

json storage_json(const Storage& s) { return {{"hbm", s.hbm}, {"ddr", s.ddr}, {"ssd", s.ssd}}; }

// The members of `got` that `want` also has.
json same_members(const json& want, const json& got) {
  if (!want.is_object()) return got;
  json out = json::object();
  for (const auto& [key, value] : want.items()) {
    if (got.contains(key)) out[key] = got[key];
  }
  return out;
}

void check_error(CaseContext& c) {
  const json& want = c.expect.at("error");
  try {
    const Problem problem = problem_from(c.given);
    (void)EmbeddingShardingPlanner(c.runtime, problem.options).plan(problem.modules);
    c.check.fail("error", "a plan was made");
  } catch (const PlannerError& e) {
    c.check.equal("error.class", want.at("class"), e.torchrec_class());
    if (want.contains("error_type")) c.check.equal("error.error_type", want["error_type"], e.error_type());
    if (c.expect.contains("num_proposals")) {
      c.check.equal("num_proposals", c.expect["num_proposals"], e.num_proposals());
    }
  }
}

void run_plan(CaseContext& c) {
  if (c.expect.contains("error")) return check_error(c);
  const Problem problem = problem_from(c.given);
  const PlanResult result = EmbeddingShardingPlanner(c.runtime, problem.options).plan(problem.modules);
  const Numbers numbers(c, "perf_rating_rel");
  for (const auto& [field, want] : c.expect.items()) {
    if (field == "plan") {
      c.check.equal(field, want, plan_json(result.plan));
      c.check.equal("plan, read back", plan_json(result.plan), plan_json(ShardingPlan::from_json(result.plan.json())));
    } else if (field == "perf_rating") {
      if (want.is_null() || !result.perf_rating) {
        c.check.equal(field, want, result.perf_rating ? json(*result.perf_rating) : json());
      } else {
        numbers.compare(field, want, *result.perf_rating);
      }
    } else if (field == "num_proposals") {
      c.check.equal(field, want, result.num_proposals);
    } else if (field == "num_plans") {
      c.check.equal(field, want, result.num_plans);
    } else if (field == "printed") {
      c.check.equal(field, want, result.plan.str());
    } else if (field == "tutorial_printed") {
      c.check.equal(field, want, result.plan.tutorial(problem.modules.at(0).path));
    } else if (field == "rank_perf" || field == "rank_storage") {
      c.check.equal(field + ", length", want.size(), result.rank_perf.size());
      for (size_t r = 0; r < std::min(want.size(), result.rank_perf.size()); ++r) {
        const std::string here = str_cat(field, "[", r, "]");
        if (field == "rank_perf") {
          numbers.compare(here, want[r], result.rank_perf[r]);
        } else {
          c.check.equal(here, want[r], same_members(want[r], storage_json(result.rank_storage[r])));
        }
      }
    }
  }
}

void check_shard(CaseContext& c, const Numbers& numbers, const std::string& here, const json& want, const Shard& got) {
  c.check.equal(here + ".size", want.at("size"), json{got.rows, got.cols});
  c.check.equal(here + ".offset", want.at("offset"), json{got.row, got.col});
  c.check.equal(here + ".storage", want.at("storage"), storage_json(got.storage));
  const std::map<std::string, double> times{{"fwd_compute", got.perf.fwd_compute},
                                            {"fwd_comms", got.perf.fwd_comms},
                                            {"bwd_compute", got.perf.bwd_compute},
                                            {"bwd_comms", got.perf.bwd_comms},
                                            {"prefetch_compute", got.perf.prefetch_compute},
                                            {"input_dist_comms", got.perf.input_dist_comms},
                                            {"total", got.perf.total()}};
  for (const auto& [name, value] : want.at("perf").items()) {
    const auto found = times.find(name);
    if (found == times.end()) {
      c.check.fail(here + ".perf." + name, "no such time");
    } else {
      numbers.compare(here + ".perf." + name, value, found->second);
    }
  }
}

void check_option(CaseContext& c, const Numbers& numbers, const json& want, const ShardingOption& got) {
  const std::string here = str_cat("option ", got.name, " ", got.sharding_type, " ", got.compute_kernel);
  const json head{{"path", got.path},
                  {"name", got.name},
                  {"sharding_type", got.sharding_type},
                  {"compute_kernel", got.compute_kernel},
                  {"partition_by", got.partition_by()},
                  {"input_lengths", got.input_lengths},
                  {"num_shards", got.shards.size()},
                  {"is_pooled", got.is_pooled},
                  {"is_weighted", got.is_weighted},
                  {"total_storage", storage_json(got.total_storage)}};
  for (const auto& [field, value] : want.items()) {
    if (field == "total_perf") {
      numbers.compare(here + ".total_perf", value, got.total_perf);
    } else if (field == "shards") {
      c.check.equal(here + ".shards, length", value.size(), got.shards.size());
      for (size_t i = 0; i < std::min(value.size(), got.shards.size()); ++i) {
        check_shard(c, numbers, str_cat(here, ".shards[", i, "]"), value[i], got.shards[i]);
      }
    } else {
      c.check.equal(here + "." + field, value, head.value(field, json()));
    }
  }
}

void check_reservation(CaseContext& c, const ReservedStorage& got) {
  const json& want = c.expect.at("reservation");
  for (const json& available : want.at("per_rank_available")) {
    c.check.equal("reservation.per_rank_available", available, storage_json(got.available));
  }
  c.check.equal("reservation.kjt", want.at("kjt"), storage_json(got.kjt));
  c.check.equal("reservation.dense", want.at("dense"), got.dense ? storage_json(*got.dense) : json());
}

void check_partition(CaseContext& c, const Numbers& numbers, const SearchSpace& space, const Topology& topology,
                     const Storage& available) {
  std::vector<const ShardingOption*> proposal;
  for (const json& wanted : c.given.at("proposal")) {
    for (const ShardingOption& o : space.options) {
      const auto is = [&](const char* key, const std::string& text) {
        return wanted.at(key).get<std::string>() == text;
      };
      if (is("path", o.path) && is("name", o.name) && is("sharding_type", o.sharding_type) &&
          is("compute_kernel", o.compute_kernel)) {
        proposal.push_back(&o);
        break;
      }
    }
  }
  c.check.equal("proposal, found", c.given.at("proposal").size(), proposal.size());
  const json& want = c.expect.at("partition");
  const greedy::Partition got = greedy::partition(proposal, topology, available);
  if (want.contains("error") || got.failure) {
    c.check.equal("partition.error", want.contains("error"), got.failure.has_value());
    return;
  }
  c.check.equal("partition.ranks", want.at("ranks"), got.ranks);
  numbers.compare("partition.perf_rating", want.at("perf_rating"), got.perf_rating);
}

void run_planner(CaseContext& c) {
  const Problem problem = problem_from(c.given);
  const Numbers numbers(c, "perf_rel");
  const ReservedStorage reserved = reserve_storage(problem.modules, problem.options);
  check_reservation(c, reserved);
  const SearchSpace space = enumerate(c.runtime, problem.options, problem.modules);
  const json& options = c.expect.at("options");
  c.check.equal("options, length", options.size(), space.options.size());
  for (size_t i = 0; i < std::min(options.size(), space.options.size()); ++i) {
    check_option(c, numbers, options[i], space.options[i]);
  }
  check_partition(c, numbers, space, problem.options.topology, reserved.available);
}

}  // namespace

OpTable planner_ops() { return {{"plans", run_plan}, {"planner", run_planner}}; }

}  // namespace tessera::cli

#include "calibration/synthetic_step.h"

#include "data/index_distribution.h"

namespace tessera {
namespace {

constexpr int64_t kDense = 13;

std::vector<EmbeddingBagConfig> tables_of(const SyntheticModel& m) {
  std::vector<EmbeddingBagConfig> out;
  for (int64_t t = 0; t < m.tables; ++t) {
    EmbeddingBagConfig c;
    c.name = str_cat("t", t);
    c.feature_names = {str_cat("f", t)};
    c.num_embeddings = m.rows;
    c.embedding_dim = m.dim;
    c.optimizer = {"exact_rowwise_adagrad", R"({"learning_rate": 0.01, "eps": 1e-8})", 0};
    out.push_back(std::move(c));
  }
  return out;
}

PlannerOptions on_one_host(int ranks, const Machine& machine) {
  PlannerOptions out{.topology = Topology::of(ranks, ranks, "cpu"), .machine = machine};
  return out;
}

}  // namespace

SyntheticStep::SyntheticStep(SyntheticModel model, int ranks, const Machine& machine)
    : SyntheticStep(std::move(model), on_one_host(ranks, machine)) {}

SyntheticStep::SyntheticStep(SyntheticModel model, PlannerOptions planner)
    : model_(std::move(model)),
      module_{kCollectionPath, PlannerModule::Kind::kEmbeddingBagCollection, tables_of(model_), 0},
      planner_(std::move(planner)) {
  planner_.batch_size = model_.batch;
  for (const EmbeddingBagConfig& t : module_.tables) {
    ParameterConstraints& c = planner_.constraints[t.name];
    c.pooling_factors = {static_cast<double>(model_.pooling)};
    c.zipf_exponent = model_.zipf;
  }
}

DlrmOptions SyntheticStep::dlrm() const {
  DlrmOptions o;
  o.dense_inputs = kDense;
  o.embedding_dim = model_.dim;
  o.bottom_mlp = o.top_mlp = model_.hidden;
  o.bottom_mlp.push_back(model_.dim);
  o.top_mlp.push_back(1);
  return o;
}

DenseWork SyntheticStep::dense() const {
  const DlrmOptions o = dlrm();
  return dlrm_dense_work(kDense, model_.tables, model_.dim, o.bottom_mlp, o.top_mlp);
}

ShardingPlan SyntheticStep::plan_of(EmbeddingModuleShardingPlan tables) const {
  ShardingPlan plan;
  plan.world_size = planner_.topology.world_size;
  plan.local_world_size = planner_.topology.local_world_size;
  plan.modules = {{module_.path, std::move(tables)}};
  return plan;
}

StepPrediction SyntheticStep::predicted(const Runtime& runtime, const ShardingPlan& plan) const {
  return predict_step(runtime, planner_, {module_}, plan, dense());
}

std::vector<Batch> SyntheticStep::batches(int rank, int count) const {
  constexpr uint64_t kScatter = 2654435761;  // a prime
  const SyntheticModel& m = model_;
  const data::IndexDistribution draw(m.zipf > 0 ? str_cat("zipf:", m.zipf) : "uniform", m.rows);
  sdk::Random random(100 + static_cast<uint64_t>(rank));
  std::vector<std::string> keys;
  for (const EmbeddingBagConfig& t : module_.tables) keys.push_back(t.feature_names[0]);
  std::vector<Batch> out(static_cast<size_t>(count));
  for (Batch& b : out) {
    const Tensor ids = Tensor::empty({m.tables * m.batch * m.pooling}, DType::kInt64);
    const Tensor lengths = Tensor::empty({m.tables * m.batch}, DType::kInt32);
    for (int32_t& n : lengths.span<int32_t>()) n = static_cast<int32_t>(m.pooling);
    for (int64_t& id : ids.span<int64_t>()) {
      id = static_cast<int64_t>(static_cast<uint64_t>(draw(random)) * kScatter % static_cast<uint64_t>(m.rows));
    }
    b.sparse = KeyedJaggedTensor::from_lengths_sync(keys, ids, lengths);
    b.dense = Tensor::empty({m.batch, kDense});
    b.labels = Tensor::empty({m.batch});
    b.global_size = m.batch * planner_.topology.world_size;
    for (float& x : b.dense.span<float>()) x = static_cast<float>(random.uniform());
    for (float& y : b.labels.span<float>()) y = random.uniform() < 0.5 ? 0.0f : 1.0f;
  }
  return out;
}

std::unique_ptr<ModelTrainer> SyntheticStep::trainer(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group,
                                                     const std::string& kernel, ShardingPlan plan) const {
  ModelTrainerOptions o;
  o.tables = module_.tables;
  o.graph = dlrm_graph(dlrm(), o.tables);
  o.dense_optimizer = {"adagrad", R"({"learning_rate": 0.01, "eps": 1e-8})"};
  o.parallel.sharded.kernel = kernel;
  o.parallel.plan = std::move(plan);
  return std::make_unique<ModelTrainer>(runtime, group, std::move(o));
}

}  // namespace tessera

// An introduction to Tessera, to be read from top to bottom: sparse inputs, embedding modules, fused optimizers, a
// plan, sharded tables, and a DLRM trained across processes. The program prints what it does and checks each claim.
//
//   tessera launch -n 2 -- introduction      (on two ranks, over tcp; started directly, it runs on one)
#include <algorithm>
#include <cmath>
#include <iostream>

#include "tessera/distributed_model_parallel.h"
#include "tessera/embedding_modules.h"
#include "tessera/layer_graph.h"
#include "tessera/planner.h"
#include "tessera/sharded_modules.h"

namespace {

using namespace tessera;

// Every rank runs the whole program; the first one prints.
class Narrator {
 public:
  explicit Narrator(bool speaks) : speaks_(speaks) {}
  template <class... Parts>
  void operator()(const Parts&... parts) const {
    if (speaks_) std::cout << str_cat(parts..., "\n") << std::flush;
  }

 private:
  bool speaks_;
};

// Ends the program if a claim of the text does not hold.
void check(bool holds, const char* claim) {
  if (!holds) fail(Code::kInternal, "this is not true: ", claim);
}

double largest_difference(const Tensor& a, const Tensor& b) {
  check(a.shape() == b.shape(), "the two results have the same shape");
  double worst = 0;
  for (int64_t i = 0; i < a.numel(); ++i) worst = std::max(worst, std::fabs(a.item(i) - b.item(i)));
  return worst;
}

// Loss that needs no labels: half the mean square of `output`. Also computes its gradient.
double square_loss(const Tensor& output, Tensor* grad) {
  const double n = static_cast<double>(output.numel());
  double loss = 0;
  *grad = output.clone();
  for (float& v : grad->span<float>()) {
    loss += 0.5 * v * v / n;
    v /= static_cast<float>(n);
  }
  return loss;
}

// 1. Sparse inputs. A user has watched any number of films: rows of different length, kept as flat values + lengths.
void sparse_types(const Narrator& say) {
  say("--- 1. Sparse types");
  const JaggedTensor watched(
      {.values = Tensor::from<int64_t>({7, 2, 7, 5}), .lengths = Tensor::from<int32_t>({2, 0, 2})});
  say(watched.str());
  check(watched.to_dense().size() == 3 && watched.to_dense()[1].numel() == 0, "the second user has watched nothing");

  // A KeyedJaggedTensor holds several features of one batch, feature by feature.
  const auto batch = KeyedJaggedTensor::from_lengths_sync(
      {"watched", "wanted"}, Tensor::from<int64_t>({7, 2, 7, 5, 1, 3}), Tensor::from<int32_t>({2, 0, 2, 1, 1, 0}));
  say(batch.str());
  check(batch.stride() == 3, "there are three samples");
  check(batch["wanted"].values().to_vector<int64_t>() == std::vector<int64_t>{1, 3}, "wanted holds the last two ids");
}

// 2. One table. Embedding looks rows up; EmbeddingBag pools the rows of each bag into one.
void one_table(const Runtime& runtime, const Narrator& say) {
  say("\n--- 2. Embedding and EmbeddingBag");
  const Tensor weight = Tensor::from<float>(std::vector<float>{0, 1, 10, 11, 20, 21, 30, 31}, {4, 2});
  const Tensor ids = Tensor::from<int64_t>({1, 3, 2}), offsets = Tensor::from<int64_t>({0, 2});

  Embedding embedding(runtime, {.num_embeddings = 4, .embedding_dim = 2, .weight = weight});
  const Tensor rows = embedding.forward(ids);
  say("Embedding:    ids [1, 3, 2] give ", rows.size(0), " rows of ", rows.size(1), " columns");

  EmbeddingBag bag(runtime, {.num_embeddings = 4, .embedding_dim = 2, .mode = PoolingType::kSum, .weight = weight});
  const Tensor pooled = bag.forward({.indices = ids, .offsets = offsets});
  say("EmbeddingBag: bags [1, 3] and [2] give (", pooled.item(0), ", ", pooled.item(1), ") and (", pooled.item(2), ", ",
      pooled.item(3), ")");
  check(pooled.item(0) == rows.item(0) + rows.item(2) && pooled.item(2) == rows.item(4),
        "a bag is the sum of its rows");
}

// The tables of all later chapters. Two features share the film table.
std::vector<EmbeddingBagConfig> tables() {
  return {
      {.name = "film", .num_embeddings = 1000, .embedding_dim = 8, .feature_names = {"watched", "wanted"}},
      {.name = "user", .num_embeddings = 400, .embedding_dim = 8, .feature_names = {"user"}},
      {.name = "country", .num_embeddings = 16, .embedding_dim = 8, .feature_names = {"country"}},
  };
}

// A batch of 4 samples, different on each rank.
KeyedJaggedTensor batch_of(int rank) {
  std::vector<int64_t> ids;
  std::vector<int32_t> lengths;
  for (const auto& [rows, longest] : {std::pair{1000, 3}, {1000, 2}, {400, 1}, {16, 1}}) {
    for (int sample = 0; sample < 4; ++sample) {
      lengths.push_back(longest == 1 ? 1 : (sample + rank) % (longest + 1));
      for (int i = 0; i < lengths.back(); ++i) ids.push_back((97 * sample + 31 * i + 11 * rank + 5) % rows);
    }
  }
  return KeyedJaggedTensor::from_lengths_sync({"watched", "wanted", "user", "country"}, Tensor::from(ids),
                                              Tensor::from(lengths));
}

// 3. Many tables. A collection looks up all features of a batch at once.
void collections(const Runtime& runtime, const Narrator& say) {
  say("\n--- 3. Collections");
  EmbeddingBagCollection pooled(runtime, {.tables = tables(), .seed = 1});
  const KeyedTensor out = pooled.forward(batch_of(0));
  say("EmbeddingBagCollection: a KeyedTensor [", out.values().size(0), ", ", out.values().size(1), "]");
  for (const auto& [feature, columns] : out.to_dict()) say("  ", feature, ": ", columns.size(1), " columns");
  check(out.keys() == std::vector<std::string>{"watched", "wanted", "user", "country"}, "one key for each feature");

  EmbeddingCollection sequences(runtime, {.tables = tables(), .seed = 1});
  const JaggedTensorDict rows = sequences.forward(batch_of(0));
  say("EmbeddingCollection: for each feature a row per id; ", rows[0].first, " has ", rows[0].second.values().size(0));
  check(rows[0].second.values().size(0) == batch_of(0).length_per_key()[0], "every id has its row");
}

// 4. Fused optimizers: backward() updates the rows that occurred. There is no step() to call and no gradient to keep.
void fused_optimizer(const Runtime& runtime, const Narrator& say) {
  say("\n--- 4. A fused optimizer: the loss changes without a step");
  EmbeddingBagCollection ebc(
      runtime, {.tables = tables(), .optimizer = {"exact_rowwise_adagrad", R"({"learning_rate": 0.01})"}, .seed = 1});
  double before = INFINITY;
  for (int i = 0; i < 3; ++i) {
    EmbeddingContext context;
    Tensor grad;
    const double loss = square_loss(ebc.forward(batch_of(0), &context).values(), &grad);
    say("loss ", loss);
    check(loss < before, "backward() alone makes the loss smaller");
    before = loss;
    check(ebc.backward(std::move(context), grad).tables.empty(), "no table hands a gradient out");
  }
  check(ebc.fused_optimizer()->state().size() == tables().size(), "every table has its optimizer's state");
}

// 5. Optimizers in backward, chosen per table. A table without an optimizer hands its gradient out.
void optimizer_in_backward(const Runtime& runtime, const Narrator& say) {
  say("\n--- 5. apply_optimizer_in_backward");
  EmbeddingBagCollection ebc(runtime, {.tables = tables(), .seed = 1});
  ebc.apply_optimizer_in_backward(OptimizerSpec{"exact_sgd", R"({"learning_rate": 0.1})"}, {"film", "user"});
  const Tensor film = ebc.weight("film"), country = ebc.weight("country");

  EmbeddingContext context;
  Tensor grad;
  square_loss(ebc.forward(batch_of(0), &context).values(), &grad);
  const EmbeddingGradients gradients = ebc.backward(std::move(context), grad);
  check(largest_difference(film, ebc.weight("film")) > 0, "film was updated in backward()");
  check(largest_difference(country, ebc.weight("country")) == 0, "country was not");
  check(gradients.tables.size() == 1 && gradients.tables[0].table == "country", "country's gradient is handed out");

  const ParameterList rest = in_backward_optimizer_filter(ebc.named_parameters());
  check(rest.size() == 1, "one parameter is left to an optimizer of our own");
  say("film and user were updated in backward(); left to us: ", rest[0]->name, ", ",
      gradients.tables[0].rows.rows.numel(), " rows of gradient");
}

// 6. Sharding. The planner decides on which rank each row and column lives. On every rank, the sharded collection gives
// the same output for that rank's batch as the unsharded one.
void sharded_collection(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group, const Narrator& say) {
  say("\n--- 6. Planned and sharded over ", group->world_size(), " rank(s), transport ", group->backend());
  PlannerOptions options;
  options.topology = Topology::of(group->world_size(), group->local_world_size(), "cpu");
  options.constraints["film"].sharding_types = {"row_wise"};  // the planner decides whatever is not constrained
  PlannerModule module;
  module.tables = tables();
  const PlanResult planned = EmbeddingShardingPlanner(runtime, options).plan({module});
  say(planned.plan.str());

  const EmbeddingBagCollectionSharder sharder(runtime,
                                              {.optimizer = {"exact_sgd", R"({"learning_rate": 0.1})"}, .seed = 1});
  ShardedEmbeddingBagCollection sharded = sharder.shard(tables(), planned.plan.at(""), group);
  EmbeddingBagCollection unsharded(runtime, {.tables = tables(), .seed = 1});

  const KeyedJaggedTensor batch = batch_of(group->rank());
  auto out = sharded.forward(batch);  // returns before the rows have arrived
  const KeyedTensor& values = out.wait().values;
  check(values.keys() == unsharded.embedding_names(), "the keys are in the unsharded order");
  check(largest_difference(values.values(), unsharded.forward(batch).values()) < 1e-6,
        "the values are the unsharded ones");
  Tensor grad;
  square_loss(values.values(), &grad);
  sharded.backward(out.wait(), grad);  // gradients travel to the rows' owners, which update the rows
  int64_t held = 0;
  for (const HeldShard& shard : sharded.held_shards()) held += shard.where.rows * shard.where.cols;
  say("the first rank holds ", held, " of ", (1000 + 400 + 16) * 8, " weights");
}

// 7. A DLRM: sharded tables, dense layers on every rank, and an optimizer for each of the two.
void dlrm_step(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group, const Narrator& say) {
  say("\n--- 7. DLRM steps with DistributedModelParallel");
  const ModelGraph graph = dlrm_graph({.dense_inputs = 3, .bottom_mlp = {16, 8}, .top_mlp = {16, 1}}, tables());
  LayerGraph dlrm(runtime, graph, {.seed = 1});
  const EmbeddingBagCollection described(runtime, {.tables = tables(), .device = kMeta});  // allocates nothing
  ParallelModel model;
  model.bag_collections = {{kCollectionPath, &described}};
  model.dense = dlrm.parameters();
  DistributedModelParallelOptions options;
  options.sharded.optimizer = {"exact_rowwise_adagrad", R"({"learning_rate": 0.05})"};
  DistributedModelParallel parallel(runtime, model, group, std::move(options));
  ShardedEmbeddingBagCollection& embeddings = parallel.bags(kCollectionPath);

  // The tables are updated in backward; the filter leaves the dense layers to an optimizer of their own.
  const KeyedOptimizerPtr dense_optimizer =
      make_dense_optimizer({"adagrad", R"({"lr": 0.05})"}, in_backward_optimizer_filter(parallel.parameters()));
  CombinedOptimizer optimizer({{"", parallel.fused_optimizer()}, {"dense", dense_optimizer}});
  say("the optimizer's parameters: ", dense_optimizer->params().size(), " dense, ",
      optimizer.params().size() - dense_optimizer->params().size(), " tables (copies on every rank go without)");

  const Tensor dense = Tensor::from<float>(std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1}, {4, 3});
  const Tensor labels = Tensor::from<float>({1, 0, 1, 0}), grad = Tensor::empty({4, 1});
  const KeyedJaggedTensor batch = batch_of(group->rank());
  double first = 0, last = 0;
  for (int step = 0; step < 30; ++step) {
    optimizer.zero_grad();
    auto pooled = embeddings.forward(batch);
    const Tensor logits = dlrm.forward(dense, pooled.wait().values.values(), true)[0];
    const Tensor loss = Tensor::scalar(binary_cross_entropy_with_logits(logits, labels, grad, 0.25) / 4);
    embeddings.backward(pooled.wait(), dlrm.backward({grad}));
    parallel.all_reduce_gradients();
    optimizer.step();
    group->all_reduce(loss).wait();  // sum over all ranks
    last = loss.item() / group->world_size();
    if (step == 0) first = last;
    if (step % 10 == 0 || step == 29) say("step ", step, "  loss ", last);
  }
  check(last < 0.5 * first, "training makes the loss smaller");
}

int introduction() {
  const RankEnvironment where = RankEnvironment::from_environment();
  const Narrator say(where.rank == 0);
  const Runtime runtime;  // finds the plugins
  sparse_types(say);
  one_table(runtime, say);
  collections(runtime, say);
  fused_optimizer(runtime, say);
  optimizer_in_backward(runtime, say);
  const std::shared_ptr<ProcessGroup> group = ProcessGroup::connect(runtime, where);
  sharded_collection(runtime, group, say);
  dlrm_step(runtime, group, say);
  group->barrier();  // no rank leaves while another still needs it
  say("\nAll of this is true.");
  return 0;
}

}  // namespace

int main() {
  try {
    return introduction();
  } catch (const std::exception& e) {
    std::cerr << "introduction: " << e.what() << '\n';
    return 1;
  }
}

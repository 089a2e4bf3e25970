// Trains two sharded tables: does this user like that film? Alone, or on N ranks: tessera launch -n 2 -- ./train_tables
#include <tessera/dense.h>
#include <tessera/distributed_model_parallel.h>

#include <iostream>
#include <random>

using namespace tessera;
constexpr int64_t kUsers = 500, kFilms = 300, kDim = 8, kBatch = 64, kSteps = 300;

int main() try {
  const Runtime runtime;  // finds the plugins
  const auto group = ProcessGroup::connect(runtime, RankEnvironment::from_environment());
  const EmbeddingBagConfig user{.name = "user", .num_embeddings = kUsers, .embedding_dim = kDim};
  const EmbeddingBagConfig film{.name = "film", .num_embeddings = kFilms, .embedding_dim = kDim};
  const EmbeddingBagCollection tables(runtime, {.tables = {user, film}, .device = kMeta});  // only describes
  const auto bias = std::make_shared<Parameter>(Parameter{.name = "bias", .value = Tensor::zeros({1})});
  PlannerOptions how{.topology = Topology::of(group->world_size(), group->local_world_size(), "cpu")};
  for (const char* table : {"user", "film"}) how.constraints[table].sharding_types = {"row_wise"};  // left out: any
  const ShardedModuleOptions fused{.optimizer = {"exact_rowwise_adagrad", R"({"learning_rate": 0.1})"}};
  DistributedModelParallel model(runtime, {.bag_collections = {{"tables", &tables}}, .dense = {bias}}, group,
                                 {.planner = how, .sharded = fused});
  const ParameterList rest = in_backward_optimizer_filter(model.parameters());  // what backward() does not update
  const auto optimizer = make_dense_optimizer({"sgd", R"({"lr": 0.1})"}, rest);
  if (group->rank() == 0) std::cout << model.plan().str() << '\n';
  std::mt19937 random(static_cast<unsigned>(group->rank()));  // every rank has samples of its own
  const Tensor one_id_each = Tensor::from(std::vector<int32_t>(2 * kBatch, 1));
  const Tensor logits = Tensor::zeros({kBatch}), labels = Tensor::zeros({kBatch}), grad = Tensor::zeros({kBatch});
  const Tensor grad_pooled = Tensor::zeros({kBatch, 2 * kDim});
  for (int64_t step = 1; step <= kSteps; ++step) {
    std::vector<int64_t> ids(2 * kBatch);  // all users of the batch, then all films
    for (int64_t i = 0; i < kBatch; ++i) {
      ids[i] = random() % kUsers, ids[kBatch + i] = random() % kFilms;
      labels.span<float>()[i] = ids[i] % 2 == ids[kBatch + i] % 2;  // the taste that is to be learnt
    }
    const auto batch = KeyedJaggedTensor::from_lengths_sync({"user", "film"}, Tensor::from(ids), one_id_each);
    const auto pooled = model.bags("tables").forward(batch).wait();
    const auto rows = pooled.values.values().span<float>();  // [kBatch, 2 * kDim]: the user's columns, then the film's
    for (int64_t i = 0, row = 0; i < kBatch; ++i, row += 2 * kDim) {
      float& logit = logits.span<float>()[i] = bias->value.span<float>()[0];
      for (int64_t d = 0; d < kDim; ++d) logit += rows[row + d] * rows[row + kDim + d];
    }
    const double loss = binary_cross_entropy_with_logits(logits, labels, grad, 1.0 / kBatch) / kBatch;
    bias->grad = Tensor::zeros({1});
    for (int64_t i = 0, row = 0; i < kBatch; ++i, row += 2 * kDim) {
      const float g = grad.span<float>()[i];
      bias->grad.span<float>()[0] += g;
      for (int64_t d = 0; d < 2 * kDim; ++d)
        grad_pooled.span<float>()[row + d] = g * rows[row + (d + kDim) % (2 * kDim)];
    }
    model.bags("tables").backward(pooled, grad_pooled);  // updates the rows where they live
    model.all_reduce_gradients();                        // of the dense part, here the bias
    optimizer->step();
    optimizer->zero_grad();
    if (group->rank() == 0 && step % 100 == 0) std::cout << "step " << step << ", loss " << loss << '\n';
  }
  group->barrier();  // nobody leaves while another one still needs it
} catch (const tessera::Error& e) {
  return std::cerr << "train_tables: " << e.what() << '\n', 1;
}

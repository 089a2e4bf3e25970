// Trains a DLRM over sharded tables, with batches read, routed and exchanged ahead of their steps:
//   ./train_dlrm [DIRECTORY for checkpoints]        or, on N ranks:  tessera launch -n N -- ./train_dlrm [DIRECTORY]
// Interrupted, it saves and says so. docs/cpp_api.md goes through it.
#include <tessera/checkpoint.h>
#include <tessera/layer_graph.h>
#include <tessera/train_loop.h>
#include <tessera/trainer.h>

#include <cstdio>

using namespace tessera;
constexpr int64_t kDim = 16, kEpochs = 2;

int main(int argc, char** argv) try {
  const Runtime runtime;  // finds the plugins
  const auto group = ProcessGroup::connect(runtime, RankEnvironment::from_environment());
  DataConfig source;  // or a reader for files, or none: a loop takes any function that fills batches
  source.reader = "synthetic";
  source.samples = 20000;
  source.test_samples = 4000;
  source.columns = 4;
  source.rows = {5000, 2000, 300, 20};
  const Dataset data = read_dataset(source, 1);

  ModelTrainerOptions model;
  for (const DataColumn& column : data.columns) {
    EmbeddingBagConfig table{.name = column.name, .num_embeddings = column.rows, .embedding_dim = kDim};
    table.feature_names = {column.name};
    table.optimizer = {"exact_rowwise_adagrad", R"({"learning_rate": 0.05})", 0};
    model.tables.push_back(std::move(table));
  }
  const auto dense = static_cast<int64_t>(data.dense.size());
  model.graph = dlrm_graph({.dense_inputs = dense, .bottom_mlp = {32, kDim}, .top_mlp = {32, 1}}, model.tables);
  model.dense_optimizer = {"adam", R"({"lr": 0.002})"};
  ModelTrainer trainer(runtime, group, std::move(model));  // plans, and makes this rank's shards

  const BatchReaderOptions mine{
      .batch = 128, .rank = group->rank(), .world_size = group->world_size(), .shuffle = true};
  BatchReader batches(data.train, mine);
  TrainLoopOptions how;
  how.steps = kEpochs * batches.batches();
  how.ahead = can_work_ahead(*group);  // where there is a core for it
  how.stop = StopSignals::requested;   // SIGTERM and SIGINT end all ranks behind the same step
  how.after_step = [&](TrainLoop& loop, const StepEnd& end) {
    if (end.step % 100 != 0 && !end.last) return;
    const double loss = loop.mean_loss();  // of all ranks, so all ask
    if (group->rank() == 0) std::printf("step %lld, loss %.4f\n", static_cast<long long>(end.step), loss);
  };
  const StopSignals signals;
  TrainLoop loop(trainer, in_epochs(std::move(batches)), how);
  loop.run();
  if (argc > 1) save_checkpoint(argv[1], trainer.parallel(), trainer.dense_optimizer(), "{}");
  const MetricValues test = evaluate(trainer, {data.test, mine});
  if (group->rank() == 0) std::printf("%s; test AUC %.4f\n", loop.stopped() ? "stopped" : "done", test["auc"]);
  group->barrier();  // nobody leaves while another one still needs it
  return loop.stopped() ? kStoppedBySignal : 0;
} catch (const tessera::Error& e) {
  return std::fprintf(stderr, "train_dlrm: %s\n", e.what()), 1;
}

#include "bench/trained_model.h"

#include <algorithm>

#include "model_presets.h"
#include "tessera/sdk/random.h"
#include "tessera/train_job.h"

namespace tessera::cli {
namespace {

constexpr int kTrainBatches = 8;
constexpr int64_t kDense = 13;

std::vector<Batch> random_batches(const std::vector<EmbeddingBagConfig>& tables, const ShardedBench& b, int rank) {
  const auto sparse = workload_batches(tables, b.workload, rank, kTrainBatches);
  std::vector<Batch> batches(kTrainBatches);
  sdk::Random random(500 + static_cast<uint64_t>(rank));
  for (int i = 0; i < kTrainBatches; ++i) {
    batches[i].sparse = sparse[i];
    batches[i].dense = Tensor::empty({b.workload.batch, kDense});
    batches[i].labels = Tensor::empty({b.workload.batch});
    batches[i].global_size = b.workload.batch * b.nproc;
    for (float& x : batches[i].dense.span<float>()) x = static_cast<float>(random.uniform());
    for (float& y : batches[i].labels.span<float>()) y = random.uniform() < 0.5 ? 0.0f : 1.0f;
  }
  return batches;
}

TrainedModel workload_dlrm(const ShardedBench& b, int rank) {
  DlrmOptions o;
  o.dense_inputs = kDense;
  o.embedding_dim = b.workload.dim;
  o.bottom_mlp = {512, 256, b.workload.dim};
  o.top_mlp = {512, 256, 1};
  TrainedModel out;
  out.tables = workload_tables(b.workload);
  out.graph = dlrm_graph(o, out.tables);
  out.batches = random_batches(out.tables, b, rank);
  const auto n = static_cast<double>(out.tables.size() + 1);
  out.pairs = 3.0 * static_cast<double>(b.workload.batch) * n * (n - 1) * static_cast<double>(o.embedding_dim);
  return out;
}

Config job_of(const std::string& name) {
  for (const ModelPreset& preset : model_presets()) {
    if (name == preset.name) return parse_config(preset.text, name, {});
  }
  return load_config(name, {});
}

}  // namespace

TrainedModel trained_model(const Runtime& runtime, const std::string& name, const ShardedBench& bench, int rank) {
  if (name.empty()) return workload_dlrm(bench, rank);
  const Config config = job_of(name);
  const JobData job = read_job_data(runtime, config);
  TrainedModel out;
  out.tables = embedding_configs(job.tables);
  out.graph = model_of(runtime, config, job.tables, std::ssize(job.data.dense));
  const int64_t global = bench.workload.batch * bench.nproc;
  if (job.data.train_rows() < global)
    fail(Code::kInvalidArgument, "the data of ", name, " has ", job.data.train_rows(), " rows, and a batch has ",
         global, ": give a smaller --batch");
  BatchReader reader(job.data.train, {.batch = global, .rank = rank, .world_size = bench.nproc, .seed = 1});
  const int64_t full = job.data.train_rows() / global;  // the last batches of an epoch may be smaller
  out.batches.resize(kTrainBatches);
  for (int i = 0; i < kTrainBatches; ++i) {
    if (i % full == 0) reader.start_epoch(0);
    (void)reader.next(out.batches[i]);
  }
  return out;
}

std::vector<MatrixProduct> products_of(const Runtime& runtime, const ModelGraph& graph) {
  const LayerGraph layers(runtime, graph, {.describes = true});
  const auto is_dense = [&](const std::string& input) {
    return std::any_of(graph.inputs.begin(), graph.inputs.end(),
                       [&](const GraphInput& i) { return i.name == input && i.from == GraphInput::kDense; });
  };
  std::vector<MatrixProduct> out;
  for (size_t i = 0; i < graph.layers.size(); ++i) {
    const std::vector<std::string>& inputs = graph.layers[i].inputs;
    bool from_data = std::all_of(inputs.begin(), inputs.end(), is_dense);
    for (const ParameterPtr& p : layers.parameters_of(i)) {
      if (p->value.dim() != 2) continue;
      out.push_back({p->value.size(1), p->value.size(0), !from_data});
      from_data = false;
    }
  }
  return out;
}

}  // namespace tessera::cli

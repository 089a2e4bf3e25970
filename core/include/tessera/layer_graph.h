// tessera/layer_graph.h - the dense part of a model as data, an acyclic graph of layers, and what runs it.
//
//   ModelGraph graph;
//   graph.dense_width = 13, graph.pooled_width = 32;
//   graph.inputs = {{"dense", GraphInput::kDense, 0, 13}, {"user", GraphInput::kPooled, 0, 16},
//                   {"film", GraphInput::kPooled, 16, 16}};
//   graph.layers = {{"cross", "cross", {"dense", "user", "film"}, R"({"layers": 3})"},
//                   {"top", "mlp", {"cross"}, R"({"widths": [64, 1]})"}};
//   graph.heads = {{"click", "top"}};
//   LayerGraph model(runtime, graph, {.seed = 1});
//   Tensor logits = model.forward(dense, pooled, true)[0];
//   Tensor grad_pooled = model.backward({grad_logits});
//
// The embeddings come from outside, so that they may be sharded or not: pooled rows side by side, and sequences, which
// have a row for each id. tessera/dlrm.h makes the graph of a DLRM.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/dense.h"
#include "tessera/embedding_configs.h"
#include "tessera/optim.h"

namespace tessera {

// The paths of a model's tables in plans and checkpoints: TorchRec's name for those of a DLRM, and what goes with it
// for tables whose rows are not pooled.
inline constexpr const char* kCollectionPath = "sparse_arch.embedding_bag_collection";
inline constexpr const char* kSequencePath = "sparse_arch.embedding_collection";

// A model's tables as its two collections have them.
struct ModelTables {
  std::vector<EmbeddingBagConfig> pooled, sequences;  // sequences: pooling kNone
};
ModelTables split_by_pooling(const std::vector<EmbeddingBagConfig>& tables);

// A name for columns [column, column + width) of the dense values or of the pooled rows, for a sequence, or for ids.
struct GraphInput {
  enum From { kDense, kPooled, kSequence, kIds };
  std::string name;
  From from = kDense;
  int64_t column = 0, width = 0;  // of a sequence: its place in ModelGraph::sequences, and what stands there; of ids:
                                  // their place in ModelGraph::ids, and 1
};

struct LayerSpec {
  std::string name;  // before the names of its parameters; letters, digits, "_" and "-"
  std::string type;  // layer of a module/1 component: "mlp"
  std::vector<std::string>
      inputs;                  // of the model, or layers: "experts" is the first output of one, "experts:1" the next
  std::string options = "{}";  // JSON; see LayerGraph
  bool trainable = true;       // false: ModelTrainer leaves its parameters as they are
  std::optional<DenseOptimizerSpec> optimizer = std::nullopt;  // ModelTrainer's for its parameters; else the common one
  ParameterNames names = {};                                   // DenseLayerOptions::names
};

// The loss of heads that is the core's own: of a logit and a label in [0, 1], binary_cross_entropy_with_logits().
// Others are layers of module plugins: of what the head takes and the label, one value a sample.
inline constexpr const char* kOwnLoss = "binary_cross_entropy";

// A goal of training: a loss over the values that a layer gives, against a label of the data.
struct HeadSpec {
  std::string name;
  std::string input;  // as LayerSpec::inputs
  std::string loss = kOwnLoss;
  std::string label = "label";
  double weight = 1;        // of its loss in the model's
  std::string groups = {};  // a feature, whose one id in each sample the loss takes behind the label; empty: none
};

struct ModelGraph {
  int64_t dense_width = 0, pooled_width = 0;  // values per sample
  std::vector<int64_t> sequences;             // values per row of each
  std::vector<GraphInput> inputs;
  std::vector<LayerSpec> layers;      // in any order
  std::vector<HeadSpec> heads;        // at least one
  std::vector<std::string> ids = {};  // features whose one id in each sample layers take
};

// A graph without layers over `dense_width` values and these tables' outputs. Its inputs: "dense"; "pooled", the pooled
// ones as they lie; a table's name, its output; a feature's, where no table is called so, its part of it. Of a table
// with pooling kNone each feature is a sequence, in the order of the tables; it has no output of its own name where it
// has several. kInvalidArgument: a table with a name of the first two.
ModelGraph graph_over(int64_t dense_width, const std::vector<EmbeddingBagConfig>& tables);

// The end of an input's name, "film:ids", for layers that take the id itself, an int64, instead of a row.
inline constexpr const char* kIdsSuffix = ":ids";
// Adds the inputs of such names that the graph's layers take. kInvalidArgument, with the nearest one, for a feature
// that none of the tables has.
void add_id_inputs(const std::vector<EmbeddingBagConfig>& tables, ModelGraph& graph);

// kInvalidArgument, one sentence, for what needs no widths and no plugins: names that are missing or there twice,
// inputs that nobody makes (with the nearest name), a circle, a layer that leads to no head, no head. LayerGraph checks
// it too.
void check_graph(const ModelGraph& graph);

struct LayerGraphOptions {
  uint64_t seed = 0;
  DeviceStreamPtr stream = nullptr;  // where all of it is; null: host memory
  std::shared_ptr<const DenseStep> step = nullptr;
  const std::map<std::string, Tensor>* values = nullptr;  // DenseLayerOptions::values: outlive it; not trained then
  bool describes = false;                                 // DenseLayerOptions::describes: never run
};

// Used by one thread. Tensors it returns are valid until the next forward. A step asks for no memory once as large a
// batch was there.
class LayerGraph {
 public:
  // Why it cannot be trained on the stream's device, a clause that names the first layer or head that is in the way; ""
  // where it can: its part lends the arithmetic, plugins compute the layers there with these options and inputs, and
  // every layer takes whole values that nothing else takes, for only the host cuts and adds values, or has sequences
  // and ids.
  static std::string cannot_train_on(const DeviceStreamPtr& stream, const Runtime& runtime, const ModelGraph& graph);

  // Layers are told the widths of their inputs (DenseLayerOptions::inputs). kInvalidArgument: check_graph(), options
  // that a layer refuses, widths that do not fit, names of parameters that are none or there twice; kNotFound: no
  // plugin computes a layer.
  LayerGraph(const Runtime& runtime, const ModelGraph& graph, const LayerGraphOptions& options);
  ~LayerGraph();
  LayerGraph(LayerGraph&&) noexcept;

  // The layers in the order of ModelGraph::layers.
  const ParameterList& parameters() const;
  const ParameterList& buffers() const;
  const ParameterList& parameters_of(size_t layer) const;  // of ModelGraph::layers
  bool sums_over_ranks() const;                            // whether a layer needs DenseStep::sum_over_ranks
  // Which plugins compute it: (layer, component), each layer once.
  std::vector<std::pair<std::string, std::string>> components() const;
  // Values per sample of what a head takes.
  int64_t head_width(size_t head) const;

  // dense [B, dense_width], pooled [B, pooled_width], each sequence [ids, its width] with B + 1 offsets, of each
  // feature in ModelGraph::ids int64 [B, 1]; they stay as they are until backward. What each head takes, [B,
  // head_width].
  const std::vector<Tensor>& forward(const Tensor& dense, const Tensor& pooled, bool train,
                                     const std::vector<DenseInput>& sequences = {},
                                     const std::vector<Tensor>& ids = {});
  // `grads`: of what forward returned; undefined: zeros. Adds to the parameters' gradients and returns that of
  // `pooled`.
  Tensor backward(const std::vector<Tensor>& grads);
  // The gradient of each sequence in the last backward, shaped like its rows; undefined: nothing takes it.
  const std::vector<Tensor>& sequence_gradients() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera

// tessera/layer_graph.h - the dense part of a model as data, an acyclic graph of layers, and its execution.
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
// The embeddings come from outside, so they may be sharded or not: pooled rows side by side, and sequences, which have
// a row for each id. A layer's output is also dense or a sequence. Its sequences have the offsets of an input or their
// own. dlrm_graph() makes the graph of a DLRM.
#pragma once

#include <cstdint>
#include <functional>
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

// Paths of a model's tables in plans and checkpoints: TorchRec's name for those of a DLRM, and a matching one for
// tables without pooling.
inline constexpr const char* kCollectionPath = "sparse_arch.embedding_bag_collection";
inline constexpr const char* kSequencePath = "sparse_arch.embedding_collection";

// A model's tables, split into its two collections.
struct ModelTables {
  std::vector<EmbeddingBagConfig> pooled, sequences;  // sequences: pooling kNone
};
ModelTables split_by_pooling(const std::vector<EmbeddingBagConfig>& tables);

// A name for columns [column, column + width) of the dense values or pooled rows, for a sequence, or for ids.
struct GraphInput {
  enum From { kDense, kPooled, kSequence, kIds };
  std::string name;
  From from = kDense;
  // For a sequence: its index in ModelGraph::sequences, and the value there. For ids: their index in ModelGraph::ids,
  // and 1.
  int64_t column = 0, width = 0;
};

// A feature whose ids layers take: one of each sample, or those of a sequence.
struct IdFeature {
  std::string name;
  int64_t sequence = -1;  // index in ModelGraph::sequences of the ids' rows; -1: one id per sample
};

// A feature whose ids the trainer draws in each step. A prediction has none of them.
struct DrawnInput {
  std::string feature;
  int64_t first = 0;      // rows of its table below this one are never drawn: they are no candidates
  int64_t sequence = -1;  // index in ModelGraph::sequences; -1: not known
  // TSR_VALUE_SPLIT* if each rank draws other rows (DrawnFeature::split), TSR_VALUE_ONLY_* if not all calls have rows.
  uint32_t flags = 0;
  // How it is drawn. Layers are told by the option "drawn", a number for each input, if they take it and an input is
  // drawn; 0 stands for other inputs. All rows or the ids of a batch are rows of its first sample.
  enum : int64_t { kAll = 1, kPerBatch = 2, kPerSample = 3 };
  int64_t how = 0;  // 0: not known
};

struct LayerSpec {
  std::string name;                 // prefix of its parameters' names; letters, digits, "_" and "-"
  std::string type;                 // a layer of a module/1 component: "mlp"
  std::vector<std::string> inputs;  // inputs or layers; "experts" is a layer's first output, "experts:1" its second
  std::string options = "{}";       // JSON; see LayerGraph
  bool trainable = true;            // false: ModelTrainer leaves its parameters unchanged
  std::optional<DenseOptimizerSpec> optimizer = std::nullopt;  // for its parameters; unset: the common one
  ParameterNames names = {};                                   // DenseLayerOptions::names
};

// The core's own loss of heads: binary_cross_entropy_with_logits() of a logit and a label in [0, 1]. Other losses are
// layers of module plugins that take the head's input and the label and give one value per sample.
inline constexpr const char* kOwnLoss = "binary_cross_entropy";
inline constexpr const char* kNoLoss = "none";  // of heads that are only predicted

// A goal of training: a loss of a layer's values against a label of the data.
struct HeadSpec {
  std::string name;
  std::string input;  // as in LayerSpec::inputs
  std::string loss = kOwnLoss;
  std::string label = "label";
  double weight = 1;           // factor of its loss in the model's loss
  std::string groups = {};     // feature with one id per sample that the loss takes after the label; empty: none
  double positive_weight = 1;  // further factor of the loss of samples whose label is 0.5 or more
  double label_smoothing = 0;  // s: kOwnLoss compares with (1 - s) label + s / 2 (Szegedy et al., 2016)
  double focal_gamma = 0;      // g: kOwnLoss is multiplied by (1 - p)^g, p the probability of the label
  std::string where = {};      // label that is at least 0.5 for samples that count in loss and metrics; empty: all do
  bool learn_weight = false;   // kLearntWeight is trained
  std::string loss_options = "{}";  // JSON, of a loss that is a layer
};

// End of the name of a head's parameter s, "click.log_variance", which scales its loss L if it learns its weight:
// exp(-s) weight L + s / 2. s is the logarithm of the task's variance, from 0 (Kendall et al., Multi-Task Learning
// Using Uncertainty to Weigh Losses, 2018).
inline constexpr const char* kLearntWeight = ".log_variance";

struct ModelGraph {
  int64_t dense_width = 0, pooled_width = 0;  // values per sample
  std::vector<int64_t> sequences;             // values per row of each
  std::vector<GraphInput> inputs;
  std::vector<LayerSpec> layers;    // in any order
  std::vector<HeadSpec> heads;      // at least one
  std::vector<IdFeature> ids = {};  // whose ids layers take
  std::vector<DrawnInput> drawn = {};
};

// Makes a graph without layers over `dense_width` values and these tables' outputs. Its inputs are "dense", "pooled"
// (all pooled outputs), each table's name (its output), and each feature's name (its part), unless a table has that
// name. In tables with pooling kNone each feature is a sequence, in table order; with several features the table's name
// is no input. kInvalidArgument: a table is called "dense" or "pooled".
ModelGraph graph_over(int64_t dense_width, const std::vector<EmbeddingBagConfig>& tables);

// Suffix of an input's name, "film:ids", for layers that take the id itself, an int64, instead of a row. The ids of a
// table without pooling are a sequence with the offsets of its rows.
inline constexpr const char* kIdsSuffix = ":ids";
// Adds the inputs with that suffix that the graph's layers take. kInvalidArgument, with the nearest name: no table has
// the feature.
void add_id_inputs(const std::vector<EmbeddingBagConfig>& tables, ModelGraph& graph);

// Checks what needs neither widths nor plugins. kInvalidArgument, one sentence: missing or duplicate names, unknown
// inputs (with the nearest name), a cycle, a layer that leads to no head, or no head at all. LayerGraph also calls it.
void check_graph(const ModelGraph& graph);

// An output of a layer, or an input of the model.
struct GraphLink {
  bool of_layer = false;
  size_t index = 0;   // of the layer, or of the input
  size_t output = 0;  // of the layer
};

// The inputs of each layer, and the order in which layers run. Names alone decide it: no widths, no plugins.
struct GraphWiring {
  std::vector<size_t> order;                   // of layers: each after those that it takes
  std::vector<std::vector<GraphLink>> inputs;  // of each layer
  std::vector<GraphLink> heads;
};
// kInvalidArgument: see check_graph().
GraphWiring wire(const ModelGraph& graph);

// Leaves only these heads, and the layers that lead to them. kInvalidArgument: as for wire().
void keep_heads(ModelGraph& graph, std::vector<HeadSpec> heads);

// The model's features that a head's value depends on, by index of GraphWiring::heads.
std::vector<std::string> features_of(const ModelGraph& graph, const GraphWiring& wiring, size_t head,
                                     const std::vector<EmbeddingBagConfig>& tables);

// kInvalidArgument: scores, labels and metrics cannot have a head's name. Only jobs are checked, because models that
// were packed before may have such names.
void check_head_names(const ModelGraph& graph);

struct LayerGraphOptions {
  uint64_t seed = 0;
  DeviceStreamPtr stream = nullptr;  // where everything is; null: host memory
  // DenseLayerOptions::values: must outlive it; then not trained
  const std::map<std::string, Tensor>* values = nullptr;
  bool describes = false;             // DenseLayerOptions::describes: never run
  std::string precision = "float32";  // DenseLayerOptions::precision of all layers
  // Heads may take sequences: forward then returns their rows, which no loss of the core takes.
  bool sequence_heads = false;
};

// The words of job.dense_precision, the type to which the inputs of the dense layers' matrix products are rounded.
inline constexpr const char *kFloat32Precision = "float32", *kBfloat16Precision = "bfloat16", *kAutoPrecision = "auto";
inline constexpr const char* kInt8Precision = "int8";  // only of packed models

// A precision for LayerGraphOptions, and why it is float32 although "auto" was asked for; "": it is not.
struct DensePrecision {
  std::string type = kFloat32Precision;
  std::string why = {};
};
// Chooses for a model whose dense part is on the stream's device. "auto" takes bfloat16 if it is faster. "bfloat16" can
// fail: kUnavailable, the machine lacks it; kUnimplemented, the device's layers have no such products;
// kInvalidArgument, no layer of the model has any, or "int8" is wanted.
DensePrecision choose_precision(const Runtime& runtime, const ModelGraph& graph, const std::string& wanted,
                                const DeviceStreamPtr& stream);

// Used by one thread. Tensors that it returns are valid until the next forward. Once the largest batch was seen, a step
// allocates nothing.
class LayerGraph {
 public:
  // The reason why it cannot be trained on the stream's device, naming the first layer or head; "": it can. It can if
  // the device component has the arithmetic, plugins have the layers there with these options and inputs, and each
  // layer takes whole values that no other layer takes. Only the host splits and adds values, and handles sequences and
  // ids.
  static std::string cannot_train_on(const DeviceStreamPtr& stream, const Runtime& runtime, const ModelGraph& graph);

  // Layers get the widths of their inputs (DenseLayerOptions::inputs). kInvalidArgument: check_graph() fails, a layer
  // refuses its options, widths do not fit, or names match no parameter or several. kNotFound: no plugin has a layer.
  LayerGraph(const Runtime& runtime, const ModelGraph& graph, const LayerGraphOptions& options);
  ~LayerGraph();
  LayerGraph(LayerGraph&&) noexcept;

  // Parameters of all layers, in the order of ModelGraph::layers, and then the heads' learnt weights.
  const ParameterList& parameters() const;
  const ParameterList& buffers() const;
  const ParameterList& parameters_of(size_t layer) const;  // index in ModelGraph::layers
  const ParameterPtr& learnt_weight(size_t head) const;    // null: the head does not learn its weight
  bool sums_over_ranks() const;                            // true if a layer needs StepInfo::sum_over_ranks
  // Pairs (layer, component) of the plugins that compute it, each layer once.
  std::vector<std::pair<std::string, std::string>> components() const;
  // Values per sample of a head's input.
  int64_t head_width(size_t head) const;
  bool head_is_sequence(size_t head) const;
  // The offsets, int64 [B + 1], of a head that takes a sequence, in the last forward; undefined for others.
  const Tensor& head_offsets(size_t head) const;

  // Takes dense [B, dense_width], pooled [B, pooled_width], each sequence [ids, its width] with B + 1 offsets, and for
  // each feature in ModelGraph::ids int64 [B, 1], or [ids, 1] with the offsets of its sequence. These and `step` must
  // not change until backward. Returns each head's input, [B, head_width], or a sequence's rows if the options allow
  // one. kInvalidArgument: sequences that a layer takes row by row have different offsets.
  const std::vector<Tensor>& forward(const Tensor& dense, const Tensor& pooled, bool train,
                                     const std::vector<DenseInput>& sequences = {},
                                     const std::vector<DenseInput>& ids = {}, const StepInfo& step = {});
  // `grads`: gradients of forward's results; undefined: zeros. Adds to the parameters' gradients, and returns the
  // gradient of `pooled`. After each layer's backward it calls `finished` with that layer's parameters, whose gradients
  // then do not change any more. On a device they may still be on their way.
  using FinishedGradients = std::function<void(const ParameterList&)>;
  Tensor backward(const std::vector<Tensor>& grads, const FinishedGradients& finished = {});
  // The gradient of each sequence in the last backward, shaped like its rows; undefined: nothing takes it.
  const std::vector<Tensor>& sequence_gradients() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The dense part of a DLRM (Naumov et al. 2019, arXiv:1906.00091). A bottom MLP takes the dense inputs. Dot products of
// its output and all pooled embeddings go through a top MLP to one logit.
struct DlrmOptions {
  int64_t dense_inputs = 0;         // values per sample
  int64_t num_embeddings = 0;       // pooled outputs (one per table feature)
  int64_t embedding_dim = 0;        // the same for all
  std::vector<int64_t> bottom_mlp;  // layer sizes after the input; the last one is embedding_dim
  std::vector<int64_t> top_mlp;     // layer sizes after the interaction; the last one is 1
  std::string mlp = "mlp";          // module plugins
  std::string interaction = "dot_interaction";
};

// Parameters have TorchRec's names: "dense_arch.model._mlp.0._linear.weight", "over_arch.model.1.bias".
// kInvalidArgument: the sizes do not fit each other.
ModelGraph dlrm_graph(const DlrmOptions& options);
// Takes num_embeddings from the tables, and embedding_dim if it is 0. kInvalidArgument: a table has another dimension.
ModelGraph dlrm_graph(DlrmOptions options, const std::vector<EmbeddingBagConfig>& tables);

// Values per sample after the interaction.
int64_t interaction_width(const DlrmOptions& options);

}  // namespace tessera

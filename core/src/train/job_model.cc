#include "train/job_model.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "config/json.h"
#include "modules/stored_names.h"
#include "modules/vector_inputs.h"
#include "tessera/abi/module.h"
#include "tessera/layer_graph.h"
#include "tessera/sdk/nearest.h"
#include "tessera/train_job.h"
#include "tessera/trainer.h"
#include "train/dense_spec.h"
#include "train/head_losses.h"
#include "train/start_rows.h"
#include "train/start_vectors.h"
#include "train/vector_widths.h"

namespace tessera {
namespace {

ParameterNames names_of(const LayerConfig& layer) {
  ParameterNames out;
  const auto names = config::parse_json(layer.names.json, {"names"});
  for (const auto& [own, stored] : names.items()) {
    if (!stored.is_string())
      fail(Code::kInvalidArgument, "layer \"", layer.name, "\": names calls \"", own, "\" ", stored.dump(),
           ", but a name is a string");
    out.emplace_back(own, stored.get<std::string>());
  }
  return out;
}

// The config's columns that are vectors.
std::vector<VectorInput> vector_columns(const Config& config) {
  std::vector<VectorInput> out;
  for (const ColumnConfig& c : config.columns) {
    for (const std::string& name : c.name) {
      if (c.as == "vector") out.push_back({name, c.width});
    }
  }
  return out;
}

// Adds the config's [[layer]]s and [[head]]s to the graph.
void add_layers(const Config& config, ModelGraph& graph) {
  for (const LayerConfig& l : config.layers)
    graph.layers.push_back(
        {l.name, l.type, l.inputs, l.options.json, l.trainable, dense_spec(l, config.dense_optimizer), names_of(l)});
  for (const HeadConfig& h : config.heads)
    graph.heads.push_back({h.name, h.input, h.loss, h.label, h.weight, h.groups, h.positive_weight, h.label_smoothing,
                           h.focal_gamma, h.where, h.learn_weight, h.loss_options.json});
}

// Keeps only the inputs in model.inputs, if that is set.
void keep_inputs(const Config& config, ModelGraph& graph) {
  const std::vector<std::string>& wanted = config.model.inputs;
  std::vector<std::string> known;
  for (const GraphInput& input : graph.inputs) known.push_back(input.name);
  for (const LayerConfig& layer : config.layers) {  // checked first, because packed models have all inputs
    if (std::find(known.begin(), known.end(), layer.name) != known.end())
      fail(Code::kInvalidArgument, "the layer \"", layer.name,
           "\" has the name of an input of the model: give it another name");
  }
  for (const std::string& name : wanted) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    fail(Code::kInvalidArgument, "model.inputs has \"", name, "\", which is neither a table nor a feature of one",
         sdk::nearest_text(name, known));
  }
  if (wanted.empty()) return;
  std::erase_if(graph.inputs, [&](const GraphInput& input) {
    return std::find(wanted.begin(), wanted.end(), input.name) == wanted.end();
  });
}

// Fails if no layer takes a vector.
void check_vectors(const std::vector<VectorInput>& vectors, const ModelGraph& graph) {
  for (const VectorInput& v : vectors) {
    const auto takes = [&](const LayerSpec& l) {
      return std::find(l.inputs.begin(), l.inputs.end(), v.name) != l.inputs.end();
    };
    if (std::none_of(graph.layers.begin(), graph.layers.end(), takes))
      fail(Code::kInvalidArgument, "the column \"", v.name,
           "\" is a vector, and no layer takes it: name it among the inputs of a layer, or leave the column out");
  }
}

// Input names, taken from model.inputs or from the config's tables. If the data defines the tables, every name that is
// used and is no layer counts as an input.
std::vector<GraphInput> expected_inputs(const Config& config) {
  std::set<std::string> names(config.model.inputs.begin(), config.model.inputs.end());
  if (names.empty()) {
    names = {"dense", "pooled"};
    for (const VectorInput& v : vector_columns(config)) names.insert(v.name);
    for (const TableConfig& t : config.tables) {
      names.insert(t.name);
      for (const std::string& feature : t.features) names.insert(feature_name(feature));
    }
    if (config.tables.empty()) {
      for (const LayerConfig& l : config.layers) names.insert(l.inputs.begin(), l.inputs.end());
      for (const LayerConfig& l : config.layers) {
        std::erase_if(names, [&](const std::string& n) { return n == l.name || n.starts_with(l.name + ":"); });
      }
    }
  }
  for (const LayerConfig& l : config.layers) {  // model.inputs does not limit inputs of ids
    std::copy_if(l.inputs.begin(), l.inputs.end(), std::inserter(names, names.end()),
                 [](const std::string& name) { return name.ends_with(kIdsSuffix); });
  }
  std::vector<GraphInput> out;
  for (const std::string& name : names) out.push_back({name});
  return out;
}

// Fails unless a module of this id can be used, even if only on a device. `who` names its user in the error.
void check_module(const Runtime& runtime, const std::string& id, const std::string& who) {
  try {
    (void)runtime.component(TSR_MODULE_KIND, id);
  } catch (const Error& e) {
    throw Error(e.code(), who + e.what());
  }
}

void check_loss(const Runtime& runtime, const HeadSpec& head) {
  if (head.loss == kOwnLoss || computes_layer(runtime, head.loss, nullptr)) return;
  const std::string who = str_cat("the loss of head \"", head.name, "\": ");
  const std::vector<LoadEntry> entries = runtime.report().entries;
  const auto is_it = [&](const LoadEntry& e) { return e.kind == TSR_MODULE_KIND && e.id == head.loss; };
  if (std::any_of(entries.begin(), entries.end(), is_it)) check_module(runtime, head.loss, who);
  const std::vector<std::string> known = loss_names(runtime);
  fail(Code::kNotFound, who, sdk::unknown_name("loss", head.loss, known), " of ", sdk::joined(known));
}

// Fails if a head's groups name no column of ids.
void check_groups(const std::vector<HeadConfig>& heads, const std::vector<DataColumn>& columns) {
  std::vector<std::string> known;
  for (const DataColumn& c : columns) known.push_back(c.name);
  for (const HeadConfig& h : heads) {
    if (h.groups.empty() || std::find(known.begin(), known.end(), h.groups) != known.end()) continue;
    fail(Code::kInvalidArgument, "the head \"", h.name, "\" has groups = \"", h.groups,
         "\", but the data has no such column of ids", sdk::nearest_text(h.groups, known));
  }
}

// Checks only names. A table's name is known if the config lists tables.
void check_names(const Runtime& runtime, const Config& config) {
  ModelGraph graph{.inputs = expected_inputs(config)};
  add_layers(config, graph);
  check_graph(graph);
  check_head_names(graph);
  for (const LayerSpec& layer : graph.layers) {
    if (!computes_layer(runtime, layer.type, nullptr))
      check_module(runtime, layer.type, str_cat("the layer \"", layer.name, "\": "));
  }
  for (const HeadSpec& head : graph.heads) check_loss(runtime, head);
}

// Fails if a layer's own optimizer has nothing to train.
void check_optimizers(const ModelGraph& graph, const LayerGraph& layers) {
  for (size_t i = 0; i < graph.layers.size(); ++i) {
    const LayerSpec& layer = graph.layers[i];
    if (layer.optimizer && layers.parameters_of(i).empty())
      fail(Code::kInvalidArgument, "layer \"", layer.name, "\" has no parameters, so its optimizer has no effect");
  }
}

// Fails if a parameter name matches no parameter.
void check_parameter_names(const Runtime& runtime, ModelGraph graph) {
  const auto has_names = [](const LayerSpec& layer) { return !layer.names.empty(); };
  if (std::none_of(graph.layers.begin(), graph.layers.end(), has_names)) return;
  std::vector<ParameterNames> names;
  for (LayerSpec& layer : graph.layers) names.push_back(std::exchange(layer.names, {}));
  const LayerGraph layers(runtime, graph, {.describes = true});
  ParameterList all = layers.parameters();
  all.insert(all.end(), layers.buffers().begin(), layers.buffers().end());
  for (size_t i = 0; i < graph.layers.size(); ++i) {
    const std::string before = graph.layers[i].name + ".";
    std::vector<std::string> own;
    std::string known;
    for (const ParameterPtr& p : all) {
      if (!p->name.starts_with(before)) continue;
      own.push_back(p->name.substr(before.size()));
      known += str_cat(own.size() == 1 ? " " : ", ", own.back());
    }
    if (const std::string idle = idle_name(names[i], own); !idle.empty())
      fail(Code::kInvalidArgument, "layer \"", graph.layers[i].name, "\": names has \"", idle,
           "\", but its parameters are", own.empty() ? " none" : known, ": name one of them, or leave it out");
  }
}

}  // namespace

JobOutline check_job(const Runtime& runtime, const Config& config, const std::string& encoding,
                     const std::string& compute_device) {
  if (config.model.type == kGraphType) check_names(runtime, config);
  const Dataset data = describe_dataset(runtime, config, encoding);
  const std::vector<TableConfig> tables = tables_of(config, data.columns);
  (void)bounds_check_of(tables);
  check_init(tables);
  check_start(tables);
  check_components(runtime, config, tables, compute_device);
  const ModelGraph graph = model_of(runtime, config, tables, std::ssize(data.dense));
  if (graph.pooled_width == 0)
    fail(Code::kInvalidArgument,
         "all tables have pooling none, but a model needs one that is pooled: pool one of them");
  const LayerGraph layers(runtime, graph, {.describes = true});
  check_optimizers(graph, layers);
  if (config.model.type == kGraphType) check_parameter_names(runtime, graph);
  check_groups(config.heads, data.columns);
  const HeadLosses losses(runtime, graph, layers, {data.labels});
  JobOutline out{losses.predictions(), {}, data.columns};
  for (size_t h = 0; h < graph.heads.size(); ++h) {
    if (!losses.predicts(h)) out.others.push_back({graph.heads[h].name, losses.why_no_metrics(h)});
  }
  return out;
}

ModelGraph model_of(const Runtime& runtime, const Config& config, const std::vector<TableConfig>& tables,
                    int64_t dense_inputs) {
  const std::vector<EmbeddingBagConfig> configs = embedding_configs(tables);
  const std::vector<VectorInput> vectors = vector_columns(config);
  if (config.model.type != kGraphType) {
    if (!vectors.empty())
      fail(Code::kInvalidArgument, "the column \"", vectors[0].name,
           "\" is a vector, which a DLRM does not take: write [[layer]]s of which one takes it");
    return dlrm_graph({.dense_inputs = dense_inputs,
                       .embedding_dim = config.model.embedding_dim,
                       .bottom_mlp = config.model.bottom_mlp,
                       .top_mlp = config.model.top_mlp},
                      configs);
  }
  ModelGraph graph = graph_over(dense_inputs, configs);
  add_vector_inputs(vectors, graph);
  keep_inputs(config, graph);
  add_layers(config, graph);
  check_vectors(vectors, graph);
  set_vector_widths(runtime, configs, graph);
  add_id_inputs(configs, graph);
  return graph;
}

ModelGraph layers_of(const Runtime& runtime, const Config& config, const std::vector<EmbeddingBagConfig>& tables,
                     int64_t dense_inputs) {
  ModelGraph graph{.dense_width = dense_inputs};
  add_vector_inputs(vector_columns(config), graph);
  add_layers(config, graph);
  set_vector_widths(runtime, tables, graph);
  return graph;
}

DenseWork dense_work(const Runtime& runtime, const Config& config, const std::vector<TableConfig>& tables,
                     int64_t dense_inputs) {
  DenseWork out;
  if (config.model.type != kGraphType) {
    int64_t outputs = 0;
    for (const TableConfig& t : tables) outputs += static_cast<int64_t>(std::max<size_t>(1, t.features.size()));
    out = dlrm_dense_work(dense_inputs, outputs, config.model.embedding_dim, config.model.bottom_mlp,
                          config.model.top_mlp);
  } else {  // matrices take most of the time
    const LayerGraph layers(runtime, model_of(runtime, config, tables, dense_inputs), {.describes = true});
    for (const ParameterPtr& p : layers.parameters()) {
      if (p->value.dim() == 2) out.layers.emplace_back(p->value.size(1), p->value.size(0));
    }
  }
  out.bucket_bytes = config.comm.bucket_mib * (1 << 20);
  if (config.comm.loses("dense_gradients")) out.gradient_bytes = 2;
  return out;
}

}  // namespace tessera

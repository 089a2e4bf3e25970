#include "onnx/export_model.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "tessera/layer_graph.h"

namespace tessera::cli {
namespace {

constexpr int64_t kOpset = 17, kIrVersion = 8;
constexpr int64_t kMostBytes = int64_t{2000} << 20;  // in one file, because protobuf ends at 2 GiB

using Parameters = std::vector<std::map<std::string, Tensor>>;  // of each layer, by its own names

// Returns parameters by the names that layers use, which are not those of checkpoints.
Parameters parameters_of(const Runtime& runtime, const InferenceModel& model) {
  ModelGraph own = model.graph;
  for (LayerSpec& layer : own.layers) layer.names.clear();
  const LayerGraph values(runtime, model.graph, {.values = &model.dense, .sequence_heads = true});
  const LayerGraph names(runtime, own, {.describes = true, .sequence_heads = true});
  Parameters out(own.layers.size());
  const auto take = [&](const ParameterList& named, const ParameterList& with_values) {
    for (size_t i = 0; i < named.size(); ++i) {
      const std::string& name = named[i]->name;
      const size_t dot = name.find('.');
      const auto layer = std::find_if(own.layers.begin(), own.layers.end(),
                                      [&](const LayerSpec& l) { return l.name == name.substr(0, dot); });
      out.at(static_cast<size_t>(layer - own.layers.begin()))[name.substr(dot + 1)] = with_values[i]->value;
    }
  };
  take(names.parameters(), values.parameters());
  take(names.buffers(), values.buffers());
  return out;
}

class ModelWriter {
 public:
  ModelWriter(GraphWriter& graph, FeatureWriter& features, const InferenceModel& model, const Parameters& parameters)
      : g_(graph), features_(features), model_(model), parameters_(parameters), wiring_(wire(model.graph)) {
    add_dense_layers(table_);
    add_sequence_layers(table_);
    add_attention(table_);
    outputs_.resize(model.graph.layers.size());
  }

  // Returns the values of the heads' layers. Each layer is written after those whose values it takes.
  std::vector<OnnxValue> heads() {
    for (const size_t layer : wiring_.order) write(layer);
    std::vector<OnnxValue> out;
    for (const GraphLink& link : wiring_.heads) out.push_back(value(link));
    return out;
  }

 private:
  OnnxValue value(const GraphLink& link) {
    if (link.of_layer) return outputs_[link.index].at(link.output);
    const auto [at, added] = inputs_.emplace(link.index, OnnxValue{});
    if (added) at->second = features_.input(model_.graph.inputs[link.index]);
    return at->second;
  }

  void write(size_t index) {
    const LayerSpec& spec = model_.graph.layers[index];
    const auto writer = table_.find(spec.type);
    OnnxLayer layer(g_, spec.name, spec.type, spec.options);
    if (writer == table_.end()) layer.refuse("this type of layer has no translation");
    for (const auto& [name, tensor] : parameters_[index]) {
      const Shape& shape = tensor.shape();
      layer.parameters[name] = {g_.tensor(str_cat(spec.name, '.', name), tensor), {shape.begin(), shape.end()}};
    }
    for (const GraphLink& link : wiring_.inputs[index]) layer.inputs.push_back(value(link));
    layer.ignore({"precision", "init_std"});  // the file does not say how products are rounded, nor how values start
    for (OnnxValue& input : layer.inputs) input.probability.clear();  // it is not that of the layer's output
    outputs_[index] = writer->second(layer);
    layer.finish();
  }

  GraphWriter& g_;
  FeatureWriter& features_;
  const InferenceModel& model_;
  const Parameters& parameters_;
  const GraphWiring wiring_;
  LayerTable table_;
  std::vector<OnnxValues> outputs_;     // of each layer
  std::map<size_t, OnnxValue> inputs_;  // by index of ModelGraph::inputs
};

// Returns a head's answer: the last row of a sequence, or the sigmoid of a logit.
std::string answer(GraphWriter& g, OnnxValue value, const ModelOutput& output) {
  if (value.rows) {
    OnnxLayer last(g, output.name, "last_row", "{}");
    last.inputs = {value};
    LayerTable table;
    add_sequence_layers(table);
    value = table.at("last_row")(last).front();
  }
  if (!output.probability) return value.name;
  return value.probability.empty() ? g.node("Sigmoid", {value.name}) : value.probability;
}

// Drops nodes and constants that no output depends on. It goes backward, because nodes come after those whose values
// they take.
void drop_unused(onnx::GraphProto& graph) {
  std::set<std::string> used;
  for (const onnx::ValueInfoProto& out : graph.output()) used.insert(out.name());
  const auto unused = [&](const std::string& name) { return !used.contains(name); };
  for (int n = graph.node_size() - 1; n >= 0; --n) {
    const onnx::NodeProto& node = graph.node(n);
    const bool gone = std::all_of(node.output().begin(), node.output().end(), unused);
    if (!gone) used.insert(node.input().begin(), node.input().end());
    if (gone) graph.mutable_node()->DeleteSubrange(n, 1);
  }
  for (int c = graph.initializer_size() - 1; c >= 0; --c) {
    if (unused(graph.initializer(c).name())) graph.mutable_initializer()->DeleteSubrange(c, 1);
  }
}

void write_file(const onnx::ModelProto& proto, const std::string& file) {
  const std::string part = file + ".writing";
  std::ofstream out(part, std::ios::binary);
  const bool written = proto.SerializeToOstream(&out);
  out.close();
  std::error_code error;
  if (written && out) std::filesystem::rename(part, file, error);
  if (written && out && !error) return;
  const std::string reason = error ? error.message() : std::generic_category().message(errno);
  std::filesystem::remove(part, error);
  fail(Code::kUnavailable, "cannot write ", file, ": ", reason);
}

}  // namespace

ExportReport export_model(const Runtime& runtime, InferenceModel model, const std::string& file,
                          const ExportOptions& options) {
  if (const QuantizedTable* items = items_without_scores(model))
    fail(Code::kInvalidArgument, "every head of this model compares with rows of \"", items->config.name,
         "\" that training draws, so it has no scores: --layer LAYER writes the layer that is compared");
  keep_served_heads(model);
  const std::vector<ModelOutput> outputs = make_predictor(runtime, model)->model().outputs;
  int64_t bytes = 0;
  for (const QuantizedTable& t : model.tables) bytes += t.config.num_embeddings * t.config.embedding_dim * 4;
  if (options.tables == TablePlace::kInside && bytes > kMostBytes)
    fail(Code::kInvalidArgument, "the tables have ", bytes >> 20,
         " MiB as float32, and an ONNX file at most 2 GiB: --tables beside writes them to a file of their own");
  onnx::ModelProto proto;
  proto.set_ir_version(kIrVersion);
  proto.set_producer_name("tessera");
  proto.add_opset_import()->set_version(kOpset);
  proto.mutable_graph()->set_name(model.description.name.empty() ? "model" : model.description.name);
  GraphWriter graph(*proto.mutable_graph());
  std::optional<ColumnWriter> columns;
  if (options.columns) {
    columns.emplace(graph, model.description.encoding);
    onnx::OperatorSetIdProto& texts = *proto.add_opset_import();
    texts.set_domain("ai.onnx.ml");
    texts.set_version(2);
  }
  FeatureWriter features(graph, model, options.tables, file + ".data", columns ? &*columns : nullptr);
  const Parameters parameters = parameters_of(runtime, model);
  const std::vector<OnnxValue> heads = ModelWriter(graph, features, model, parameters).heads();
  ExportReport report;
  for (size_t h = 0; h < outputs.size(); ++h) {
    graph.output(answer(graph, heads[h], outputs[h]), outputs[h].name, {"batch", std::to_string(outputs[h].width)});
    report.outputs.push_back(outputs[h].name);
  }
  drop_unused(*proto.mutable_graph());
  for (const onnx::ValueInfoProto& in : proto.graph().input()) report.inputs.push_back(in.name());
  if (columns) report.notes = columns->notes();
  write_file(proto, file);
  for (const std::string& path : {file, file + ".data"}) {
    std::error_code ignored;
    const auto size = std::filesystem::file_size(path, ignored);
    if (!ignored) report.bytes += static_cast<int64_t>(size);
  }
  return report;
}

}  // namespace tessera::cli

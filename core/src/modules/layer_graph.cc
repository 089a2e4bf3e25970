#include "tessera/layer_graph.h"

#include <algorithm>

#include "modules/drawn_option.h"
#include "modules/head_options.h"
#include "modules/host_only_graph.h"
#include "modules/layer_component.h"
#include "modules/sequence_groups.h"

namespace tessera {
namespace {

// Columns of a value: of an input's rows, or of a layer's output.
struct Columns {
  size_t value = 0;
  int64_t first = 0, width = 0;
};

// The values of a graph: dense, pooled, each sequence, ids of each feature, and what each layer gives.
constexpr size_t kDenseValue = 0, kPooledValue = 1, kFirstSequence = 2;

// Names of the model's sequences.
std::vector<std::string> sequence_names(const ModelGraph& graph) {
  std::vector<std::string> out(graph.sequences.size());
  for (const GraphInput& input : graph.inputs) {
    if (input.from == GraphInput::kSequence) out[static_cast<size_t>(input.column)] = input.name;
  }
  return out;
}

// A whole matrix, and its gradient on the way back.
struct Value {
  int64_t width = 0;
  size_t group = SequenceGroups::kDense;
  int uses = 0;         // by layers and heads
  int64_t rows = 0;     // of the step: samples, or a sequence's ids
  Tensor now = {};      // [rows, width], while a step needs it
  Tensor offsets = {};  // of a sequence, likewise
  Tensor grad = {};
  Tensor memory = {};  // of a `grad` that is no layer's; only grows
};

// each(where the columns begin in a row of `stride`, where they begin in a matrix of their own), row by row.
template <class Each>
void for_rows(const Columns& columns, int64_t rows, int64_t stride, const Each& each) {
  for (int64_t row = 0; row < rows; ++row) each(row * stride + columns.first, row * columns.width);
}

// to += from. The inner loop has a fixed length, because compilers vectorise it then.
void add_floats(int64_t n, const float* __restrict from, float* __restrict to) {
  constexpr int64_t kTogether = 16;
  int64_t i = 0;
  for (; i + kTogether <= n; i += kTogether) {
    for (int64_t k = i; k < i + kTogether; ++k) to[k] += from[k];
  }
  for (; i < n; ++i) to[i] += from[i];
}

void check_widths(const ModelGraph& graph) {
  for (const GraphInput& input : graph.inputs) {
    if (input.from == GraphInput::kSequence) {
      TESSERA_CHECK(input.width == graph.sequences.at(static_cast<size_t>(input.column)), "a sequence is whole");
      continue;
    }
    if (input.from == GraphInput::kIds) {
      TESSERA_CHECK(input.width == 1 && input.column >= 0 && input.column < std::ssize(graph.ids), "an id a sample");
      continue;
    }
    const int64_t width = input.from == GraphInput::kDense ? graph.dense_width : graph.pooled_width;
    TESSERA_CHECK(input.column >= 0 && input.width >= 0 && input.column + input.width <= width,
                  "an input lies inside its rows");
  }
}

}  // namespace

struct LayerGraph::Impl {
  struct Node {
    DenseLayer layer;
    std::vector<Columns> inputs;
    std::vector<bool> wanted;      // gradients of the inputs
    std::vector<Tensor> gathered;  // inputs that are no whole values, which only grow
    size_t first_output = 0;       // values, one behind the other
    size_t outputs = 0;
    std::vector<DenseInput> given;
    std::vector<Tensor> grads;  // of the outputs
  };

  Impl(const Runtime& the_runtime, const ModelGraph& graph)
      : runtime(the_runtime), groups(sequence_names(graph)), sequences(graph.sequences.size()) {}

  const Runtime& runtime;
  LayerGraphOptions options;
  SequenceGroups groups;
  std::vector<Value> values;
  std::vector<Node> nodes;      // in the order in which they run
  std::vector<size_t> node_of;  // by the layer
  std::vector<Columns> heads;
  std::vector<Tensor> head_values, head_offsets, head_memory;
  std::vector<Tensor> sequence_grads;
  size_t sequences;
  std::vector<IdFeature> ids;
  std::map<size_t, int64_t> drawn;  // DrawnInput::how, by group
  ParameterList parameters, buffers, learnt_weights;
  std::vector<std::pair<std::string, std::string>> components;

  Tensor empty(const Shape& shape) const {
    return options.stream ? options.stream->empty(shape) : Tensor::empty(shape);
  }
  Tensor ensure(Tensor& memory, int64_t rows, int64_t width) const {
    const int64_t n = rows * width;
    if (!memory.defined() || memory.numel() < n)
      memory = empty({std::max<int64_t>(1, n + (memory.defined() ? n / 4 : 0))});
    return memory.first({rows, width});
  }
  size_t first_ids() const { return kFirstSequence + sequences; }
  bool is_ids(size_t value) const { return value >= first_ids() && value < first_ids() + ids.size(); }
  void clear(const Tensor& tensor) const {
    if (options.stream)
      options.stream->fill(tensor, 0);
    else
      std::fill_n(tensor.data<float>(), tensor.numel(), 0.0f);
  }
  bool whole(const Columns& c) const { return c.width == values[c.value].width; }
  DenseInput gather(const Columns& columns, Tensor& memory) const {
    const Value& value = values[columns.value];
    if (whole(columns)) return {value.now, value.offsets, groups.flags(value.group)};
    TESSERA_CHECK(!options.stream, "only the host cuts values");
    const Tensor out = ensure(memory, value.rows, columns.width);
    const float* from = value.now.data<float>();
    float* to = out.data<float>();
    for_rows(columns, value.rows, value.width,
             [&](int64_t there, int64_t here) { std::copy_n(from + there, columns.width, to + here); });
    return out;
  }
  void add_gradient(const Columns& columns, const Tensor& grad, bool of_layer);
  void add(const Tensor& from, const Tensor& to) const;
  std::vector<tsr_value> described(const std::vector<Columns>& inputs, const SequenceGroups& as) const;
  std::vector<tsr_value> outputs_of(const DenseLayer& layer, const LayerSpec& spec, const std::vector<Columns>& inputs);
  std::string text_of(const Columns& columns, const std::string& name) const;
  void add_layer(const Runtime& runtime, const LayerSpec& spec, std::vector<Columns> inputs);
  void check_apart(const ModelGraph& graph) const;
  void take_sequences(const std::vector<DenseInput>& given, int64_t batch);
  void take_ids(const std::vector<DenseInput>& given, int64_t batch);
};

// to += from, matrices of one shape.
void LayerGraph::Impl::add(const Tensor& from, const Tensor& to) const {
  constexpr int64_t kBlock = 16 << 10;  // values that are worth a thread
  const int64_t n = to.numel(), blocks = (n + kBlock - 1) / kBlock;
  const auto add_block = [&](int64_t i) {
    const int64_t at = i * kBlock;
    add_floats(std::min(n - at, kBlock), from.data<float>() + at, to.data<float>() + at);
  };
  if (blocks > 1)
    runtime.parallel_for(blocks, add_block);
  else
    add_block(0);
}

// Gradients accumulate. The first one is stored without a copy if it is alone, or if it is a layer's, because only this
// graph uses the memory to which the others are then added.
void LayerGraph::Impl::add_gradient(const Columns& columns, const Tensor& grad, bool of_layer) {
  Value& value = values[columns.value];
  if (columns.value == kDenseValue || !grad.defined()) return;
  const bool first = !value.grad.defined();
  if (whole(columns) && (value.uses == 1 || (first && of_layer))) {
    value.grad = grad;
    return;
  }
  TESSERA_CHECK(!options.stream, "only the host adds gradients up");
  if (whole(columns) && !first) return add(grad, value.grad);
  if (first) value.grad = ensure(value.memory, value.rows, value.width);
  float* to = value.grad.data<float>();
  const float* from = grad.data<float>();
  if (first && !whole(columns)) clear(value.grad);
  for_rows(columns, value.rows, value.width, [&](int64_t there, int64_t here) {
    if (first)
      std::copy_n(from + here, columns.width, to + there);
    else
      for (int64_t i = 0; i < columns.width; ++i) to[there + i] += from[here + i];
  });
}

// The inputs of a layer as it sees them.
std::vector<tsr_value> LayerGraph::Impl::described(const std::vector<Columns>& inputs, const SequenceGroups& as) const {
  std::vector<tsr_value> out;
  std::map<size_t, int32_t> first_of;
  for (const Columns& c : inputs) {
    tsr_value value = dense_value(c.width);
    if (is_ids(c.value)) value.dtype = to_dl(DType::kInt64);
    if (const size_t group = values[c.value].group; group != SequenceGroups::kDense) {
      value.flags = TSR_VALUE_JAGGED | groups.flags(group);
      value.rows_like = first_of.emplace(as.of(group), static_cast<int32_t>(out.size())).first->second;
    }
    out.push_back(value);
  }
  return out;
}

// The outputs of a layer. Different features may have as many ids in every sample, which only batches can tell. So if
// the layer refuses sequences of the model as different, the fewest that it accepts as equal are taken so, and each
// batch is checked.
std::vector<tsr_value> LayerGraph::Impl::outputs_of(const DenseLayer& layer, const LayerSpec& spec,
                                                    const std::vector<Columns>& inputs) {
  try {
    return layer.outputs_for(described(inputs, groups));
  } catch (const Error& refused) {
    if (refused.code() != Code::kInvalidArgument) throw;
    std::vector<SequenceGroups::Pair> pairs;
    for (size_t k = 0; k < inputs.size(); ++k) {
      for (size_t i = 0; i < k; ++i)
        pairs.push_back(
            {values[inputs[i].value].group, values[inputs[k].value].group, spec.name, spec.inputs[i], spec.inputs[k]});
    }
    const auto accepts = [&](const SequenceGroups& as) {
      try {
        return !layer.outputs_for(described(inputs, as)).empty();
      } catch (const Error&) {
        return false;
      }
    };
    if (!groups.join_fewest(std::move(pairs), accepts)) throw;
    return layer.outputs_for(described(inputs, groups));
  }
}

// "item (a sequence of 8 values)"
std::string LayerGraph::Impl::text_of(const Columns& columns, const std::string& name) const {
  const size_t group = values[columns.value].group;
  const char* unit = is_ids(columns.value) ? (group == SequenceGroups::kDense ? " id" : " ids")
                     : columns.width == 1  ? " value"
                                           : " values";
  if (group == SequenceGroups::kDense) return str_cat(name, " (", columns.width, unit, ')');
  const std::string& origin = groups.name(group);
  return str_cat(name, " (a sequence of ", columns.width, unit,
                 origin == name ? "" : str_cat(" with the rows of \"", origin, '"'), groups.when(group), ')');
}

void LayerGraph::Impl::add_layer(const Runtime& runtime, const LayerSpec& spec, std::vector<Columns> inputs) {
  std::vector<int64_t> widths;
  std::string taken;  // for errors
  for (size_t i = 0; i < inputs.size(); ++i) {
    widths.push_back(inputs[i].width);
    taken += str_cat(i == 0 ? "" : ", ", text_of(inputs[i], spec.inputs[i]));
  }
  const DenseLayerOptions how{.module = spec.type,
                              .options = spec.options,
                              .name = spec.name,
                              .seed = options.seed,
                              .stream = options.stream,
                              .inputs = widths,
                              .names = spec.names,
                              .describes = options.describes,
                              .precision = options.precision,
                              .values = options.values};
  try {
    std::vector<int64_t> draws;
    for (const Columns& c : inputs)
      draws.push_back(drawn.contains(values[c.value].group) ? drawn.at(values[c.value].group) : 0);
    Node node{layer_of_drawn(runtime, how, draws), std::move(inputs), {}, {}, values.size(), 0, {}, {}};
    for (const Columns& c : node.inputs) {
      ++values[c.value].uses;
      node.wanted.push_back(c.value != kDenseValue && !is_ids(c.value));
    }
    node.gathered.resize(node.inputs.size());
    for (const tsr_value& out : outputs_of(node.layer, spec, node.inputs)) {
      const size_t number = values.size() - node.first_output;
      size_t group = SequenceGroups::kDense;
      if (has_own_rows(out))
        group = groups.add(number == 0 ? spec.name : str_cat(spec.name, ':', number));
      else if ((out.flags & TSR_VALUE_JAGGED) != 0)
        group = values[node.inputs[static_cast<size_t>(out.rows_like)].value].group;
      values.push_back({out.width, group});
    }
    node.outputs = values.size() - node.first_output;
    node.grads.resize(node.outputs);
    nodes.push_back(std::move(node));
  } catch (const Error& e) {
    throw Error(e.code(), str_cat("the layer \"", spec.name, "\" of ", taken, ": ", e.what()));
  }
}

// Names in checkpoints, which layers may choose, are of one parameter each.
void LayerGraph::Impl::check_apart(const ModelGraph& graph) const {
  std::map<std::string, std::string> layer_of;
  for (size_t i = 0; i < graph.layers.size(); ++i) {
    const DenseLayer& layer = nodes[node_of[i]].layer;
    ParameterList all = layer.parameters();
    all.insert(all.end(), layer.buffers().begin(), layer.buffers().end());
    for (const ParameterPtr& p : all) {
      const std::string& name = graph.layers[i].name;
      const auto [other, fresh] = layer_of.emplace(p->name, name);
      if (fresh) continue;
      fail(Code::kInvalidArgument, "the layer \"", name, "\" has a parameter \"", p->name,
           "\", and so has the layer \"", other->second, "\": change their names");
    }
  }
}

LayerGraph::LayerGraph(const Runtime& runtime, const ModelGraph& graph, const LayerGraphOptions& options)
    : impl_(std::make_unique<Impl>(runtime, graph)) {
  Impl& m = *impl_;
  m.options = options;
  const GraphWiring wiring = wire(graph);
  check_widths(graph);
  m.values = {{graph.dense_width}, {graph.pooled_width}};
  for (const int64_t width : graph.sequences) m.values.push_back({width, m.values.size() - kFirstSequence + 1});
  for (const DrawnInput& d : graph.drawn) {
    if (d.sequence < 0) continue;
    m.groups.set_flags(static_cast<size_t>(d.sequence) + 1, d.flags);
    m.drawn[static_cast<size_t>(d.sequence) + 1] = d.how;
  }
  m.ids = graph.ids;
  for (const IdFeature& feature : graph.ids) m.values.push_back({1, static_cast<size_t>(feature.sequence + 1)});
  m.node_of.resize(graph.layers.size());
  const auto columns_of = [&](const GraphLink& link, const std::string& name) -> Columns {
    if (!link.of_layer) {
      const GraphInput& input = graph.inputs[link.index];
      if (input.width < 1)
        fail(Code::kInvalidArgument, "\"", name, "\" is an input of a layer, but the data has no values for it");
      if (input.from == GraphInput::kSequence)
        return {kFirstSequence + static_cast<size_t>(input.column), 0, input.width};
      if (input.from == GraphInput::kIds) return {m.first_ids() + static_cast<size_t>(input.column), 0, 1};
      return {input.from == GraphInput::kDense ? kDenseValue : kPooledValue, input.column, input.width};
    }
    const Impl::Node& node = m.nodes[m.node_of[link.index]];
    if (link.output >= node.outputs)
      fail(Code::kInvalidArgument, "\"", name, "\" is an input, but that layer has ", node.outputs,
           node.outputs == 1 ? " output" : " outputs");
    return {node.first_output + link.output, 0, m.values[node.first_output + link.output].width};
  };
  for (const size_t layer : wiring.order) {
    const LayerSpec& spec = graph.layers[layer];
    std::vector<Columns> inputs;
    for (size_t i = 0; i < spec.inputs.size(); ++i)
      inputs.push_back(columns_of(wiring.inputs[layer][i], spec.inputs[i]));
    m.node_of[layer] = m.nodes.size();
    m.add_layer(runtime, spec, std::move(inputs));
  }
  for (size_t h = 0; h < graph.heads.size(); ++h) {
    m.heads.push_back(columns_of(wiring.heads[h], graph.heads[h].input));
    if (m.values[m.heads.back().value].group != SequenceGroups::kDense && !options.sequence_heads)
      fail(Code::kInvalidArgument, "the head \"", graph.heads[h].name, "\" takes the sequence \"", graph.heads[h].input,
           "\", but a loss needs one row for each sample: pool it first");
    if (m.is_ids(m.heads.back().value))
      fail(Code::kInvalidArgument, "the head \"", graph.heads[h].name, "\" takes \"", graph.heads[h].input,
           "\", which are ids, but only values can be trained: let it take a layer");
    ++m.values[m.heads.back().value].uses;
  }
  m.head_memory.resize(m.heads.size());
  m.check_apart(graph);
  for (const size_t node : m.node_of) {
    const DenseLayer& layer = m.nodes[node].layer;
    m.parameters.insert(m.parameters.end(), layer.parameters().begin(), layer.parameters().end());
    m.buffers.insert(m.buffers.end(), layer.buffers().begin(), layer.buffers().end());
    const bool known =
        std::any_of(m.components.begin(), m.components.end(), [&](const auto& c) { return c.first == layer.module(); });
    if (!known) m.components.emplace_back(layer.module(), layer.component());
  }
  m.learnt_weights = learnt_weights_of(graph.heads, options.values, m.parameters);
}

LayerGraph::~LayerGraph() = default;
LayerGraph::LayerGraph(LayerGraph&&) noexcept = default;

std::string LayerGraph::cannot_train_on(const DeviceStreamPtr& stream, const Runtime& runtime,
                                        const ModelGraph& graph) {
  if (!stream->trains()) return "the device has no arithmetic for losses and updates";
  for (const LayerSpec& layer : graph.layers) {
    if (!computes_layer(runtime, layer.type, stream))
      return str_cat("no plugin computes the layer \"", layer.name, "\" (", layer.type, ") there");
  }
  if (std::string what = what_only_hosts_take(graph, wire(graph)); !what.empty()) return what;
  try {
    const LayerGraph made(runtime, graph, {.stream = stream, .describes = true});
  } catch (const Error& refused) {
    return refused.what();
  }
  return "";
}

const ParameterList& LayerGraph::parameters() const { return impl_->parameters; }
const ParameterList& LayerGraph::buffers() const { return impl_->buffers; }
const ParameterList& LayerGraph::parameters_of(size_t layer) const {
  return impl_->nodes[impl_->node_of.at(layer)].layer.parameters();
}
const ParameterPtr& LayerGraph::learnt_weight(size_t head) const { return impl_->learnt_weights.at(head); }
bool LayerGraph::sums_over_ranks() const {
  return std::any_of(impl_->nodes.begin(), impl_->nodes.end(),
                     [](const Impl::Node& node) { return node.layer.sums_over_ranks(); });
}
std::vector<std::pair<std::string, std::string>> LayerGraph::components() const { return impl_->components; }
int64_t LayerGraph::head_width(size_t head) const { return impl_->heads.at(head).width; }
bool LayerGraph::head_is_sequence(size_t head) const {
  return impl_->values[impl_->heads.at(head).value].group != SequenceGroups::kDense;
}
const Tensor& LayerGraph::head_offsets(size_t head) const { return impl_->head_offsets.at(head); }

// Values that layers take as having the same rows get the same offsets, those of the first.
void LayerGraph::Impl::take_sequences(const std::vector<DenseInput>& given, int64_t batch) {
  groups.check(given);
  for (size_t i = 0; i < given.size(); ++i) {
    Value& value = values[kFirstSequence + i];
    value.now = given[i].values;
    value.offsets = given[groups.of(value.group) - 1].offsets;
    value.rows = value.now.size(0);
    TESSERA_CHECK(value.now.size(1) == value.width && value.offsets.numel() == batch + 1, "the sequences' sizes");
  }
}

void LayerGraph::Impl::take_ids(const std::vector<DenseInput>& given, int64_t batch) {
  for (size_t i = 0; i < given.size(); ++i) {
    Value& value = values[first_ids() + i];
    value.now = given[i].values;
    value.rows = value.now.size(0);
    TESSERA_CHECK(value.now.dtype() == DType::kInt64 && value.now.numel() == value.rows, "each id is one int64");
    if (ids[i].sequence < 0) {
      TESSERA_CHECK(value.rows == batch, "each sample has one id");
      continue;
    }
    const Tensor &own = given[i].offsets,
                 &offsets = values[kFirstSequence + static_cast<size_t>(ids[i].sequence)].offsets;
    TESSERA_CHECK(own.defined() && own.numel() == batch + 1, "ids of a sequence have offsets");
    if (const int64_t sample = first_difference(own, offsets); sample >= 0)
      fail(Code::kInvalidArgument, "a layer takes the ids of \"", ids[i].name, "\", but sample ", sample,
           " of a batch has ", rows_of(own, sample), " of them and ", rows_of(offsets, sample),
           " rows: the table must have a row for every id");
    value.offsets = offsets;
  }
}

const std::vector<Tensor>& LayerGraph::forward(const Tensor& dense, const Tensor& pooled, bool train,
                                               const std::vector<DenseInput>& sequences,
                                               const std::vector<DenseInput>& ids, const StepInfo& step) {
  Impl& m = *impl_;
  const int64_t batch = pooled.size(0);
  TESSERA_CHECK(dense.size(0) == batch && dense.size(1) == m.values[kDenseValue].width &&
                    pooled.size(1) == m.values[kPooledValue].width && sequences.size() == m.sequences &&
                    ids.size() == m.ids.size(),
                "the graph's widths");
  m.values[kDenseValue].now = dense;
  m.values[kPooledValue].now = pooled;
  m.values[kDenseValue].rows = m.values[kPooledValue].rows = batch;
  m.take_sequences(sequences, batch);
  m.take_ids(ids, batch);
  for (Impl::Node& node : m.nodes) {
    node.given.clear();
    for (size_t i = 0; i < node.inputs.size(); ++i) node.given.push_back(m.gather(node.inputs[i], node.gathered[i]));
    const std::vector<Tensor>& outputs = node.layer.run(node.given, train, step);
    for (size_t k = 0; k < node.outputs; ++k) {
      Value& value = m.values[node.first_output + k];
      value.now = outputs[k];
      value.offsets = node.layer.output_offsets()[k];
      value.rows = outputs[k].size(0);
    }
    node.given.clear();  // the layer keeps what it needs
  }
  m.head_values.clear();
  m.head_offsets.clear();
  for (size_t h = 0; h < m.heads.size(); ++h) {
    m.head_values.push_back(m.gather(m.heads[h], m.head_memory[h]).values);
    m.head_offsets.push_back(m.values[m.heads[h].value].offsets);
  }
  for (Value& value : m.values) value.now = value.offsets = {};  // whose they are may write them again
  return m.head_values;
}

Tensor LayerGraph::backward(const std::vector<Tensor>& grads, const FinishedGradients& finished) {
  Impl& m = *impl_;
  TESSERA_CHECK(grads.size() == m.heads.size(), "a gradient for each head");
  for (Value& value : m.values) value.grad = {};
  for (size_t h = 0; h < m.heads.size(); ++h) m.add_gradient(m.heads[h], grads[h], false);
  for (auto node = m.nodes.rbegin(); node != m.nodes.rend(); ++node) {
    for (size_t k = 0; k < node->outputs; ++k) node->grads[k] = m.values[node->first_output + k].grad;
    const std::vector<Tensor>& back = node->layer.backward(node->grads, node->wanted);
    for (size_t i = 0; i < node->inputs.size(); ++i) m.add_gradient(node->inputs[i], back[i], true);
    if (finished) finished(node->layer.parameters());
  }
  m.sequence_grads.clear();
  for (size_t i = 0; i < m.sequences; ++i) m.sequence_grads.push_back(m.values[kFirstSequence + i].grad);
  Value& pooled = m.values[kPooledValue];
  if (pooled.grad.defined()) return pooled.grad;
  Tensor none = m.ensure(pooled.memory, pooled.rows, pooled.width);
  m.clear(none);
  return none;
}

const std::vector<Tensor>& LayerGraph::sequence_gradients() const { return impl_->sequence_grads; }

}  // namespace tessera

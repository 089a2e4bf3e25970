#include "tessera/dense.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numbers>

#include "config/fnv1a.h"
#include "config/json.h"
#include "modules/layer_component.h"
#include "modules/stored_names.h"
#include "tessera/calls.h"
#include "tessera/layer_graph.h"
#include "tessera/sdk/random.h"

namespace tessera {
namespace {

// A stream of random numbers that depends only on the seed and a name. Normal numbers come from Box-Muller.
class NamedRandom {
 public:
  NamedRandom(uint64_t seed, const std::string& name) : random_(fnv1a(name, seed)) {}
  double uniform() { return (static_cast<double>(random_.bits() >> 11) + 1.0) * 0x1p-53; }  // in (0, 1]
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform()); }

 private:
  sdk::Random random_;
};

// Returns the layer's options, with the precision if the layer takes one.
std::string with_precision(const Runtime& runtime, const DenseLayerOptions& o) {
  if (o.precision == "float32" || !has_precision(runtime, o.module, o.stream, o.precision)) return o.options;
  auto told = config::parse_json(o.options, {"the options of a layer"});
  if (!told.is_object() || told.contains("precision")) return o.options;
  told["precision"] = o.precision;
  return told.dump();
}

// Creates the layer with the widths of its inputs, or without them if it does not take them.
ComponentPtr create_told(const Runtime& runtime, const DenseLayerOptions& given) {
  DenseLayerOptions o = given;
  o.options = with_precision(runtime, given);
  const auto create = [&](const std::string& options) { return create_layer(runtime, o.module, options, o.stream); };
  if (o.inputs.empty()) return create(o.options);
  auto told = config::parse_json(o.options, {"the options of a layer"});
  if (!told.is_object() || told.contains("inputs")) return create(o.options);
  told["inputs"] = o.inputs;  // last, so that other errors are reported first
  try {
    return create(told.dump());
  } catch (const Error& refused) {
    if (refused.code() != Code::kInvalidArgument) throw;
    try {
      return create(o.options);
    } catch (const Error&) {  // the first error says why, and is thrown below
    }
    throw;
  }
}

// The same. A layer need not know the precision "auto", which is then bfloat16.
ComponentPtr create_for_precision(const Runtime& runtime, const DenseLayerOptions& given) {
  if (given.precision != kAutoPrecision) return create_told(runtime, given);
  try {
    return create_told(runtime, given);
  } catch (const Error& refused) {
    if (refused.code() != Code::kInvalidArgument) throw;
  }
  DenseLayerOptions o = given;
  o.precision = kBfloat16Precision;
  return create_told(runtime, o);
}

// `p` has been checked.
Tensor start_values(const tsr_parameter& p, const std::string& name, uint64_t seed) {
  Tensor value = Tensor::empty(std::vector<int64_t>(p.shape, p.shape + p.ndim), from_dl(p.dtype));
  const double a = p.init_values[0], b = p.init_values[1];
  if (value.dtype() == DType::kInt64) {
    for (int64_t& v : value.span<int64_t>()) v = static_cast<int64_t>(a);
    return value;
  }
  NamedRandom random(seed, name);
  for (float& v : value.span<float>()) {
    v = static_cast<float>(p.init == TSR_INIT_NORMAL    ? a + b * random.normal()
                           : p.init == TSR_INIT_UNIFORM ? b + (a - b) * random.uniform()
                                                        : a);
  }
  return value;
}

}  // namespace

struct DenseLayer::Impl {
  DenseLayerOptions options;
  ComponentPtr part;
  ParameterList parameters, buffers;
  std::vector<DenseInput> inputs;
  std::vector<tsr_value> values, asked;  // values: of the inputs; asked: the inputs for which `described` holds
  std::vector<tsr_value> described;      // the outputs
  std::vector<Tensor> memory;            // of the outputs; it only grows
  std::vector<Tensor> own_offsets;       // memory of the outputs' own offsets; it only grows
  std::vector<Tensor> outputs, offsets;  // offsets: of the outputs; undefined: dense
  std::vector<int64_t> most_rows;        // of outputs with their own offsets
  int64_t batch = 0;
  bool kept = false;                       // a backward may follow the last forward
  std::vector<Tensor> grad_memory, grads;  // of the inputs
  tsr_module_context* context = nullptr;
  std::vector<DLTensor> dl_parameters, dl_buffers, dl_gradients;  // values never move
  std::vector<DLTensor> dl_inputs, dl_offsets, dl_outputs, dl_output_offsets, dl_grad_outputs, dl_grad_inputs;
  tsr_module_call call{};                                   // of the last forward
  const std::function<void(const Tensor&)>* sum = nullptr;  // StepInfo's, while `call` has ranks

  // Allocates memory on the layer's device.
  Tensor empty(const Shape& shape) const {
    return options.stream ? options.stream->empty(shape) : Tensor::empty(shape);
  }
  // Makes a buffer at least this large. Its contents are lost if it grows. It grows by more than is needed, because
  // batches of sequences vary in size.
  void ensure(Tensor& buffer, int64_t numel) const {
    if (!buffer.defined() || buffer.numel() < numel)
      buffer = empty({std::max<int64_t>(numel + (buffer.defined() ? numel / 4 : 0), 1)});
  }
  void clear(const Tensor& tensor) const {
    if (options.stream)
      options.stream->fill(tensor, 0);
    else
      std::memset(tensor.data<float>(), 0, static_cast<size_t>(tensor.numel()) * sizeof(float));
  }

  const tsr_module& api() const { return part->api<tsr_module>(); }
  bool sums_over_ranks() const { return (api().flags & TSR_MODULE_SUMS_OVER_RANKS) != 0; }
  void check(tsr_code code, const AbiError& err, const char* slot) const {
    if (code != TSR_OK) err.check(code, str_cat("layer ", options.name, " (", part->id(), ") ", slot));
  }
  void release() {
    if (context) api().release(part->self(), context);
    context = nullptr;
  }
  ParameterPtr make(const tsr_parameter& p) const {
    auto made = std::make_shared<Parameter>();
    made->name = stored_name(options.name, p.name, options.names);
    made->int8_rows = (p.flags & TSR_PARAMETER_INT8_ROWS) != 0 && p.ndim == 2;
    if (options.values != nullptr) {
      made->value = given(p, made->name);
      return made;
    }
    if (options.describes) {
      made->value = Tensor::empty(std::vector<int64_t>(p.shape, p.shape + p.ndim), from_dl(p.dtype), kMeta);
      return made;
    }
    made->value = start_values(p, options.name + "." + p.name, options.seed);
    if (options.stream) made->value = options.stream->to_device(made->value);
    return made;
  }
  Tensor given(const tsr_parameter& p, const std::string& name) const {
    const auto found = options.values->find(name);
    if (found == options.values->end()) fail(Code::kInvalidArgument, "the model has no parameter \"", name, "\"");
    if (found->second.shape() != Shape(std::vector<int64_t>(p.shape, p.shape + p.ndim)))
      fail(Code::kInvalidArgument, "parameter \"", name, "\" has another shape than its layer");
    if (found->second.dtype() != from_dl(p.dtype))
      fail(Code::kInvalidArgument, "\"", name, "\" has another type in the model than in its layer");
    return found->second;
  }
  void take(const std::vector<DenseInput>& now);
  int32_t first_with_offsets(const Tensor& offsets) const;
  void describe_outputs();
  void start_call(bool train, const StepInfo& step);
  void make_outputs();
  void ask_most_rows();
  void take_own_offsets();
  static tsr_code sum_over_ranks(void* self, const DLTensor* inout, tsr_error* err) noexcept;
  // Puts gradients back into their buffers: zero if a gradient was cleared, a copy if it was replaced.
  void restore_gradients() {
    for (size_t i = 0; i < parameters.size(); ++i) {
      Tensor& grad = parameters[i]->grad;
      const Tensor& buffer = parameters[i]->grad_buffer;
      dl_gradients[i] = buffer.dl();
      if (grad.defined() && grad.raw() == buffer.raw()) continue;
      TESSERA_CHECK(!grad.defined() || grad.shape() == buffer.shape(), "a gradient keeps its shape");
      if (!grad.defined())
        clear(buffer);
      else if (options.stream)
        options.stream->copy(grad, buffer);
      else
        std::copy_n(grad.data<float>(), grad.numel(), buffer.data<float>());
      grad = buffer;
    }
  }
  ~Impl() {
    try {
      if (options.stream) options.stream->synchronize();  // the device must not use memory that is freed below
    } catch (const Error&) {                              // the error is reported by the next wait for this stream
    }
    release();
  }
};

// Asks the component again if inputs differ from those of the last call.
void DenseLayer::Impl::describe_outputs() {
  const auto same = [](const tsr_value& a, const tsr_value& b) {
    return a.flags == b.flags && a.width == b.width && a.rows_like == b.rows_like && a.dtype.code == b.dtype.code &&
           a.dtype.bits == b.dtype.bits;
  };
  if (described.empty() || !std::equal(values.begin(), values.end(), asked.begin(), asked.end(), same)) {
    described = layer_outputs(*part, options.name, values);
    asked = values;
  }
}

// Returns the index of the first input with these offsets; if there is none, the index of the next input.
int32_t DenseLayer::Impl::first_with_offsets(const Tensor& offsets) const {
  const size_t next = values.size();
  for (size_t k = 0; k < next; ++k) {
    if (inputs[k].offsets.defined() && inputs[k].offsets.raw() == offsets.raw()) return static_cast<int32_t>(k);
  }
  return static_cast<int32_t>(next);
}

// Describes the inputs to the component.
void DenseLayer::Impl::take(const std::vector<DenseInput>& now) {
  TESSERA_CHECK(!now.empty(), "a layer has inputs");
  inputs = now;
  values.clear();
  dl_inputs.clear();
  dl_offsets.clear();
  bool jagged = false;
  for (const DenseInput& input : inputs) {
    TESSERA_CHECK(input.values.dim() == 2, "inputs are [rows, width]");
    TESSERA_CHECK(input.values.stream() == options.stream.get(), "inputs of layer ", options.name,
                  " are where the layer is");
    const bool has_offsets = input.offsets.defined();
    const int64_t samples = has_offsets ? input.offsets.numel() - 1 : input.values.size(0);
    if (values.empty()) batch = samples;
    TESSERA_CHECK(samples == batch, "inputs have equally many samples");
    const uint32_t flags = has_offsets ? TSR_VALUE_JAGGED | input.flags : 0;
    values.push_back({sizeof(tsr_value), flags, to_dl(input.values.dtype()),
                      has_offsets ? first_with_offsets(input.offsets) : 0, input.values.size(1)});
    dl_inputs.push_back(input.values.dl());
    dl_offsets.push_back(has_offsets ? input.offsets.dl() : DLTensor{});
    jagged |= has_offsets;
  }
  if (!jagged) dl_offsets.clear();
}

// Asks the component for most_rows.
void DenseLayer::Impl::ask_most_rows() {
  std::vector<int64_t>& rows = most_rows;
  rows.assign(described.size(), 0);
  AbiError err;
  const plugin::CallScope asked_for(*part, "max_rows", options.name);
  check(api().max_rows(part->self(), &call, rows.data(), err.out()), err, "max_rows");
  for (size_t k = 0; k < rows.size(); ++k) {
    constexpr int64_t kMostValues = int64_t{1} << 40;  // four TiB of float32
    if (!has_own_rows(described[k]) ||
        (rows[k] >= 0 && rows[k] <= kMostValues / std::max<int64_t>(described[k].width, 1)))
      continue;
    fail(Code::kInternal, "layer ", options.name, " (", part->id(), ") says that output ", k, " may have ", rows[k],
         " rows");
  }
}

// Allocates the outputs, and adds them to the call.
void DenseLayer::Impl::make_outputs() {
  const std::vector<tsr_value>& out = described;
  memory.resize(out.size());
  own_offsets.resize(out.size());
  outputs.clear();
  offsets.assign(out.size(), {});
  dl_outputs.clear();
  dl_output_offsets.clear();
  call.num_outputs = static_cast<uint32_t>(out.size());
  const bool own = std::any_of(out.begin(), out.end(), [](const tsr_value& value) { return has_own_rows(value); });
  if (own && options.stream)
    fail(Code::kUnimplemented, "layer ", options.name, " (", part->id(),
         ") gives a sequence with offsets of its own, which models on a device cannot have: train on the CPU");
  if (own) ask_most_rows();
  for (size_t k = 0; k < out.size(); ++k) {
    int64_t rows = batch;
    if (has_own_rows(out[k])) {
      rows = most_rows[k];
      if (!own_offsets[k].defined() || own_offsets[k].numel() < batch + 1)
        own_offsets[k] = Tensor::empty({batch + 1}, DType::kInt64);
      offsets[k] = own_offsets[k].first({batch + 1});
    } else if ((out[k].flags & TSR_VALUE_JAGGED) != 0) {
      const DenseInput& like = inputs[static_cast<size_t>(out[k].rows_like)];
      rows = like.values.size(0);
      offsets[k] = like.offsets;
    }
    ensure(memory[k], rows * out[k].width);
    outputs.push_back(memory[k].first({rows, out[k].width}));
    dl_output_offsets.push_back(has_own_rows(out[k]) ? offsets[k].dl() : DLTensor{});
  }
  for (const Tensor& output : outputs) dl_outputs.push_back(output.dl());
  call.outputs = dl_outputs.data();
  if (own) call.output_offsets = dl_output_offsets.data();
}

// Checks the offsets that the component wrote, and sets its outputs' rows by them.
void DenseLayer::Impl::take_own_offsets() {
  if (call.output_offsets == nullptr) return;
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!has_own_rows(described[k])) continue;
    const std::span<const int64_t> bounds = offsets[k].span<int64_t>();
    const int64_t most = outputs[k].size(0);
    if (bounds.front() != 0 || bounds.back() > most || !std::is_sorted(bounds.begin(), bounds.end()))
      fail(Code::kInternal, "layer ", options.name, " (", part->id(), ") wrote offsets for output ", k,
           " that do not rise from 0 to at most ", most, ", the most rows that it can have");
    outputs[k] = memory[k].first({bounds.back(), described[k].width});
    dl_outputs[k] = outputs[k].dl();
  }
}

void DenseLayer::Impl::start_call(bool train, const StepInfo& step) {
  call = {};
  call.struct_size = sizeof(call);
  if (train) call.flags = TSR_MODULE_TRAIN;
  call.seed = sdk::Random(fnv1a(options.name, options.seed) + static_cast<uint64_t>(step.rank)).bits();
  call.step = step.step;
  call.batch = batch;
  call.num_inputs = static_cast<uint32_t>(dl_inputs.size());
  call.inputs = dl_inputs.data();
  call.offsets = dl_offsets.empty() ? nullptr : dl_offsets.data();
  call.parameters = dl_parameters.data();
  call.buffers = dl_buffers.data();
  call.stream = options.stream ? options.stream->raw() : nullptr;
  call.world_size = 1;
  const auto splits = [](const DenseInput& input) { return (input.flags & TSR_VALUE_SPLIT_IN_EVALUATION) != 0; };
  if (!sums_over_ranks() || !step.sum_over_ranks) return;
  if (!train && std::none_of(inputs.begin(), inputs.end(), splits)) return;
  call.rank = step.rank;
  call.world_size = step.world_size;
  call.sum_over_ranks = &sum_over_ranks;
  call.ranks = this;
  sum = &step.sum_over_ranks;
}

tsr_code DenseLayer::Impl::sum_over_ranks(void* self, const DLTensor* inout, tsr_error* err) noexcept {
  const Impl& m = *static_cast<Impl*>(self);
  const auto refuse = [&](Code code, const char* text, int rank) {
    err->code = static_cast<tsr_code>(code);
    err->rank = rank;
    std::snprintf(err->message, sizeof(err->message), "%s", text);
    return err->code;
  };
  try {
    void* memory = static_cast<char*>(inout->data) + inout->byte_offset;
    const Shape shape(std::vector<int64_t>(inout->shape, inout->shape + inout->ndim));
    const DType dtype = from_dl(inout->dtype);
    (*m.sum)(m.options.stream ? m.options.stream->borrow(memory, shape, dtype) : Tensor::borrow(memory, shape, dtype));
    return TSR_OK;
  } catch (const Error& e) {
    return refuse(e.code(), e.what(), e.rank());
  } catch (const std::exception& e) {
    return refuse(Code::kInternal, e.what(), -1);
  }
}

DenseLayer::DenseLayer(const Runtime& runtime, DenseLayerOptions options) : impl_(std::make_unique<Impl>()) {
  Impl& m = *impl_;
  m.part = create_for_precision(runtime, options);
  m.options = std::move(options);
  check_names(m.options.names);
  for (const tsr_parameter& p : layer_parameters(*m.part, m.options.name)) {
    m.parameters.push_back(m.make(p));
    Parameter& made = *m.parameters.back();
    if (m.options.values == nullptr && !m.options.describes) made.grad = made.grad_buffer = zeros_like(made.value);
    m.dl_parameters.push_back(made.value.dl());
  }
  m.dl_gradients.resize(m.parameters.size());
  for (const tsr_parameter& p : layer_buffers(*m.part, m.options.name)) {
    m.buffers.push_back(m.make(p));
    m.dl_buffers.push_back(m.buffers.back()->value.dl());
  }
}

DenseLayer::~DenseLayer() = default;
DenseLayer::DenseLayer(DenseLayer&&) noexcept = default;

const std::string& DenseLayer::module() const { return impl_->options.module; }
const std::string& DenseLayer::component() const { return impl_->part->id(); }
const ParameterList& DenseLayer::parameters() const { return impl_->parameters; }
const ParameterList& DenseLayer::buffers() const { return impl_->buffers; }
bool DenseLayer::sums_over_ranks() const { return impl_->sums_over_ranks(); }

std::vector<int64_t> DenseLayer::output_widths(std::span<const int64_t> widths) const {
  std::vector<tsr_value> inputs;
  for (const int64_t width : widths) inputs.push_back(dense_value(width));
  std::vector<int64_t> out;
  for (const tsr_value& value : outputs_for(inputs)) out.push_back(value.width);
  return out;
}

std::vector<tsr_value> DenseLayer::outputs_for(std::span<const tsr_value> inputs) const {
  return layer_outputs(*impl_->part, impl_->options.name, inputs);
}

Tensor DenseLayer::forward(const std::vector<Tensor>& inputs, bool train, const StepInfo& step) {
  return run({inputs.begin(), inputs.end()}, train, step).front();
}

const std::vector<Tensor>& DenseLayer::run(const std::vector<DenseInput>& inputs, bool train, const StepInfo& step) {
  Impl& m = *impl_;
  m.release();
  m.kept = train;
  m.take(inputs);
  m.describe_outputs();
  m.start_call(train, step);
  m.make_outputs();
  AbiError err;
  const plugin::CallScope call(*m.part, "forward", m.options.name);
  m.check(m.api().forward(m.part->self(), &m.call, train ? &m.context : nullptr, err.out()), err, "forward");
  m.take_own_offsets();
  if (!train) m.inputs.clear();
  return m.outputs;
}

const std::vector<Tensor>& DenseLayer::output_offsets() const { return impl_->offsets; }

const std::vector<Tensor>& DenseLayer::backward(const std::vector<Tensor>& grad_outputs,
                                                const std::vector<bool>& wanted) {
  Impl& m = *impl_;
  TESSERA_CHECK(std::exchange(m.kept, false), "backward follows a forward that was kept for it, once");
  TESSERA_CHECK(m.options.values == nullptr, "a layer with values that are given is not trained");
  TESSERA_CHECK(grad_outputs.size() == m.outputs.size(), "a gradient for each output");
  m.dl_grad_outputs.clear();
  for (size_t k = 0; k < grad_outputs.size(); ++k) {
    const bool zero = !grad_outputs[k].defined();
    TESSERA_CHECK(zero || grad_outputs[k].shape() == m.outputs[k].shape(), "the gradient is shaped like the output");
    m.dl_grad_outputs.push_back(zero ? m.dl_outputs[k] : grad_outputs[k].dl());
    if (zero) m.dl_grad_outputs.back().data = nullptr;
  }
  m.grads.assign(m.inputs.size(), {});
  m.grad_memory.resize(m.inputs.size());
  m.dl_grad_inputs.clear();
  for (size_t i = 0; i < m.inputs.size(); ++i) {
    const Tensor& input = m.inputs[i].values;
    Tensor& grad = m.grads[i];
    if (input.dtype() == DType::kFloat32 && (wanted.empty() || wanted[i])) {
      m.ensure(m.grad_memory[i], input.numel());
      grad = m.grad_memory[i].first(input.shape());
    }
    m.dl_grad_inputs.push_back(grad.defined() ? grad.dl() : m.dl_inputs[i]);
    if (!grad.defined()) m.dl_grad_inputs.back().data = nullptr;
  }
  m.restore_gradients();
  tsr_module_call call = m.call;
  call.grad_outputs = m.dl_grad_outputs.data();
  call.grad_inputs = m.dl_grad_inputs.data();
  call.grad_parameters = m.dl_gradients.data();
  AbiError err;
  const plugin::CallScope asked(*m.part, "backward", m.options.name);
  const tsr_code code = m.api().backward(m.part->self(), &call, m.context, err.out());
  m.release();
  m.check(code, err, "backward");
  m.inputs.clear();  // the caller may now overwrite its tensors
  return m.grads;
}

double binary_cross_entropy_with_logits(const Tensor& logits, const WeightedLabels& to, const Tensor& grad,
                                        double scale) {
  const int64_t n = logits.numel();
  const bool weighted = to.weights.defined();
  TESSERA_CHECK(to.labels.numel() == n && (!grad.defined() || grad.numel() == n));
  TESSERA_CHECK(!weighted || to.weights.numel() == n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double x = logits.data<float>()[i], y = to.labels.data<float>()[i];
    const double weight = weighted ? to.weights.data<float>()[i] : 1.0;
    const double e = std::exp(-std::abs(x));
    sum += weight * (std::max(x, 0.0) - x * y + std::log1p(e));
    if (grad.defined()) {
      const double p = x >= 0 ? 1 / (1 + e) : e / (1 + e);
      grad.data<float>()[i] = static_cast<float>(weight * scale * (p - y));
    }
  }
  return sum;
}

void binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& labels, const Tensor& grad, double scale,
                                      const Tensor& sum) {
  const int64_t n = logits.numel();
  DeviceStream* stream = logits.stream();
  TESSERA_CHECK(stream && labels.stream() == stream && sum.stream() == stream,
                "logits, labels and sum are on a device");
  TESSERA_CHECK(labels.numel() == n && (!grad.defined() || grad.numel() == n));
  TESSERA_CHECK(sum.dtype() == DType::kFloat64 && sum.numel() == 1, "the sum is one float64");
  tsr_binary_cross_entropy loss{};
  loss.struct_size = sizeof(loss);
  loss.device_index = stream->device().index;
  loss.n = n;
  loss.logits = static_cast<const float*>(logits.raw());
  loss.labels = static_cast<const float*>(labels.raw());
  loss.grad = grad.defined() ? static_cast<float*>(grad.raw()) : nullptr;
  loss.sum = static_cast<double*>(sum.raw());
  loss.scale = scale;
  stream->binary_cross_entropy(loss);
}

}  // namespace tessera

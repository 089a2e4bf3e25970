#include "tessera/dense.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "config/fnv1a.h"
#include "config/splitmix64.h"
#include "modules/layer_part.h"
#include "plugin/calls.h"

namespace tessera {
namespace {

// A stream of random numbers that depends on the seed and a name alone (Box-Muller for normals).
class NamedRandom {
 public:
  NamedRandom(uint64_t seed, const std::string& name) : random_(fnv1a(name, seed)) {}
  double uniform() { return (static_cast<double>(random_.bits() >> 11) + 1.0) * 0x1p-53; }  // in (0, 1]
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform()); }

 private:
  SplitMix64 random_;
};

void fill_start_values(const tsr_parameter& p, const std::string& name, uint64_t seed, Tensor& value) {
  if (p.init == TSR_INIT_ZERO) {
    value.fill(0);
    return;
  }
  if (p.init != TSR_INIT_XAVIER_NORMAL || p.ndim != 2) {
    fail(Code::kUnimplemented, "parameter ", name, " wants start values of a kind (", p.init,
         ") that this core does not know");
  }
  NamedRandom random(seed, name);
  const double std = std::sqrt(2.0 / static_cast<double>(p.shape[0] + p.shape[1]));
  for (float& v : value.span<float>()) v = static_cast<float>(std * random.normal());
}

}  // namespace

struct DenseLayer::Impl {
  DenseLayerOptions options;
  PartPtr part;
  ParameterList parameters;
  std::vector<Tensor> inputs;
  Tensor output;
  std::vector<int64_t> output_shape;
  bool kept = false;  // the last forward may have a backward
  std::vector<Tensor> grad_inputs;
  tsr_module_context* context = nullptr;
  std::vector<DLTensor> dl_parameters, dl_gradients;  // of the parameters; values never move

  // Memory of the layer, on its device.
  Tensor empty(const Shape& shape) const {
    return options.stream ? options.stream->empty(shape) : Tensor::empty(shape);
  }
  tsr_stream stream() const { return options.stream ? options.stream->raw() : nullptr; }
  // At least so many values; what was in a buffer that grows is lost.
  void ensure(Tensor& buffer, int64_t numel) const {
    if (!buffer.defined() || buffer.numel() < numel) buffer = empty({std::max<int64_t>(numel, 1)});
  }
  void clear(const Tensor& tensor) const {
    if (options.stream)
      options.stream->fill(tensor, 0);
    else
      std::fill_n(tensor.data<float>(), tensor.numel(), 0.0f);
  }

  const tsr_module& api() const { return part->api<tsr_module>(); }
  std::string what(const char* call) const { return cat("layer ", options.name, " (", part->id(), ") ", call); }
  void release() {
    if (context) api().release(part->self(), context);
    context = nullptr;
  }
  // Gradients are in their buffers again: zero where one was cleared, copied where it was replaced.
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
      if (options.stream) options.stream->synchronize();  // the part's memory goes with it
    } catch (const Error&) {                              // whoever waits for the stream next is told
    }
    release();
  }
};

DenseLayer::DenseLayer(const Runtime& runtime, DenseLayerOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->part = create_layer(runtime, options.module, options.options, options.stream);
  impl_->options = std::move(options);
  for (uint32_t i = 0;; ++i) {
    tsr_parameter p{};
    p.struct_size = sizeof(p);
    AbiError err;
    const plugin::CallScope call(*impl_->part, "parameter", impl_->options.name);
    const tsr_code code = impl_->api().parameter(impl_->part->self(), i, &p, err.out());
    if (code == TSR_OUT_OF_RANGE) break;
    err.check(code, impl_->what("parameter"));
    auto parameter = std::make_shared<Parameter>();
    parameter->name = impl_->options.name + "." + p.name;
    const std::vector<int64_t> shape(p.shape, p.shape + p.ndim);
    parameter->value = Tensor::empty(shape);
    fill_start_values(p, parameter->name, impl_->options.seed, parameter->value);
    if (impl_->options.stream) parameter->value = impl_->options.stream->to_device(parameter->value);
    parameter->grad = parameter->grad_buffer = zeros_like(parameter->value);
    impl_->parameters.push_back(std::move(parameter));
  }
  for (const ParameterPtr& p : impl_->parameters) impl_->dl_parameters.push_back(p->value.dl());
  impl_->dl_gradients.resize(impl_->parameters.size());
}

DenseLayer::~DenseLayer() = default;
DenseLayer::DenseLayer(DenseLayer&&) noexcept = default;

const std::string& DenseLayer::module() const { return impl_->options.module; }
const std::string& DenseLayer::component() const { return impl_->part->id(); }
const ParameterList& DenseLayer::parameters() const { return impl_->parameters; }

int64_t DenseLayer::output_width(std::span<const int64_t> widths) const {
  int64_t width = 0;
  AbiError err;
  const plugin::CallScope call(*impl_->part, "output_width", impl_->options.name);
  err.check(impl_->api().output_width(impl_->part->self(), static_cast<uint32_t>(widths.size()), widths.data(), &width,
                                      err.out()),
            impl_->what("output_width"));
  return width;
}

Tensor DenseLayer::forward(const std::vector<Tensor>& inputs, bool keep_for_backward) {
  Impl& m = *impl_;
  m.release();
  m.kept = keep_for_backward;
  std::vector<int64_t> widths;
  std::vector<DLTensor> in;
  for (const Tensor& t : inputs) {
    TESSERA_CHECK(t.dim() == 2 && t.size(0) == inputs[0].size(0), "inputs are [batch, width]");
    TESSERA_CHECK(t.stream() == m.options.stream.get(), "inputs of layer ", m.options.name, " are where the layer is");
    widths.push_back(t.size(1));
    in.push_back(t.dl());
  }
  const int64_t batch = inputs.at(0).size(0), width = output_width(widths);
  m.ensure(m.output, batch * width);
  m.output_shape = {batch, width};
  const Tensor output = m.output.first(m.output_shape);
  const DLTensor out = output.dl();
  AbiError err;
  m.inputs = inputs;
  const plugin::CallScope call(*m.part, "forward", m.options.name);
  err.check(m.api().forward(m.part->self(), static_cast<uint32_t>(in.size()), in.data(), m.dl_parameters.data(), &out,
                            m.stream(), keep_for_backward ? &m.context : nullptr, err.out()),
            m.what("forward"));
  if (!keep_for_backward) m.inputs.clear();
  return output;
}

std::vector<Tensor> DenseLayer::backward(const Tensor& grad_output, const std::vector<bool>& wanted) {
  Impl& m = *impl_;
  TESSERA_CHECK(std::exchange(m.kept, false), "backward follows a forward that was kept for it, once");
  TESSERA_CHECK(grad_output.shape() == m.output_shape, "the gradient is shaped like the output");
  std::vector<Tensor> grads(m.inputs.size());
  std::vector<DLTensor> in, grad_in;
  m.grad_inputs.resize(m.inputs.size());
  for (size_t i = 0; i < m.inputs.size(); ++i) {
    const Tensor& input = m.inputs[i];
    in.push_back(input.dl());
    if (wanted.empty() || wanted[i]) {
      m.ensure(m.grad_inputs[i], input.numel());
      grads[i] = m.grad_inputs[i].first(input.shape());
    }
  }
  for (size_t i = 0; i < grads.size(); ++i) {
    grad_in.push_back(grads[i].defined() ? grads[i].dl() : in[i]);
    if (!grads[i].defined()) grad_in.back().data = nullptr;
  }
  m.restore_gradients();
  const Tensor output = m.output.first(m.output_shape);
  const DLTensor out = output.dl(), grad_out = grad_output.dl();
  AbiError err;
  tsr_module_context* context = std::exchange(m.context, nullptr);
  const plugin::CallScope call(*m.part, "backward", m.options.name);
  err.check(
      m.api().backward(m.part->self(), context, static_cast<uint32_t>(in.size()), in.data(), m.dl_parameters.data(),
                       &out, &grad_out, grad_in.data(), m.dl_gradients.data(), m.stream(), err.out()),
      m.what("backward"));
  m.inputs.clear();  // whose they are may write them again
  return grads;
}

double binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& labels, const Tensor& grad, double scale) {
  const int64_t n = logits.numel();
  TESSERA_CHECK(labels.numel() == n && (!grad.defined() || grad.numel() == n));
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double x = logits.data<float>()[i], y = labels.data<float>()[i];
    const double e = std::exp(-std::abs(x));
    sum += std::max(x, 0.0) - x * y + std::log1p(e);
    if (grad.defined()) {
      const double p = x >= 0 ? 1 / (1 + e) : e / (1 + e);
      grad.data<float>()[i] = static_cast<float>(scale * (p - y));
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

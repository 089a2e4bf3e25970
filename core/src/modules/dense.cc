#include "tessera/dense.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "config/fnv1a.h"

namespace tessera {
namespace {

// A stream of random numbers that depends on the seed and a name alone (splitmix64; Box-Muller for normals).
class NamedRandom {
 public:
  NamedRandom(uint64_t seed, const std::string& name) : state_(fnv1a(name, seed)) {}
  double uniform() {  // in (0, 1]
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (static_cast<double>(z >> 11) + 1.0) * 0x1p-53;
  }
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform()); }

 private:
  uint64_t state_;
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
  std::vector<Tensor> gradients;  // what the parameters' grad refers to; kept when an optimizer clears it
  std::vector<Tensor> inputs;
  Tensor output;
  std::vector<int64_t> output_shape;
  bool kept = false;  // the last forward may have a backward
  std::vector<Tensor> grad_inputs;
  tsr_module_context* context = nullptr;
  std::vector<DLTensor> dl_parameters, dl_gradients;  // of the parameters, which never move

  const tsr_module& api() const { return part->api<tsr_module>(); }
  std::string what(const char* call) const { return cat("layer ", options.name, " (", part->id(), ") ", call); }
  void release() {
    if (context) api().release(part->self(), context);
    context = nullptr;
  }
  // A cleared gradient is zero again; one that somebody replaced is taken over.
  void restore_gradients() {
    for (size_t i = 0; i < parameters.size(); ++i) {
      Tensor& grad = parameters[i]->grad;
      if (grad.defined() && grad.raw() == gradients[i].raw()) continue;
      TESSERA_CHECK(!grad.defined() || grad.shape() == gradients[i].shape(), "a gradient keeps its shape");
      if (grad.defined())
        std::copy_n(grad.data<float>(), grad.numel(), gradients[i].data<float>());
      else
        gradients[i].fill(0);
      grad = gradients[i];
    }
  }
  ~Impl() { release(); }
};

DenseLayer::DenseLayer(const Runtime& runtime, DenseLayerOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->part = runtime.create(TSR_MODULE_KIND, options.module, options.options);
  impl_->options = std::move(options);
  for (uint32_t i = 0;; ++i) {
    tsr_parameter p{};
    p.struct_size = sizeof(p);
    AbiError err;
    const tsr_code code = impl_->api().parameter(impl_->part->self(), i, &p, err.out());
    if (code == TSR_OUT_OF_RANGE) break;
    err.check(code, impl_->what("parameter"));
    auto parameter = std::make_shared<Parameter>();
    parameter->name = impl_->options.name + "." + p.name;
    const std::vector<int64_t> shape(p.shape, p.shape + p.ndim);
    parameter->value = Tensor::empty(shape);
    parameter->grad = Tensor::zeros(shape);
    impl_->gradients.push_back(parameter->grad);
    fill_start_values(p, parameter->name, impl_->options.seed, parameter->value);
    impl_->parameters.push_back(std::move(parameter));
  }
  for (const ParameterPtr& p : impl_->parameters) impl_->dl_parameters.push_back(p->value.dl());
  for (const Tensor& grad : impl_->gradients) impl_->dl_gradients.push_back(grad.dl());
}

DenseLayer::~DenseLayer() = default;
DenseLayer::DenseLayer(DenseLayer&&) noexcept = default;

const ParameterList& DenseLayer::parameters() const { return impl_->parameters; }

int64_t DenseLayer::output_width(std::span<const int64_t> widths) const {
  int64_t width = 0;
  AbiError err;
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
    widths.push_back(t.size(1));
    in.push_back(t.dl());
  }
  const int64_t batch = inputs.at(0).size(0), width = output_width(widths);
  if (!m.output.defined() || m.output.numel() < batch * width)
    m.output = Tensor::empty({std::max<int64_t>(batch * width, 1)});
  m.output_shape = {batch, width};
  const Tensor output = m.output.first(m.output_shape);
  const DLTensor out = output.dl();
  AbiError err;
  m.inputs = inputs;
  err.check(m.api().forward(m.part->self(), static_cast<uint32_t>(in.size()), in.data(), m.dl_parameters.data(), &out,
                            nullptr, keep_for_backward ? &m.context : nullptr, err.out()),
            m.what("forward"));
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
      Tensor& buffer = m.grad_inputs[i];
      if (!buffer.defined() || buffer.numel() < input.numel())
        buffer = Tensor::empty({std::max<int64_t>(input.numel(), 1)});
      grads[i] = buffer.first(input.shape());
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
  err.check(
      m.api().backward(m.part->self(), context, static_cast<uint32_t>(in.size()), in.data(), m.dl_parameters.data(),
                       &out, &grad_out, grad_in.data(), m.dl_gradients.data(), nullptr, err.out()),
      m.what("backward"));
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

}  // namespace tessera

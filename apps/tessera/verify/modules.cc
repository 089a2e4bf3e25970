// Dense layers: gradients by differences, and what they owe those who call them.
#include "tessera/abi/module.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "verify/check.h"
#include "verify/kernel_bed.h"

namespace tessera::cli::verify {
namespace {

// Inputs that a layer takes: found by asking, as a layer's options mean what they like.
std::vector<int64_t> find_widths(const tsr_module& api, void* self) {
  const auto takes = [&](const std::vector<int64_t>& widths) {
    int64_t width = 0;
    Call call;
    return api.output_width(self, static_cast<uint32_t>(widths.size()), widths.data(), &width, call.out()) == TSR_OK &&
           width > 0;
  };
  for (const int64_t w : {12, 8, 16, 4}) {
    if (takes({w})) return {w};
  }
  for (int64_t w = 1; w <= 512; ++w) {
    if (takes({w})) return {w};
  }
  for (const auto& pair : {std::vector<int64_t>{4, 12}, {8, 8}, {4, 4}}) {
    if (takes(pair)) return pair;
  }
  for (int64_t a = 1; a <= 32; ++a) {
    for (int64_t b = 1; b <= 64; ++b) {
      if (takes({a, b})) return {a, b};
    }
  }
  for (int64_t a = 1; a <= 8; ++a) {
    for (int64_t i = 0; i < 64; ++i) {
      if (takes({a, 1 + i / 8, 1 + i % 8})) return {a, 1 + i / 8, 1 + i % 8};
    }
  }
  throw Skipped(
      "verify found no inputs that it takes: one of up to 512, two of up to 32 and 64, three of up to 8 wide");
}

std::vector<tsr_parameter> parameters_of(const tsr_module& api, void* self) {
  std::vector<tsr_parameter> out;
  for (uint32_t i = 0; i < 10000; ++i) {
    tsr_parameter p{};
    p.struct_size = sizeof(p);
    Call call;
    const tsr_code code = api.parameter(self, i, &p, call.out());
    if (call.fails_well(code, "parameter"); code == TSR_OUT_OF_RANGE) return out;
    call.succeeds(code, cat("parameter ", i));
    out.push_back(p);
  }
  broken("its list of parameters does not end");
}

// A layer with its inputs, parameters, output and all gradients.
class Layer {
 public:
  Layer(Subject& subject, Random& random, int64_t batch)
      : subject_(subject), part_(subject.make()), api_(part_.api<tsr_module>()), batch_(batch) {
    subject.doing("output_width");
    widths_ = find_widths(api_, part_.self());
    Call call;
    call.succeeds(
        api_.output_width(part_.self(), static_cast<uint32_t>(widths_.size()), widths_.data(), &width_, call.out()),
        "output_width");
    for (const int64_t w : widths_) {
      inputs.push_back(filled({batch, w}, random, 1));
      grad_inputs.push_back(std::make_unique<Array>(kFloat32, std::vector<int64_t>{batch, w}));
    }
    for (const tsr_parameter& p : parameters_of(api_, part_.self())) {
      const std::vector<int64_t> shape(p.shape, p.shape + p.ndim);
      parameters.push_back(filled(shape, random, 0.4));
      grad_parameters.push_back(std::make_unique<Array>(kFloat32, shape));
    }
    output = std::make_unique<Array>(kFloat32, std::vector<int64_t>{batch, width_});
    direction = filled({batch, width_}, random, 1);
  }

  tsr_module_context* forward(bool backward_follows, double before = kUntouched) {
    for (int64_t i = 0; i < output->size(); ++i) output->set(i, before);
    const auto in = raw(inputs), params = raw(parameters);
    tsr_module_context* context = nullptr;
    subject_.doing("forward");
    Call call;
    call.succeeds(api_.forward(part_.self(), static_cast<uint32_t>(in.size()), in.data(), params.data(), output->raw(),
                               nullptr, backward_follows ? &context : nullptr, call.out()),
                  "forward");
    output->check_end("forward");
    return context;
  }
  // Of `wanted` inputs; the others' gradients have data NULL.
  void backward(tsr_module_context* context, bool wanted = true) {
    const auto in = raw(inputs), params = raw(parameters), grad_params = raw(grad_parameters);
    auto grad_in = raw(grad_inputs);
    if (!wanted) {
      for (DLTensor& t : grad_in) t.data = nullptr;
    }
    subject_.doing("backward");
    Call call;
    call.succeeds(
        api_.backward(part_.self(), context, static_cast<uint32_t>(in.size()), in.data(), params.data(), output->raw(),
                      direction->raw(), grad_in.data(), grad_params.data(), nullptr, call.out()),
        "backward");
    for (const auto& a : grad_inputs) a->check_end("backward");
    for (const auto& a : grad_parameters) a->check_end("backward");
  }
  void release(tsr_module_context* context) {
    subject_.doing("release");
    api_.release(part_.self(), context);
  }
  // The sum of output * direction.
  double loss() {
    forward(false);
    double sum = 0;
    for (int64_t i = 0; i < output->size(); ++i) sum += output->get(i) * direction->get(i);
    return sum;
  }

  std::vector<std::unique_ptr<Array>> inputs, parameters, grad_inputs, grad_parameters;
  std::unique_ptr<Array> output, direction;

 private:
  static std::unique_ptr<Array> filled(std::vector<int64_t> shape, Random& random, double scale) {
    auto out = std::make_unique<Array>(kFloat32, std::move(shape));
    std::normal_distribution<double> normal(0, scale);
    for (int64_t i = 0; i < out->size(); ++i) out->set(i, normal(random));
    return out;
  }
  static std::vector<DLTensor> raw(const std::vector<std::unique_ptr<Array>>& arrays) {
    std::vector<DLTensor> out;
    for (const auto& a : arrays) out.push_back(*a->raw());
    return out;
  }
  Subject& subject_;
  Made part_;
  const tsr_module& api_;
  int64_t batch_, width_ = 0;
  std::vector<int64_t> widths_;
};

void check_module_parameters(Subject& subject) {
  const Made part = subject.make();
  const auto& api = part.api<tsr_module>();
  subject.doing("parameter");
  std::set<std::string> names;
  for (const tsr_parameter& p : parameters_of(api, part.self())) {
    require(p.name != nullptr && *p.name != '\0', "a parameter has no name");
    require(names.insert(p.name).second, "two parameters are called ", p.name);
    require(p.ndim >= 1 && p.ndim <= 4, "parameter ", p.name, " has ", p.ndim, " dimensions, but 1 to 4 are allowed");
    for (int32_t d = 0; d < p.ndim; ++d)
      require(p.shape[d] > 0, "parameter ", p.name, " has ", p.shape[d], " for dimension ", d);
    require(p.init == TSR_INIT_ZERO || p.init == TSR_INIT_XAVIER_NORMAL, "parameter ", p.name, " has init ", p.init,
            ", which does not exist");
    require(p.init != TSR_INIT_XAVIER_NORMAL || p.ndim >= 2, "parameter ", p.name,
            " starts as TSR_INIT_XAVIER_NORMAL, ", "which needs two dimensions");
  }
}

void check_module_widths(Subject& subject) {
  const Made part = subject.make();
  const auto& api = part.api<tsr_module>();
  const std::vector<int64_t> widths = find_widths(api, part.self());
  int64_t width = 0;
  const std::vector<int64_t> many(widths.size() + 5, 3);
  subject.doing("output_width of too many inputs");
  Call call;
  const tsr_code code =
      api.output_width(part.self(), static_cast<uint32_t>(many.size()), many.data(), &width, call.out());
  if (code != TSR_OK) call.fails_well(code, "output_width of too many inputs");
  subject.doing("output_width of no inputs");
  Call none;
  none.fails(api.output_width(part.self(), 0, widths.data(), &width, none.out()), "output_width of no inputs");
}

void check_module_inference(Subject& subject) {
  Random random = subject.random();
  Layer layer(subject, random, 5);
  tsr_module_context* context = layer.forward(true);
  std::vector<double> trained;
  for (int64_t i = 0; i < layer.output->size(); ++i) {
    trained.push_back(layer.output->get(i));
    require(trained.back() != kUntouched, "forward leaves element ", i, " of the output unwritten");
  }
  layer.release(context);
  layer.forward(false, 5);
  for (int64_t i = 0; i < layer.output->size(); ++i) {
    const double want = trained[static_cast<size_t>(i)];
    require(std::abs(layer.output->get(i) - want) <= 1e-4 + 1e-4 * std::abs(want),
            "without a context, into memory that held 5, forward gives ", layer.output->get(i), " for element ", i,
            ", with one, over 77, ", want);
  }
}

// The slope of the loss at an element, by differences; nothing where it has a kink there.
std::optional<double> slope(Layer& layer, Array& at, int64_t i, double loss) {
  constexpr double kStep = 2e-3;
  const double before = at.get(i);
  at.set(i, before + kStep);
  const double up = (layer.loss() - loss) / (at.get(i) - before);
  at.set(i, before - kStep);
  const double down = (loss - layer.loss()) / (before - at.get(i));
  at.set(i, before);
  if (std::abs(up - down) > 0.05 + 0.05 * std::abs(up)) return std::nullopt;
  return (up + down) / 2;
}

void compare_gradient(Layer& layer, Array& at, const Array& gradient, const std::string& what, double times = 1) {
  const double loss = layer.loss();
  const int64_t stride = std::max<int64_t>(1, at.size() / 40);
  for (int64_t i = 0; i < at.size(); i += stride) {
    const std::optional<double> want = slope(layer, at, i, loss);
    if (!want) continue;
    const double got = gradient.get(i) / times;
    require(std::abs(got - *want) <= 0.05 + 0.03 * std::abs(*want), "the gradient of element ", i, " of ", what, " is ",
            got, ", but the loss changes by ", *want, " there");
  }
}

void check_module_gradients(Subject& subject) {
  for (const int64_t batch : {int64_t{1}, int64_t{6}}) {
    Random random = subject.random(static_cast<uint64_t>(batch));
    Layer layer(subject, random, batch);
    layer.backward(layer.forward(true));
    for (size_t i = 0; i < layer.inputs.size(); ++i)
      compare_gradient(layer, *layer.inputs[i], *layer.grad_inputs[i], cat("input ", i));
    for (size_t p = 0; p < layer.parameters.size(); ++p)
      compare_gradient(layer, *layer.parameters[p], *layer.grad_parameters[p], cat("parameter ", p));
  }
}

// Gradients of parameters are added to; gradients of inputs are written, and only where they are wanted.
void check_module_accumulation(Subject& subject) {
  Random random = subject.random(7);
  Layer layer(subject, random, 4);
  for (const auto& g : layer.grad_inputs) {
    for (int64_t i = 0; i < g->size(); ++i) g->set(i, 1000);
  }
  layer.backward(layer.forward(true));
  for (size_t i = 0; i < layer.inputs.size(); ++i)
    compare_gradient(layer, *layer.inputs[i], *layer.grad_inputs[i], cat("input ", i, ", which held 1000 before,"));
  layer.backward(layer.forward(true), false);
  for (size_t p = 0; p < layer.parameters.size(); ++p) {
    compare_gradient(layer, *layer.parameters[p], *layer.grad_parameters[p],
                     cat("parameter ", p, ", half of what two backwards added up,"), 2);
  }
}

void check_module_sequences(Subject& subject) {
  Random random = subject.random(8);
  for (int i = 0; i < 60; ++i) {
    subject.host().threads = 1 + static_cast<uint32_t>(random() % 3);
    Layer layer(subject, random, between(random, 0, 300));
    tsr_module_context* first = layer.forward(true);
    layer.forward(false);
    layer.release(first);
    tsr_module_context* second = layer.forward(true);
    layer.backward(second);
    if (i % 10 == 0 && layer.output->size() > 0 && layer.output->size() < 4000)
      compare_gradient(layer, *layer.inputs[0], *layer.grad_inputs[0], "input 0");
  }
}

}  // namespace

std::span<const Check> module_checks() {
  static constexpr const char* kBackward = "abi/module.h, tsr_module::backward";
  static constexpr Check kChecks[] = {
      {"module.parameters", 3, TSR_MODULE_KIND, "abi/module.h, tsr_parameter", 20, check_module_parameters},
      {"module.widths", 3, TSR_MODULE_KIND, "abi/module.h, tsr_module::output_width", 20, check_module_widths},
      {"module.inference", 4, TSR_MODULE_KIND, "abi/module.h, tsr_module::forward", 20, check_module_inference},
      {"module.gradients", 4, TSR_MODULE_KIND, kBackward, 60, check_module_gradients},
      {"module.accumulation", 4, TSR_MODULE_KIND, kBackward, 60, check_module_accumulation},
      {"module.sequences", 5, TSR_MODULE_KIND, kBackward, 120, check_module_sequences},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify

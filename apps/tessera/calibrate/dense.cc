// Dense layers, and the update of their parameters.
#include "tessera/dense.h"
#include "calibrate/calibrate.h"
#include "tessera/optim.h"

namespace tessera::cli {
namespace {

constexpr const char* kMlp = "mlp";
constexpr const char* kInteraction = "dot_interaction";

// Forward and backward of a layer, in seconds.
std::pair<double, double> measure_layer(const Runtime& runtime, const DenseLayerOptions& options,
                                        const std::vector<Tensor>& inputs, int64_t outputs, const Trials& trials) {
  DenseLayer layer(runtime, options);
  Tensor grad = Tensor::empty({inputs[0].size(0), outputs});
  grad.fill(1e-3);
  const double forward = trials.time([&] { layer.forward(inputs, true); });
  const double backward = trials.time([&] { layer.backward(grad); }, [&] { layer.forward(inputs, true); });
  return {forward, backward};
}

Tensor filled(std::vector<int64_t> shape) {
  Tensor out = Tensor::empty(std::move(shape));
  out.fill(0.01);
  return out;
}

void measure_layers(const Runtime& runtime, const Trials& trials, DenseFigures* out) {
  struct Shape {
    int64_t batch, in, out;
  };
  constexpr Shape kShapes[] = {{16, 16, 16},    {64, 32, 32},    {64, 64, 64},
                               {128, 128, 128}, {256, 256, 256}, {256, 512, 512}};
  std::vector<std::pair<double, double>> forward, backward;
  for (const Shape& s : kShapes) {
    const DenseLayerOptions options{
        kMlp, cat(R"({"layers": [)", s.in, ", ", s.out, R"(], "final_activation": "relu"})"), "calibrate", 1};
    const auto [f, b] = measure_layer(runtime, options, {filled({s.batch, s.in})}, s.out, trials);
    const double work = 2.0 * static_cast<double>(s.batch * s.in * s.out);
    forward.emplace_back(work, f);
    backward.emplace_back(work, b);
  }
  out->layer_forward = Curve(std::move(forward));
  out->layer_backward = Curve(std::move(backward));
}

void measure_interaction(const Runtime& runtime, const Trials& trials, DenseFigures* out) {
  struct Shape {
    int64_t batch, vectors, dim;
  };
  constexpr Shape kShapes[] = {{16, 5, 8}, {64, 10, 16}, {128, 10, 16}, {256, 27, 16}, {256, 27, 64}};
  std::vector<std::pair<double, double>> forward, backward;
  for (const Shape& s : kShapes) {
    const auto [f, b] = measure_layer(runtime, {kInteraction, "{}", "calibrate", 1},
                                      {filled({s.batch, s.dim}), filled({s.batch, (s.vectors - 1) * s.dim})},
                                      s.dim + s.vectors * (s.vectors - 1) / 2, trials);
    const auto work = static_cast<double>(s.batch * s.vectors * s.vectors * s.dim);
    forward.emplace_back(work, f);
    backward.emplace_back(work, b);
  }
  out->interaction_forward = Curve(std::move(forward));
  out->interaction_backward = Curve(std::move(backward));
}

StageFigures measure_update(const Trials& trials) {
  struct Shape {
    int64_t tensors, elements;
  };
  constexpr Shape kShapes[] = {{2, 256}, {2, 262144}, {24, 256}, {8, 16384}};
  std::vector<std::vector<double>> work;
  std::vector<double> seconds;
  for (const Shape& s : kShapes) {
    ParameterList parameters;
    const Tensor grad = filled({s.elements});
    for (int64_t i = 0; i < s.tensors; ++i) {
      auto p = std::make_shared<Parameter>();
      p->name = cat("p", i);
      p->value = filled({s.elements});
      parameters.push_back(std::move(p));
    }
    const KeyedOptimizerPtr optimizer =
        make_dense_optimizer({"adagrad", R"({"learning_rate": 0.01, "eps": 1e-8})"}, parameters);
    const auto update = [&] {
      optimizer->step();
      optimizer->zero_grad();
    };
    seconds.push_back(trials.time(update, [&] {
      for (const ParameterPtr& p : parameters) p->grad = grad;
    }));
    work.push_back({1, static_cast<double>(s.tensors), static_cast<double>(s.tensors * s.elements * 4)});
  }
  const std::vector<double> x = fit_nonnegative(work, seconds);
  return {x[0], x[1], 0, 0, 0, x[2]};
}

}  // namespace

std::optional<DenseFigures> measure_dense(const Runtime& runtime, const Trials& trials) {
  if (!runtime.has(TSR_MODULE_KIND, kMlp) || !runtime.has(TSR_MODULE_KIND, kInteraction)) return std::nullopt;
  DenseFigures out;
  measure_layers(runtime, trials, &out);
  measure_interaction(runtime, trials, &out);
  out.update = measure_update(trials);
  return out;
}

}  // namespace tessera::cli

// Measures dense layers.
#include "tessera/dense.h"

#include <algorithm>
#include <iterator>

#include "calibration/parts.h"
#include "distributed/stopwatch.h"

namespace tessera {
namespace {

constexpr const char* kMlp = "mlp";
constexpr const char* kInteraction = "dot_interaction";

Tensor filled(const std::vector<int64_t>& shape) {
  Tensor out = Tensor::empty(shape);
  out.fill(0.01);
  return out;
}

// A layer with an input, and its amount of work.
struct LayerSubject {
  DenseLayer layer;
  std::vector<Tensor> inputs;
  Tensor grad;
  double work;
};

struct LayerShape {
  int64_t batch, in, out;
};
LayerSubject layer_of(const Runtime& runtime, const LayerShape& s) {
  return {DenseLayer(runtime, {kMlp, str_cat(R"({"layers": [)", s.in, ", ", s.out, R"(], "final_activation": "relu"})"),
                               "calibrate", 1}),
          {filled({s.batch, s.in})},
          filled({s.batch, s.out}),
          2.0 * static_cast<double>(s.batch * s.in * s.out)};
}

struct InteractionShape {
  int64_t batch, vectors, dim;
};
LayerSubject interaction_of(const Runtime& runtime, const InteractionShape& s) {
  return {DenseLayer(runtime, {kInteraction, "{}", "calibrate", 1}),
          {filled({s.batch, s.dim}), filled({s.batch, (s.vectors - 1) * s.dim})},
          filled({s.batch, s.dim + s.vectors * (s.vectors - 1) / 2}),
          static_cast<double>(s.batch * s.vectors * s.vectors * s.dim)};
}

using Points = std::vector<std::pair<double, double>>;

// Adds a point of time over work for every subject. The subjects take turns, like the layers of a model. A layer that
// runs alone in a loop has its code, weights and values in the nearest cache, and looks too fast.
void measure_in_turn(const Trials& trials, std::vector<LayerSubject>& subjects, Points* forward, Points* backward) {
  const std::vector<double> times = trials.times([&] {
    std::vector<double> seconds;
    for (LayerSubject& s : subjects) {
      const Stopwatch watch;
      s.layer.forward(s.inputs, true);
      seconds.push_back(watch.seconds());
    }
    for (LayerSubject& s : subjects) {
      const Stopwatch watch;
      s.layer.backward(s.grad);
      seconds.push_back(watch.seconds());
    }
    return seconds;
  });
  for (size_t i = 0; i < subjects.size(); ++i) {
    forward->emplace_back(subjects[i].work, times[i]);
    backward->emplace_back(subjects[i].work, times[subjects.size() + i]);
  }
}

// Sorts the points by work. More work never takes less time.
Curve curve_of(Points points) {
  std::sort(points.begin(), points.end());
  for (size_t i = 1; i < points.size(); ++i) points[i].second = std::max(points[i].second, points[i - 1].second);
  return Curve(std::move(points));
}

void measure_layers(const Runtime& runtime, const Trials& trials, DenseFigures* out) {
  constexpr LayerShape kSmall[] = {{16, 16, 16}, {64, 32, 32}, {64, 64, 64}, {128, 128, 128}};
  constexpr LayerShape kLarge[] = {{256, 256, 256}, {256, 512, 512}};
  constexpr InteractionShape kSmallInteractions[] = {{16, 5, 8}, {64, 10, 16}, {128, 10, 16}};
  constexpr InteractionShape kLargeInteractions[] = {{256, 27, 16}, {256, 27, 64}};
  Points forward, backward, interacted, interacted_back;
  const auto both = [&](const auto& layers, const auto& interactions) {
    std::vector<LayerSubject> subjects;
    for (const LayerShape& s : layers) subjects.push_back(layer_of(runtime, s));
    for (const InteractionShape& s : interactions) subjects.push_back(interaction_of(runtime, s));
    Points f, b;
    measure_in_turn(trials, subjects, &f, &b);
    const auto count = static_cast<std::ptrdiff_t>(std::size(layers));
    forward.insert(forward.end(), f.begin(), f.begin() + count);
    backward.insert(backward.end(), b.begin(), b.begin() + count);
    interacted.insert(interacted.end(), f.begin() + count, f.end());
    interacted_back.insert(interacted_back.end(), b.begin() + count, b.end());
  };
  both(kSmall, kSmallInteractions);
  both(kLarge, kLargeInteractions);
  out->layer_forward = curve_of(std::move(forward));
  out->layer_backward = curve_of(std::move(backward));
  out->interaction_forward = curve_of(std::move(interacted));
  out->interaction_backward = curve_of(std::move(interacted_back));
}

}  // namespace

std::optional<DenseFigures> measure_dense(const Runtime& runtime, const Trials& trials) {
  if (!runtime.has(TSR_MODULE_KIND, kMlp) || !runtime.has(TSR_MODULE_KIND, kInteraction)) return std::nullopt;
  DenseFigures out;
  measure_layers(runtime, trials, &out);
  return out;
}

}  // namespace tessera

#include "tessera/optim.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string_view>

#include "config/json.h"
#include "tessera/error.h"
#include "tessera/runtime.h"
#include "tessera/sdk/nearest.h"

namespace tessera {
namespace {

// A shape's options besides `steps`, with their defaults. NaN: there is no default, so the option must be given.
using Options = std::map<std::string, double>;
struct KnownShape {
  std::string_view name;
  Options options;
};

const std::vector<KnownShape>& known_shapes() {  // in the order of Shape
  static const std::vector<KnownShape> shapes = {
      {"constant", {{"factor", 1}}},
      {"linear", {{"from", 0}, {"to", 1}}},
      {"cosine", {{"from", 1}, {"to", 0}}},
      {"polynomial", {{"from", 1}, {"to", 0}, {"power", 2}}},
      {"exponential", {{"from", 1}, {"gamma", NAN}}},
      {"step", {{"from", 1}, {"gamma", NAN}, {"every", NAN}}},
  };
  return shapes;
}

size_t shape_of(const std::string& name, const std::string& stage) {
  std::vector<std::string> names;
  for (size_t i = 0; i < known_shapes().size(); ++i) {
    names.emplace_back(known_shapes()[i].name);
    if (names.back() == name) return i;
  }
  fail(Code::kInvalidArgument, "schedule \"", stage, "\": ", sdk::unknown_name("shape", name, names));
}

bool counts(const std::string& key) { return key == "steps" || key == "every"; }

void check(const std::string& stage, const std::string& key, double value) {
  const bool whole = value >= 1 && value <= 1e15 && value == std::floor(value);
  if (counts(key) && !whole)
    fail(Code::kInvalidArgument, "schedule \"", stage, "\": ", key, " counts steps: 1 or more");
  if (!counts(key) && !(value >= 0 && value <= 1e6))
    fail(Code::kInvalidArgument, "schedule \"", stage, "\": ", key, " must be from 0 to 1000000");
}

// `steps` is 0 if the option is missing.
Options options_of(const KnownShape& shape, const ComponentName& part, const std::string& stage) {
  Options out = shape.options;
  out["steps"] = 0;
  std::vector<std::string> names;
  for (const auto& [key, value] : out) names.push_back(key);
  const auto given = config::parse_json(part.options, {"the options of a schedule"});
  for (const auto& [key, value] : given.items()) {
    if (!out.contains(key))
      fail(Code::kInvalidArgument, "schedule \"", stage, "\": unknown option \"", key, '"',
           sdk::nearest_text(key, names));
    if (!value.is_number()) fail(Code::kInvalidArgument, "schedule \"", stage, "\": ", key, " must be a number");
    check(stage, key, out[key] = value.get<double>());
  }
  for (const auto& [key, value] : out) {
    if (std::isnan(value)) fail(Code::kInvalidArgument, "schedule \"", stage, "\": ", shape.name, " needs ", key);
  }
  return out;
}

}  // namespace

LearningRateSchedule::LearningRateSchedule(const std::vector<std::string>& stages, int64_t steps) {
  int64_t first = 0;
  for (const std::string& text : stages) {
    const ComponentName part = parse_component_name(text);
    if (!part.name.empty() || !part.inner.empty())
      fail(Code::kInvalidArgument, "schedule \"", text, "\": a stage is a shape with options, as in linear?steps=500");
    const size_t shape = shape_of(part.id, text);
    Options o = options_of(known_shapes()[shape], part, text);
    const auto of = [&](const char* key, double otherwise) { return o.contains(key) ? o[key] : otherwise; };
    Stage stage{.shape = static_cast<Shape>(shape), .first = first, .steps = static_cast<int64_t>(o["steps"])};
    if (stage.steps == 0) {
      if (&text != &stages.back())
        fail(Code::kInvalidArgument, "schedule \"", text, "\": only the last stage may leave out steps");
      stage.steps = std::max<int64_t>(1, steps - first);
    }
    stage.from = of("from", of("factor", 1));
    stage.to = of("to", stage.from);
    stage.power = of("power", 1);
    stage.gamma = of("gamma", 1);
    stage.every = static_cast<int64_t>(of("every", 1));
    first += stage.steps;
    stages_.push_back(stage);
  }
}

double LearningRateSchedule::Stage::after(int64_t done) const {
  const double x = static_cast<double>(done) / static_cast<double>(steps);
  switch (shape) {
    case Shape::kConstant:
      return from;
    case Shape::kLinear:
      return from + (to - from) * x;
    case Shape::kCosine:
      return to + (from - to) * (1 + std::cos(std::numbers::pi * x)) / 2;
    case Shape::kPolynomial:
      return to + (from - to) * std::pow(1 - x, power);
    case Shape::kExponential:
      return from * std::pow(gamma, static_cast<double>(done));
    case Shape::kStep:
      return from * std::pow(gamma, std::floor(static_cast<double>(done) / static_cast<double>(every)));
  }
  return 1;
}

double LearningRateSchedule::factor(int64_t step) const {
  if (stages_.empty()) return 1;
  auto stage = std::find_if(stages_.rbegin(), stages_.rend(), [&](const Stage& s) { return s.first <= step; });
  if (stage == stages_.rend()) --stage;
  return stage->after(std::clamp<int64_t>(step - stage->first, 0, stage->steps));
}

}  // namespace tessera

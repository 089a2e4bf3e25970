#include "verify/formulas.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "tessera/abi/plugin.h"
#include "tessera/error.h"

namespace tessera::cli::verify {
namespace {

// The constants of the options below.
constexpr double kEps = 0.01, kBeta1 = 0.9, kBeta2 = 0.999, kEta = 0.001, kMomentum = 0.9, kDampening = 0.25,
                 kDecay = 0.01, kRho = 0.9;
#define VERIFY_EPS R"({"eps": 0.01})"
#define VERIFY_MOMENTS R"({"eps": 0.01, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01})"
#define VERIFY_NESTEROV R"({"momentum": 0.9, "nesterov": true, "weight_decay": 0.01})"
#define VERIFY_DAMPENED R"({"momentum": 0.9, "dampening": 0.25})"
#define VERIFY_ADADELTA R"({"eps": 0.01, "rho": 0.9, "weight_decay": 0.01})"
#define VERIFY_LARS R"({"eta": 0.001, "momentum": 0.9, "weight_decay": 0.01})"

double squares(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return sum;
}
double ratio(double a, double b) { return b > 0 ? a / b : 0; }

void sgd(const tsr_update& u, PlainState& row) {
  for (size_t d = 0; d < row.weights.size(); ++d) row.weights[d] -= u.learning_rate * row.grad[d];
}

// torch.optim.SGD.
void nesterov_sgd(const tsr_update& u, PlainState& row) {
  for (size_t d = 0; d < row.weights.size(); ++d) {
    const double g = row.grad[d] + kDecay * row.weights[d];
    double& m = row.states[0][d];
    m = kMomentum * m + g;
    row.weights[d] -= u.learning_rate * (g + kMomentum * m);
  }
}

void dampened_sgd(const tsr_update& u, PlainState& row) {
  for (size_t d = 0; d < row.weights.size(); ++d) {
    double& m = row.states[0][d];
    m = u.step == 1 ? row.grad[d] : kMomentum * m + (1 - kDampening) * row.grad[d];
    row.weights[d] -= u.learning_rate * m;
  }
}

// torch.optim.Adadelta.
void adadelta(const tsr_update& u, PlainState& row) {
  for (size_t d = 0; d < row.weights.size(); ++d) {
    const double g = row.grad[d] + kDecay * row.weights[d];
    double &square = row.states[0][d], &mean_step = row.states[1][d];
    square = kRho * square + (1 - kRho) * g * g;
    const double step = std::sqrt(mean_step + kEps) / std::sqrt(square + kEps) * g;
    mean_step = kRho * mean_step + (1 - kRho) * step * step;
    row.weights[d] -= u.learning_rate * step;
  }
}

void adagrad(const tsr_update& u, PlainState& row) {
  for (size_t d = 0; d < row.weights.size(); ++d) {
    double& sum = row.states[0][d];
    sum += row.grad[d] * row.grad[d];
    row.weights[d] -= u.learning_rate * row.grad[d] / (std::sqrt(sum) + kEps);
  }
}

void rowwise_adagrad(const tsr_update& u, PlainState& row) {
  double& sum = row.states[0][0];
  sum += squares(row.grad) / static_cast<double>(row.grad.size());
  for (size_t d = 0; d < row.weights.size(); ++d)
    row.weights[d] -= u.learning_rate * row.grad[d] / (std::sqrt(sum) + kEps);
}

// The direction of Adam and LAMB, including decay; updates the moments.
std::vector<double> moments(const tsr_update& u, PlainState& row) {
  const bool by_row = row.states[1].size() == 1 && row.weights.size() > 1;
  const double t = static_cast<double>(u.step);
  const double c1 = 1 / (1 - std::pow(kBeta1, t)), c2 = 1 / (1 - std::pow(kBeta2, t));
  if (by_row || row.weights.size() == 1) {
    row.states[1][0] =
        kBeta2 * row.states[1][0] + (1 - kBeta2) * squares(row.grad) / static_cast<double>(row.grad.size());
  }
  std::vector<double> direction(row.weights.size());
  for (size_t d = 0; d < row.weights.size(); ++d) {
    double& m = row.states[0][d];
    m = kBeta1 * m + (1 - kBeta1) * row.grad[d];
    double& v = row.states[1][by_row ? 0 : d];
    if (!by_row && row.weights.size() > 1) v = kBeta2 * v + (1 - kBeta2) * row.grad[d] * row.grad[d];
    direction[d] = m * c1 / (std::sqrt(v * c2) + kEps) + kDecay * row.weights[d];
  }
  return direction;
}

void adam(const tsr_update& u, PlainState& row) {
  const std::vector<double> direction = moments(u, row);
  for (size_t d = 0; d < row.weights.size(); ++d) row.weights[d] -= u.learning_rate * direction[d];
}

void lamb(const tsr_update& u, PlainState& row) {
  const std::vector<double> direction = moments(u, row);
  const double k = u.learning_rate * ratio(std::sqrt(squares(row.weights)), std::sqrt(squares(direction)));
  for (size_t d = 0; d < row.weights.size(); ++d) row.weights[d] -= k * direction[d];
}

void lars(const tsr_update& u, PlainState& row) {
  const double w = std::sqrt(squares(row.weights)), g = std::sqrt(squares(row.grad));
  const double a = u.learning_rate * ratio(kEta * w, g + kDecay * w);
  for (size_t d = 0; d < row.weights.size(); ++d) {
    double& m = row.states[0][d];
    m = kMomentum * m + a * (row.grad[d] + kDecay * row.weights[d]);
    row.weights[d] -= m;
  }
}

// No optimizer has this one. It shows whether kernels keep two states that do not start at 0.
void two_states(const tsr_update& u, PlainState& row) {
  row.states[1][0] += 1;
  for (size_t d = 0; d < row.weights.size(); ++d) {
    row.states[0][d] += row.grad[d] * row.grad[d];
    row.weights[d] -= u.learning_rate * row.grad[d] / std::sqrt(row.states[0][d] * row.states[1][0]);
  }
}

const std::vector<Formula>& formulas() {
  constexpr int32_t kRow = TSR_STATE_PER_ROW, kElement = TSR_STATE_PER_ELEMENT;
  static const std::vector<Formula> all = {
      {"exact_sgd", "{}", {}, "w -= lr g", sgd},
      {"exact_adagrad", VERIFY_EPS, {kElement}, "s += g g, w -= lr g / (sqrt(s) + eps)", adagrad},
      {"exact_rowwise_adagrad", VERIFY_EPS, {kRow}, "s += mean of g g, w -= lr g / (sqrt(s) + eps)", rowwise_adagrad},
      {"adam", VERIFY_MOMENTS, {kElement, kElement}, "Adam, with bias correction and decay", adam},
      {"partial_rowwise_adam", VERIFY_MOMENTS, {kElement, kRow}, "Adam, second moment per row", adam},
      {"lamb", VERIFY_MOMENTS, {kElement, kElement}, "LAMB, norms per row", lamb},
      {"partial_rowwise_lamb", VERIFY_MOMENTS, {kElement, kRow}, "LAMB, second moment per row", lamb},
      {"lars_sgd", VERIFY_LARS, {kElement}, "m = momentum m + local rate (g + decay w), w -= m", lars},
      {"sgd",
       VERIFY_NESTEROV,
       {kElement},
       "m = momentum m + g + decay w, w -= lr (g + decay w + momentum m)",
       nesterov_sgd},
      {"sgd",
       VERIFY_DAMPENED,
       {kElement},
       "m = momentum m + (1 - dampening) g, but m = g in step 1, w -= lr m",
       dampened_sgd},
      {"adadelta",
       VERIFY_ADADELTA,
       {kElement, kElement},
       "s = rho s + (1 - rho) g g, step = sqrt(u + eps) / sqrt(s + eps) g, u likewise of steps, w -= lr step",
       adadelta},
      {"two_states", "{}", {kElement, kRow}, "s += g g, n += 1, w -= lr g / sqrt(s n)", two_states, 0.25},
  };
  return all;
}

// Applies the formula to a kernel's floats.
void update_row(void* self, const tsr_update* update, int64_t dim, float* weight, const float* grad,
                float* const* states) {
  const Formula& formula = *static_cast<const Formula*>(self);
  PlainState row{{weight, weight + dim}, {grad, grad + dim}, {}};
  const auto width = [&](size_t k) { return formula.states[k] == TSR_STATE_PER_ROW ? 1 : dim; };
  for (size_t k = 0; k < formula.states.size(); ++k) row.states.emplace_back(states[k], states[k] + width(k));
  formula.update(*update, row);
  for (int64_t d = 0; d < dim; ++d) weight[d] = static_cast<float>(row.weights[static_cast<size_t>(d)]);
  for (size_t k = 0; k < formula.states.size(); ++k) {
    for (int64_t d = 0; d < width(k); ++d) states[k][d] = static_cast<float>(row.states[k][static_cast<size_t>(d)]);
  }
}

tsr_code state(void* self, uint32_t i, tsr_state* out, tsr_error*) {
  static constexpr const char* kNames[] = {"momentum1", "momentum2"};
  const Formula& formula = *static_cast<const Formula*>(self);
  if (i >= formula.states.size()) return TSR_OUT_OF_RANGE;
  out->kind = formula.states[i];
  out->start = formula.start;
  out->dtype = {kDLFloat, 32, 1};
  out->name = kNames[i];
  return TSR_OK;
}

std::string formula_name(const Formula& formula) { return str_cat("tessera.", formula.id, "/1"); }

struct OwnOptimizer {
  std::string formula;
  tsr_optimizer api{};
  tsr_component component;
  tsr_instance part;
};

}  // namespace

std::vector<const Formula*> formulas_of(const std::string& name) {
  std::vector<const Formula*> out;
  for (const Formula& f : formulas()) {
    if (f.id == name || formula_name(f) == name) out.push_back(&f);
  }
  return out;
}

PlainRow::PlainRow(const Formula& formula, std::vector<float> start) : formula_(formula) {
  weights.assign(start.begin(), start.end());
  for (const int32_t kind : formula.states)
    states.emplace_back(kind == TSR_STATE_PER_ROW ? 1 : weights.size(), formula.start);
}

void PlainRow::update(const tsr_update& update, std::vector<float> gradient) {
  grad.assign(gradient.begin(), gradient.end());
  formula_.update(update, *this);
}

const tsr_instance& optimizer_instance(const Formula& formula) {
  static std::map<const Formula*, OwnOptimizer> made;
  const auto [at, is_new] = made.try_emplace(&formula);
  OwnOptimizer& own = at->second;
  if (is_new) {
    own.api.struct_size = sizeof(tsr_optimizer);
    own.api.state = state;
    own.api.learning_rate = [](void*) { return 0.0625; };
    own.api.update_row = update_row;
    own.formula = formula_name(formula);
    own.api.formula = own.formula.c_str();
    own.component = {sizeof(tsr_component),
                     0,
                     formula.id,
                     TSR_OPTIMIZER_KIND,
                     "1",
                     formula.text,
                     &own.api,
                     nullptr,
                     nullptr,
                     nullptr,
                     nullptr,
                     nullptr};
    own.part = {&own.component, const_cast<Formula*>(&formula)};
  }
  return own.part;
}

std::string with_option(const std::string& options, const std::string& key, double value) {
  auto json = nlohmann::json::parse(options);
  json[key] = value;
  return json.dump();
}

std::string with_widths(const std::string& options, const std::vector<int64_t>& widths) {
  auto json = nlohmann::json::parse(options);
  json["inputs"] = widths;
  return json.dump();
}

}  // namespace tessera::cli::verify

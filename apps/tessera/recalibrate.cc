#include "recalibrate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "predict/heads.h"

namespace tessera::cli {
namespace {

using json = nlohmann::ordered_json;

double logit_of(double p) { return std::log(p / (1 - p)); }

void require_both(const std::vector<CalibrationSample>& samples) {
  double positive = 0, all = 0;
  for (const CalibrationSample& s : samples) positive += s.weight * s.label, all += s.weight;
  if (!(positive > 0 && positive < all))
    fail(Code::kFailedPrecondition, "the ", samples.size(), " rows to calibrate on do not have both labels: keep more ",
         "rows for validation (validation.fraction)");
}

[[noreturn]] void wrong_order() {
  fail(Code::kFailedPrecondition,
       "rows with larger scores have fewer positives among the rows to calibrate on, so no calibration helps: look at "
       "the model's AUC");
}

// The mean cross-entropy of a z + b.
double loss_of(const std::vector<CalibrationSample>& samples, const Platt& p) {
  double sum = 0, weights = 0;
  for (const CalibrationSample& s : samples) {
    const double x = p.a * s.logit + p.b;
    sum += s.weight * (std::max(x, 0.0) - x * s.label + std::log1p(std::exp(-std::abs(x))));
    weights += s.weight;
  }
  return sum / weights;
}

// One step of Newton's method, as far as the loss falls.
bool newton_step(const std::vector<CalibrationSample>& samples, Platt& p) {
  double ga = 0, gb = 0, aa = 0, ab = 0, bb = 0;
  for (const CalibrationSample& s : samples) {
    const double q = 1 / (1 + std::exp(-(p.a * s.logit + p.b))), g = s.weight * (q - s.label),
                 h = s.weight * q * (1 - q);
    ga += g * s.logit, gb += g;
    aa += h * s.logit * s.logit, ab += h * s.logit, bb += h;
  }
  const double ridge = 1e-9 * (aa + bb) + 1e-12, determinant = (aa + ridge) * (bb + ridge) - ab * ab;
  const double da = ((bb + ridge) * ga - ab * gb) / determinant, db = ((aa + ridge) * gb - ab * ga) / determinant;
  const double before = loss_of(samples, p);
  for (double part = 1; part > 1e-6; part /= 2) {
    const Platt next{p.a - part * da, p.b - part * db};
    if (loss_of(samples, next) >= before) continue;
    p = next;
    return std::abs(part * da) + std::abs(part * db) > 1e-9;
  }
  return false;
}

// The samples of a head, from the model's scores of `rows`.
std::vector<CalibrationSample> samples_of(Predictor& predictor, const Dataset& data, const Samples& rows,
                                          const AskedHead& head) {
  std::vector<CalibrationSample> out;
  Tensor memory;
  predict_all(predictor, data, rows, 1024, widths_of(predictor.model(), {head}),
              [&](const std::vector<std::vector<float>>& values, const Batch& batch) {
                const Tensor labels = batch.label(*head.label), weights = counted_weights(batch, head.where, memory);
                for (int64_t i = 0; i < labels.numel(); ++i) {
                  const double p = std::clamp(double{values[head.output][static_cast<size_t>(i)]}, 1e-7, 1 - 1e-7);
                  const double weight = weights.defined() ? weights.data<float>()[i] : 1.0;
                  if (weight > 0) out.push_back({logit_of(p), labels.data<float>()[i], weight});
                }
              });
  return out;
}

std::string free_name(const ModelGraph& graph, const HeadSpec& head) {
  std::string name = head.name + "_calibration";
  const auto is_taken = [&](const LayerSpec& l) { return l.name == name; };
  while (std::any_of(graph.layers.begin(), graph.layers.end(), is_taken)) name += "_";
  return name;
}

void add_layer(ModelGraph& graph, HeadSpec& head, const char* type, const json& options) {
  const std::string name = free_name(graph, head);
  graph.layers.push_back({name, type, {head.input}, options.dump()});
  head.input = name;
}

// The layer that multiplies the probabilities of other heads to those of this one; null: there is none.
const LayerSpec* product_of(const ModelGraph& graph, const HeadSpec& head) {
  const auto layer = std::find_if(graph.layers.begin(), graph.layers.end(), [&](const LayerSpec& l) {
    return l.name == head.input && l.type == "logit_product";
  });
  if (layer == graph.layers.end()) return nullptr;
  const bool of_heads = std::any_of(layer->inputs.begin(), layer->inputs.end(), [&](const std::string& input) {
    return std::any_of(graph.heads.begin(), graph.heads.end(),
                       [&](const HeadSpec& h) { return h.loss == kOwnLoss && h.input == input; });
  });
  return of_heads ? &*layer : nullptr;
}

// Corrects heads for the negatives that training rows lack.
class KeptNegatives {
 public:
  KeptNegatives(ModelGraph& graph, double kept) : graph_(graph), kept_(kept) {
    for (const HeadSpec& head : graph.heads) {
      const LayerSpec* const product = kept == 1 || head.loss != kOwnLoss ? nullptr : product_of(graph, head);
      products_.push_back(product == nullptr ? std::nullopt : std::optional(*product));
    }
  }
  // True if the head's probability is corrected by those that it is the product of.
  bool follows(size_t head) const { return products_[head].has_value(); }
  // `before`: the head's input before it was recalibrated. Returns what was done.
  std::string correct(size_t h, const std::string& before) {
    HeadSpec& head = graph_.heads[h];
    std::string out;
    if (head.where.empty()) {
      add_layer(graph_, head, "affine", {{"offset", std::log(kept_)}});
      corrected_ = true;
      out = str_cat(head.name, ": odds times ", kept_, ", for the negatives that were left out");
    } else {
      out = str_cat(head.name, ": left as it is, because it is about the rows where ", head.where,
                    " is 1, of which none were left out");
    }
    inputs_.emplace(before, head.input);
    return out;
  }
  // The same for a head that follows others, which were corrected before.
  std::string follow(size_t h) {
    HeadSpec& head = graph_.heads[h];
    LayerSpec product = *products_[h];
    for (std::string& input : product.inputs) {
      if (const auto found = inputs_.find(input); found != inputs_.end()) input = found->second;
    }
    const std::string was = std::exchange(head.input, "");
    const bool used =
        std::any_of(graph_.heads.begin(), graph_.heads.end(), [&](const auto& h) { return h.input == was; }) ||
        std::any_of(graph_.layers.begin(), graph_.layers.end(), [&](const LayerSpec& l) {
          return std::find(l.inputs.begin(), l.inputs.end(), was) != l.inputs.end();
        });
    if (used)
      product.name = free_name(graph_, head);
    else  // a layer has to lead to a head, and stands behind its inputs
      std::erase_if(graph_.layers, [&](const LayerSpec& l) { return l.name == was; });
    head.input = product.name;
    graph_.layers.push_back(std::move(product));
    return str_cat(head.name, ": the product of the heads above, as they are now");
  }
  bool corrected() const { return corrected_; }

 private:
  ModelGraph& graph_;
  const double kept_;
  std::vector<std::optional<LayerSpec>> products_;  // by head
  std::map<std::string, std::string> inputs_;       // of heads, before and after
  bool corrected_ = false;
};

std::string fit(ModelGraph& graph, HeadSpec& head, const std::vector<CalibrationSample>& samples, Calibration method) {
  if (method == Calibration::kPlatt) {
    const Platt p = fit_platt(samples);
    add_layer(graph, head, "affine", {{"factor", p.a}, {"offset", p.b}});
    return str_cat(head.name, ": the logit times ", p.a, " plus ", p.b, ", from ", samples.size(), " rows");
  }
  const Isotonic line = fit_isotonic(samples);
  add_layer(graph, head, "piecewise", {{"at", line.at}, {"values", line.values}});
  return str_cat(head.name, ": isotonic, through ", line.at.size(), line.at.size() == 1 ? " point" : " points",
                 ", from ", samples.size(), " rows");
}

// The rows that the config holds out.
Samples rows_to_calibrate_on(const Config* config, const Dataset* data) {
  if (!config || !data || config->validation.fraction == 0)
    fail(Code::kInvalidArgument,
         "--calibrate needs rows that the model was not trained on: give its job as --config, with the "
         "validation.fraction that it was trained with");
  return hold_out(*config, *data).second;
}

}  // namespace

Dataset without_validation(const Config& config, Dataset data) {
  data.train = hold_out(config, data).first;
  return data;
}

Calibration calibration_from(const std::string& name) {
  if (name == "platt") return Calibration::kPlatt;
  if (name == "isotonic") return Calibration::kIsotonic;
  fail(Code::kInvalidArgument, "--calibrate ", name, ": it takes platt or isotonic");
}

Platt fit_platt(const std::vector<CalibrationSample>& samples) {
  require_both(samples);
  Platt out;
  for (int i = 0; i < 100 && newton_step(samples, out);) ++i;
  if (!(out.a > 0)) wrong_order();
  return out;
}

Isotonic fit_isotonic(std::vector<CalibrationSample> samples) {
  require_both(samples);
  std::sort(samples.begin(), samples.end(), [](const auto& a, const auto& b) { return a.logit < b.logit; });
  struct Pool {
    double weight = 0, labels = 0, logits = 0, last = 0;
    double share() const { return labels / weight; }
    void add(const Pool& p) { weight += p.weight, labels += p.labels, logits += p.logits, last = p.last; }
  };
  std::vector<Pool> pools;
  for (const CalibrationSample& s : samples) {
    pools.push_back({s.weight, s.weight * s.label, s.weight * s.logit, s.logit});
    while (pools.size() > 1) {  // samples of one logit are one pool
      const Pool& before = pools[pools.size() - 2];
      if (before.share() < pools.back().share() && before.last < s.logit) break;
      const Pool last = pools.back();
      pools.pop_back();
      pools.back().add(last);
    }
  }
  Isotonic out;
  for (const Pool& p : pools) {
    const double share = std::clamp(p.share(), 0.5 / (p.weight + 1), 1 - 0.5 / (p.weight + 1));
    const auto at = static_cast<double>(static_cast<float>(p.logits / p.weight));
    if (!out.at.empty() && at <= out.at.back()) continue;  // equal as floats
    out.at.push_back(at);
    out.values.push_back(out.values.empty() ? logit_of(share) : std::max(logit_of(share), out.values.back()));
  }
  if (pools.size() == 1) wrong_order();
  return out;
}

std::vector<std::string> recalibrate(const Runtime& runtime, InferenceModel& model, const Config* config,
                                     const Dataset* data, const RecalibrateOptions& options) {
  std::vector<std::string> out;
  const bool fits = options.method != Calibration::kNone;
  std::vector<AskedHead> heads;
  Samples rows;
  if (fits) {
    rows = rows_to_calibrate_on(config, data);
  }
  ModelGraph graph = model.graph;
  const auto predictor = fits ? make_predictor(runtime, model) : nullptr;
  if (fits) heads = asked_heads(predictor->model(), asked_outputs(predictor->model()), *data);
  KeptNegatives negatives(graph, options.negatives_kept);
  for (size_t h = 0; h < graph.heads.size(); ++h) {
    HeadSpec& head = graph.heads[h];
    if (head.loss != kOwnLoss || negatives.follows(h)) continue;
    const std::string before = head.input;
    const auto asked = std::find_if(heads.begin(), heads.end(), [&](const AskedHead& a) { return a.output == h; });
    if (fits && asked != heads.end() && asked->label)
      out.push_back(fit(graph, head, samples_of(*predictor, *data, rows, *asked), options.method));
    if (options.negatives_kept != 1) out.push_back(negatives.correct(h, before));
  }
  for (size_t h = 0; h < graph.heads.size(); ++h) {
    if (negatives.follows(h)) out.push_back(negatives.follow(h));
  }
  if (out.empty())
    fail(Code::kInvalidArgument, "the model has no head of probabilities whose label the data have, so there is ",
         "nothing to calibrate");
  if (options.negatives_kept != 1 && !negatives.corrected())
    fail(Code::kInvalidArgument, "--negatives-kept ", options.negatives_kept,
         " has no effect: each head of probabilities has `where`, and is about rows of which none were left out");
  model.graph = std::move(graph);
  model.description.type = "graph";  // a DLRM, too: its layers are part of the graph
  return out;
}

}  // namespace tessera::cli

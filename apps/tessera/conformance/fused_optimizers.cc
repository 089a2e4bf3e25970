// Area fused_optimizers: FBGEMM's table-batched embeddings (`tbe`) on one kernel instance, and its bounds check.
#include <algorithm>
#include <cctype>
#include <regex>

#include "conformance/runner.h"
#include "modules/bounds.h"
#include "tessera/lookup.h"

namespace tessera::cli {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

OptimizerSpec optimizer_from(const json& tbe) {
  const json& hyper = tbe.at("hyper");
  json options;
  for (const char* key : {"learning_rate", "eps", "weight_decay", "beta1", "beta2", "momentum", "eta"}) {
    if (hyper.contains(key)) options[key] = hyper[key];
  }
  options["weight_decay_mode"] = lower(hyper.value("weight_decay_mode", "NONE"));
  const std::string optimizer = lower(tbe.at("optimizer").get<std::string>());
  // These modes do not use a weight decay. FBGEMM ignores one, and our optimizers refuse it.
  if (options["weight_decay_mode"] == "none" && optimizer.starts_with("exact_")) options.erase("weight_decay");
  if (tbe.value("stochastic_rounding", false)) throw SkipCase{"stochastic rounding is not offered"};
  const double max_gradient = hyper.value("gradient_clipping", false) ? hyper.at("max_gradient").get<double>() : 0;
  return {optimizer, options.dump(), max_gradient};
}

LookupOptions lookup_options_from(const json& tbe, const std::string& kernel) {
  LookupOptions options{.kernel = kernel, .optimizer = optimizer_from(tbe)};
  options.compute_kernel = options.optimizer.name == "none" ? "dense" : "fused";
  options.weight_dtype = dtype_from(tbe.value("weights_precision", "FP32"));
  for (const json& t : tbe.at("tables")) {
    LookupTable table{str_cat("table", options.tables.size()), t.at("rows").get<int64_t>(), t.at("dim").get<int64_t>()};
    const json& weight = field_or_null(t, "weight");
    if (!weight.is_null() && tensor_from(weight).shape() != std::vector<int64_t>{table.rows, table.dim}) {
      fail(Code::kInvalidArgument, table.name, " is said to be [", table.rows, ", ", table.dim,
           "], its weight has the shape ", weight["shape"].dump());
    }
    options.tables.push_back(std::move(table));
  }
  return options;
}

// If the named kernel has no fused form of the optimizer, its tables take the unfused way: gradients are handed out and
// applied.
LookupOptions served_options(const Runtime& runtime, LookupOptions options) {
  if (options.kernel == "auto" || options.compute_kernel != "fused") return options;
  try {
    const Lookup fused(runtime, options);
  } catch (const Error& refused) {
    if (refused.code() != Code::kUnimplemented) throw;
    LookupOptions unfused = options;
    unfused.compute_kernel = "dense";
    try {
      const Lookup served(runtime, unfused);
    } catch (const Error&) {
      throw refused;  // the reason why it cannot be fused says more
    }
    return unfused;
  }
  return options;
}

// A table is reached only through features, so a table without one is a mistake.
std::vector<int> checked_features(const json& tbe, const LookupOptions& options, PoolingType pooling) {
  auto features = tbe.at("feature_table_map").get<std::vector<int>>();
  const int tables = static_cast<int>(options.tables.size());
  for (int t = 0; t < tables; ++t) {
    if (std::count(features.begin(), features.end(), t) == 0) {
      fail(Code::kInvalidArgument, "table ", t, " has no feature: name it in feature_table_map");
    }
    if (pooling == PoolingType::kNone && options.tables[t].dim != options.tables[0].dim) {
      fail(Code::kInvalidArgument, "tables of ", options.tables[0].dim, " and of ", options.tables[t].dim,
           " columns have no common output without pooling");
    }
  }
  for (int t : features) {
    if (t < 0 || t >= tables) fail(Code::kInvalidArgument, "feature_table_map names table ", t, " of ", tables);
  }
  return features;
}

// A step's inputs, and what tsr_lookup borrows while it runs.
struct LookupCall {
  Tensor ids, offsets, weights;
  DLTensor raw_ids, raw_offsets, raw_weights;
  std::vector<tsr_lookup_feature> features;
  std::vector<int64_t> output_shape;
  tsr_lookup lookup{};
};

class Tbe {
 public:
  Tbe(const Runtime& runtime, const std::string& kernel, const json& tbe)
      : options_(served_options(runtime, lookup_options_from(tbe, kernel))),
        pooling_(pooling_from(tbe.value("pooling_mode", "SUM"))),
        features_(checked_features(tbe, options_, pooling_)),
        batch_(tbe.at("batch_size").get<int64_t>()),
        lookup_(runtime, options_) {
    for (size_t t = 0; t < options_.tables.size(); ++t) {
      const json& weight = field_or_null(tbe["tables"][t], "weight");
      if (!weight.is_null()) lookup_.set_weight(static_cast<int>(t), tensor_from(weight));
    }
  }

  // Refuses bad ids, as FBGEMM's FATAL mode and its lookup do; the lookup also refuses -1.
  std::unique_ptr<LookupCall> prepare(Tensor ids, Tensor offsets, Tensor weights) const {
    check_ids(ids, offsets, weights);
    auto step = std::make_unique<LookupCall>();
    step->ids = std::move(ids);
    step->offsets = std::move(offsets);
    step->weights = std::move(weights);
    lay_out(*step);
    step->raw_ids = step->ids.dl();
    step->raw_offsets = step->offsets.dl();
    step->raw_weights = step->weights.dl();
    step->lookup.struct_size = sizeof(tsr_lookup);
    step->lookup.num_features = static_cast<uint32_t>(step->features.size());
    step->lookup.feature_stride = sizeof(tsr_lookup_feature);
    step->lookup.features = step->features.data();
    step->lookup.ids = &step->raw_ids;
    step->lookup.offsets = &step->raw_offsets;
    step->lookup.weights = step->weights.defined() ? &step->raw_weights : nullptr;
    return step;
  }

  void run_step(const json& given, const json& expect, Checker& check, const std::string& at) {
    if (const json& rate = field_or_null(given, "learning_rate"); !rate.is_null()) {
      lookup_.set_learning_rate(rate.get<double>());
    }
    const auto step = prepare(tensor_from(given.at("indices")), tensor_from(given.at("offsets")),
                              tensor_from(field_or_null(given, "per_sample_weights")));
    const Tensor output = Tensor::empty(step->output_shape);
    Lookup::Context context;
    lookup_.forward(step->lookup, output, &context);
    check.tensor(at + "output", expect.at("output"), output);

    const Tensor grad = tensor_from(given.at("grad_output")).to(DType::kFloat32);
    const Tensor grad_weights = step->weights.defined() ? Tensor::zeros({step->ids.numel()}) : Tensor();
    if (lookup_.updates_in_backward()) {
      lookup_.backward(std::move(context), step->lookup, grad, 1, grad_weights);
    } else {
      const auto gradients = lookup_.backward_rows(std::move(context), step->lookup, grad, 1, grad_weights);
      if (options_.optimizer.name == "none") {
        check_sparse(gradients, field_or_null(expect, "sparse_grad"), check, at + "sparse_grad");
      } else {
        for (size_t t = 0; t < gradients.size(); ++t) lookup_.apply(static_cast<int>(t), gradients[t]);
        lookup_.count_step();
      }
    }
    if (const json& want = field_or_null(expect, "grad_per_sample_weights"); !want.is_null()) {
      check.tensor(at + "grad_per_sample_weights", want, grad_weights);
    }
    check_tables(expect, check, at);
  }

 private:
  void check_ids(const Tensor& ids, const Tensor& offsets, const Tensor& weights) const {
    const int64_t bags = static_cast<int64_t>(features_.size()) * batch_;
    if (offsets.numel() != bags + 1) {
      fail(Code::kInvalidArgument, "there are ", offsets.numel(), " offsets for ", bags, " bags, which need ",
           bags + 1);
    }
    std::vector<BoundsFeature> features;
    for (size_t f = 0; f < features_.size(); ++f) {
      const LookupTable& table = options_.tables[static_cast<size_t>(features_[f])];
      features.push_back({table.name, table.name, table.rows, static_cast<int64_t>(f) * batch_, batch_});
    }
    check_bounds(BoundsCheckMode::kFatal, {ids, offsets, weights, features});
  }

  void lay_out(LookupCall& step) const {
    const bool sequence = pooling_ == PoolingType::kNone;
    int64_t width = 0;
    for (int t : features_) width += options_.tables[static_cast<size_t>(t)].dim;
    if (sequence) width = options_.tables[0].dim;
    int64_t column = 0;
    for (size_t f = 0; f < features_.size(); ++f) {
      const int64_t first = static_cast<int64_t>(f) * batch_;
      const int64_t at = sequence ? static_cast<int64_t>(step.offsets.item(first)) * width : column;
      step.features.push_back({features_[f], static_cast<int32_t>(pooling_), batch_, first, at, width});
      column += options_.tables[static_cast<size_t>(features_[f])].dim;
    }
    step.output_shape = {sequence ? step.ids.numel() : batch_, width};
  }

  // Compares with one gradient over all tables: rows of a table follow those of the tables before it.
  void check_sparse(const std::vector<RowGradient>& gradients, const json& want, Checker& check,
                    const std::string& at) const {
    if (want.is_null()) return;
    std::vector<int64_t> rows;
    std::vector<float> values;
    int64_t before = 0;
    for (size_t t = 0; t < gradients.size(); ++t) {
      for (int64_t r : gradients[t].rows.span<int64_t>()) rows.push_back(before + r);
      const std::span<float> v = gradients[t].values.span<float>();
      values.insert(values.end(), v.begin(), v.end());
      before += options_.tables[t].rows;
    }
    const int64_t count = static_cast<int64_t>(rows.size());
    check.tensor(at + ".indices", want.at("indices"), Tensor::from(rows));
    check.tensor(at + ".values", want.at("values"),
                 Tensor::from<float>(std::span<const float>(values), {count, options_.tables[0].dim}));
    check.equal(at + ".num_rows", want.at("num_rows"), before);
  }

  void check_tables(const json& expect, Checker& check, const std::string& at) const {
    const json& weights = expect.at("weights");
    for (size_t t = 0; t < options_.tables.size(); ++t) {
      check.tensor(str_cat(at, "weights[", t, "]"), weights.at(t),
                   lookup_.weight(static_cast<int>(t)).to(options_.weight_dtype));
    }
    const json& states = field_or_null(expect, "states");
    if (!states.is_object()) return;
    json names = json::array(), want_names = json::array();
    for (const Lookup::State& s : lookup_.states()) names.push_back(s.name);
    for (const auto& [name, tables] : states.items()) want_names.push_back(name);
    check.equal(at + "states", want_names, names);
    if (want_names != names) return;
    for (size_t k = 0; k < names.size(); ++k) {
      const json& want = states.at(names[k].get<std::string>());
      for (size_t t = 0; t < want.size(); ++t) {
        check.tensor(str_cat(at, names[k].get<std::string>(), "[", t, "]"), want[t],
                     lookup_.state(static_cast<int>(t), static_cast<int>(k)));
      }
    }
  }

  LookupOptions options_;
  PoolingType pooling_;
  std::vector<int> features_;
  int64_t batch_;
  Lookup lookup_;
};

void tbe(CaseContext& c) {
  Tbe tbe(c.runtime, c.kernel, c.given);
  const json& steps = c.given.at("steps");
  for (size_t i = 0; i < steps.size(); ++i) {
    tbe.run_step(steps[i], c.expect.at("steps").at(i), c.check, str_cat("steps[", i, "]."));
  }
}

void bounds_check(CaseContext& c) {
  const auto mode = bounds_check_from(lower(c.given.at("mode").get<std::string>()));
  const auto rows = c.given.at("rows_per_feature").get<std::vector<int64_t>>();
  const auto run = [&] {
    return bounds_check_indices(mode, rows, tensor_from(c.given.at("indices")), tensor_from(c.given.at("offsets")),
                                tensor_from(field_or_null(c.given, "per_sample_weights")));
  };
  if (!field_or_null(c.expect, "error_class").is_null()) {
    expect_refusal(c, run);
    return;
  }
  const BoundsCheckIndices got = run();
  c.check.tensor("indices", c.expect.at("indices"), got.indices);
  c.check.tensor("offsets", c.expect.at("offsets"), got.offsets);
  c.check.equal("warning_count", c.expect.at("warning_count"), got.warning_count);
}

// Tables of these dims with five rows each, SUM pooling, and one feature each unless told otherwise.
json small_tbe(const std::vector<int64_t>& dims, const std::vector<int>& features, const char* pooling) {
  json tables = json::array();
  for (int64_t dim : dims) tables.push_back({{"rows", 5}, {"dim", dim}});
  return {{"optimizer", "EXACT_SGD"}, {"tables", tables},        {"feature_table_map", features},
          {"pooling_mode", pooling},  {"hyper", json::object()}, {"batch_size", 1}};
}

// Makes the call that `what` describes, with the given inputs or the smallest that fit.
void refused(CaseContext& c) {
  const std::string what = c.given.at("what").get<std::string>();
  const auto has = [&what](const char* words) { return std::regex_search(what, std::regex(words, std::regex::icase)); };
  json config = field_or_null(c.given, "tbe");
  Tensor ids = tensor_from(field_or_null(c.given, "indices"));
  Tensor offsets = tensor_from(field_or_null(c.given, "offsets"));
  const bool table_wrong = config.is_null() && !ids.defined() && has("dim|feature");
  if (config.is_null()) {
    if (has("no feature|without a feature|shorter|fewer features")) {
      config = small_tbe({4, 4}, {0}, "SUM");
    } else if (has("different dims|mixed dim")) {
      config = small_tbe({4, 8}, {0, 1}, "NONE");
    } else {
      config = small_tbe({c.given.value("dim", int64_t{4})}, {0}, "SUM");
    }
  }
  if (!ids.defined() && !table_wrong) {
    if (!has("float|double|not integer|index|past|out of")) {
      c.check.fail("what", str_cat("no call is known for \"", what, "\""));
      return;
    }
    const bool floats = has("float|double|not integer");
    ids = floats ? Tensor::zeros({1}) : Tensor::from<int64_t>({has("-\\d|negative") ? int64_t{-1} : int64_t{5}});
    offsets = Tensor::from<int64_t>({0, 1});
  }
  expect_refusal(c, [&] {
    const Tbe tbe(c.runtime, c.kernel, config);
    if (ids.defined()) tbe.prepare(ids, offsets, tensor_from(field_or_null(c.given, "per_sample_weights")));
  });
}

}  // namespace

OpTable fused_optimizer_ops() { return {{"tbe", tbe}, {"bounds_check", bounds_check}, {"error", refused}}; }

}  // namespace tessera::cli

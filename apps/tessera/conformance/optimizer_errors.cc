// Refused calls of area "optimizer_wrappers". `what` is a sentence for people, so a call is found by words in it.
#include <regex>

#include "conformance/optimizer_wrappers.h"

namespace tessera::cli {
namespace {

KeyedOptimizerPtr small_optimizer(const std::string& name, const std::string& options = "{}") {
  auto parameter = std::make_shared<Parameter>();
  parameter->name = "w";
  parameter->value = Tensor::zeros({2, 2});
  return make_dense_optimizer({name, options}, {parameter});
}

void load_with(const std::string& change) {
  const KeyedOptimizerPtr optimizer = small_optimizer("adagrad");
  OptimizerStateDict dict = optimizer->state_dict();
  if (change == "count") dict.state.clear();
  if (change == "key") dict.state.at(0).first = "other";
  if (change == "entries") dict.state.at(0).second.pop_back();
  optimizer->load_state_dict(dict);
}

void warmup_with(const std::vector<json>& stages) {
  WarmupOptimizer::Options options;
  for (const json& stage : stages) options.stages.push_back(warmup_stage_from(stage));
  WarmupOptimizer(small_optimizer("sgd"), options);
}

void sparse_gradient() {
  const KeyedOptimizerPtr optimizer = small_optimizer("rowwise_adagrad");
  optimizer->params().at(0).parameter->grad = Tensor::zeros({1, 2});  // the values of only one row
  optimizer->step();
}

// Handles sentences like "RowWiseAdagrad with eps=-1.0".
void negative_option(const std::string& what) {
  std::smatch match;
  if (!std::regex_search(what, match, std::regex("(\\w+) ?= ?(-[0-9.e-]+)"))) {
    for (const char* name : {"lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps"}) {
      if (std::regex_search(what, std::regex(str_cat("\\b", name, "\\b")))) {
        small_optimizer("rowwise_adagrad", str_cat("{\"", name, "\": -1}"));
      }
    }
    return;
  }
  small_optimizer("rowwise_adagrad", str_cat("{\"", match[1].str(), "\": ", match[2].str(), "}"));
}

struct Refusal {
  const char* words;
  void (*call)(const std::string& what);
};
constexpr Refusal kRefusals[] = {
    {"no state\\b|(different number of|more|fewer) parameters", [](const std::string&) { load_with("count"); }},
    {"parameter key differs|unknown parameter", [](const std::string&) { load_with("key"); }},
    {"\\bentries", [](const std::string&) { load_with("entries"); }},
    {"combined.*(same|twice|two|duplicate)|one key twice",
     [](const std::string&) {
       CombinedOptimizer({{"", small_optimizer("sgd")}, {"", small_optimizer("adam")}});
     }},
    {"add_param_group", [](const std::string&) { small_optimizer("sgd")->add_param_group({}); }},
    {"not a parameter|no parameter",
     [](const std::string&) {
       small_optimizer("sgd")->set_state("stranger", {{"sum", Tensor::zeros({1})}});
     }},
    {"max_iters|stages.* order",
     [](const std::string&) {
       warmup_with({{{"policy", "linear"}, {"max_iters", 5}}, {{"policy", "linear"}, {"max_iters", 5}}});
     }},
    {"inv_sqrt",
     [](const std::string&) {
       warmup_with({{{"policy", "inv_sqrt"}, {"max_iters", 5}}});
     }},
    {"without start_interpolating_iters",
     [](const std::string&) {
       warmup_with({{{"policy", "interpolate"}, {"max_iters", 5}, {"end_value", 0.5}}});
     }},
    {"without end_value",
     [](const std::string&) {
       warmup_with({{{"policy", "interpolate"}, {"max_iters", 5}, {"start_interpolating_iters", 1}}});
     }},
    {"sparse gradient", [](const std::string&) { sparse_gradient(); }},
    {"RowWiseAdagrad", negative_option},
};

}  // namespace

void optimizer_error_op(CaseContext& c) {
  const std::string what = c.given.at("what").get<std::string>();
  for (const Refusal& refusal : kRefusals) {
    if (std::regex_search(what, std::regex(refusal.words, std::regex::icase))) {
      return expect_refusal(c, [&] { refusal.call(what); });
    }
  }
  c.check.fail("what", str_cat("no call is known for \"", what, "\""));
}

}  // namespace tessera::cli

// Ten steps of training of a model over sequences, with the core's graph, loss and optimizer.
#include <algorithm>

#include "conformance/item_ops.h"
#include "conformance/sequence_blocks.h"
#include "tessera/optim.h"

namespace tessera::cli {
namespace {

// The rows of a step's users: each item but the last is an input, and the one after it its label.
struct StepRows {
  StepRows(const CaseContext& c, const json& step) {
    const std::vector<int64_t> ids = integers_of(input_of(c, "ids")), bounds = integers_of(input_of(c, "offsets"));
    if (has_input(c, "timestamps")) times = integers_of(input_of(c, "timestamps"));
    const std::vector<int64_t> given = std::exchange(times, {});
    for (const int64_t user : integers_of(tensor_from(step.at("users")))) {
      const auto u = static_cast<size_t>(user);
      const auto first = static_cast<size_t>(bounds[u]), last = static_cast<size_t>(bounds[u + 1]) - 1;
      for (size_t i = first; i < last; ++i) {
        items.push_back(ids[i]);
        labels.push_back(ids[i + 1]);
        if (!given.empty()) times.push_back(given[i]);
      }
      if (!given.empty()) next_times.push_back(given[last]);
      offsets.push_back(std::ssize(items));
    }
    const Tensor drawn = tensor_from(step.at("negative_ids"));
    negatives = integers_of(drawn);
    for (const int64_t end : offsets) negative_offsets.push_back(end * drawn.size(1));
  }
  std::vector<int64_t> items, labels, times, next_times, negatives, offsets = {0}, negative_offsets;
};

json as_json(const Tensor& t) {
  const std::vector<float> values = t.to_vector<float>();
  return {{"shape", t.shape()}, {"dtype", "float32"}, {"data", values}};
}

class Trajectory {
 public:
  explicit Trajectory(CaseContext& c) : c_(c) {
    for (const auto& [name, value] : c.given.at("params").items()) {
      const Tensor start = tensor_from(value);
      parameters_.push_back(std::make_shared<Parameter>(Parameter{name, start, {}}));
    }
    const json& o = options_of(c).at("optimizer");
    const json how = {{"lr", o.at("lr")}, {"betas", o.at("betas")}, {"eps", o.at("eps")}};
    optimizer_ = make_dense_optimizer({o.at("name").get<std::string>(), how.dump()}, parameters_);
  }

  // Returns the loss before the update.
  double step(const json& given_step) {
    const StepRows rows(c_, given_step);
    const json& model_options = options_of(c_).at("model");
    json given = {{"options", model_options}, {"inputs", json::object()}, {"params", json::object()}};
    if (!rows.times.empty()) {
      given["inputs"]["timestamps"] = integers(rows.times);
      given["inputs"]["next_timestamps"] = integers(rows.next_times);
    }
    for (const ParameterPtr& p : parameters_) given["params"][p->name] = as_json(p->value);
    const json nothing = json::object();
    CaseContext inner{c_.runtime, c_.kernel, c_.device, given, nothing, c_.check, c_.tolerance};
    const Tensor table = table_of("item_emb");
    SequenceNet net(inner, Tensor::from(rows.offsets));
    const auto items = net.sequence(rows_at(table, rows.items)), labels = net.sequence(rows_at(table, rows.labels));
    const auto negatives = net.sequence(rows_at(table, rows.negatives), Tensor::from(rows.negative_offsets));
    const bool hstu = model_options.at("op") == "hstu_model";
    const Times times = hstu ? hstu_times(inner, net, items) : Times{};
    const auto states = model(net, items, times, model_options, hstu);
    const json& loss = options_of(c_).at("loss");
    const auto seen = [&](const SequenceNet::Node& node) {
      return loss.at("l2_norm").get<bool>() ? net.layer("l2_norm", {{"eps", loss.at("l2_eps")}}, {node}) : node;
    };
    const auto value =
        net.layer("item_loss", {{"negatives", "row"}, {"temperature", loss.at("temperature")}},
                  {states, seen(labels), seen(negatives), net.integers(Tensor::from(rows.labels), labels),
                   net.integers(Tensor::from(rows.negatives), negatives)});
    const Tensor values = net.forward({value})[0].clone();
    double sum = 0;
    for (int64_t s = 0; s < values.numel(); ++s) sum += values.item(s);
    const auto samples = static_cast<double>(values.numel());
    std::fill_n(values.data<float>(), values.numel(), static_cast<float>(1 / samples));
    net.backward({values});
    update(net, rows, {items, labels, negatives});
    return sum / samples;
  }

  Tensor table_of(const std::string& name) const {
    const auto at =
        std::find_if(parameters_.begin(), parameters_.end(), [&](const ParameterPtr& p) { return p->name == name; });
    return (*at)->value;
  }

 private:
  static json integers(const std::vector<int64_t>& values) {
    return {{"shape", {values.size()}}, {"dtype", "int64"}, {"data", values}};
  }
  void update(const SequenceNet& net, const StepRows& rows, const std::vector<SequenceNet::Node>& of_table) {
    for (const ParameterPtr& p : parameters_) {
      p->grad = net.parameter_gradient(p->name);
      if (p->grad.defined()) p->grad = p->grad.reshape(p->value.shape());
      if (p->name != "item_emb") continue;
      p->grad = Tensor::zeros(p->value.shape());
      add_rows_at(p->grad, rows.items, net.gradient(of_table[0]));
      add_rows_at(p->grad, rows.labels, net.gradient(of_table[1]));
      add_rows_at(p->grad, rows.negatives, net.gradient(of_table[2]));
    }
    optimizer_->step();
  }

  CaseContext& c_;
  ParameterList parameters_;
  KeyedOptimizerPtr optimizer_;
};

}  // namespace

void training_trajectory_op(CaseContext& c) {
  Trajectory run(c);
  const json& losses = c.expect.at("losses");
  size_t k = 0;
  for (const json& step : c.given.at("steps")) {
    const double loss = run.step(step);
    c.check.number(str_cat("losses.", k), losses.at(k).get<double>(), loss);
    ++k;
  }
  for (const auto& [name, want] : c.expect.at("params").items())
    c.check.tensor("params." + name, want, run.table_of(name));
}

}  // namespace tessera::cli

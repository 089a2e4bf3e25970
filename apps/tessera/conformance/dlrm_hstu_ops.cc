#include "conformance/dlrm_hstu_ops.h"

#include <algorithm>
#include <array>

#include "conformance/item_ops.h"
#include "conformance/sequence_blocks.h"

namespace tessera::cli {
namespace {

using Node = SequenceNet::Node;
using Named = SequenceNet::Named;

constexpr double kEps = 1e-5;

Tensor zeros_of(const Tensor& offsets) {
  return Tensor::zeros({static_cast<int64_t>(offsets.item(offsets.numel() - 1)), 1});
}

Tensor offsets_from(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> out = {0};
  for (const int64_t length : lengths) out.push_back(out.back() + length);
  return Tensor::from(out);
}

Tensor lengths_of(const Tensor& offsets) {
  Tensor out = Tensor::empty({offsets.numel() - 1}, DType::kInt64);
  for (int64_t s = 0; s < out.numel(); ++s)
    out.data<int64_t>()[s] = static_cast<int64_t>(offsets.item(s + 1) - offsets.item(s));
  return out;
}

// The samples of a preprocessor's case: a history and targets each.
struct Samples {
  explicit Samples(const CaseContext& c) : lengths(integers_of(input_of(c, "lengths"))) {
    const std::vector<int64_t> num_targets = integers_of(input_of(c, "num_targets"));
    std::vector<int64_t> before;
    for (size_t s = 0; s < lengths.size(); ++s) before.push_back(lengths[s] - num_targets[s]);
    all = offsets_from(lengths), history = offsets_from(before), targets = offsets_from(num_targets);
  }
  std::vector<int64_t> lengths;
  Tensor all, history, targets;  // offsets
};

// One of them as a sequence whose values do not matter.
Node like(SequenceNet& net, const Tensor& offsets) { return net.sequence(zeros_of(offsets), offsets); }

// x and the features beside it; those of targets have a learnt row for the history.
void content_encoder_op(CaseContext& c) {
  const json& o = options_of(c);
  const std::vector<int64_t> history = integers_of(input_of(c, "uih_offsets"));
  const Tensor targets = input_of(c, "target_offsets").to(DType::kInt64);
  std::vector<int64_t> all;
  for (size_t s = 0; s < history.size(); ++s)
    all.push_back(history[s] + static_cast<int64_t>(targets.item(static_cast<int64_t>(s))));
  SequenceNet net(c, Tensor::from(all));
  std::vector<Named> given = {{"x", net.sequence(input_of(c, "x"))}};
  std::vector<Node> columns = {given[0].node};
  for (const auto& [name, width] : o.at("additional").items()) {
    given.push_back({"additional." + name, net.sequence(input_of(c, ("additional." + name).c_str()))});
    columns.push_back(given.back().node);
  }
  for (const auto& [name, width] : o.at("target_enrich").items()) {
    given.push_back({"enrich." + name, net.sequence(input_of(c, ("enrich." + name).c_str()), targets)});
    columns.push_back(net.layer("replace_last", {{"learnt", true}}, {given[0].node, given.back().node},
                                {{"dummy." + name, "weight"}}));
  }
  net.check({{"out", net.layer("concat", json::object(), columns)}}, given);
}

// Rows times a matrix, plus a bias, which layers make of the sample's context.
Node parameterized_mlp(SequenceNet& net, const Node& x, const Node& context, const std::string& prefix) {
  const Node seen = named_linear(net, context, prefix + "compress");
  const Node matrix = net.norm(named_linear(net, seen, prefix + "attn"), prefix + "attn_norm", kEps);
  const Node inner = swish_norm(net, named_linear(net, seen, prefix + "res1"), prefix + "res_sln.", kEps);
  const Node rows = net.layer("sample_linear", json::object(), {x, matrix});
  return net.layer("add", json::object(), {rows, named_linear(net, inner, prefix + "res2")});
}

void parameterized_mlp_op(CaseContext& c) {
  SequenceNet net(c, input_of(c, "offsets"));
  const Node x = net.sequence(input_of(c, "x")), context = net.dense(input_of(c, "context"));
  net.check({{"out", parameterized_mlp(net, x, context, "")}}, {{"x", x}, {"context", context}});
}

// A preprocessor up to the rows that come before positions and times.
class Preprocessed {
 public:
  explicit Preprocessed(CaseContext& c) : c_(c), samples_(c), net_(c, samples_.all) {
    x_ = net_.sequence(input_of(c, "x"));
    inputs_.push_back({"x", x_});
    for (const json& feature : options_of(c).at("contextual_features")) add_context(feature);
  }

  SequenceNet& net() { return net_; }
  const Samples& samples() const { return samples_; }
  const std::vector<Named>& inputs() const { return inputs_; }

  Node content() { return mlp(x_, "content_mlp."); }
  // "" without actions.
  Node action() {
    const json& o = options_of(c_);
    if (field_or_null(o, "action_weights").is_null()) return "";
    const Node codes = net_.integers(input_of(c_, "actions"), like(net_, samples_.history));
    const Node embedded = net_.layer("action_embedding", action_options(net_, o, "action.table"), {x_, codes},
                                     {{"action.table", "weight"}, {"action.target_row", "target"}});
    return mlp(embedded, "action_mlp.");
  }
  // "" without additional inputs.
  Node additional() {
    std::vector<Node> columns;
    for (int64_t i = 0; i < options_of(c_).value("additional", int64_t{0}); ++i) {
      const std::string name = str_cat("additional.", i);
      columns.push_back(net_.sequence(input_of(c_, name.c_str())));
      inputs_.push_back({name, columns.back()});
    }
    return columns.empty() ? "" : mlp(net_.layer("concat", json::object(), columns), "additional_mlp.");
  }
  // The sum of those that there are, behind the contextual rows.
  Node summed() {
    std::vector<Node> parts = {content()};
    for (const Node& more : {additional(), action()}) {
      if (!more.empty()) parts.push_back(more);
    }
    return behind_context({parts.size() == 1 ? parts[0] : net_.layer("sum", json::object(), parts)});
  }
  // Sequences one after the other, behind the contextual rows of each sample.
  Node behind_context(std::vector<Node> sequences) {
    if (!slots_.empty() && mapped_.empty()) map_slots();
    sequences.insert(sequences.begin(), mapped_.begin(), mapped_.end());
    return sequences.size() == 1 ? sequences[0] : net_.layer("concat_sequences", json::object(), sequences);
  }
  int64_t contextual() const { return slots_count_; }

 private:
  void add_context(const json& feature) {
    const std::string name = "ctx." + feature.at("name").get<std::string>();
    const Node rows = net_.sequence(input_of(c_, name.c_str()), input_of(c_, (name + ".offsets").c_str()));
    inputs_.push_back({name, rows});
    const json& length = feature.at("max_length");
    json options = {{"length", length}};
    std::vector<Node> from = {rows};
    if (const int64_t least = feature.value("min_uih_length", int64_t{0}); least > 0) {
      options["min_rows"] = least;
      from.push_back(x_);
    }
    slots_.push_back(net_.layer("pad_rows", options, from));
    slots_count_ += length.get<int64_t>();
  }
  // A matrix for each contextual row.
  void map_slots() {
    const json& shape = net_.params().at("context.w").at("shape");
    const json widths = std::vector<json>(static_cast<size_t>(slots_count_), shape.at(1));
    const Node columns =
        net_.layer("split_columns", {{"widths", widths}}, {net_.layer("concat", json::object(), slots_)});
    for (int64_t s = 0; s < slots_count_; ++s) {
      mapped_.push_back(net_.layer("linear", {{"width", shape.at(2)}}, {str_cat(columns, ':', s)},
                                   {{"context.w", "weight", SequenceNet::Form::kTransposed, s},
                                    {"context.b", "bias", SequenceNet::Form::kSame, s}}));
    }
  }
  Node mlp(const Node& x, const std::string& prefix) {
    if (!options_of(c_).value("parameterized", false)) return swish_mlp(net_, x, prefix, kEps);
    return parameterized_mlp(net_, x, net_.layer("concat", json::object(), slots_), prefix);
  }

  CaseContext& c_;
  Samples samples_;
  SequenceNet net_;
  Node x_;
  std::vector<Named> inputs_;
  std::vector<Node> slots_, mapped_;
  int64_t slots_count_ = 0;
};

// An integer as columns that a float32 holds, and back.
constexpr int64_t kDigits = 3, kBase = 1 << 21;
Tensor columns_from(const Tensor& integers) {
  Tensor out = Tensor::empty({integers.numel(), kDigits});
  const std::vector<int64_t> values = integers_of(integers);
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t rest = values[i];
    for (int64_t d = 0; d < kDigits; ++d, rest /= kBase)
      out.data<float>()[static_cast<int64_t>(i) * kDigits + d] = static_cast<float>(rest % kBase);
  }
  return out;
}
Tensor integers_from(const Tensor& columns) {
  Tensor out = Tensor::zeros({columns.size(0)}, DType::kInt64);
  for (int64_t i = 0; i < out.numel(); ++i) {
    for (int64_t d = kDigits - 1; d >= 0; --d)
      out.data<int64_t>()[i] = out.data<int64_t>()[i] * kBase + static_cast<int64_t>(columns.item(i * kDigits + d));
  }
  return out;
}

// Sequences by turns: the history's rows, and those of the targets, of which only the first's stay without `all`.
struct Turns {
  Node history, targets;
};
Turns interleaved(SequenceNet& net, const Node& a, const Node& b, int64_t width, const Tensor& history, bool all) {
  const Node both = net.layer("concat", json::object(), {a, b});
  const Node parts = net.layer("split_sequences", json::object(), {both, like(net, history)});
  const json widths = {{"widths", {width, width}}};
  const Node before = net.layer("split_columns", widths, {parts}),
             after = net.layer("split_columns", widths, {parts + ":1"});
  const json last = {{"evaluation", "first"}};
  return {net.layer("interleave", json::object(), {before, before + ":1"}),
          all ? net.layer("interleave", last, {after, after + ":1"}) : after};
}

// Times move through the same layers; those of the contextual rows are 0.
void check_times(CaseContext& c, const Samples& samples, int64_t contextual, bool by_turns, bool trains) {
  SequenceNet net(c, samples.all);
  if (!trains) net.evaluate();
  const Node times = net.sequence(columns_from(input_of(c, "timestamps")));
  std::vector<Node> parts(static_cast<size_t>(contextual));
  for (Node& slot : parts) slot = net.dense(Tensor::zeros({std::ssize(samples.lengths), kDigits}));
  Node targets = times;
  if (by_turns) {
    const Turns turns = interleaved(net, times, times, kDigits, samples.history, true);
    parts.insert(parts.end(), {turns.history, turns.targets});
    targets = turns.targets;
  } else {
    parts.push_back(times);
    targets = net.layer("rows_of", json::object(), {times, like(net, samples.targets)});
  }
  const Node out = parts.size() == 1 ? parts[0] : net.layer("concat_sequences", json::object(), parts);
  const std::vector<Tensor> rows = net.forward({out, targets});
  const json& want = c.expect.at("outputs");
  c.check.tensor("timestamps", want.at("timestamps"), integers_from(rows[0]));
  c.check.tensor("lengths", want.at("lengths"), lengths_of(net.offsets(0)));
  if (want.contains("num_targets")) c.check.tensor("num_targets", want["num_targets"], lengths_of(net.offsets(1)));
}

void contextual_op(CaseContext& c) {
  Preprocessed made(c);
  const Node out = made.summed();
  made.net().check({{"out", out}}, made.inputs());
  check_times(c, made.samples(), made.contextual(), false, true);
}

void interleave_op(CaseContext& c) {
  const json& o = options_of(c);
  const bool by_turns = o.at("interleave").get<bool>(), trains = o.at("training").get<bool>();
  // Without a backward pass outside training, gradients there are those of a graph with the rows that are left.
  for (const bool all : {true, false}) {
    if (!all && (trains || !by_turns)) continue;
    Preprocessed made(c);
    Node out;
    if (by_turns) {
      const Node content = made.content(), action = made.action();
      const auto width = c.expect.at("outputs").at("out").at("shape").at(1).get<int64_t>();
      const Turns turns = interleaved(made.net(), content, action, width, made.samples().history, all);
      out = made.behind_context({turns.history, turns.targets});
    } else {
      out = made.summed();
    }
    if (all && by_turns && !trains) {
      made.net().evaluate();
      c.check.tensor("out", c.expect.at("outputs").at("out"), made.net().forward({out})[0]);
    } else {
      made.net().check({{"out", out}}, made.inputs());
    }
    if (all) check_times(c, made.samples(), made.contextual(), by_turns, trains);
  }
}

// Times of the rows that a case's offsets name.
Tensor times_at(const CaseContext& c, const Samples& samples, bool of_targets) {
  const std::vector<int64_t> times = integers_of(input_of(c, "timestamps"));
  std::vector<int64_t> out;
  size_t at = 0;
  for (int64_t s = 0; s < std::ssize(samples.lengths); ++s) {
    const auto before = static_cast<size_t>(samples.history.item(s + 1) - samples.history.item(s));
    const auto end = at + static_cast<size_t>(samples.lengths[static_cast<size_t>(s)]);
    for (size_t i = at; i < end; ++i) {
      if ((i >= at + before) == of_targets) out.push_back(times[i]);
    }
    at = end;
  }
  return Tensor::from(out);
}

void user_tower_op(CaseContext& c) {
  json o = options_of(c);
  Preprocessed made(c);
  SequenceNet& net = made.net();
  const Node rows = made.summed();
  const Node history = like(net, made.samples().history), targets = like(net, made.samples().targets);
  const Node past = net.integers(times_at(c, made.samples(), false), history),
             then = net.integers(times_at(c, made.samples(), true), targets);
  const json where = {{"length", net.parameter("position").size(0)},
                      {"from", "target"},
                      {"targets", true},
                      {"contextual", made.contextual()},
                      {"scale", o.at("alpha")}};
  const json when = {{"kind", o.at("time_bucket_fn")},
                     {"buckets", o.at("time_bucket_cap")},
                     {"rows", net.parameter("timestamp").size(0)},
                     {"contextual", made.contextual()}};
  const Node placed = net.layer("position_embedding", where, {rows, targets}, {{"position", "weight"}});
  Node x = net.layer("time_encoding", when, {placed, past, then}, {{"timestamp", "weight"}});
  o["contextual_seq_len"] = o.at("stu_contextual_seq_len");  // of the attention's mask
  for (int64_t k = 0; k < o.at("num_layers").get<int64_t>(); ++k)
    x = stu_layer(net, x, targets, o, str_cat("layers.", k, "."));
  const Node asked = net.layer("rows_of", json::object(), {x, targets});
  constexpr double kPi = 3.14;  // the peer's
  const Node dated = net.layer("time_encoding", calendar_options(o.at("time_features"), kPi), {asked, then});
  net.check({{"out", net.norm(named_linear(net, dated, "combine"), "post", kEps)}}, made.inputs());
}

// Keys and values of the rows before the last ones are computed by themselves.
void stu_cached_op(CaseContext& c) {
  const json& o = options_of(c);
  const Tensor offsets = input_of(c, "offsets"), x = input_of(c, "x");
  const auto delta = o.at("delta").get<int64_t>();
  const int64_t samples = offsets.numel() - 1, width = x.size(1);
  std::vector<int64_t> before;
  std::vector<float> first, last;
  for (int64_t s = 0; s < samples; ++s) {
    const auto begin = static_cast<int64_t>(offsets.item(s)), end = static_cast<int64_t>(offsets.item(s + 1));
    before.push_back(end - begin - delta);
    const float* rows = x.data<float>();
    first.insert(first.end(), rows + begin * width, rows + (end - delta) * width);
    last.insert(last.end(), rows + (end - delta) * width, rows + end * width);
  }
  const Tensor prefix = offsets_from(before);
  SequenceNet cache(c, prefix);
  const Node parts = stu_parts(cache, cache.sequence(Tensor::from(first).reshape({-1, width})), o, "");
  const Tensor kept = cache.forward({cache.layer("concat", json::object(), {parts + ":3", parts + ":1"})})[0];
  SequenceNet net(c, equal_offsets(samples, delta));
  const Node rows = net.sequence(Tensor::from(last).reshape({-1, width}));
  const bool targets = o.at("target_aware").get<bool>() && has_input(c, "num_targets");
  const Node counts = targets ? net.integers(input_of(c, "num_targets")) : "";
  net.check({{"delta_out", stu_layer(net, rows, counts, o, "", net.sequence(kept, prefix))}}, {});
}

struct Task {
  json options;
  bool binary() const { return options.at("type") == 0; }
};

// The head of several tasks, with the core's cross entropy and the layer "mse".
class Tasks {
 public:
  explicit Tasks(CaseContext& c) : c_(c), rows_(input_of(c, "user").size(0)), net_(c, equal_offsets(rows_, 1)) {
    for (const json& task : options_of(c).at("tasks")) tasks_.push_back({task});
    std::stable_sort(tasks_.begin(), tasks_.end(),
                     [](const Task& a, const Task& b) { return a.options.at("type") < b.options.at("type"); });
  }

  void check() {
    const Node user = net_.dense(input_of(c_, "user")), item = net_.dense(input_of(c_, "item"));
    const Node match = net_.layer("product", json::object(), {user, item});
    const Node hidden = swish_norm(net_, named_linear(net_, match, "l1"), "sln.", kEps);
    const Node all = net_.layer("split_columns", {{"widths", std::vector<int64_t>(tasks_.size(), 1)}},
                                {named_linear(net_, hidden, "l2")});
    std::vector<Node> predictions, losses;
    for (size_t k = 0; k < tasks_.size(); ++k) {
      const Node z = str_cat(all, ':', k);
      predictions.push_back(tasks_[k].binary() ? net_.layer("activation", {{"kind", "sigmoid"}}, {z}) : z);
      losses.push_back(tasks_[k].binary() ? z : net_.layer("mse", json::object(), {z, net_.dense(labels(tasks_[k]))}));
    }
    std::vector<Node> heads = predictions;
    heads.insert(heads.end(), losses.begin(), losses.end());
    compare(net_.forward(heads));
    for (const auto& [name, node] : {std::pair{"user", user}, std::pair{"item", item}})
      net_.check_gradient(str_cat("input_grads.", name), c_.expect.at("input_grads").at(name), net_.gradient(node));
  }

 private:
  Tensor labels(const Task& task) const {
    const std::vector<int64_t> values = integers_of(input_of(c_, task.binary() ? "bitmask" : "watchtime"));
    std::vector<float> out;
    for (const int64_t value : values) {
      const bool set = (value & task.options.at("weight").get<int64_t>()) != 0;
      out.push_back(task.binary() ? static_cast<float>(set) : static_cast<float>(value));
    }
    return Tensor::from(out);
  }
  void compare(const std::vector<Tensor>& got) {
    const json &want = c_.expect.at("outputs"), &of = c_.given.at("output_grads");
    const Tensor of_predictions = tensor_from(of.at("predictions")), of_losses = tensor_from(of.at("losses"));
    const double share =
        options_of(c_).at("causal_multitask_weights").get<double>() / static_cast<double>(std::max<int64_t>(rows_, 1));
    const auto count = static_cast<int64_t>(tasks_.size());
    const Tensor predictions = Tensor::empty({count, rows_}), losses = Tensor::zeros({count});
    std::vector<Tensor> grads(got.size());
    for (size_t k = 0; k < tasks_.size(); ++k) {
      const auto at = static_cast<int64_t>(k) * rows_;
      std::copy_n(got[k].data<float>(), rows_, predictions.data<float>() + at);
      grads[k] = Tensor::empty({rows_, 1});
      std::copy_n(of_predictions.data<float>() + at, rows_, grads[k].data<float>());
      const Tensor& values = got[tasks_.size() + k];
      const Tensor grad = grads[tasks_.size() + k] = Tensor::empty({rows_, 1});
      const double scale = share * of_losses.item(static_cast<int64_t>(k));
      double sum = 0;
      if (tasks_[k].binary()) {
        sum =
            binary_cross_entropy_with_logits(values.reshape({rows_}), labels(tasks_[k]), grad.reshape({rows_}), scale);
      } else {
        for (int64_t i = 0; i < rows_; ++i) sum += values.item(i);
        std::fill_n(grad.data<float>(), rows_, static_cast<float>(scale));
      }
      losses.data<float>()[k] = static_cast<float>(share * sum);
    }
    c_.check.tensor("predictions", want.at("predictions"), predictions);
    c_.check.tensor("losses", want.at("losses"), losses);
    net_.backward(grads);
  }

  CaseContext& c_;
  int64_t rows_;
  SequenceNet net_;
  std::vector<Task> tasks_;
};

}  // namespace

json action_options(const SequenceNet& net, const json& options, const std::string& table) {
  json actions = options.at("action_weights"), thresholds = json::array(), bits = json::array();
  const json& watched = field_or_null(options, "watchtime");
  for (const json& pair : watched.is_null() ? json::array() : watched) {
    thresholds.push_back(pair.at(0));
    bits.push_back(pair.at(1));
    actions.push_back(pair.at(1));
  }
  return {{"actions", actions},
          {"thresholds", thresholds},
          {"threshold_bits", bits},
          {"dim", net.parameter(table).size(1)},
          {"targets", true}};
}

OpTable dlrm_hstu_ops() {
  return {{"content_encoder", content_encoder_op},
          {"parameterized_mlp", parameterized_mlp_op},
          {"contextual_preprocessor", contextual_op},
          {"interleave_preprocessor", interleave_op},
          {"dlrm_hstu_user_tower", user_tower_op},
          {"stu_cached", stu_cached_op},
          {"multitask", [](CaseContext& c) { Tasks(c).check(); }}};
}

}  // namespace tessera::cli

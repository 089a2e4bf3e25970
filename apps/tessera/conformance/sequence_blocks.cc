#include "conformance/sequence_blocks.h"

#include <cmath>

namespace tessera::cli {
namespace {

using Node = SequenceNet::Node;
using Form = SequenceNet::Form;

Node sum(SequenceNet& net, const Node& a, const Node& b) { return net.layer("sum", json::object(), {a, b}); }
Node product(SequenceNet& net, const Node& a, const Node& b) { return net.layer("product", json::object(), {a, b}); }
Node activation(SequenceNet& net, const Node& x, const std::string& kind) {
  return net.layer("activation", {{"kind", kind}}, {x});
}

constexpr double kStuEps = 1e-6;

std::string if_there(const SequenceNet& net, const std::string& name) { return net.has(name) ? name : ""; }

Node feed_forward(SequenceNet& net, const Node& x, const std::string& kind, const std::string& prefix) {
  Node inner = net.linear(x, prefix + "ff.w1", if_there(net, prefix + "ff.b1"));
  if (kind == "swiglu")
    inner =
        product(net, activation(net, inner, "silu"), net.linear(x, prefix + "ff.w3", if_there(net, prefix + "ff.b3")));
  else
    inner = activation(net, inner, kind);
  return net.linear(inner, prefix + "ff.w2", if_there(net, prefix + "ff.b2"));
}

Node gated(SequenceNet& net, const Node& x, const Node& y, const std::string& gate) {
  const Node g = activation(net, net.linear(x, gate + ".w", if_there(net, gate + ".b")), "sigmoid");
  return sum(net, x, product(net, g, y));
}

}  // namespace

Node attention_of(SequenceNet& net, const Node& a, const Node& b, const json& options, const std::string& prefix) {
  const auto projected = [&](const Node& x, const std::string& letter) {
    return net.linear(x, prefix + "w" + letter, if_there(net, prefix + "b" + letter));
  };
  json attention = {{"heads", options.at("num_heads")}, {"causal", options.at("causal")}};
  if (options.contains("window") && !options["window"].is_null()) attention["window"] = options["window"];
  return projected(net.layer("attention", attention, {projected(a, "q"), projected(b, "k"), projected(b, "v")}), "o");
}

Node block(SequenceNet& net, const Node& x, const json& options, const std::string& prefix) {
  const auto style = options.at("style").get<std::string>(), kind = options.at("activation").get<std::string>();
  const auto eps = options.at("eps").get<double>();
  const auto norm = [&](const Node& node, const char* name) { return net.norm(node, prefix + name, eps); };
  const auto attention = [&](const Node& a, const Node& b) {
    return attention_of(net, a, b, options, prefix + "attn.");
  };
  const auto forward = [&](const Node& node) { return feed_forward(net, node, kind, prefix); };
  if (style == "sasrec") {
    const Node q = norm(x, "ln1"), z = norm(sum(net, q, attention(q, x)), "ln2");
    return sum(net, z, forward(z));
  }
  if (style == "pre_ln") {
    const Node inner = norm(x, "ln1"), y = sum(net, x, attention(inner, inner));
    return sum(net, y, forward(norm(y, "ln2")));
  }
  if (style == "post_ln") {
    const Node y = norm(sum(net, x, attention(x, x)), "ln1");
    return norm(sum(net, y, forward(y)), "ln2");
  }
  if (style != "ligr") throw SkipCase{"not supported: a block of the style " + style};
  const Node inner = norm(x, "ln1"), y = gated(net, x, attention(inner, inner), prefix + "gate1");
  return gated(net, y, forward(norm(y, "ln2")), prefix + "gate2");
}

Times hstu_times(const CaseContext& c, SequenceNet& net, const Node& x) {
  const json& inputs = c.given.at("inputs");
  if (!inputs.contains("timestamps")) return {};
  return {net.integers(tensor_from(inputs["timestamps"]), x), net.integers(tensor_from(inputs.at("next_timestamps")))};
}

Node hstu_layer(SequenceNet& net, const Node& x, const Times& times, const json& options, const std::string& prefix) {
  const auto heads = options.at("num_heads").get<int64_t>(), dv = heads * options.at("dv").get<int64_t>(),
             dqk = heads * options.at("dqk").get<int64_t>();
  const json norm = {{"eps", options.at("eps")}, {"weights", false}};
  Node all = net.linear(net.layer("layer_norm", norm, {x}), prefix + "uvqk", "", Form::kTransposed);
  if (options.at("linear_activation") != "none") all = activation(net, all, "silu");
  const Node parts = net.layer("split_columns", {{"widths", {dv, dv, dqk, dqk}}}, {all});
  json attention = {{"heads", heads}, {"kind", "silu"}, {"scale", 1}, {"length", options.at("max_seq_len")}};
  std::vector<Node> inputs = {parts + ":2", parts + ":3", parts + ":1"};
  std::vector<SequenceNet::Parameter> parameters;
  const bool positions = net.has(prefix + "pos_w"), buckets = net.has(prefix + "ts_w");
  attention["bias"] = positions && buckets ? "both" : positions ? "position" : buckets ? "time" : "none";
  if (positions) parameters.push_back({prefix + "pos_w", "position_bias"});
  if (buckets) {
    parameters.push_back({prefix + "ts_w", "time_bias"});
    attention["buckets"] = net.parameter(prefix + "ts_w").numel() - 1;
    attention["next_times"] = true;
    inputs.insert(inputs.end(), {times.rows, times.next});
  }
  const Node o = net.layer("layer_norm", norm, {net.layer("attention", attention, inputs, parameters)});
  Node out = product(net, parts, o);
  if (options.at("concat_ua").get<bool>()) out = net.layer("concat", json::object(), {parts, o, out});
  return sum(net, net.linear(out, prefix + "o.w", prefix + "o.b"), x);
}

Node model(SequenceNet& net, const Node& items, const Times& times, const json& options, bool hstu) {
  const Tensor positions = net.parameter("pos_emb");
  const double scale =
      options.at("scale_embedding").get<bool>() ? std::sqrt(static_cast<double>(positions.size(1))) : 1.0;
  const json place = {
      {"length", positions.size(0)}, {"scale", scale}, {"from", options.at("positions") == "front" ? "front" : "end"}};
  Node x = net.layer("position_embedding", place, {items}, {{"pos_emb", "weight"}});
  if (net.has("type_emb")) {
    // All rows get the table's first row: that of targets, which all are.
    const json all = {{"length", net.parameter("type_emb").size(0)}, {"from", "target"}, {"targets", true}};
    x = net.layer("position_embedding", all, {x, x}, {{"type_emb", "weight"}});
  }
  if (net.has("emb_ln.w")) x = net.norm(x, "emb_ln", options.at("eps").get<double>());
  for (int64_t k = 0; k < options.at("num_blocks").get<int64_t>(); ++k) {
    const std::string prefix = str_cat("blocks.", k, ".");
    x = hstu ? hstu_layer(net, x, times, options, prefix) : block(net, x, options, prefix);
  }
  const auto last = options.at("final").get<std::string>();
  const auto eps = options.at("final_eps").get<double>();
  if (last == "l2") return net.layer("l2_norm", {{"eps", eps}}, {x});
  return last == "layer_norm" ? net.norm(x, "last_ln", eps) : x;
}

Node named_linear(SequenceNet& net, const Node& x, const std::string& name) {
  return net.linear(x, name + ".w", name + ".b");
}

Node swish_norm(SequenceNet& net, const Node& x, const std::string& name, double eps) {
  return net.layer("swish_layer_norm", {{"eps", eps}}, {x}, {{name + "w", "norm.weight"}, {name + "b", "norm.bias"}});
}

Node swish_mlp(SequenceNet& net, const Node& x, const std::string& prefix, double eps) {
  const Node swish = swish_norm(net, named_linear(net, x, prefix + "l1"), prefix + "sln.", eps);
  return net.norm(named_linear(net, swish, prefix + "l2"), prefix + "ln", eps);
}

json calendar_options(const json& pairs, const json& pi) {
  json units = json::array(), periods = json::array();
  for (const json& pair : pairs) {
    units.push_back(pair.at(0));
    periods.push_back(pair.at(1));
  }
  return {{"kind", "calendar"}, {"units", units}, {"periods", periods}, {"pi", pi}};
}

json stu_options(const json& options, bool targets) {
  json out = {{"kind", "silu"}, {"targets", targets}, {"contextual", options.at("contextual_seq_len")}};
  if (options.contains("num_heads")) out["heads"] = options["num_heads"];
  if (options.contains("max_seq_len")) out["length"] = options["max_seq_len"];
  if (options.at("max_attn_len") != 0) out["window"] = options["max_attn_len"];
  if (options.contains("min_full_attn_seq_len")) out["full"] = options["min_full_attn_seq_len"];
  return out;
}

Node stu_parts(SequenceNet& net, const Node& x, const json& options, const std::string& prefix) {
  const auto heads = options.at("num_heads").get<int64_t>(), hidden = heads * options.at("hidden_dim").get<int64_t>(),
             keys = heads * options.at("attention_dim").get<int64_t>();
  const Node all =
      net.linear(net.norm(x, prefix + "input_norm", kStuEps), prefix + "uvqk.w", prefix + "uvqk.b", Form::kTransposed);
  return net.layer("split_columns", {{"widths", {hidden, hidden, keys, keys}}}, {all});
}

Node stu_layer(SequenceNet& net, const Node& x, const Node& targets, const json& options, const std::string& prefix,
               const Node& before) {
  const Node parts = stu_parts(net, x, options, prefix);
  const Node u = activation(net, parts, "silu");
  json attention = stu_options(options, !targets.empty());
  if (const json& alpha = options.at("attn_alpha"); alpha.is_number() && alpha != 0) attention["scale"] = alpha;
  std::vector<Node> inputs = {parts + ":2", parts + ":3", parts + ":1"};
  if (!before.empty()) {
    attention["last_rows"] = true;
    const Node own = net.layer("concat", json::object(), {parts + ":3", parts + ":1"});
    const Node all = net.layer("concat_sequences", json::object(), {before, own});
    const auto heads = options.at("num_heads").get<int64_t>();
    const json widths = {heads * options.at("attention_dim").get<int64_t>(),
                         heads * options.at("hidden_dim").get<int64_t>()};
    inputs[1] = net.layer("split_columns", {{"widths", widths}}, {all});
    inputs[2] = inputs[1] + ":1";
  }
  if (!targets.empty()) inputs.push_back(targets);
  const Node o = net.layer("attention", attention, inputs);
  const bool groups = options.at("group_norm").get<bool>();
  const json norm = {{"eps", kStuEps}, {"groups", groups ? options.at("num_heads").get<int64_t>() : 1}};
  const Node scaled =
      net.layer("layer_norm", norm, {o}, {{prefix + "output_norm.w", "weight"}, {prefix + "output_norm.b", "bias"}});
  const Node y = product(net, u, scaled);
  const Node joined = net.layer("concat", json::object(), {u, o, y});
  return sum(net, x, net.linear(joined, prefix + "output.w", "", Form::kTransposed));
}

}  // namespace tessera::cli

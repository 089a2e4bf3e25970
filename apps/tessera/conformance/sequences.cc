// Area "sequences": attention, blocks and models over sequences, encoders, and moves of rows, as graphs of the core.
#include <cmath>

#include "conformance/dlrm_hstu_ops.h"
#include "conformance/item_ops.h"
#include "conformance/sequence_blocks.h"

namespace tessera::cli {
namespace {

using Node = SequenceNet::Node;

Tensor offsets_of(const CaseContext& c) { return input_of(c, "offsets"); }

// Offsets of samples that have the rows of both.
Tensor sum_of(const Tensor& a, const Tensor& b) {
  Tensor out = Tensor::empty({a.numel()}, DType::kInt64);
  for (int64_t s = 0; s < a.numel(); ++s) out.data<int64_t>()[s] = static_cast<int64_t>(a.item(s) + b.item(s));
  return out;
}

void softmax_attention_op(CaseContext& c) {
  const json& o = options_of(c);
  SequenceNet net(c, offsets_of(c));
  const Node q = net.sequence(input_of(c, "q")), k = net.sequence(input_of(c, "k")), v = net.sequence(input_of(c, "v"));
  json options = {{"heads", o.at("num_heads")}, {"causal", o.at("causal")}, {"scale", o.at("scale")}};
  if (!o.at("window").is_null()) options["window"] = o["window"];
  net.check({{"out", net.layer("attention", options, {q, k, v})}}, {{"q", q}, {"k", k}, {"v", v}});
}

void multi_head_attention_op(CaseContext& c) {
  SequenceNet net(c, offsets_of(c));
  const Node x = net.sequence(input_of(c, "x"));
  net.check({{"out", attention_of(net, x, x, options_of(c), "")}}, {{"x", x}});
}

void sequence_block_op(CaseContext& c) {
  SequenceNet net(c, offsets_of(c));
  const Node x = net.sequence(input_of(c, "x"));
  net.check({{"out", block(net, x, options_of(c), "")}}, {{"x", x}});
}

void hstu_layer_op(CaseContext& c) {
  SequenceNet net(c, offsets_of(c));
  const Node x = net.sequence(input_of(c, "x"));
  net.check({{"out", hstu_layer(net, x, hstu_times(c, net, x), options_of(c), "")}}, {{"x", x}});
}

// A model over the rows of ids, whose gradient is added up for the table.
void model_op(CaseContext& c, bool hstu) {
  const json& o = options_of(c);
  SequenceNet net(c, offsets_of(c));
  const std::vector<int64_t> ids = integers_of(input_of(c, "ids"));
  const Tensor table = net.parameter("item_emb");
  const Node items = net.sequence(rows_at(table, ids));
  const Times times = hstu ? hstu_times(c, net, items) : Times{};
  net.check({{"hidden", model(net, items, times, o, hstu)}}, {});
  const Tensor sums = Tensor::zeros({table.size(0), table.size(1)});
  add_rows_at(sums, ids, net.gradient(items));
  net.check_gradient("param_grads.item_emb", c.expect.at("param_grads").at("item_emb"), sums);
}

void stu_attention_op(CaseContext& c) {
  SequenceNet net(c, offsets_of(c));
  const Node q = net.sequence(input_of(c, "q")), k = net.sequence(input_of(c, "k")), v = net.sequence(input_of(c, "v"));
  std::vector<Node> inputs = {q, k, v};
  json options = stu_options(options_of(c), has_input(c, "num_targets"));
  options["scale"] = options_of(c).at("alpha");
  if (has_input(c, "num_targets")) inputs.push_back(net.integers(input_of(c, "num_targets")));
  if (!has_input(c, "attn_scale"))
    return net.check({{"out", net.layer("attention", options, inputs)}}, {{"q", q}, {"k", k}, {"v", v}});
  // Factors of rows, or one, which each sample gets.
  options["length"] = 1;
  const Node attended = net.layer("attention", options, inputs);
  const Tensor given = input_of(c, "attn_scale");
  const auto samples = static_cast<size_t>(offsets_of(c).numel() - 1);
  const bool of_rows = given.dim() > 0;
  const Node factors =
      of_rows ? net.sequence(given) : net.dense(Tensor::from(std::vector(samples, static_cast<float>(given.item(0)))));
  const Node out = net.layer("scale_rows", json::object(), {attended, factors});
  std::vector<SequenceNet::Named> named = {{"q", q}, {"k", k}, {"v", v}};
  if (of_rows) named.push_back({"attn_scale", factors});
  net.check({{"out", out}}, named);
  if (of_rows) return;
  const Tensor parts = net.gradient(factors), sum = Tensor::zeros({1});
  for (int64_t s = 0; s < parts.numel(); ++s) sum.data<float>()[0] += parts.data<float>()[s];
  net.check_gradient("input_grads.attn_scale", c.expect.at("input_grads").at("attn_scale"), sum);
}

// Which rows a row sees: the weights of an attention with queries and keys 1, over the unit matrix.
void stu_mask_op(CaseContext& c) {
  const json& o = options_of(c);
  const auto rows = o.at("length").get<int64_t>();
  SequenceNet net(c, Tensor::from(std::vector<int64_t>{0, rows}));
  const Tensor ones = Tensor::from(std::vector<float>(static_cast<size_t>(rows), 1.0F)).reshape({rows, 1});
  const Tensor unit = Tensor::zeros({rows, rows});
  for (int64_t i = 0; i < rows; ++i) unit.data<float>()[i * rows + i] = 1;
  const bool targets = !o.at("num_targets").is_null();
  json options = stu_options(o, targets);
  options["length"] = 1;
  const Node one = net.sequence(ones);
  std::vector<Node> inputs = {one, one, net.sequence(unit)};
  if (targets) inputs.push_back(net.integers(Tensor::from(std::vector<int64_t>{o.at("num_targets").get<int64_t>()})));
  const Tensor weights = net.forward({net.layer("attention", options, inputs)})[0];
  const json& want = c.expect.at("outputs").at("valid");
  const Tensor valid = Tensor::empty({rows, rows}, tensor_from(want).dtype());
  for (int64_t i = 0; i < weights.numel(); ++i) {
    const bool sees = weights.item(i) > 0.5;
    if (valid.dtype() == DType::kInt64)
      valid.data<int64_t>()[i] = sees ? 1 : 0;
    else if (valid.dtype() == DType::kFloat32)
      valid.data<float>()[i] = sees ? 1 : 0;
    else
      static_cast<uint8_t*>(valid.raw())[i] = sees ? 1 : 0;
  }
  c.check.tensor("valid", want, valid);
}

void stu_layer_op(CaseContext& c) {
  const json& o = options_of(c);
  SequenceNet net(c, offsets_of(c));
  const Node x = net.sequence(input_of(c, "x"));
  const bool targets = o.at("target_aware").get<bool>() && has_input(c, "num_targets");
  const Node counts = targets ? net.integers(input_of(c, "num_targets")) : "";
  Node out = x;
  if (!o.contains("num_layers")) out = stu_layer(net, x, counts, o, "");
  for (int64_t k = 0; o.contains("num_layers") && k < o["num_layers"].get<int64_t>(); ++k)
    out = stu_layer(net, out, counts, o, str_cat("layers.", k, "."));
  net.check({{"out", out}}, {{"x", x}});
}

// Compares integers with the first column of rows.
void check_integers(CaseContext& c, const char* name, const Tensor& rows) {
  const json& want = c.expect.at("outputs").at(name);
  const Tensor got = Tensor::empty({rows.size(0)}, DType::kInt64);
  for (int64_t i = 0; i < rows.size(0); ++i) got.data<int64_t>()[i] = std::llround(rows.item(i * rows.size(1)));
  c.check.tensor(name, want, got.to(tensor_from(want).dtype()));
}

void positions_op(CaseContext& c) {
  const json& o = options_of(c);
  const Tensor offsets = offsets_of(c);
  SequenceNet net(c, offsets);
  const auto rows = static_cast<int64_t>(offsets.item(offsets.numel() - 1));
  const Node zeros = net.sequence(Tensor::zeros({rows, 1}));
  c.check.equal("positions", true, o.at("positions") == "front" || o.at("positions") == "end_of_window");
  const std::string from = o.at("positions") == "front" ? "front" : "end";
  check_integers(
      c, "index",
      net.forward_numbered(net.layer("position_embedding", {{"length", o.at("rows")}, {"from", from}}, {zeros})));
}

void add_timestamp_positions_op(CaseContext& c) {
  const json& o = options_of(c);
  SequenceNet net(c, offsets_of(c));
  const Node x = net.sequence(input_of(c, "x")), times = net.integers(input_of(c, "timestamps"), x);
  const bool targets = has_input(c, "num_targets");
  std::vector<Node> inputs = {x};
  if (targets) inputs.push_back(net.integers(input_of(c, "num_targets")));
  const json where = {{"length", net.parameter("position").size(0)},
                      {"from", "target"},
                      {"targets", targets},
                      {"contextual", o.at("contextual_seq_len")},
                      {"scale", o.at("alpha")}};
  const json when = {{"kind", o.at("time_bucket_fn")},
                     {"buckets", o.at("time_bucket_cap")},
                     {"rows", net.parameter("timestamp").size(0)}};
  const Node placed = net.layer("position_embedding", where, inputs, {{"position", "weight"}});
  net.check({{"out", net.layer("time_encoding", when, {placed, times}, {{"timestamp", "weight"}})}}, {{"x", x}});
  for (const char* name : {"position_index", "time_bucket"}) {
    if (!c.expect.at("outputs").contains(name)) continue;
    SequenceNet numbers(c, offsets_of(c));
    const Node zeros = numbers.sequence(Tensor::zeros({input_of(c, "x").size(0), 1}));
    std::vector<Node> given = {zeros};
    if (std::string(name) == "time_bucket") {
      given.push_back(numbers.integers(input_of(c, "timestamps"), zeros));
      check_integers(c, name, numbers.forward_numbered(numbers.layer("time_encoding", when, given)));
      continue;
    }
    if (targets) given.push_back(numbers.integers(input_of(c, "num_targets")));
    check_integers(c, name, numbers.forward_numbered(numbers.layer("position_embedding", where, given)));
  }
}

// Every sample has its history's actions, and then one row for each target.
void action_encoder_op(CaseContext& c) {
  const json& o = options_of(c);
  const bool watched = !o.at("watchtime").is_null();
  const Tensor actions = input_of(c, "actions"), history = input_of(c, "uih_offsets"),
               ends = input_of(c, "target_offsets");
  std::vector<int64_t> all, seconds, offsets = {0}, targets;
  for (int64_t s = 0; s + 1 < history.numel(); ++s) {
    for (auto i = static_cast<int64_t>(history.item(s)); i < static_cast<int64_t>(history.item(s + 1)); ++i) {
      all.push_back(static_cast<int64_t>(actions.item(i)));
      seconds.push_back(watched ? static_cast<int64_t>(input_of(c, "watchtimes").item(i)) : 0);
    }
    targets.push_back(static_cast<int64_t>(ends.item(s + 1) - ends.item(s)));
    all.resize(all.size() + static_cast<size_t>(targets.back()), 0);
    seconds.resize(all.size(), 0);
    offsets.push_back(std::ssize(all));
  }
  SequenceNet net(c, Tensor::from(offsets));
  const Node rows = net.sequence(Tensor::zeros({std::ssize(all), 1}));
  std::vector<Node> inputs = {net.integers(Tensor::from(all), rows)};
  if (watched) inputs.push_back(net.integers(Tensor::from(seconds), rows));
  inputs.push_back(net.integers(Tensor::from(targets)));
  net.check({{"out", net.layer("action_embedding", action_options(net, o, "table"), inputs,
                               {{"table", "weight"}, {"target_row", "target"}})}},
            {});
}

// A net whose samples have one row each.
SequenceNet net_of_rows(CaseContext& c) { return {c, equal_offsets(input_of(c, "x").size(0), 1)}; }

// The op of layers over such rows, with the option eps.
template <Node (*make)(SequenceNet&, const Node&, double)>
void rows_op(CaseContext& c) {
  SequenceNet net = net_of_rows(c);
  const Node x = net.sequence(input_of(c, "x"));
  net.check({{"out", make(net, x, options_of(c).at("eps").get<double>())}}, {{"x", x}});
}
Node swish_layer_norm(SequenceNet& net, const Node& x, double eps) { return swish_norm(net, x, "", eps); }
Node swish_layers(SequenceNet& net, const Node& x, double eps) { return swish_mlp(net, x, "", eps); }
Node l2_norm(SequenceNet& net, const Node& x, double eps) { return net.layer("l2_norm", {{"eps", eps}}, {x}); }
Node layer_norm(SequenceNet& net, const Node& x, double eps) { return net.norm(x, "", eps); }

void timestamp_norm_op(CaseContext& c) {
  const json& o = options_of(c);
  SequenceNet net = net_of_rows(c);
  const Node x = net.sequence(input_of(c, "x")), times = net.integers(input_of(c, "timestamps"), x);
  const int64_t width = input_of(c, "x").size(1), more = 2 * static_cast<int64_t>(o.at("time_features").size());
  const Node all = net.layer("time_encoding", calendar_options(o.at("time_features"), o.at("pi")), {x, times});
  const Node features = net.layer("split_columns", {{"widths", {width, more}}}, {all});
  const Node combined = net.linear(all, "combine.w", "combine.b");
  net.check({{"out", net.norm(combined, "", o.at("eps").get<double>())}, {"time_features", features + ":1"}},
            {{"x", x}});
}

// The hour follows from the calendar's angle.
void hour_of_day_op(CaseContext& c) {
  const json& o = options_of(c);
  const Tensor times = input_of(c, "timestamps");
  SequenceNet net(c, equal_offsets(times.numel(), 1));
  const Node zeros = net.sequence(Tensor::zeros({times.numel(), 1})), at = net.integers(times, zeros);
  const json pair = {o.at("unit"), o.at("period")};
  const double turn = 2 * std::acos(-1.0);
  const Tensor rows =
      net.forward({net.layer("time_encoding", calendar_options(json::array({pair}), turn / 2), {zeros, at})})[0];
  const Tensor index = Tensor::empty({times.numel(), 1});
  const auto period = o.at("period").get<double>();
  for (int64_t i = 0; i < times.numel(); ++i) {
    const double angle = std::atan2(rows.item(3 * i + 2), rows.item(3 * i + 1));
    index.data<float>()[i] = static_cast<float>(std::fmod(std::round(angle / turn * period) + period, period));
  }
  check_integers(c, "index", index);
}

void concat_op(CaseContext& c) {
  const json& dense = options_of(c).at("left_is_dense_of");
  const Tensor right_offsets = input_of(c, "right_offsets");
  SequenceNet net(c, right_offsets);
  const Tensor left_offsets = has_input(c, "left_offsets")
                                  ? input_of(c, "left_offsets")
                                  : equal_offsets(right_offsets.numel() - 1, dense.get<int64_t>());
  const Tensor given = input_of(c, "left");
  const Tensor flat = given.dim() == 3 ? given.reshape({given.size(0) * given.size(1), given.size(2)}) : given;
  const Node left = net.sequence(flat, left_offsets), right = net.sequence(input_of(c, "right"));
  net.check({{"out", net.layer("concat_sequences", json::object(), {left, right})}},
            {{"left", left}, {"right", right}});
}

// Offsets of one side, which may be dense.
Tensor side_offsets(const CaseContext& c, const std::string& side, int64_t samples) {
  if (has_input(c, (side + "_offsets").c_str())) return input_of(c, (side + "_offsets").c_str());
  return equal_offsets(samples, options_of(c).at(side + "_is_dense_of").get<int64_t>());
}

void split_columns_op(CaseContext& c) {
  const char* known = has_input(c, "left_offsets") ? "left_offsets" : "right_offsets";
  const int64_t samples = input_of(c, known).numel() - 1;
  const Tensor left = side_offsets(c, "left", samples), right = side_offsets(c, "right", samples);
  SequenceNet net(c, sum_of(left, right));
  const Node x = net.sequence(input_of(c, "x"));
  const Node like = net.sequence(Tensor::zeros({static_cast<int64_t>(left.item(samples)), 1}), left);
  const Node parts = net.layer("split_sequences", json::object(), {x, like});
  net.check({{"left", parts}, {"right", parts + ":1"}}, {{"x", x}});
}

void gather_rows_op(CaseContext& c) {
  SequenceNet net(c, offsets_of(c));
  const Node x = net.sequence(input_of(c, "x"));
  net.check({{"last", net.layer("last_row", json::object(), {x})},
             {"targets", net.layer("rows_of", json::object(), {x, net.integers(input_of(c, "num_targets"))})}},
            {{"x", x}});
}

void jagged_bmm_op(CaseContext& c) {
  SequenceNet net(c, offsets_of(c));
  const Node x = net.sequence(input_of(c, "x")), matrices = net.dense(input_of(c, "dense")),
             bias = net.dense(input_of(c, "bias"));
  const Node products = net.layer("sample_linear", json::object(), {x, matrices});
  net.check({{"out", net.layer("add", json::object(), {products, bias})}},
            {{"x", x}, {"dense", matrices}, {"bias", bias}});
}

void jagged_padded_op(CaseContext& c) {
  const json& o = options_of(c);
  SequenceNet net(c, offsets_of(c));
  const Node x = net.sequence(input_of(c, "x"));
  const json& length = o.at("max_length");
  const Node padded = net.layer("pad_rows", {{"length", length}, {"value", o.at("padding_value")}}, {x});
  net.check({{"padded", padded}, {"back", net.layer("unpad_rows", {{"length", length}}, {padded, x})}}, {{"x", x}});
}

void replace_last_op(CaseContext& c) {
  SequenceNet net(c, input_of(c, "left_offsets"));
  const Node left = net.sequence(input_of(c, "left")),
             right = net.sequence(input_of(c, "right"), input_of(c, "right_offsets"));
  net.check({{"out", net.layer("replace_last", json::object(), {left, right})}}, {{"left", left}, {"right", right}});
}

// The contextual rows in front, the prefix, and the rest, which the contextual rows join.
void split_l2_op(CaseContext& c) {
  const auto contextual = options_of(c).at("contextual_seq_len").get<int64_t>();
  const Tensor prefix = input_of(c, "prefix_offsets"), rest = input_of(c, "rest_offsets");
  SequenceNet net(c, sum_of(prefix, rest));
  const auto like = [&](const Tensor& offsets) {
    return net.sequence(Tensor::zeros({static_cast<int64_t>(offsets.item(offsets.numel() - 1)), 1}), offsets);
  };
  const auto split = [&](const Node& x, const Tensor& first) {
    return net.layer("split_sequences", json::object(), {x, like(first)});
  };
  const Node x = net.sequence(input_of(c, "x"));
  if (contextual == 0) {
    const Node parts = split(x, prefix);
    return net.check({{"prefix", parts}, {"rest", parts + ":1"}}, {{"x", x}});
  }
  const Node front = split(x, equal_offsets(prefix.numel() - 1, contextual)), parts = split(front + ":1", prefix);
  net.check({{"prefix", parts}, {"rest", net.layer("concat_sequences", json::object(), {front, parts + ":1"})}},
            {{"x", x}});
}

// The bucket is the row of the time bias that a linear attention adds: of the time from a sample's one row to the next.
void time_bucket_op(CaseContext& c) {
  const Tensor delta = input_of(c, "delta");
  const int64_t samples = delta.numel();
  SequenceNet net(c, equal_offsets(samples, 1));
  const Tensor twos = Tensor::from(std::vector<float>(static_cast<size_t>(samples), 2.0F)).reshape({samples, 1});
  const Node zero = net.sequence(Tensor::zeros({samples, 1})), two = net.sequence(twos);
  const Node now = net.integers(Tensor::zeros({samples}, DType::kInt64), zero), next = net.integers(delta);
  const json options = {{"kind", "linear"}, {"length", 2},        {"scale", 1},
                        {"bias", "time"},   {"next_times", true}, {"buckets", options_of(c).at("num_buckets")}};
  check_integers(c, "bucket", net.forward_numbered(net.layer("attention", options, {zero, zero, two, now, next})));
}

// The biases are the weights of a linear attention whose queries are 0, over unit vectors.
void hstu_bias_op(CaseContext& c) {
  const json& o = options_of(c);
  const auto length = o.at("max_seq_len").get<int64_t>();
  const std::vector<int64_t> bounds = integers_of(offsets_of(c));
  SequenceNet net(c, offsets_of(c));
  const Tensor units = Tensor::zeros({bounds.back(), length});
  for (size_t s = 0; s + 1 < bounds.size(); ++s) {
    for (int64_t i = bounds[s]; i < bounds[s + 1]; ++i)
      units.data<float>()[i * length + i - bounds[s]] = static_cast<float>(length);
  }
  const Node zero = net.sequence(Tensor::zeros({bounds.back(), 1})), unit = net.sequence(units);
  const Times times = hstu_times(c, net, zero);
  const json options = {{"kind", "linear"}, {"length", length},   {"scale", 1},
                        {"bias", "both"},   {"next_times", true}, {"buckets", o.at("num_buckets")}};
  const Node bias = net.layer("attention", options, {zero, zero, unit, times.rows, times.next},
                              {{"pos_w", "position_bias"}, {"ts_w", "time_bias"}});
  const Tensor got = net.forward({bias})[0], grads = Tensor::zeros(got.shape());
  for (size_t s = 0; s + 1 < bounds.size(); ++s) {
    const std::string name = str_cat("bias.", s);
    const int64_t rows = bounds[s + 1] - bounds[s];
    const Tensor own = Tensor::empty({rows, rows}), of_own = tensor_from(c.given.at("output_grads").at(name));
    for (int64_t i = 0; i < rows; ++i) {
      std::copy_n(got.data<float>() + (bounds[s] + i) * length, rows, own.data<float>() + i * rows);
      std::copy_n(of_own.data<float>() + i * rows, rows, grads.data<float>() + (bounds[s] + i) * length);
    }
    c.check.tensor(name, c.expect.at("outputs").at(name), own);
  }
  net.backward({grads});
}

}  // namespace

OpTable sequence_ops() {
  OpTable out = {{"softmax_attention", softmax_attention_op},
                 {"multi_head_attention", multi_head_attention_op},
                 {"sequence_block", sequence_block_op},
                 {"sequence_model", [](CaseContext& c) { model_op(c, false); }},
                 {"hstu_model", [](CaseContext& c) { model_op(c, true); }},
                 {"hstu_layer", hstu_layer_op},
                 {"positions", positions_op},
                 {"stu_attention", stu_attention_op},
                 {"stu_mask", stu_mask_op},
                 {"stu_layer", stu_layer_op},
                 {"stu_stack", stu_layer_op},
                 {"add_timestamp_positions", add_timestamp_positions_op},
                 {"action_encoder", action_encoder_op},
                 {"swish_layer_norm", rows_op<swish_layer_norm>},
                 {"swish_mlp", rows_op<swish_layers>},
                 {"l2_norm_postprocessor", rows_op<l2_norm>},
                 {"layer_norm_postprocessor", rows_op<layer_norm>},
                 {"timestamp_layer_norm_postprocessor", timestamp_norm_op},
                 {"hour_of_day", hour_of_day_op},
                 {"concat_2d_jagged", concat_op},
                 {"split_2d_jagged", split_columns_op},
                 {"gather_rows", gather_rows_op},
                 {"jagged_dense_bmm_broadcast_add", jagged_bmm_op},
                 {"jagged_padded", jagged_padded_op},
                 {"replace_last_n", replace_last_op},
                 {"split_l2", split_l2_op},
                 {"time_bucket", time_bucket_op},
                 {"hstu_bias", hstu_bias_op}};
  out.merge(item_ops());
  out.merge(dlrm_hstu_ops());
  return out;
}

}  // namespace tessera::cli

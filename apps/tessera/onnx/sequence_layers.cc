// Layers over sequences. docs/layers.md has their formulas.
#include <cmath>
#include <limits>
#include <numbers>

#include "onnx/layer.h"

namespace tessera::cli {
namespace {

const OnnxValue& sequence(const OnnxLayer& l, size_t i) {
  if (!l.inputs.at(i).rows) l.refuse("its input ", i, " must be a sequence");
  return l.inputs[i];
}

// Rows of x by their numbers: int64 [batch, rows, 1].
std::string rows_at(GraphWriter& g, const std::string& x, const std::string& index) {
  return g.node("GatherND", {x, index}, {{"batch_dims", int64_t{1}}});
}

// Repeats [1, rows, 1] for each sample of a sequence.
std::string for_each_sample(GraphWriter& g, const std::string& index, const Rows& of) {
  return g.add(index, g.multiply(lengths_of(g, of), g.integer(0)));
}

// Bounds numbers of rows to the padded rows of x. The numbers outside have no meaning anyway.
std::string inside(GraphWriter& g, const std::string& index, const Rows& rows) {
  const std::string last = g.subtract(rows.longest, g.integer(1));
  return g.maximum(g.minimum(index, last), g.integer(0));
}

// A value of samples as a sequence of one row each.
OnnxValue as_sequence(GraphWriter& g, const OnnxValue& x) {
  if (x.rows) return x;
  const std::string rows = g.unsqueeze(x.name, 1);
  // [batch] ones, from the shape of x
  const std::string batch = g.node("Slice", {g.node("Shape", {x.name}), g.integers({0}), g.integers({1})});
  const std::string ones = g.node("Expand", {g.integer(1), batch});
  return {rows, x.width, std::make_shared<Rows>(Rows{ones, g.integers({1}), 1}), x.integers};
}

// Joins the rows of a and the rows of b, without a gap between them.
OnnxValue concatenated(GraphWriter& g, const OnnxValue& a, const OnnxValue& b) {
  const bool fixed = a.rows->fixed > 0 && b.rows->fixed > 0;
  const auto rows =
      std::make_shared<Rows>(Rows{g.add(a.rows->lengths, b.rows->lengths), g.add(a.rows->longest, b.rows->longest),
                                  fixed ? a.rows->fixed + b.rows->fixed : 0});
  const std::string both = g.concat({a.name, b.name}, 1);
  if (fixed) return {both, a.width, rows, a.integers};
  const std::string at = positions_of(g, *rows), first = lengths_of(g, *a.rows);
  const std::string from_b = g.add(at, g.subtract(a.rows->longest, first));
  const std::string index = g.node("Where", {g.node("Less", {at, first}), at, from_b});
  return {rows_at(g, both, inside(g, index, *rows)), a.width, rows, a.integers};
}

std::string last_of(GraphWriter& g, const OnnxValue& x) {
  const std::string index = inside(g, g.subtract(lengths_of(g, *x.rows), g.integer(1)), *x.rows);
  return g.node("Squeeze", {rows_at(g, x.name, index), g.integers({1})});
}

// A number of each sample: int64 [batch, 1, 1], from a sequence's rows, from integers, or 1 of a value of samples.
std::string counts_of(GraphWriter& g, const OnnxValue& x) {
  if (x.rows) return lengths_of(g, *x.rows);
  if (x.integers) return g.unsqueeze(x.name, 1);
  return lengths_of(g, *as_sequence(g, x).rows);
}

OnnxValues write_sum_pooling(OnnxLayer& l) {
  const OnnxValue& x = sequence(l, 0);
  return {{l.g.sum_over(without_padding(l.g, x), 1), x.width}};
}

OnnxValues write_mean_pooling(OnnxLayer& l) {
  const OnnxValue& x = sequence(l, 0);
  const std::string count = l.g.cast(l.g.unsqueeze(x.rows->lengths, -1), OnnxType::kFloat);
  return {{l.g.divide(l.g.sum_over(without_padding(l.g, x), 1), l.g.maximum(count, l.g.number(1))), x.width}};
}

OnnxValues write_max_pooling(OnnxLayer& l) {
  const OnnxValue& x = sequence(l, 0);
  const std::string here = present(l.g, *x.rows);
  const std::string none = l.g.number(std::numeric_limits<float>::lowest());
  // A row of lowest values in front, because a batch of empty sequences has no row at all.
  const std::string rows = l.g.node("Where", {here, x.name, none});
  const std::string front = l.g.node("Pad", {rows, l.g.integers({0, 1, 0, 0, 0, 0}), none});
  const std::string most =
      l.g.node("ReduceMax", {front}, {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}});
  const std::string any = l.g.node("Greater", {l.g.unsqueeze(x.rows->lengths, -1), l.g.integer(0)});
  return {{l.g.node("Where", {any, most, l.g.number(0)}), x.width}};
}

// Looks up rows of a parameter by int64 [.., length, 1]. `checked`: a sample with more rows than the parameter is
// refused.
std::string table_rows(OnnxLayer& l, const std::string& parameter, const std::string& index,
                       const Rows* checked = nullptr) {
  const int64_t rows = l.shape_of(parameter)[0];
  std::string at = l.g.maximum(l.g.minimum(index, l.g.integer(rows - 1)), l.g.integer(0));
  if (checked != nullptr) at = l.g.add(at, if_longer(l.g, *checked, rows, rows));
  return l.g.node("Gather", {l.parameter(parameter), l.g.node("Squeeze", {at, l.g.integers({-1})})});
}

OnnxValues write_position_weights(OnnxLayer& l) {
  l.ignore({"max_length"});
  const OnnxValue& x = sequence(l, 0);
  const std::string weights = table_rows(l, "position_weight", positions_of(l.g, *x.rows), x.rows.get());
  const std::string weighted = l.g.multiply(without_padding(l.g, x), l.g.unsqueeze(weights, -1));
  return {{l.g.sum_over(weighted, 1), x.width}};
}

OnnxValues write_position_embedding(OnnxLayer& l) {
  const OnnxValue& x = sequence(l, 0);
  GraphWriter& g = l.g;
  const auto length = l.option<int64_t>("length", 0), contextual = l.option<int64_t>("contextual", 0);
  const auto from = l.option<std::string>("from", "front");
  const bool targets = l.option("targets", false);
  const std::string at = positions_of(g, *x.rows);
  std::string index = at;
  if (from == "end") index = g.add(g.subtract(g.integer(length), lengths_of(g, *x.rows)), at);
  if (from == "target") {
    std::string history = lengths_of(g, *x.rows);
    if (targets) history = g.subtract(history, counts_of(g, l.inputs.at(1)));
    const std::string back = g.add(g.maximum(g.subtract(history, at), g.integer(0)), g.integer(contextual));
    index = g.node("Where", {g.node("Less", {at, g.integer(contextual)}), at, g.minimum(back, g.integer(length - 1))});
  }
  const std::string scaled = g.multiply(x.name, g.number(l.option("scale", 1.0)));
  const Rows* const checked = from == "target" ? nullptr : x.rows.get();
  return {{g.add(scaled, table_rows(l, "weight", index, checked)), x.width, x.rows}};
}

// Joins integers of several inputs, after `zeros` rows of 0.
OnnxValue joined_integers(OnnxLayer& l, size_t first, int64_t zeros) {
  OnnxValue out = as_sequence(l.g, l.inputs.at(first));
  for (size_t i = first + 1; i < l.inputs.size(); ++i) out = concatenated(l.g, out, as_sequence(l.g, l.inputs[i]));
  if (zeros == 0) return out;
  const auto rows = std::make_shared<Rows>(
      Rows{l.g.add(out.rows->lengths, l.g.integer(zeros)), l.g.add(out.rows->longest, l.g.integer(zeros))});
  return {l.g.node("Pad", {out.name, l.g.integers({0, zeros, 0, 0, 0, 0})}), 1, rows, true};
}

// Converts row i of a layer's rows to a row of other rows, which may be padded to another length.
std::string rows_like(GraphWriter& g, const std::string& values, const Rows& of, const Rows& wanted) {
  return rows_at(g, values, inside(g, for_each_sample(g, positions_of(g, wanted), wanted), of));
}

// Cosine and sine of hour, weekday and the like, from a table for each period.
OnnxValues write_calendar(OnnxLayer& l, const OnnxValue& x) {
  GraphWriter& g = l.g;
  const auto units = l.option<std::vector<int64_t>>("units", {3600, 86400});
  const auto periods = l.option<std::vector<int64_t>>("periods", {24, 7});
  const double pi = l.option("pi", std::numbers::pi);
  const OnnxValue times = joined_integers(l, 1, l.option<int64_t>("contextual", 0));
  GraphWriter::Names parts = {x.name};
  for (size_t k = 0; k < periods.size(); ++k) {
    const Tensor circle = Tensor::empty({periods[k], 2});
    for (int64_t at = 0; at < periods[k]; ++at) {
      const double angle = 2 * pi * static_cast<double>(at) / static_cast<double>(periods[k]);
      circle.data<float>()[2 * at] = static_cast<float>(std::cos(angle));
      circle.data<float>()[2 * at + 1] = static_cast<float>(std::sin(angle));
    }
    const std::string unit = g.integer(units[k]);
    const std::string past = g.divide(g.subtract(times.name, g.node("Mod", {times.name, unit})), unit);
    const std::string at = g.node("Squeeze", {g.node("Mod", {past, g.integer(periods[k])}), g.integers({-1})});
    const std::string table = g.tensor(str_cat(l.name(), ".circle_", k), circle);
    parts.push_back(rows_like(g, g.node("Gather", {table, at}), *times.rows, *x.rows));
  }
  return {{g.concat(parts), x.width + 2 * std::ssize(periods), x.rows}};
}

OnnxValues write_time_encoding(OnnxLayer& l) {
  GraphWriter& g = l.g;
  const OnnxValue& x = sequence(l, 0);
  const auto kind = l.option<std::string>("kind", "sqrt");
  if (kind == "calendar") return write_calendar(l, x);
  l.ignore({"rows"});
  const auto buckets = l.option<int64_t>("buckets", 2047), contextual = l.option<int64_t>("contextual", 0);
  const double unit = l.option("unit", 60.0);
  const OnnxValue times = joined_integers(l, 1, 0);
  const std::string last = g.unsqueeze(last_of(g, times), 1);
  const OnnxValue all = contextual == 0 ? times : joined_integers(l, 1, contextual);
  const auto doubles = [&](double value) { return g.cast(g.number(value), OnnxType::kDouble); };
  const std::string past = g.cast(g.subtract(last, all.name), OnnxType::kDouble);
  const std::string units = g.divide(g.maximum(past, doubles(1e-6)), doubles(unit));
  const std::string at = kind == "log" ? g.maximum(g.node("Log", {units}), doubles(0)) : g.node("Sqrt", {units});
  const std::string bucket = g.cast(g.minimum(at, doubles(static_cast<double>(buckets))), OnnxType::kInt64);
  const std::string rows = rows_like(g, table_rows(l, "weight", bucket), *all.rows, *x.rows);
  return {{g.add(x.name, rows), x.width, x.rows}};
}

OnnxValues write_action_embedding(OnnxLayer& l) {
  GraphWriter& g = l.g;
  const auto actions = l.option<std::vector<int64_t>>("actions", {});
  l.ignore({"dim"});
  const bool targets = l.option("targets", false);
  if (l.has("thresholds") || l.has("threshold_bits")) l.refuse("its option \"thresholds\" is not supported");
  const OnnxValue& over = sequence(l, 0);
  const bool behind = targets && !over.integers;  // integers of the first rows only
  const OnnxValue codes = sequence(l, behind ? 1 : 0);
  const std::string bits = behind ? rows_like(g, codes.name, *codes.rows, *over.rows) : codes.name;
  const int64_t dim = l.shape_of("weight")[1];
  GraphWriter::Names parts;
  for (size_t k = 0; k < actions.size(); ++k) {
    // One of an action's bits is set: some 2^b of them divides the integer an odd number of times.
    std::string set;
    for (int64_t bit = 1; bit <= actions[k]; bit *= 2) {
      if ((actions[k] & bit) == 0) continue;
      const std::string odd =
          g.node("Equal", {g.node("Mod", {g.divide(bits, g.integer(bit)), g.integer(2)}), g.integer(1)});
      set = set.empty() ? odd : g.node("Or", {set, odd});
    }
    const std::string row =
        g.node("Gather", {l.parameter("weight"), g.integer(static_cast<int64_t>(k))}, {{"axis", int64_t{0}}});
    parts.push_back(g.node("Where", {set, row, g.number(0)}));
  }
  std::string out = g.concat(parts);
  if (targets) {
    const std::string known =
        behind ? lengths_of(g, *codes.rows) : g.subtract(lengths_of(g, *over.rows), counts_of(g, l.inputs.back()));
    const std::string event = g.node("Less", {positions_of(g, *over.rows), known});
    out = g.node("Where", {event, out, l.parameter("target")});
  }
  return {{out, dim * static_cast<int64_t>(actions.size()), over.rows}};
}

OnnxValues write_concat_sequences(OnnxLayer& l) {
  OnnxValue out = as_sequence(l.g, l.inputs.at(0));
  for (size_t i = 1; i < l.inputs.size(); ++i) out = concatenated(l.g, out, as_sequence(l.g, l.inputs[i]));
  return {out};
}

OnnxValues write_last_row(OnnxLayer& l) {
  const OnnxValue x = as_sequence(l.g, l.inputs.at(0));
  const std::string any = l.g.node("Greater", {l.g.unsqueeze(x.rows->lengths, -1), l.g.integer(0)});
  return {{l.g.node("Where", {any, last_of(l.g, x), l.g.number(0)}), x.width}};
}

OnnxValues write_rows_of(OnnxLayer& l) {
  const OnnxValue& x = sequence(l, 0);
  const OnnxValue of = l.inputs.at(1);
  if (of.integers && !of.rows) l.refuse("its numbers of rows must be a sequence here");
  const OnnxValue like = as_sequence(l.g, of);
  const std::string first = l.g.subtract(lengths_of(l.g, *x.rows), lengths_of(l.g, *like.rows));
  const std::string rows = rows_at(l.g, x.name, inside(l.g, l.g.add(positions_of(l.g, *like.rows), first), *x.rows));
  if (of.rows) return {{rows, x.width, of.rows}};
  return {{l.g.node("Squeeze", {rows, l.g.integers({1})}), x.width}};
}

OnnxValues write_pad_rows(OnnxLayer& l) {
  GraphWriter& g = l.g;
  const OnnxValue& x = sequence(l, 0);
  const auto length = l.option<int64_t>("length", 0), least = l.option<int64_t>("min_rows", 0);
  if (x.rows->fixed == length && least == 0) {
    l.ignore({"value"});
    return {{g.reshape(x.name, {0, length * x.width}), length * x.width}};
  }
  std::vector<int64_t> all(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) all[static_cast<size_t>(i)] = i;
  const std::string at = g.reshape(g.integers(all), {1, length, 1});
  std::string there = g.node("Less", {at, lengths_of(g, *x.rows)});
  if (least > 0) {
    const std::string enough = g.node("Not", {g.node("Less", {counts_of(g, l.inputs.at(1)), g.integer(least)})});
    there = g.node("And", {there, enough});
  }
  // A row more, so that an empty batch of rows has one.
  const std::string more = g.node("Pad", {x.name, g.integers({0, 0, 0, 0, 1, 0})});
  const std::string index = for_each_sample(g, g.minimum(at, x.rows->longest), *x.rows);
  const std::string rows = g.node("Where", {there, rows_at(g, more, index), g.number(l.option("value", 0.0))});
  return {{g.reshape(rows, {0, length * x.width}), length * x.width}};
}

OnnxValues write_mask_rows(OnnxLayer& l) {  // outside training the last row is hidden
  l.ignore({"rate"});
  const OnnxValue& x = sequence(l, 0);
  const std::string last = l.g.subtract(lengths_of(l.g, *x.rows), l.g.integer(1));
  const std::string hidden = l.g.node("Equal", {positions_of(l.g, *x.rows), last});
  return {{l.g.node("Where", {hidden, l.parameter("weight"), x.name}), x.width, x.rows},
          {l.g.cast(hidden, OnnxType::kFloat), 1, x.rows}};
}

OnnxValues write_scale_rows(OnnxLayer& l) {
  const OnnxValue x = l.inputs.at(0), by = l.inputs.at(1);
  const std::string factor = x.rows && !by.rows ? l.g.unsqueeze(by.name, 1) : by.name;
  return {{l.g.multiply(x.name, factor), x.width, x.rows}};
}

OnnxValues write_add(OnnxLayer& l) {
  OnnxValue out = l.inputs.at(0);
  for (size_t i = 1; i < l.inputs.size(); ++i) {
    const OnnxValue& x = l.inputs[i];
    out.name = l.g.add(out.name, out.rows && !x.rows ? l.g.unsqueeze(x.name, 1) : x.name);
  }
  return {out};
}

OnnxValues write_target_attention(OnnxLayer& l) {
  GraphWriter& g = l.g;
  l.ignore({"widths"});
  const OnnxValue &q = l.inputs.at(0), &k = sequence(l, 1);
  const auto f = l.option<std::string>("activation", "sigmoid");
  const std::string targets = g.add(g.unsqueeze(q.name, 1), g.multiply(k.name, g.number(0)));
  std::string a = g.concat({targets, k.name, g.subtract(targets, k.name), g.multiply(targets, k.name)});
  for (size_t i = 0; l.has_parameter(std::to_string(i) + ".weight"); ++i) {
    const std::string prefix = std::to_string(i) + ".";
    a = write_linear(l, a, prefix);
    if (l.has_parameter(std::to_string(i + 1) + ".weight")) a = write_activation(l, a, f, 0.01, prefix + "activation.");
  }
  const std::string here = present(g, *k.rows);
  if (l.option("softmax", false))
    a = g.node("Softmax", {g.node("Where", {here, a, g.number(-1e30)})}, {{"axis", int64_t{1}}});
  const std::string weighted = g.node("Where", {here, g.multiply(a, k.name), g.number(0)});
  return {{g.sum_over(weighted, 1), k.width}};
}

}  // namespace

std::string positions_of(GraphWriter& g, const Rows& rows) {
  const std::string longest = g.node("Squeeze", {rows.longest, g.integers({0})});
  return g.reshape(g.node("Range", {g.integer(0), longest, g.integer(1)}), {1, -1, 1});
}

std::string lengths_of(GraphWriter& g, const Rows& rows) { return g.reshape(rows.lengths, {-1, 1, 1}); }

std::string if_longer(GraphWriter& g, const Rows& rows, int64_t most, int64_t beyond) {
  const std::string longer = g.node("Greater", {lengths_of(g, rows), g.integer(most)});
  return g.multiply(g.cast(longer, OnnxType::kInt64), g.integer(beyond));
}

std::string present(GraphWriter& g, const Rows& rows) {
  return g.node("Less", {positions_of(g, rows), lengths_of(g, rows)});
}

std::string without_padding(GraphWriter& g, const OnnxValue& x) {
  if (x.rows->fixed > 0) return x.name;
  return g.node("Where", {present(g, *x.rows), x.name, g.number(0)});
}

void add_sequence_layers(LayerTable& table) {
  table.insert({{"sum_pooling", write_sum_pooling},
                {"mean_pooling", write_mean_pooling},
                {"max_pooling", write_max_pooling},
                {"position_weights", write_position_weights},
                {"position_embedding", write_position_embedding},
                {"time_encoding", write_time_encoding},
                {"action_embedding", write_action_embedding},
                {"concat_sequences", write_concat_sequences},
                {"last_row", write_last_row},
                {"rows_of", write_rows_of},
                {"pad_rows", write_pad_rows},
                {"mask_rows", write_mask_rows},
                {"scale_rows", write_scale_rows},
                {"add", write_add},
                {"target_attention", write_target_attention}});
}

}  // namespace tessera::cli

#include "conformance/item_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "conformance/sequence_net.h"
#include "tessera/metrics.h"

namespace tessera::cli {
namespace {

using Node = SequenceNet::Node;

// Offsets of samples of which the first has all rows.
Tensor all_in_first(int64_t samples, int64_t rows) {
  std::vector<int64_t> out(static_cast<size_t>(samples) + 1, rows);
  out[0] = 0;
  return Tensor::from(out);
}

// A loss over rows of an item table. Rows whose label says so have the weight 0.
class ItemCase {
 public:
  // `query`, `labels`: names of the case's inputs. `offsets`: of samples; undefined: each row is one.
  ItemCase(CaseContext& c, const char* query, const char* labels, const Tensor& offsets = {})
      : c_(c),
        query_name_(query),
        labels_(integers_of(input_of(c, labels))),
        net_(c, offsets.defined() ? offsets : equal_offsets(std::ssize(labels_), 1)),
        sequences_(offsets.defined()),
        table_(net_.parameter("item_emb")) {
    const json& o = options_of(c);
    query_ = sequences_ ? net_.sequence(input_of(c, query)) : net_.dense(input_of(c, query));
    std::vector<int64_t> ones(labels_.size(), 1);
    const int64_t ignored = o.value("ignore_label", int64_t{-100});
    for (size_t i = 0; i < labels_.size(); ++i) {
      if (labels_[i] == ignored) labels_[i] = ones[i] = 0;
    }
    items_ = sequences_ ? net_.sequence(rows_of(labels_)) : net_.dense(rows_of(labels_));
    if (has_input(c, "weights"))
      weights_ = net_.dense(input_of(c, "weights"));
    else
      weights_ = sequences_ ? net_.integers(Tensor::from(ones), items_) : net_.integers(Tensor::from(ones));
  }

  int64_t rows() const { return std::ssize(labels_); }
  int64_t classes() const { return table_.size(0); }
  void candidates(std::vector<int64_t> ids, const Tensor& offsets) {
    candidate_ids_ = std::move(ids);
    candidates_ = net_.sequence(rows_of(candidate_ids_), offsets);
  }
  Node log_q(const Tensor& of_items) { return net_.dense(of_items); }
  // Normalises rows of items, and of queries.
  void normalise(bool items, bool queries) {
    const json eps = {{"eps", options_of(c_).value("l2_eps", 1e-6)}};
    const auto norm = [&](const Node& node) { return net_.layer("l2_norm", eps, {node}); };
    if (queries) seen_query_ = norm(query_);
    if (items) seen_items_ = norm(items_);
    if (items && !candidates_.empty()) seen_candidates_ = norm(candidates_);
  }

  void check(json options, const Node& log_q = "") {
    options["weights"] = true;
    std::vector<Node> inputs = {or_else(seen_query_, query_), or_else(seen_items_, items_)};
    const Tensor labels = Tensor::from(labels_);
    if (!candidates_.empty()) inputs.push_back(or_else(seen_candidates_, candidates_));
    inputs.push_back(sequences_ ? net_.integers(labels, items_) : net_.integers(labels));
    if (!candidates_.empty()) inputs.push_back(net_.integers(Tensor::from(candidate_ids_), candidates_));
    inputs.push_back(weights_);
    if (!log_q.empty()) inputs.push_back(log_q);
    const Tensor values = net_.forward({net_.layer("item_loss", options, inputs)})[0].clone();
    const auto samples = static_cast<double>(values.numel());
    double sum = 0;
    for (int64_t s = 0; s < values.numel(); ++s) sum += values.item(s);
    const json& want = c_.expect.at("outputs").at("loss");
    c_.check.tensor("loss", want, Tensor::from(std::vector<float>{static_cast<float>(sum / samples)}).reshape({}));
    std::fill_n(values.data<float>(), values.numel(), static_cast<float>(1 / samples));
    net_.backward({values});
    net_.check_gradient(str_cat("input_grads.", query_name_), c_.expect.at("input_grads").at(query_name_),
                        net_.gradient(query_));
    const Tensor sums = Tensor::zeros({table_.size(0), table_.size(1)});
    add_rows_at(sums, labels_, net_.gradient(items_));
    if (!candidates_.empty()) add_rows_at(sums, candidate_ids_, net_.gradient(candidates_));
    net_.check_gradient("param_grads.item_emb", c_.expect.at("param_grads").at("item_emb"), sums);
  }

 private:
  static const Node& or_else(const Node& node, const Node& otherwise) { return node.empty() ? otherwise : node; }
  Tensor rows_of(const std::vector<int64_t>& ids) const { return rows_at(table_, ids); }

  CaseContext& c_;
  const char* query_name_;
  std::vector<int64_t> labels_, candidate_ids_;
  SequenceNet net_;
  bool sequences_;
  Tensor table_;
  Node query_, items_, candidates_, weights_, seen_query_, seen_items_, seen_candidates_;
};

void with_own_negatives(CaseContext& c, json options, const char* query, const char* labels, const char* negatives) {
  const Tensor ids = input_of(c, negatives);
  ItemCase loss(c, query, labels);
  loss.candidates(integers_of(ids), equal_offsets(loss.rows(), ids.size(1)));
  options["negatives"] = "row";
  if (options_of(c).value("l2_norm", false)) loss.normalise(true, false);
  loss.check(std::move(options));
}

// Negatives of each row, or of each sequence.
void with_negatives(CaseContext& c, json options) {
  options["collisions"] = "keep";
  if (has_input(c, "negatives_per_row"))
    return with_own_negatives(c, std::move(options), "hidden", "labels", "negatives_per_row");
  const Tensor ids = input_of(c, "negatives_per_sequence"), offsets = input_of(c, "offsets").to(DType::kInt64);
  ItemCase loss(c, "hidden", "labels", offsets);
  loss.candidates(integers_of(ids), equal_offsets(offsets.numel() - 1, ids.size(1)));
  options["negatives"] = "sample";
  loss.check(std::move(options));
}

void sampled_softmax_op(CaseContext& c) {
  with_own_negatives(c, {{"temperature", options_of(c).at("temperature")}}, "query", "positive_ids", "negative_ids");
}

void bce_one_negative_op(CaseContext& c) {
  with_own_negatives(c, {{"kind", "bce"}, {"temperature", options_of(c).at("temperature")}}, "query", "positive_ids",
                     "negative_ids");
}

void gbce_op(CaseContext& c) {
  const json& o = options_of(c);
  with_negatives(c, {{"kind", "gbce"}, {"t", o.at("t")}, {"items", o.at("num_items")}});
}

// The formula in double. The loss has the same factor: it shows at a positive of -30 whose negatives cost nothing.
void gbce_beta_op(CaseContext& c) {
  const json& o = options_of(c);
  const auto negatives = o.at("num_negatives").get<int64_t>(), items = o.at("num_items").get<int64_t>();
  const auto t = o.at("t").get<double>();
  const double alpha = static_cast<double>(negatives) / static_cast<double>(items - 1), beta = 1 - t * (1 - alpha);
  c.check.number("alpha", c.expect.at("alpha").get<double>(), alpha);
  c.check.number("beta", c.expect.at("beta").get<double>(), beta);
  constexpr float kLogit = -30;
  SequenceNet net(c, equal_offsets(1, 1));
  const auto rows = [&](int64_t count, float value) {
    return Tensor::from(std::vector(static_cast<size_t>(count), value)).reshape({count, 1});
  };
  const Node state = net.sequence(rows(1, 1)), item = net.sequence(rows(1, kLogit)),
             others = net.sequence(rows(negatives, kLogit), equal_offsets(1, negatives));
  std::vector<int64_t> ids(static_cast<size_t>(negatives));
  std::iota(ids.begin(), ids.end(), int64_t{1});
  const Node loss = net.layer("item_loss", {{"kind", "gbce"}, {"t", t}, {"items", items}},
                              {state, item, others, net.integers(Tensor::from(std::vector<int64_t>{0}), item),
                               net.integers(Tensor::from(ids), others)});
  const double value = net.forward({loss})[0].item(0);
  const double factor = value * static_cast<double>(1 + negatives) / -double{kLogit};
  if (std::abs(factor - beta) > 1e-5 * beta) c.check.fail("beta", str_cat("the layer item_loss has ", factor));
}

void full_softmax_op(CaseContext& c) {
  ItemCase loss(c, "hidden", "labels");
  const auto first = options_of(c).at("first_class").get<int64_t>();
  std::vector<int64_t> ids(static_cast<size_t>(loss.classes() - first));
  std::iota(ids.begin(), ids.end(), first);
  loss.candidates(std::move(ids), all_in_first(loss.rows(), loss.classes() - first));
  loss.check(json::object());
}

void in_batch_op(CaseContext& c) {
  const json& o = options_of(c);
  ItemCase loss(c, "query", "positive_ids");
  const bool corrects = o.at("log_q").get<bool>();
  if (o.at("l2_norm").get<bool>()) loss.normalise(true, true);
  loss.check({{"negatives", "in_batch"},
              {"temperature", o.at("temperature")},
              {"log_q", corrects},
              {"correct_item", o.at("correct_positive")},
              {"collisions", o.at("mask_collisions").get<bool>() ? "drop" : "keep"}},
             corrects ? loss.log_q(input_of(c, "log_q")) : "");
}

// The ranks of the targets, sample after sample, of scores that are products with unit vectors.
std::vector<double> ranks_of(CaseContext& c, const char* ties) {
  const json& o = options_of(c);
  const Tensor scores = input_of(c, "scores");
  const int64_t items = scores.size(1);
  const auto excluded = o.at("excluded_ids").get<std::vector<int64_t>>();
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < items; ++i) {
    if (std::find(excluded.begin(), excluded.end(), i) == excluded.end()) ids.push_back(i);
  }
  const Tensor units = Tensor::zeros({std::ssize(ids), items});
  for (size_t i = 0; i < ids.size(); ++i) units.data<float>()[static_cast<int64_t>(i) * items + ids[i]] = 1;
  SequenceNet net(c, equal_offsets(scores.size(0), 1));
  net.evaluate();
  const Node states = net.dense(scores);
  const Node candidates = net.sequence(units, all_in_first(scores.size(0), std::ssize(ids)));
  const auto ids_of = [&](const char* name) {
    const Tensor values = input_of(c, name);
    const Tensor offsets = input_of(c, str_cat(name == std::string("seen") ? name : "target", "_offsets").c_str());
    return net.integers(values, net.sequence(Tensor::zeros({values.numel(), 1}), offsets.to(DType::kInt64)));
  };
  const bool filters = o.at("filter_seen").get<bool>();
  std::vector<Node> inputs = {states, candidates, ids_of("targets"), net.integers(Tensor::from(ids), candidates)};
  if (filters) inputs.push_back(ids_of("seen"));
  const json options = {{"items", "all"}, {"ties", ties}, {"seen", filters}};
  const Tensor ranks = net.forward({net.layer("item_ranks", options, inputs)})[0];
  std::vector<double> out;
  for (int64_t i = 0; i < ranks.numel(); ++i) out.push_back(ranks.item(i));
  return out;
}

// The core's name of a metric of the case: "hr@10" is "hit_rate@10".
double metric_of(const std::string& name, const std::vector<double>& ranks, const std::vector<int64_t>& offsets) {
  const std::string own = name.starts_with("hr@") ? str_cat("hit_rate", name.substr(2)) : name;
  const MetricPtr metric = make_metric(own + "?by_group=true");
  std::vector<double> sums(static_cast<size_t>(metric->info().sums), 0.0);
  const std::vector<double> ones(ranks.size(), 1.0);
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const auto first = static_cast<size_t>(offsets[s]), count = static_cast<size_t>(offsets[s + 1]) - first;
    const std::span<const double> of_user = std::span(ranks).subspan(first, count);
    metric->add({of_user, of_user, std::span(ones).first(count), std::span(ones).first(count)}, sums);
  }
  return metric->value(sums);
}

void ranking_metrics_op(CaseContext& c) {
  const std::vector<int64_t> offsets = integers_of(input_of(c, "target_offsets"));
  constexpr std::array kRules = {std::pair{"lower_id_first", "lower_id"}, std::pair{"pessimistic", "last"}};
  for (const auto& [rule, ties] : kRules) {
    const std::vector<double> ranks = ranks_of(c, ties);
    const json& want = c.expect.at(rule);
    std::vector<int64_t> whole(ranks.begin(), ranks.end());
    const json& of_ranks = want.at("ranks");
    if (of_ranks.is_object())
      c.check.tensor(str_cat(rule, ".ranks"), of_ranks, Tensor::from(whole));
    else
      c.check.equal(str_cat(rule, ".ranks"), of_ranks, whole);
    for (const auto& [name, value] : want.at("metrics").items())
      c.check.number(str_cat(rule, ".", name), value.get<double>(), metric_of(name, ranks, offsets));
  }
}

}  // namespace

std::vector<int64_t> integers_of(const Tensor& t) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < t.numel(); ++i) out.push_back(std::llround(t.item(i)));
  return out;
}

Tensor rows_at(const Tensor& table, const std::vector<int64_t>& ids) {
  const int64_t width = table.size(1);
  Tensor out = Tensor::empty({std::ssize(ids), width});
  for (size_t i = 0; i < ids.size(); ++i)
    std::copy_n(table.data<float>() + ids[i] * width, width, out.data<float>() + static_cast<int64_t>(i) * width);
  return out;
}

void add_rows_at(const Tensor& sums, const std::vector<int64_t>& ids, const Tensor& gradients) {
  const int64_t width = sums.size(1);
  for (size_t i = 0; gradients.defined() && i < ids.size(); ++i) {
    for (int64_t d = 0; d < width; ++d)
      sums.data<float>()[ids[i] * width + d] += gradients.data<float>()[static_cast<int64_t>(i) * width + d];
  }
}

OpTable item_ops() {
  return {{"sampled_softmax_loss", sampled_softmax_op},
          {"sampled_cross_entropy", [](CaseContext& c) { with_negatives(c, json::object()); }},
          {"bce_loss",
           [](CaseContext& c) {
             with_negatives(c, {{"kind", "bce"}});
           }},
          {"bce_loss_one_negative", bce_one_negative_op},
          {"gbce_loss", gbce_op},
          {"gbce_beta", gbce_beta_op},
          {"full_softmax_loss", full_softmax_op},
          {"masked_item_loss", full_softmax_op},
          {"in_batch_softmax_loss", in_batch_op},
          {"ranking_metrics", ranking_metrics_op},
          {"training_trajectory", training_trajectory_op}};
}

}  // namespace tessera::cli

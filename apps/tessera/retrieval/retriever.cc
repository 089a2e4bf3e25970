#include "retrieval/retriever.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "inference/pool.h"
#include "retrieval/item_vectors.h"
#include "tessera/error.h"
#include "tessera/layer_graph.h"
#include "tessera/sdk/nearest.h"

namespace tessera::retrieval {
namespace {

class Retriever : public Predictor {
 public:
  Retriever(std::unique_ptr<Predictor> model, ItemIndex items, std::optional<ApproximateIndex> index,
            const RetrieverOptions& options)
      : inner_(std::move(model)),
        model_(described_as_retriever(inner_->model(), options.top_k)),
        items_(std::move(items)),
        index_(std::move(index)),
        k_(options.top_k),
        excluded_(feature_of(model_, options.exclude)) {}

  const ModelDescription& model() const override { return model_; }
  std::string why_not(const PredictInput& input) const override { return inner_->why_not(input); }
  void predict_outputs(const PredictInput& input, std::span<const std::span<float>> outputs) override {
    const auto scratch = scratch_.take();
    const auto batch = static_cast<size_t>(input.batch), found = batch * static_cast<size_t>(k_);
    scratch->queries.resize(batch * static_cast<size_t>(items_.dim()));
    const std::span<float> queries = scratch->queries;
    inner_->predict_outputs(input, {&queries, 1});
    check_asked(model_, input);
    scratch->items.resize(found);
    scratch->scores.resize(found);
    if (batch > 0) search(input, *scratch);
    if (!outputs.empty()) std::copy_n(scratch->scores.begin(), outputs[0].size(), outputs[0].begin());
    if (outputs.size() > 1) std::copy_n(scratch->items.begin(), outputs[1].size(), outputs[1].begin());
  }
  PredictorStats stats() const override { return inner_->stats(); }
  bool usable() const override { return inner_->usable(); }

 private:
  struct Scratch {
    std::vector<float> queries, scores;
    std::vector<int32_t> items, more_items;
    std::vector<float> more_scores;
    std::vector<int64_t> excluded;  // ids of a sample, ascending
    ApproximateIndex::Scratch search;
  };

  static std::optional<size_t> feature_of(const ModelDescription& model, const std::string& name) {
    if (name.empty()) return std::nullopt;
    const auto at = std::find_if(model.features.begin(), model.features.end(),
                                 [&](const ModelFeature& f) { return f.name == name; });
    if (at == model.features.end())
      fail(Code::kInvalidArgument, "--exclude: the model has no feature \"", name, "\", only ",
           sdk::joined(model.features, &ModelFeature::name));
    return static_cast<size_t>(at - model.features.begin());
  }

  void search(const PredictInput& input, Scratch& s) const {
    if (!excluded_) return search_all(s.queries, k_, s.search, s.items, s.scores);
    std::fill(s.items.begin(), s.items.end(), -1);
    std::fill(s.scores.begin(), s.scores.end(), 0.0f);
    size_t id = 0;
    // A few at a time, so that a long list costs memory only for a few. An index finds other items when it is asked for
    // more of them, so each sample is searched alone.
    const size_t together = index_ ? 1 : kQueries, batch = static_cast<size_t>(input.batch);
    for (size_t sample = 0; sample < batch; sample += together)
      search_some(input.features[*excluded_], sample, std::min(together, batch - sample), id, s);
  }

  // Searches by the index, if there is one and it finds `k` items; otherwise exactly.
  void search_all(std::span<const float> queries, int64_t k, ApproximateIndex::Scratch& scratch,
                  std::span<int32_t> items, std::span<float> scores) const {
    if (!index_) return items_.search(queries, k, scratch.search, items, scores);
    const auto dim = static_cast<size_t>(items_.dim()), best = static_cast<size_t>(k);
    for (size_t q = 0; q < queries.size() / dim; ++q) {
      const std::span<const float> query = queries.subspan(q * dim, dim);
      const std::span<int32_t> found = items.subspan(q * best, best);
      const std::span<float> scored = scores.subspan(q * best, best);
      if (!index_->search(items_, query, k, scratch, found, scored))
        items_.search(query, k, scratch.search, found, scored);
    }
  }

  // Searches for the `count` samples from `sample` on. Their excluded ids begin at `id`, which goes on to the next
  // ones.
  void search_some(const PredictInput::Feature& excluded, size_t sample, size_t count, size_t& id, Scratch& s) const {
    const auto lengths = excluded.lengths.subspan(sample, count);
    const int64_t more = std::min(items_.items(), k_ + *std::max_element(lengths.begin(), lengths.end()));
    const auto k = static_cast<size_t>(k_), all = static_cast<size_t>(more), dim = static_cast<size_t>(items_.dim());
    s.more_items.resize(lengths.size() * all);  // enough for k others each
    s.more_scores.resize(s.more_items.size());
    search_all(std::span<const float>(s.queries).subspan(sample * dim, lengths.size() * dim), more, s.search,
               s.more_items, s.more_scores);
    for (size_t i = 0; i < lengths.size(); ++i) {
      const auto ids = excluded.values.subspan(id, static_cast<size_t>(lengths[i]));
      id += ids.size();
      s.excluded.assign(ids.begin(), ids.end());
      std::sort(s.excluded.begin(), s.excluded.end());
      size_t to = (sample + i) * k;
      const size_t end = to + k;
      for (size_t from = i * all; from < (i + 1) * all && to < end; ++from) {
        if (std::binary_search(s.excluded.begin(), s.excluded.end(), s.more_items[from])) continue;
        s.items[to] = s.more_items[from];
        s.scores[to++] = s.more_scores[from];
      }
    }
  }

  const std::unique_ptr<Predictor> inner_;
  const ModelDescription model_;
  const ItemIndex items_;
  const std::optional<ApproximateIndex> index_;
  const int64_t k_;
  const std::optional<size_t> excluded_;  // a feature
  inference::Pool<Scratch> scratch_{[] { return std::make_unique<Scratch>(); }};
};

bool is_layer(const InferenceModel& model, const std::string& items) {
  const std::string name = items.substr(0, items.rfind(':'));
  const auto& layers = model.graph.layers;
  return std::any_of(layers.begin(), layers.end(), [&](const LayerSpec& layer) { return layer.name == name; });
}

bool is_drawn(const InferenceModel& model, const std::string& feature) {
  const auto& drawn = model.graph.drawn;
  return std::any_of(drawn.begin(), drawn.end(), [&](const DrawnInput& d) { return d.feature == feature; });
}

// A sample for each item: the features that training draws have its id, others are empty.
ItemVectors vectors_of_layer(const InferenceModel& model, const OpenModel& open, const std::string& layer) {
  constexpr int64_t kTogether = 1024;
  InferenceModel items = model;
  answer_with(items, layer);
  const std::unique_ptr<Predictor> predictor = open(std::move(items));
  const std::vector<ModelFeature>& features = predictor->model().features;
  int64_t first = 0, end = 0;
  std::vector<bool> takes_item;
  for (const ModelFeature& feature : features) {
    takes_item.push_back(feature.needed && is_drawn(model, feature.name));
    if (!takes_item.back()) continue;
    end = end == 0 ? feature.ids : std::min(end, feature.ids);
    for (const DrawnInput& d : model.graph.drawn) {
      if (d.feature == feature.name) first = std::max(first, d.first);
    }
    for (const ModelTable& table : model.description.tables) {
      if (std::find(table.features.begin(), table.features.end(), feature.name) == table.features.end()) continue;
      const ItemRows rows = item_rows(model, table);
      first = std::max(first, rows.first);
      end = std::min(end, rows.end);
    }
  }
  end = std::max(first, end);
  if (std::none_of(takes_item.begin(), takes_item.end(), [](bool takes) { return takes; }))
    fail(Code::kInvalidArgument, "--items: the layer \"", layer,
         "\" takes no ids that training draws, so it has no value for an item");
  const int64_t width = predictor->model().outputs.front().width;
  const Tensor vectors = Tensor::empty({end - first, width});
  const std::vector<float> dense(static_cast<size_t>(kTogether * predictor->model().dense_inputs));
  const std::vector<int32_t> ones(kTogether, 1), zeros(kTogether, 0);
  std::vector<int64_t> ids(kTogether);
  for (int64_t item = first; item < end; item += kTogether) {
    const auto count = static_cast<size_t>(std::min(kTogether, end - item));
    std::iota(ids.begin(), ids.end(), item);
    std::vector<PredictInput::Feature> given;
    for (const bool takes : takes_item) {
      given.push_back({std::span<const int64_t>(ids).first(takes ? count : 0),
                       std::span<const int32_t>(takes ? ones : zeros).first(count),
                       {}});
    }
    const std::span<float> out =
        vectors.span<float>().subspan(static_cast<size_t>((item - first) * width), count * static_cast<size_t>(width));
    const auto values = static_cast<size_t>(predictor->model().dense_inputs) * count;
    predictor->predict_outputs({static_cast<int64_t>(count), std::span(dense).first(values), given}, {&out, 1});
  }
  return {vectors, first, end - first};
}

// Builds the index, and compares it with the exact search.
ApproximateIndex checked_index(const Runtime& runtime, const ItemIndex& items, const Tensor& vectors,
                               const RetrieverOptions& retriever) {
  constexpr int64_t kQueriesCompared = 200;
  ApproximateIndex index(runtime, retriever.index, vectors);
  const IndexFigures figures = index.compared(items, vectors, retriever.top_k, kQueriesCompared);
  if (retriever.tell) retriever.tell(figures);
  if (figures.recall < retriever.least_recall)
    fail(Code::kFailedPrecondition, "--least-recall ", retriever.least_recall, ": ", text_of(figures),
         ": let it search further (hnsw?ef_search=N), or leave --index out");
  return index;
}

}  // namespace

void check_compared(const InferenceModel& model, const RetrieverOptions& retriever) {
  const auto& tables = model.description.tables;
  const auto table =
      std::find_if(tables.begin(), tables.end(), [&](const ModelTable& t) { return t.name == retriever.items; });
  if (retriever.query.empty() || table == tables.end()) return;
  const auto draws = [&](const std::string& feature) { return is_drawn(model, feature); };
  if (std::none_of(table->features.begin(), table->features.end(), draws)) return;
  const auto takes = [](const LayerSpec& layer, const std::string& input) {
    return std::find(layer.inputs.begin(), layer.inputs.end(), input) != layer.inputs.end();
  };
  for (const LayerSpec& layer : model.graph.layers) {
    const auto of_head = [&](const HeadSpec& head) { return head.input == layer.name; };
    const auto compared = [&](const std::string& feature) { return draws(feature) && takes(layer, feature); };
    if (takes(layer, retriever.query) && std::any_of(model.graph.heads.begin(), model.graph.heads.end(), of_head) &&
        std::any_of(table->features.begin(), table->features.end(), compared))
      return;
  }
  fail(Code::kInvalidArgument, "no head compares \"", retriever.query, "\" with the rows of table \"", retriever.items,
       "\" as they are: name the layer that is compared with --query, and with --items the table, or the layer that "
       "makes items of its rows");
}

void answer_with(InferenceModel& model, const std::string& layer) {
  std::vector<std::string> known;
  for (const GraphInput& input : model.graph.inputs) known.push_back(input.name);
  for (const LayerSpec& spec : model.graph.layers) known.push_back(spec.name);
  const std::string name = layer.substr(0, layer.rfind(':'));  // "gate:1" is the second output of a layer
  if (std::find(known.begin(), known.end(), name) == known.end() && !known.empty())
    fail(Code::kInvalidArgument, "the model has no layer \"", name, "\" and no such input",
         sdk::nearest_text(name, known));
  const std::string label = model.graph.heads.front().label;
  keep_heads(model.graph, {{layer, layer, kNoLoss, label}});
}

void check(const RetrieverOptions& options) {
  if (options.top_k == 0 && (!options.items.empty() || !options.query.empty() || !options.exclude.empty()))
    fail(Code::kInvalidArgument, "--items, --query and --exclude need --top-k K");
  if (options.top_k == 0 && !options.index.empty()) fail(Code::kInvalidArgument, "--index needs --top-k K");
  if (options.index.empty() && options.least_recall != 0)
    fail(Code::kInvalidArgument, "--least-recall has no effect without --index NAME: the search is exact");
  if (!(options.least_recall >= 0 && options.least_recall <= 1))
    fail(Code::kInvalidArgument, "--least-recall takes a share from 0 to 1, not ", options.least_recall);
  if (options.top_k == 0) return;
  if (options.top_k < 1 || options.top_k > 10000) fail(Code::kInvalidArgument, "--top-k takes 1 to 10000 items");
  if (options.items.empty()) fail(Code::kInvalidArgument, "--top-k needs --items: a table of the model, or a file");
}

void check_asked(const ModelDescription& model, const PredictInput& input) {
  std::string features;
  for (const ModelFeature& f : model.features) {
    if (f.needed) features += str_cat(features.empty() ? "\"" : ", \"", f.name, '"');
  }
  if (features.empty() || model.dense_inputs > 0) return;
  for (size_t s = 0; s < static_cast<size_t>(input.batch); ++s) {
    bool asks = false;
    for (size_t f = 0; f < model.features.size(); ++f)
      asks |= model.features[f].needed && input.features[f].lengths[s] > 0;
    if (!asks)
      fail(Code::kInvalidArgument, "sample ", s, " asks about nobody: the query depends on ", features,
           ", of which it has no id");
  }
}

void check_items(const ModelOutput& query, int64_t dim, int64_t all, const RetrieverOptions& retriever) {
  if (query.width != dim || query.probability)
    fail(Code::kInvalidArgument, "\"", query.name, "\" has ", query.width, " values for each sample, but the items of ",
         retriever.items, " have ", dim, ": name the layer to compare with --query");
  if (retriever.top_k > all)
    fail(Code::kInvalidArgument, "--top-k ", retriever.top_k, " is more than the ", all, " items of ", retriever.items);
}

ModelDescription described_as_retriever(ModelDescription model, int64_t k) {
  const std::string label = model.outputs.front().label;
  model.type = kTopK;
  model.outputs = {{"score", k, false, label}, {"item", k, false, label}};
  return model;
}

std::unique_ptr<Predictor> make_retriever(const Runtime& runtime, InferenceModel model, const OpenModel& open,
                                          const RetrieverOptions& retriever) {
  check_compared(model, retriever);
  const ItemVectors vectors = is_layer(model, retriever.items) ? vectors_of_layer(model, open, retriever.items)
                                                               : item_vectors(model, retriever.items);
  ItemIndex items(vectors.vectors, vectors.first);
  if (!retriever.query.empty()) answer_with(model, retriever.query);
  std::unique_ptr<Predictor> predictor = open(std::move(model));
  check_items(predictor->model().outputs.front(), items.dim(), items.items(), retriever);
  std::optional<ApproximateIndex> index;
  if (!retriever.index.empty()) index = checked_index(runtime, items, vectors.vectors, retriever);
  return std::make_unique<Retriever>(std::move(predictor), std::move(items), std::move(index), retriever);
}

std::unique_ptr<Predictor> open_retriever(const Runtime& runtime, const std::string& directory,
                                          const PredictorOptions& options, const RetrieverOptions& retriever) {
  const OpenModel open = [&](InferenceModel model) { return make_predictor(runtime, std::move(model), options); };
  return make_retriever(runtime, open_packed_model(directory), open, retriever);
}

}  // namespace tessera::retrieval

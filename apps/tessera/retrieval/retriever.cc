#include "retrieval/retriever.h"

#include <algorithm>
#include <utility>

#include "inference/pool.h"
#include "retrieval/item_vectors.h"
#include "tessera/error.h"
#include "tessera/sdk/nearest.h"

namespace tessera::retrieval {
namespace {

class Retriever : public Predictor {
 public:
  Retriever(std::unique_ptr<Predictor> model, size_t query, ItemIndex items, int64_t k)
      : inner_(std::move(model)),
        model_(described_as_retriever(inner_->model(), k)),
        query_(query),
        items_(std::move(items)),
        k_(k) {}

  const ModelDescription& model() const override { return model_; }
  std::string why_not(const PredictInput& input) const override { return inner_->why_not(input); }
  void predict_outputs(const PredictInput& input, std::span<const std::span<float>> outputs) override {
    const auto scratch = scratch_.take();
    const auto batch = static_cast<size_t>(input.batch), found = batch * static_cast<size_t>(k_);
    scratch->queries.resize(batch * static_cast<size_t>(items_.dim()));
    scratch->outputs.assign(query_ + 1, {});
    scratch->outputs[query_] = scratch->queries;
    inner_->predict_outputs(input, scratch->outputs);
    scratch->items.resize(found);
    scratch->scores.resize(found);
    if (batch > 0) items_.search(scratch->queries, k_, scratch->search, scratch->items, scratch->scores);
    if (!outputs.empty()) std::copy_n(scratch->scores.begin(), outputs[0].size(), outputs[0].begin());
    if (outputs.size() > 1) std::copy_n(scratch->items.begin(), outputs[1].size(), outputs[1].begin());
  }
  PredictorStats stats() const override { return inner_->stats(); }
  bool usable() const override { return inner_->usable(); }

 private:
  struct Scratch {
    std::vector<float> queries, scores;
    std::vector<int32_t> items;
    std::vector<std::span<float>> outputs;
    ItemIndex::Scratch search;
  };

  const std::unique_ptr<Predictor> inner_;
  const ModelDescription model_;
  const size_t query_;  // the query's output of the inner model
  const ItemIndex items_;
  const int64_t k_;
  inference::Pool<Scratch> scratch_{[] { return std::make_unique<Scratch>(); }};
};

}  // namespace

void add_output(InferenceModel& model, const std::string& layer) {
  std::vector<std::string> known;
  for (const GraphInput& input : model.graph.inputs) known.push_back(input.name);
  for (const LayerSpec& spec : model.graph.layers) known.push_back(spec.name);
  const std::string name = layer.substr(0, layer.rfind(':'));  // "gate:1" is the second output of a layer
  if (std::find(known.begin(), known.end(), name) == known.end() && !known.empty())
    fail(Code::kInvalidArgument, "the model has no layer \"", name, "\" and no such input",
         sdk::nearest_text(name, known));
  model.graph.heads.push_back({layer, layer, "none"});  // without a loss, values are returned as they are
}

void check(const RetrieverOptions& options) {
  if (options.top_k == 0 && (!options.items.empty() || !options.query.empty()))
    fail(Code::kInvalidArgument, "--items and --query need --top-k K");
  if (options.top_k == 0) return;
  if (options.top_k < 1 || options.top_k > 10000) fail(Code::kInvalidArgument, "--top-k takes 1 to 10000 items");
  if (options.items.empty()) fail(Code::kInvalidArgument, "--top-k needs --items: a table of the model, or a file");
}

size_t query_of(const InferenceModel& model, const RetrieverOptions& retriever) {
  return retriever.query.empty() ? 0 : model.graph.heads.size() - 1;
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

std::unique_ptr<Predictor> make_retriever(InferenceModel model, const OpenModel& open,
                                          const RetrieverOptions& retriever) {
  ItemIndex items(item_vectors(model, retriever.items).vectors);
  if (!retriever.query.empty()) add_output(model, retriever.query);
  const size_t query = query_of(model, retriever);
  std::unique_ptr<Predictor> predictor = open(std::move(model));
  check_items(predictor->model().outputs.at(query), items.dim(), items.items(), retriever);
  return std::make_unique<Retriever>(std::move(predictor), query, std::move(items), retriever.top_k);
}

std::unique_ptr<Predictor> open_retriever(const Runtime& runtime, const std::string& directory,
                                          const PredictorOptions& options, const RetrieverOptions& retriever) {
  const OpenModel open = [&](InferenceModel model) { return make_predictor(runtime, std::move(model), options); };
  return make_retriever(open_packed_model(directory), open, retriever);
}

}  // namespace tessera::retrieval

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "inference/pool.h"
#include "retrieval/best_of_parts.h"
#include "retrieval/item_vectors.h"
#include "retrieval/retriever.h"
#include "tessera/error.h"

namespace tessera::retrieval {
namespace {

// Searches one rank's items.
class SearchPart : public RankPart {
 public:
  SearchPart(const ItemVectors& of, int64_t k) : k_(k) {
    if (of.vectors.size(0) > 0) items_.emplace(of.vectors, of.first);
  }
  int64_t answer_bytes() const override { return FoundByPart::bytes_of(k_); }
  void answer(std::span<const float> values, int64_t batch, std::span<std::byte> answer) override {
    const FoundByPart found = FoundByPart::in(answer, batch, k_);
    const int64_t mine = items_ ? std::min(k_, items_->items()) : 0;
    if (mine == k_) return items_->search(values, k_, scratch_, found.items, found.scores);
    std::fill(found.scores.begin(), found.scores.end(), -std::numeric_limits<float>::infinity());
    std::fill(found.items.begin(), found.items.end(), -1);
    if (mine == 0) return;
    few_items_.resize(static_cast<size_t>(batch * mine));
    few_scores_.resize(few_items_.size());
    items_->search(values, mine, scratch_, few_items_, few_scores_);
    for (int64_t s = 0; s < batch; ++s) {
      std::copy_n(few_items_.begin() + s * mine, mine, found.items.begin() + s * k_);
      std::copy_n(few_scores_.begin() + s * mine, mine, found.scores.begin() + s * k_);
    }
  }

 private:
  const int64_t k_;
  std::optional<ItemIndex> items_;  // unset if there are more ranks than items
  ItemIndex::Scratch scratch_;
  std::vector<int32_t> few_items_;
  std::vector<float> few_scores_;
};

struct Search {
  int64_t dim = 0, k = 0;
  int world_size = 1;
};

class ShardedRetriever : public ShardedPredictor {
 public:
  ShardedRetriever(std::unique_ptr<ShardedPredictor> model, const Search& search)
      : inner_(std::move(model)), model_(described_as_retriever(inner_->model(), search.k)), search_(search) {}

  const ModelDescription& model() const override { return model_; }
  std::string why_not(const PredictInput& input) const override { return inner_->why_not(input); }
  void predict_outputs(const PredictInput& input, std::span<const std::span<float>> outputs) override {
    const auto scratch = scratch_.take();
    const auto batch = static_cast<size_t>(input.batch), found = batch * static_cast<size_t>(search_.k);
    const auto one = batch * static_cast<size_t>(FoundByPart::bytes_of(search_.k));
    scratch->queries.resize(batch * static_cast<size_t>(search_.dim));
    scratch->answers.resize(one * static_cast<size_t>(search_.world_size));
    inner_->predict_with_parts(input, 0, scratch->queries, scratch->answers);
    check_asked(model_, input);
    scratch->parts.clear();
    for (size_t at = 0; at < scratch->answers.size(); at += one)
      scratch->parts.push_back(FoundByPart::in(std::span(scratch->answers).subspan(at, one), input.batch, search_.k));
    scratch->scores.resize(found);
    scratch->items.resize(found);
    if (batch > 0) best_of_parts(scratch->parts, search_.k, scratch->scores, scratch->items);
    if (!outputs.empty()) std::copy_n(scratch->scores.begin(), outputs[0].size(), outputs[0].begin());
    if (outputs.size() > 1) std::copy_n(scratch->items.begin(), outputs[1].size(), outputs[1].begin());
  }
  PredictorStats stats() const override { return inner_->stats(); }
  bool usable() const override { return inner_->usable(); }
  void serve_shard() override { inner_->serve_shard(); }
  const EmbeddingModuleShardingPlan& plan() const override { return inner_->plan(); }
  void predict_with_parts(const PredictInput& input, size_t output, std::span<float> values,
                          std::span<std::byte> answers) override {
    inner_->predict_with_parts(input, output, values, answers);
  }

 private:
  struct Scratch {
    std::vector<float> queries, scores, items;
    std::vector<std::byte> answers;
    std::vector<FoundByPart> parts;
  };

  const std::unique_ptr<ShardedPredictor> inner_;
  const ModelDescription model_;
  const Search search_;
  inference::Pool<Scratch> scratch_{[] { return std::make_unique<Scratch>(); }};
};

}  // namespace

std::unique_ptr<ShardedPredictor> make_sharded_retriever(const Runtime& runtime,
                                                         const std::function<InferenceModel()>& open,
                                                         std::shared_ptr<ProcessGroup> group,
                                                         ShardedPredictorOptions options,
                                                         const RetrieverOptions& retriever) {
  if (!retriever.exclude.empty())
    fail(Code::kUnimplemented, "--exclude works in one process: over ranks ask for more items, and leave them out");
  if (!retriever.index.empty())
    fail(Code::kUnimplemented, "--index works in one process: leave it out over ranks, which search exactly");
  Search search{.k = retriever.top_k, .world_size = group->world_size()};
  options.part = [&](const InferenceModel& model, int rank, int world_size) -> std::unique_ptr<RankPart> {
    const ItemVectors items = item_vectors(model, retriever.items, {rank, world_size});
    search.dim = items.vectors.size(1);
    check_items(model.description.outputs.front(), search.dim, items.all, retriever);
    return std::make_unique<SearchPart>(items, retriever.top_k);
  };
  const auto with_query = [&] {
    InferenceModel model = open();
    check_compared(model, retriever);
    if (!retriever.query.empty()) answer_with(model, retriever.query);
    return model;
  };
  return std::make_unique<ShardedRetriever>(make_sharded_predictor(runtime, with_query, std::move(group), options),
                                            search);
}

}  // namespace tessera::retrieval

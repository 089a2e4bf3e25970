// A model that answers with items: a predictor around another one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "retrieval/item_index.h"
#include "tessera/packed_model.h"

namespace tessera::retrieval {

inline constexpr const char* kTopK = "top_k";  // ModelDescription::type of such a model

struct RetrieverOptions {
  int64_t top_k = 0;  // 0: none is wanted
  std::string items;  // as of item_vectors()
  std::string query;  // the layer whose values are compared with the items'; empty: what the first head takes
};
// kInvalidArgument, by the options' names: some of them without the others.
void check(const RetrieverOptions& options);

// The values of a layer, or of an input, become the model's last output. kInvalidArgument: there is none of that name.
void add_output(InferenceModel& model, const std::string& layer);

// Outputs "score" and "item", each of top_k values a sample: the largest dot products of the query with the items'
// vectors, and which items those are, as whole numbers. kInvalidArgument: widths that differ, more items wanted than
// there are.
std::unique_ptr<Predictor> open_retriever(const Runtime& runtime, const std::string& directory,
                                          const PredictorOptions& options, const RetrieverOptions& retriever);
// The same of a model; `open` makes its predictor.
using OpenModel = std::function<std::unique_ptr<Predictor>(InferenceModel)>;
std::unique_ptr<Predictor> make_retriever(InferenceModel model, const OpenModel& open,
                                          const RetrieverOptions& retriever);

// The same over ranks, collective as make_sharded_predictor(): each rank searches a part of the items, rank 0 puts
// together what they find. The answers are those of one process, to the bit.
std::unique_ptr<ShardedPredictor> make_sharded_retriever(const Runtime& runtime,
                                                         const std::function<InferenceModel()>& open,
                                                         std::shared_ptr<ProcessGroup> group,
                                                         ShardedPredictorOptions options,
                                                         const RetrieverOptions& retriever);

// The checks and descriptions of both. Which of the model's outputs is the query, once add_output() has been asked
// for the layer that was named.
size_t query_of(const InferenceModel& model, const RetrieverOptions& retriever);
// kInvalidArgument, as above; `all` items of `dim` values.
void check_items(const ModelOutput& query, int64_t dim, int64_t all, const RetrieverOptions& retriever);
ModelDescription described_as_retriever(ModelDescription model, int64_t k);

}  // namespace tessera::retrieval

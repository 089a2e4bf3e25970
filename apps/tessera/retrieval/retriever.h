// A model that answers with items: a predictor that wraps another one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "retrieval/item_index.h"
#include "tessera/packed_model.h"

namespace tessera::retrieval {

inline constexpr const char* kTopK = "top_k";  // value of ModelDescription::type for such a model

struct RetrieverOptions {
  int64_t top_k = 0;  // items per sample; 0: no items
  std::string items;  // as in item_vectors()
  std::string query;  // layer whose values are compared with the items'; empty: the input of the first head
};
// Throws kInvalidArgument, with the options' names, if only some of them are given.
void check(const RetrieverOptions& options);

// Makes the values of a layer, or of an input, the model's last output. Throws kInvalidArgument for an unknown name.
void add_output(InferenceModel& model, const std::string& layer);

// Outputs "score" and "item" have top_k values per sample: the largest dot products of the query with the items'
// vectors, and the numbers of those items. Throws kInvalidArgument if widths differ or more items are wanted than
// exist.
std::unique_ptr<Predictor> open_retriever(const Runtime& runtime, const std::string& directory,
                                          const PredictorOptions& options, const RetrieverOptions& retriever);
// The same for a model in memory; `open` makes its predictor.
using OpenModel = std::function<std::unique_ptr<Predictor>(InferenceModel)>;
std::unique_ptr<Predictor> make_retriever(InferenceModel model, const OpenModel& open,
                                          const RetrieverOptions& retriever);

// The same over ranks, collective like make_sharded_predictor(). Each rank searches a part of the items; rank 0 merges
// the results. The answers equal those of one process, bit for bit.
std::unique_ptr<ShardedPredictor> make_sharded_retriever(const Runtime& runtime,
                                                         const std::function<InferenceModel()>& open,
                                                         std::shared_ptr<ProcessGroup> group,
                                                         ShardedPredictorOptions options,
                                                         const RetrieverOptions& retriever);

// The checks and descriptions that both use. query_of() returns the output that is the query, after add_output() was
// called for the named layer.
size_t query_of(const InferenceModel& model, const RetrieverOptions& retriever);
// Throws kInvalidArgument as above; there are `all` items of `dim` values.
void check_items(const ModelOutput& query, int64_t dim, int64_t all, const RetrieverOptions& retriever);
ModelDescription described_as_retriever(ModelDescription model, int64_t k);

}  // namespace tessera::retrieval

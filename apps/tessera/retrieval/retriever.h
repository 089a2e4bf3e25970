// A model that answers with items: a predictor that wraps another one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "retrieval/approximate_index.h"
#include "retrieval/item_index.h"
#include "tessera/predictor.h"

namespace tessera::retrieval {

inline constexpr const char* kTopK = "top_k";  // value of ModelDescription::type for such a model

struct RetrieverOptions {
  int64_t top_k = 0;  // items per sample; 0: no items
  // A file or a table, as item_vectors() takes them; or a layer, whose values of the rows that training draws are the
  // items' vectors.
  std::string items;
  // Layer whose values are compared with the items'; of a sequence, the last row of each sample. Empty: the input of
  // the first head.
  std::string query;
  std::string exclude;  // feature whose ids are left out of a sample's answer; empty: none
  std::string index;    // component that finds the items approximately, such as "hnsw?m=32"; empty: the exact search
  double least_recall = 0;                        // share of the best items that the index must find
  std::function<void(const IndexFigures&)> tell;  // called with what the index finds, if there is one
};
// Throws kInvalidArgument, with the options' names, if only some of them are given.
void check(const RetrieverOptions& options);
// kInvalidArgument: a sample has no id of any feature that the query depends on, and the model takes no numbers.
void check_asked(const ModelDescription& model, const PredictInput& input);

// Makes the values of a layer, or of an input, the model's only output. Throws kInvalidArgument for an unknown name.
void answer_with(InferenceModel& model, const std::string& layer);

// Outputs "score" and "item" have top_k values per sample: the largest dot products of the query with the items'
// vectors, and the numbers of those items. If fewer are left after `exclude`, the last are item -1 with score 0. With
// `index`, only these items may be others; a query for which it finds too few is searched exactly. Throws
// kInvalidArgument if widths differ, more items are wanted than exist, or there is no such feature, and
// kFailedPrecondition if the index finds too little.
std::unique_ptr<Predictor> open_retriever(const Runtime& runtime, const std::string& directory,
                                          const PredictorOptions& options, const RetrieverOptions& retriever);
// The same for a model in memory; `open` makes its predictor.
using OpenModel = std::function<std::unique_ptr<Predictor>(InferenceModel)>;
std::unique_ptr<Predictor> make_retriever(const Runtime& runtime, InferenceModel model, const OpenModel& open,
                                          const RetrieverOptions& retriever);

// The same over ranks, collective like make_sharded_predictor(). Each rank searches a part of the items; rank 0 merges
// the results. The answers equal those of one process, bit for bit. It cannot exclude items and uses no
// index: kUnimplemented.
std::unique_ptr<ShardedPredictor> make_sharded_retriever(const Runtime& runtime,
                                                         const std::function<InferenceModel()>& open,
                                                         std::shared_ptr<ProcessGroup> group,
                                                         ShardedPredictorOptions options,
                                                         const RetrieverOptions& retriever);

// The checks and descriptions that both use. The first output is the query. check_compared() throws kInvalidArgument if
// training compares the query with something other than rows of the table `items`.
void check_compared(const InferenceModel& model, const RetrieverOptions& retriever);
// Throws kInvalidArgument as above; there are `all` items of `dim` values.
void check_items(const ModelOutput& query, int64_t dim, int64_t all, const RetrieverOptions& retriever);
ModelDescription described_as_retriever(ModelDescription model, int64_t k);

}  // namespace tessera::retrieval

// Memory for one prediction at a time: kernel instances over the shared rows, and buffers that only grow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inference/first_ids.h"
#include "inference/input_check.h"
#include "modules/table_groups.h"
#include "tessera/layer_graph.h"
#include "tessera/lookup.h"
#include "tessera/predictor.h"

namespace tessera::inference {

// A table feature: one block of columns of the pooled output, in the unsharded order, or a sequence.
struct TableFeature {
  size_t table = 0;
  size_t feature = 0;                         // index in the description
  int64_t ids = 0;                            // valid ids are below this
  const IndexRemapping* remapping = nullptr;  // from ids to rows; null: an id is its row
  PoolingType pooling = PoolingType::kSum;
  int64_t column = 0, dim = 0;
  size_t group = 0;   // group of tables with one row format
  int32_t index = 0;  // index in the group
  bool sequence() const { return pooling == PoolingType::kNone; }
  bool valid(int64_t id) const { return static_cast<uint64_t>(id) < static_cast<uint64_t>(ids); }
  // Returns -1 if the id has no row.
  int64_t row(int64_t id) const { return !valid(id) ? -1 : remapping == nullptr ? id : remapping->row(id); }
};
struct TableFeatures {
  std::vector<TableFeature> all;
  TableGroups tables;
  int64_t width = 0;  // of the pooled output
};
TableFeatures table_features_of(const InferenceModel& model, const std::string& kernel);

// Counts ids out of range by table. Allocates nothing.
void count_bad_ids(const TableFeatures& table_features, const PredictInput& input, std::span<uint64_t> bad);

class Workspace {
 public:
  // `model` and `table_features` must outlive it. `precision`: LayerGraphOptions::precision.
  Workspace(const Runtime& runtime, const InferenceModel& model, const TableFeatures& table_features,
            const std::string& precision);

  // `given` must have been checked. Ids out of range or without a row are left out but count in MEAN's length; in a
  // sequence they are rows of zeros. Ids out of range are counted by table in bad_ids(). Features that no output
  // depends on are not looked up.
  void predict(const PredictInput& given, std::span<const std::span<float>> outputs);
  std::span<const uint64_t> bad_ids() const { return bad_ids_; }
  const std::vector<ModelOutput>& outputs() const { return outputs_; }

 private:
  struct Group {
    Lookup lookup;
    std::vector<tsr_lookup_feature> features;
  };
  void reserve(const PredictInput& input);
  // Fills ids, offsets, weights and the groups' features. Returns true if there are weights.
  bool gather(const PredictInput& input);
  void gather(size_t s, const PredictInput::Feature& in, bool weights, int64_t* end);
  // Adds table feature s's sequence, whose rows begin at value `at` of rows_. Returns their end.
  int64_t add_sequence(size_t s, const PredictInput::Feature& in, int64_t at);
  void look_up(int64_t batch, bool weighted);

  const TableFeatures& table_features_;
  std::vector<Group> groups_;
  LayerGraph dense_;
  FirstIds first_ids_;
  NeededFeatures needed_;
  const std::vector<ModelOutput> outputs_;
  std::vector<int64_t> ids_, offsets_;
  std::vector<float> weights_;
  Tensor rows_;                           // [samples * width], then rows of sequences; only grows
  std::vector<Tensor> sequence_offsets_;  // int64, by table feature
  std::vector<DenseInput> sequences_;     // of the batch
  std::vector<uint64_t> bad_ids_;
  std::vector<char> without_row_;  // by table feature: true if some ids may have no row
};

// Outputs of a graph's heads. A head without a loss may take a sequence: its output is the last row. kInvalidArgument:
// a head that learned a probability has more than one logit, or a head with a loss takes a sequence.
std::vector<ModelOutput> outputs_of(const Runtime& runtime, const ModelGraph& graph, const LayerGraph& layers);

// Inputs of a graph of layers from tables and ids.
struct GraphRows {
  Tensor pooled;  // [batch, the graph's width]
  const std::vector<DenseInput>& sequences;
  const std::vector<DenseInput>& ids;
};
// Fills `outputs` as Predictor::predict_outputs() does.
void answer(LayerGraph& layers, const std::vector<ModelOutput>& model, const PredictInput& input, const GraphRows& rows,
            std::span<const std::span<float>> outputs);

}  // namespace tessera::inference

// What one prediction at a time works with: kernel instances over the shared rows, and memory that only grows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inference/first_ids.h"
#include "modules/table_groups.h"
#include "tessera/layer_graph.h"
#include "tessera/lookup.h"
#include "tessera/packed_model.h"

namespace tessera::inference {

// A feature that a table looks up: one block of columns of the pooled output, in the unsharded order, or a sequence.
struct Slot {
  size_t table = 0;
  size_t feature = 0;                         // of the description
  int64_t ids = 0;                            // valid ones are below
  const IndexRemapping* remapping = nullptr;  // to rows; null: an id is its row
  PoolingType pooling = PoolingType::kSum;
  int64_t column = 0, dim = 0;
  size_t group = 0;   // of tables of one row format
  int32_t index = 0;  // in the group
  bool sequence() const { return pooling == PoolingType::kNone; }
  bool valid(int64_t id) const { return static_cast<uint64_t>(id) < static_cast<uint64_t>(ids); }
  // -1: it has none.
  int64_t row(int64_t id) const { return !valid(id) ? -1 : remapping == nullptr ? id : remapping->row(id); }
};
struct Slots {
  std::vector<Slot> slots;
  TableGroups tables;
  int64_t width = 0;  // of the pooled output
};
Slots slots_of(const InferenceModel& model, const std::string& kernel);

// By table: ids that were out of range. Allocates nothing.
void count_bad_ids(const Slots& slots, const PredictInput& input, std::span<uint64_t> bad);

class Workspace {
 public:
  // `model` and `slots` outlive it.
  Workspace(const Runtime& runtime, const InferenceModel& model, const Slots& slots);

  // `input` has been checked. Ids out of range, or without a row, are left out and count in MEAN's length, or are rows
  // of zeros of a sequence; those out of range are counted by table in bad_ids().
  void predict(const PredictInput& input, std::span<const std::span<float>> outputs);
  std::span<const uint64_t> bad_ids() const { return bad_ids_; }
  const std::vector<ModelOutput>& outputs() const { return outputs_; }

 private:
  struct Group {
    Lookup lookup;
    std::vector<tsr_lookup_feature> features;
  };
  void reserve(const PredictInput& input);
  // Fills ids, offsets, weights and the groups' features; returns whether there are weights.
  bool gather(const PredictInput& input);
  void gather_slot(size_t s, const PredictInput::Feature& in, bool weights, int64_t* end);
  // The sequence of slot s, whose rows come behind `at` values of rows_; returns where they end.
  int64_t add_sequence(size_t s, const PredictInput::Feature& in, int64_t at);
  void look_up(int64_t batch, bool weighted);

  const Slots& slots_;
  std::vector<Group> groups_;
  LayerGraph dense_;
  FirstIds first_ids_;
  const std::vector<ModelOutput> outputs_;
  std::vector<int64_t> ids_, offsets_;
  std::vector<float> weights_;
  Tensor rows_;  // [samples * width], then the rows of sequences; as many as were needed so far
  std::vector<Tensor> sequence_offsets_;  // int64, by slot
  std::vector<DenseInput> sequences_;     // of the batch
  std::vector<uint64_t> bad_ids_;
  std::vector<char> without_row_;  // by slot: some of its ids may have none
};

// What the heads of a graph give. kInvalidArgument: a head that learnt a probability has more than its logit.
std::vector<ModelOutput> outputs_of(const ModelGraph& graph, const LayerGraph& layers);

// What a graph of layers takes of tables and ids.
struct GraphRows {
  Tensor pooled;  // [batch, the graph's width]
  const std::vector<DenseInput>& sequences;
  const std::vector<Tensor>& ids;
};
// Fills `outputs`, as Predictor::predict_outputs() has them.
void answer(LayerGraph& layers, const std::vector<ModelOutput>& model, const PredictInput& input, const GraphRows& rows,
            std::span<const std::span<float>> outputs);

}  // namespace tessera::inference

// A batch whose ids are all in range: the caller's own where nothing is wrong, otherwise a copy with one
// key per table feature.
#pragma once

#include <vector>

#include "modules/bounds.h"
#include "tessera/jagged_tensor.h"
#include "wiring/wiring.h"

namespace tessera {

struct BatchRules {
  BoundsCheckMode bounds = BoundsCheckMode::kFatal;
  bool weighted = false;
};

// The place of a table feature's bags and ids in a batch.
struct FeatureBags {
  int64_t first_bag = 0, bags = 0;  // in its lengths
  int64_t first_id = 0, ids = 0;    // in its values
};

struct CheckedBatch {
  Tensor values, weights, lengths, offsets;  // weights: undefined without
  std::vector<FeatureBags> feature_bags;     // in these
  // Set if ids were dropped; otherwise undefined.
  Tensor mean_lengths;  // int64, as `lengths`: what MEAN divides by
  Tensor positions;     // int64, by id: where it stood in the caller's values
  Tensor mean_weights;  // float32, by id: makes a kernel's MEAN over the kept ids the right one
  // Pooled rows are gathered by inverse indices: sample b of the output takes row inverse[s][b] of table feature s.
  bool expands = false;
  int64_t output_batch = 0;             // samples of the pooled output
  std::vector<const int64_t*> inverse;  // by table feature, in inverse_indices
  Tensor inverse_indices;
  // The caller's.
  Tensor original_lengths, original_values;
  std::vector<FeatureBags> original_feature_bags;
  int64_t dropped = 0;
  std::string first_dropped;            // a sentence
  std::vector<BoundsFeature> features;  // scratch
  bool clean() const { return !positions.defined(); }
  // Lets go of the batch's tensors; what only this object needs stays for the next batch.
  void release();
};

// Finds the key of each table feature in the input. kNotFound names the feature. The last keys are remembered, because
// they rarely change.
class KeyIndex {
 public:
  const std::vector<int>& find(const Wiring& wiring, const KeyedJaggedTensor& input);

 private:
  std::vector<std::string> keys_;
  std::vector<int> index_;
};

// Checks the counts that a step, the wire and devices have in int32: a feature's bags and a bag's ids, of sequences a
// feature's ids. kOutOfRange names the feature and the bound. `num_ids`: of the whole batch, so that others cost
// nothing.
void check_counts(const std::vector<TableFeature>& table_features, const std::vector<FeatureBags>& bags,
                  const Tensor& lengths, int64_t num_ids, bool sequence);

// kOutOfRange in mode kFatal, and as check_counts; kInvalidArgument for lengths and offsets that disagree and inverse
// indices that do not fit. `out` keeps its memory between calls. A batch on a device is copied: ids are routed in host
// memory.
void check_batch(const Wiring& wiring, const std::vector<EmbeddingBagConfig>& tables, const BatchRules& rules,
                 KeyIndex& keys, const KeyedJaggedTensor& input, CheckedBatch& out);

}  // namespace tessera

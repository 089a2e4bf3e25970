// A batch whose ids are all in range. It is the caller's own batch if nothing is wrong, otherwise a copy with one key
// per table feature.
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
  int64_t first_bag = 0, bags = 0;  // bags in CheckedBatch::lengths
  int64_t first_id = 0, ids = 0;    // ids in CheckedBatch::values
};

struct CheckedBatch {
  Tensor values, weights, lengths, offsets;  // undefined weights: the batch has none
  std::vector<FeatureBags> feature_bags;     // places in the tensors above
  // The next three are set if ids were dropped, and undefined otherwise.
  Tensor mean_lengths;  // int64, like `lengths`: the divisors of MEAN
  Tensor positions;     // int64, by id: its position in the caller's values
  Tensor mean_weights;  // float32, by id: with these a kernel's MEAN over the remaining ids divides by all ids
  // True if inverse indices repeat pooled rows: sample b of the output takes row inverse[s][b] of table feature s.
  bool expands = false;
  int64_t output_batch = 0;             // samples of the pooled output, if `expands`
  std::vector<const int64_t*> inverse;  // by table feature, in inverse_indices
  Tensor inverse_indices;
  // The caller's lengths and values.
  Tensor original_lengths, original_values;
  std::vector<FeatureBags> original_feature_bags;
  int64_t dropped = 0;
  std::string first_dropped;            // a sentence about the first dropped id
  std::vector<BoundsFeature> features;  // scratch
  bool clean() const { return !positions.defined(); }
  // Releases the batch's tensors. Memory of this object stays for the next batch.
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

// Checks counts that must fit in int32 in a step, on the wire and on devices: the bags of a feature, the ids of a bag
// and, for sequences, the ids of a feature. kOutOfRange names the feature and the bound. `num_ids` is the count of the
// whole batch; if it fits, the ids of bags are not counted.
void check_counts(const std::vector<TableFeature>& table_features, const std::vector<FeatureBags>& bags,
                  const Tensor& lengths, int64_t num_ids, bool sequence);

// Throws kOutOfRange for a bad id in mode kFatal, the errors of check_counts(), and kInvalidArgument if lengths and
// offsets disagree or inverse indices do not fit. `out` keeps its memory between calls. A batch on a device is copied,
// because ids are routed in host memory.
void check_batch(const Wiring& wiring, const std::vector<EmbeddingBagConfig>& tables, const BatchRules& rules,
                 KeyIndex& keys, const KeyedJaggedTensor& input, CheckedBatch& out);

}  // namespace tessera

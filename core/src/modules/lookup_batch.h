// A batch in the form that kernels take, made from checked ids, and what a forward keeps for its backward.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "modules/bounds.h"
#include "modules/lookup_view.h"
#include "tessera/embedding_modules.h"
#include "tessera/lookup.h"

namespace tessera {

// The ids of all features of a forward, for all kernel instances.
struct LookupIds {
  Tensor ids, offsets, weights;  // undefined weights: all are 1
  struct Feature {
    PoolingType pooling = PoolingType::kSum;  // the pooling that the kernel does
    int64_t bags = 0;
    int64_t first_offset = 0;
    int64_t rows = 0;  // rows of output: bags, or ids if nothing is pooled
  };
  std::vector<Feature> features;
  Tensor positions;  // int64: each id's position in the input; undefined: ids are in place
};

// Prepares the ids to look up. Bad ids add nothing, but count in MEAN's length and keep their row in sequences.
// pooling[i] is that of input.features[i]. A MEAN feature with weights must not have bad ids.
LookupIds make_lookup_ids(const BoundsInput& input, CheckedIds checked, const std::vector<PoolingType>& pooling);

// One kernel call. view() points into this object.
class LookupBatch {
 public:
  LookupBatch() = default;
  explicit LookupBatch(const LookupIds& ids)
      : tensors_(std::make_unique<LookupView>(ids.ids, ids.offsets, ids.weights)) {}
  void add(int table, const LookupIds::Feature& feature, int64_t output_offset, int64_t output_stride);
  tsr_lookup view() const { return tensors_->of(features_); }

 private:
  std::vector<tsr_lookup_feature> features_;
  std::unique_ptr<LookupView> tensors_;
};

struct EmbeddingContext::State {
  struct Call {
    std::shared_ptr<Lookup> lookup;  // must outlive its context
    size_t group = 0;
    LookupBatch batch;
    Lookup::Context context;
  };
  const void* owner = nullptr;
  int64_t generation = 0;  // of the owner's kernel instances, which it makes anew now and then
  std::vector<Call> calls;
  LookupIds ids;
  std::optional<CheckedIds> repaired;  // set if offsets were repaired
  Tensor input_weights;                // for shape and count of their gradient; undefined: no gradient is needed
  // Shape of the module's output, or of the kernels' output if it is rearranged later.
  std::vector<int64_t> output_shape;
  std::vector<int64_t> row_begin;  // by feature, with the end: its first row, if features are one after the other

  // Set for a variable batch: output row b of feature f comes from its row gather[f][b].
  std::vector<Tensor> gather;
};

// Adds the gradients of one call's per-sample weights, one for each looked-up id, to the gradients of the input's
// weights.
void add_weight_gradients(const LookupIds& ids, const Tensor& looked_up, const Tensor& total);

}  // namespace tessera

// A batch as kernels see it, made of checked ids, and what a forward keeps.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "modules/bounds.h"
#include "modules/lookup_view.h"
#include "tessera/embedding_modules.h"
#include "tessera/lookup.h"

namespace tessera {

// The ids of all features of a forward, whichever kernel instance looks them up.
struct LookupIds {
  Tensor ids, offsets, weights;  // weights undefined: all 1
  struct Feature {
    PoolingType pooling = PoolingType::kSum;  // as the kernel is to do it
    int64_t bags = 0;
    int64_t first_offset = 0;
    int64_t rows = 0;  // rows of output: bags, or ids where nothing is pooled
  };
  std::vector<Feature> features;
  Tensor positions;  // int64: where each id was in the input; undefined: in place
};

// The ids to look up so that bad ids contribute nothing, but count in MEAN's length and keep their row in sequences.
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
    std::shared_ptr<Lookup> lookup;  // outlives its context
    size_t group = 0;
    LookupBatch batch;
    Lookup::Context context;
  };
  const void* owner = nullptr;
  int64_t generation = 0;  // of the owner's kernel instances
  std::vector<Call> calls;
  LookupIds ids;
  std::optional<CheckedIds> repaired;  // where offsets had to be moved
  Tensor input_weights;                // for the shape and count of their gradient; undefined: none wanted
  std::vector<int64_t> output_shape;   // of the module's output, or of the kernels' where that is rearranged
  std::vector<int64_t> row_begin;      // per feature and one more: its first row where features lie one after the other

  // Variable batch: output row b of feature f comes from its row gather[f][b].
  std::vector<Tensor> gather;
};

// Adds a call's per-sample gradients, one for each looked-up id, to those of the input's weights.
void add_weight_gradients(const LookupIds& ids, const Tensor& looked_up, const Tensor& total);

}  // namespace tessera

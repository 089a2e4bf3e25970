// A batch in the form that one kernel call takes: tensors of ids, offsets and weights, and a list of features.
#pragma once

#include <vector>

#include "tessera/abi/kernel.h"
#include "tessera/tensor.h"

namespace tessera {

class LookupView {
 public:
  // Undefined weights: all are 1. Undefined output_rows: no feature lists its rows.
  LookupView(Tensor ids, Tensor offsets, Tensor weights, Tensor output_rows = {})
      : ids_(std::move(ids)),
        offsets_(std::move(offsets)),
        weights_(std::move(weights)),
        output_rows_(std::move(output_rows)) {
    dl_ids_ = ids_.dl();
    dl_offsets_ = offsets_.dl();
    if (weights_.defined()) dl_weights_ = weights_.dl();
    if (output_rows_.defined()) dl_output_rows_ = output_rows_.dl();
  }
  LookupView(const LookupView&) = delete;

  // The result points into this object and into `features`.
  tsr_lookup of(const std::vector<tsr_lookup_feature>& features) const {
    tsr_lookup view{};
    view.struct_size = sizeof(tsr_lookup);
    view.num_features = static_cast<uint32_t>(features.size());
    view.feature_stride = sizeof(tsr_lookup_feature);
    view.features = features.data();
    view.ids = &dl_ids_;
    view.offsets = &dl_offsets_;
    view.weights = weights_.defined() ? &dl_weights_ : nullptr;
    view.output_rows = output_rows_.defined() ? &dl_output_rows_ : nullptr;
    return view;
  }

 private:
  Tensor ids_, offsets_, weights_, output_rows_;
  DLTensor dl_ids_{}, dl_offsets_{}, dl_weights_{}, dl_output_rows_{};
};

}  // namespace tessera

// The dense part of a DLRM for one thread at a time: borrowed parameters, its own memory, which only grows.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/dlrm.h"

namespace tessera::inference {

class DlrmForward {
 public:
  // kInvalidArgument names the parameter that is missing in `parameters` or has another shape. `parameters` outlives
  // this.
  DlrmForward(const Runtime& runtime, const DlrmOptions& options, const std::map<std::string, Tensor>& parameters);

  // dense [batch, dense_inputs], pooled [batch, num_embeddings * embedding_dim]; the logits [batch] are valid until the
  // next call. Allocates nothing once a batch as large was there.
  std::span<const float> logits(int64_t batch, const float* dense, const float* pooled);

 private:
  struct Layer {
    PartPtr part;
    std::string name;
    std::vector<DLTensor> parameters, buffers;
    int64_t width = 0;  // of its output
    std::vector<float> output;
  };
  struct Input {
    const float* values = nullptr;
    int64_t width = 0;
  };
  Layer open(const Runtime& runtime, const DenseLayerOptions& options, std::span<const int64_t> widths,
             const std::map<std::string, Tensor>& parameters);
  void run(Layer& layer, int64_t batch, std::span<const Input> inputs);

  DlrmOptions options_;
  std::array<Layer, 3> layers_;  // bottom MLP, interaction, top MLP
};

}  // namespace tessera::inference

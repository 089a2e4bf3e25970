// A packed model in Triton's model repository, and the inputs that its config.pbtxt declares.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "triton.h"

namespace tessera_triton {

// How a request gives the ids of a feature.
struct FeatureInput {
  std::string name;      // of the feature
  bool rows = true;      // true: NAME, [batch, k] ids; false: NAME.values, the ids of all samples in turn
  bool lengths = false;  // NAME.lengths is declared: how many ids of each sample count
  bool weights = false;  // NAME.weights is declared, in the shape of the ids
};

struct Output {
  std::string name;
  int64_t width = 1;  // values of a sample
};

class Model {
 public:
  // Opens DIRECTORY/VERSION of the repository, completes the configuration if Triton lets it, and checks it.
  explicit Model(TRITONBACKEND_Model* model);

  tsr_model* get() const { return model_.get(); }
  int64_t dense() const { return dense_; }
  const std::vector<FeatureInput>& features() const { return features_; }  // in the model's order
  const std::vector<Output>& outputs() const { return outputs_; }

 private:
  struct Close {
    void operator()(tsr_model* model) const { tsr_model_close(model); }
  };
  void open(const std::string& directory, const std::string& config);
  std::string completed(const std::string& config) const;
  void take(const std::string& config);

  std::unique_ptr<tsr_model, Close> model_;
  int64_t dense_ = 0;
  bool weighted_ = false;
  std::vector<FeatureInput> features_;
  std::vector<Output> outputs_;
};

}  // namespace tessera_triton

// The samples of one request or of several, joined, and their prediction.
#pragma once

#include <cstdint>
#include <vector>

#include "model.h"

namespace tessera_triton {

class Samples {
 public:
  explicit Samples(const Model& model);
  // Reads a request's inputs. Throws Failure if they do not fit the model.
  static Samples of(const Model& model, TRITONBACKEND_Request* request);

  void append(const Samples& other);
  int64_t count() const { return count_; }
  // Returns the values of each output, sample by sample.
  std::vector<std::vector<float>> predict() const;

 private:
  struct Ids {
    std::vector<int64_t> values;
    std::vector<int32_t> lengths;
    std::vector<float> weights;  // like values
  };
  void take(TRITONBACKEND_Request* request, size_t feature);
  void count_samples(int64_t samples, const std::string& input);

  const Model* model_;
  int64_t count_ = -1;  // -1: no input has been read
  std::vector<float> dense_;
  std::vector<Ids> features_;
};

}  // namespace tessera_triton

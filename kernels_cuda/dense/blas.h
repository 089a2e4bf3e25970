// Computes matrix products with the vendor's library, if it is installed. cuBLASLt is opened at run time, because it is
// larger than all of Tessera, and a machine may have a driver without it. (hipBLAS is not in Debian 12.)
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "dense/product.h"

namespace tessera::gpu {

class Blas {
 public:
  // Returns null without such a library, or without CUDA. `library` is its name, for tests.
  static std::unique_ptr<Blas> open(const std::string& library = "");
  ~Blas();
  Blas(const Blas&) = delete;

  // Multiplies in float32, without shorter formats such as TF32. Returns false, with nothing enqueued, if the library
  // has no algorithm for these sizes. `workspace` is device memory of kWorkspace bytes. Plans are kept for kPlans kinds
  // of products.
  static constexpr size_t kWorkspace = size_t{4} << 20;
  static constexpr size_t kPlans = 64;
  bool multiply(const Product& product, void* workspace, Stream stream);

 private:
  struct Library;
  struct Plan;
  explicit Blas(std::unique_ptr<Library> library);
  Plan& plan_of(const Product& product);

  std::unique_ptr<Library> library_;
  std::unique_ptr<Plan[]> plans_;
  size_t num_plans_ = 0;
  size_t next_ = 0;  // the next plan to replace when all are used
};

}  // namespace tessera::gpu

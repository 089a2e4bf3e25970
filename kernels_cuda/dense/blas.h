// Matrix products by the vendor's library, where it is installed: cuBLASLt, opened at run time, since it is larger than
// all of Tessera and a machine may have a driver without it. (hipBLAS is not in Debian 12.)
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "dense/product.h"

namespace tessera::gpu {

class Blas {
 public:
  // Null where there is no such library, or no CUDA. `library` is for tests.
  static std::unique_ptr<Blas> open(const std::string& library = "");
  ~Blas();
  Blas(const Blas&) = delete;

  // Multiplies in float32, without shorter products inside. False, and nothing enqueued: the library has no algorithm
  // for these sizes. `workspace` is memory of the device, kWorkspace bytes. Plans are kept for kPlans kinds of
  // products.
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
  size_t next_ = 0;  // to be replaced, once all are taken
};

}  // namespace tessera::gpu

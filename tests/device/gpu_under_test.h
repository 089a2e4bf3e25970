// Selects the GPU for the tests of GPUs.
#pragma once

#include <cstdlib>

namespace tessera::test {

// The id of its device and kernel: "emulator" for the emulated one, or the value of TESSERA_TEST_GPU, such as "cuda" on
// a machine with such a GPU.
inline const char* gpu_under_test() {
  const char* name = std::getenv("TESSERA_TEST_GPU");
  return name != nullptr && *name != '\0' ? name : "emulator";
}

}  // namespace tessera::test

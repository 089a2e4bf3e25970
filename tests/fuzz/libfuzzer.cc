// One target as a program of libFuzzer: TESSERA_FUZZ_TARGET is its function.
#include "fuzz.h"

namespace tessera::fuzz {
void TESSERA_FUZZ_TARGET(Input input);
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::TESSERA_FUZZ_TARGET({data, size});
  return 0;
}

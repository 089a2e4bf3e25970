#include "gpu/upload.h"

#include <algorithm>
#include <cstring>

namespace tessera::gpu {
namespace {

struct Words {
  uint64_t* to;
  int64_t count;
  uint64_t word[480];
};

GPU_GLOBAL void upload_kernel(Words w) {
  for (int64_t i = threadIdx.x; i < w.count; i += blockDim.x) w.to[i] = w.word[i];
}

}  // namespace

void upload(void* to, const void* from, size_t bytes, Stream stream) {
  Words words{};
  for (size_t at = 0; at < bytes; at += sizeof(words.word)) {
    const size_t size = std::min(sizeof(words.word), bytes - at);
    words.to = static_cast<uint64_t*>(to) + at / sizeof(uint64_t);
    words.count = static_cast<int64_t>((size + sizeof(uint64_t) - 1) / sizeof(uint64_t));
    std::memcpy(words.word, static_cast<const char*>(from) + at, size);
    GPU_LAUNCH(upload_kernel, 1, 128, 0, stream, words);
  }
}

}  // namespace tessera::gpu

#include "verify/host.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "tessera/error.h"

namespace tessera::cli::verify {
namespace {

constexpr uint64_t kFence = 64;
constexpr unsigned char kFenceByte = 0xC3, kFresh = 0x5A;

bool untouched(const unsigned char* guard) {
  for (uint64_t i = 0; i < kFence; ++i) {
    if (guard[i] != kFenceByte) return false;
  }
  return true;
}

}  // namespace

TestHost::TestHost() {
  raw_ = {sizeof(tsr_host), TSR_ABI_MINOR, this, log, alloc, free, parallel_for, num_threads, extension};
}

void* TestHost::alloc(const tsr_host* host, DLDevice device, uint64_t bytes, tsr_stream, tsr_error* err) {
  TestHost& self = of(host);
  if (self.left_ >= 0 && self.left_-- <= 0) {
    self.left_ = 0;
    if (err != nullptr) {
      err->code = TSR_RESOURCE_EXHAUSTED;
      std::snprintf(err->message, sizeof(err->message), "verify lends no more memory");
    }
    return nullptr;
  }
  auto* block = static_cast<unsigned char*>(std::aligned_alloc(64, (bytes + 2 * kFence + 63) / 64 * 64));
  if (block == nullptr) return nullptr;
  std::memset(block, kFenceByte, kFence);
  std::memset(block + kFence, kFresh, bytes);
  std::memset(block + kFence + bytes, kFenceByte, kFence);
  self.live_ += static_cast<int64_t>(bytes);
  const std::lock_guard lock(self.mutex_);
  self.blocks_[block + kFence] = {bytes, device};
  return block + kFence;
}

void TestHost::free(const tsr_host* host, DLDevice, void* memory, uint64_t bytes, tsr_stream) {
  if (memory == nullptr) return;
  TestHost& self = of(host);
  uint64_t held = 0;
  {
    const std::lock_guard lock(self.mutex_);
    const auto found = self.blocks_.find(memory);
    if (found == self.blocks_.end()) {
      self.misuse_ = "it gave back memory that the host did not lend, or gave it back twice";
      return;
    }
    held = found->second.bytes;
    self.blocks_.erase(found);
  }
  if (held != bytes) self.note(str_cat("it gave ", held, " bytes of the host back as ", bytes));
  auto* data = static_cast<unsigned char*>(memory);
  if (!untouched(data - kFence)) self.note(str_cat("it wrote in front of ", held, " bytes of the host"));
  if (!untouched(data + held)) self.note(str_cat("it wrote past ", held, " bytes of the host"));
  self.live_ -= static_cast<int64_t>(held);
  std::free(data - kFence);
}

void TestHost::parallel_for(const tsr_host* host, uint64_t n, void (*body)(void*, uint64_t), void* ctx) {
  std::atomic<uint64_t> next{0};
  const auto work = [&] {
    for (uint64_t i = next++; i < n; i = next++) body(ctx, i);
  };
  std::vector<std::thread> others;
  for (uint32_t t = 1; t < of(host).threads && t < n; ++t) others.emplace_back(work);
  work();
  for (std::thread& t : others) t.join();
}

void TestHost::note(const std::string& misuse) {
  const std::lock_guard lock(mutex_);
  if (misuse_.empty()) misuse_ = misuse;
}

std::string TestHost::misuse() {
  const std::lock_guard lock(mutex_);
  for (const auto& [memory, block] : blocks_) {
    const auto* data = static_cast<const unsigned char*>(memory);
    if (!untouched(data - kFence)) return str_cat("it wrote in front of ", block.bytes, " bytes of the host");
    if (!untouched(data + block.bytes)) return str_cat("it wrote past ", block.bytes, " bytes of the host");
  }
  return misuse_;
}

}  // namespace tessera::cli::verify

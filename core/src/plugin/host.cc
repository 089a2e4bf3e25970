#include "plugin/host.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tessera/error.h"

namespace tessera::plugin {

struct Host::Permanent {
  tsr_host table;
  std::atomic<ThreadPool*> pool;  // NULL once the Host is gone
  int32_t log_level;
  Permanent* next;
};

namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr const char* kLevels[] = {"error", "warning", "info", "debug"};

void fill(tsr_error* err, tsr_code code, const std::string& text) {
  if (err == nullptr || err->struct_size < sizeof(tsr_error)) return;
  err->code = code;
  std::snprintf(err->message, sizeof(err->message), "%s", text.c_str());
}

void* alloc(const tsr_host*, DLDevice device, uint64_t bytes, tsr_stream, tsr_error* err) noexcept {
  if (device.device_type != kDLCPU) {
    fill(err, TSR_UNIMPLEMENTED,
         cat("the host lends memory of the CPU only, not of DLPack device type ", int{device.device_type}));
    return nullptr;
  }
  const bool large = bytes >= kHugePage;
  void* memory = nullptr;
  if (::posix_memalign(&memory, large ? kHugePage : kAlignment, bytes == 0 ? kAlignment : bytes) != 0) {
    fill(err, TSR_RESOURCE_EXHAUSTED, cat("no memory for a block of ", bytes, " bytes"));
    return nullptr;
  }
  // A wish: where the machine has no huge pages, ordinary ones do.
  if (large) (void)::madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return memory;
}

void free_memory(const tsr_host*, DLDevice, void* memory, uint64_t, tsr_stream) noexcept { std::free(memory); }

const void* extension(const tsr_host*, const char*) noexcept { return nullptr; }

}  // namespace

Host::Host(uint32_t threads, int32_t log_level) : permanent_(nullptr), pool_(threads) {
  // The contract lets a plugin keep the pointer for as long as the process lives; the list keeps the blocks reachable.
  static constinit std::atomic<Permanent*> hosts{nullptr};
  auto made = std::make_unique<Permanent>();
  made->pool = &pool_;
  made->log_level = log_level;
  made->table = {};
  tsr_host& t = made->table;
  t.struct_size = sizeof(tsr_host);
  t.abi_minor = TSR_ABI_MINOR;
  t.self = made.get();
  t.log = [](const tsr_host* host, int32_t level, const char* text) noexcept {
    if (level < TSR_LOG_ERROR || level > TSR_LOG_DEBUG) level = TSR_LOG_ERROR;
    if (level > static_cast<Permanent*>(host->self)->log_level) return;
    std::fprintf(stderr, "tessera: %s: %s\n", kLevels[level], text);
  };
  t.alloc = &alloc;
  t.free = &free_memory;
  t.parallel_for = [](const tsr_host* host, uint64_t n, void (*body)(void*, uint64_t), void* ctx) noexcept {
    if (ThreadPool* pool = static_cast<Permanent*>(host->self)->pool.load(std::memory_order_acquire)) {
      pool->run(n, body, ctx);
    } else {
      for (uint64_t i = 0; i < n; ++i) body(ctx, i);
    }
  };
  t.num_threads = [](const tsr_host* host) noexcept -> uint32_t {
    ThreadPool* pool = static_cast<Permanent*>(host->self)->pool.load(std::memory_order_acquire);
    return pool == nullptr ? 1 : pool->threads();
  };
  t.extension = &extension;
  permanent_ = made.release();
  permanent_->next = hosts.load();
  while (!hosts.compare_exchange_weak(permanent_->next, permanent_)) {
  }
}

Host::~Host() { permanent_->pool.store(nullptr, std::memory_order_release); }

const tsr_host* Host::table() const { return &permanent_->table; }

void Host::log(int32_t level, const char* text) const { table()->log(table(), level, text); }

}  // namespace tessera::plugin

#include "plugin/host.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tessera/abi/draft/device.h"
#include "tessera/error.h"

namespace tessera::plugin {

struct AttachedDevice {
  ComponentPtr part;
  const tsr_device& api() const { return part->api<tsr_device>(); }
};

struct Host::Permanent {
  static constexpr size_t kDeviceTypes = 64;  // bound of DLDeviceType

  tsr_host table;
  std::array<std::atomic<AttachedDevice*>, kDeviceTypes> devices{};  // by device type; never freed

  std::atomic<ThreadPool*> pool;  // NULL after the Host is destroyed
  int32_t log_level;
  LogSink log;                            // never changes
  std::atomic<const LogSink*> log_taken;  // NULL: lines go to standard error
  Permanent* next;

  const AttachedDevice* device(int32_t type) const {
    if (type < 0 || static_cast<size_t>(type) >= kDeviceTypes) return nullptr;
    return devices[static_cast<size_t>(type)].load(std::memory_order_acquire);
  }
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

void* alloc_cpu(uint64_t bytes, tsr_error* err) {
  const bool large = bytes >= kHugePage;
  void* memory = nullptr;
  if (::posix_memalign(&memory, large ? kHugePage : kAlignment, bytes == 0 ? kAlignment : bytes) != 0) {
    fill(err, TSR_RESOURCE_EXHAUSTED, str_cat("no memory for a block of ", bytes, " bytes"));
    return nullptr;
  }
  // This is only a hint: without huge pages the kernel uses ordinary ones.
  if (large) (void)::madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return memory;
}

const void* extension(const tsr_host*, const char*) noexcept { return nullptr; }

}  // namespace

Host::Host(uint32_t threads, int32_t log_level, LogSink log) : permanent_(nullptr), pool_(threads) {
  // A plugin may keep the pointer as long as the process lives. The list keeps the memory reachable.
  static constinit std::atomic<Permanent*> hosts{nullptr};
  auto made = std::make_unique<Permanent>();
  made->pool = &pool_;
  made->log_level = log_level;
  made->log = std::move(log);
  made->log_taken = made->log ? &made->log : nullptr;
  made->table = {};
  tsr_host& t = made->table;
  t.struct_size = sizeof(tsr_host);
  t.abi_minor = TSR_ABI_MINOR;
  t.self = made.get();
  t.log = [](const tsr_host* host, int32_t level, const char* text) noexcept {
    if (level < TSR_LOG_ERROR || level > TSR_LOG_DEBUG) level = TSR_LOG_ERROR;
    const auto* self = static_cast<const Permanent*>(host->self);
    if (level > self->log_level) return;
    if (const LogSink* taken = self->log_taken.load(std::memory_order_acquire)) return (*taken)(level, text);
    std::fprintf(stderr, "tessera: %s: %s\n", kLevels[level], text);
  };
  t.alloc = [](const tsr_host* host, DLDevice device, uint64_t bytes, tsr_stream stream,
               tsr_error* err) noexcept -> void* {
    if (device.device_type == kDLCPU) return alloc_cpu(bytes, err);
    const AttachedDevice* served = static_cast<Permanent*>(host->self)->device(device.device_type);
    if (served == nullptr) {
      fill(err, TSR_UNIMPLEMENTED,
           str_cat("no device plugin was opened for DLPack device type ", int{device.device_type},
                   ": the host lends memory of the CPU and of devices that a tessera.device/draft-1 component serves"));
      return nullptr;
    }
    void* memory = nullptr;
    const tsr_code code = served->api().alloc(served->part->self(), device.device_id, bytes, stream, &memory, err);
    return code == TSR_OK ? memory : nullptr;
  };
  t.free = [](const tsr_host* host, DLDevice device, void* memory, uint64_t bytes, tsr_stream stream) noexcept {
    if (device.device_type == kDLCPU) return std::free(memory);
    const AttachedDevice* served = static_cast<Permanent*>(host->self)->device(device.device_type);
    if (served != nullptr) served->api().free(served->part->self(), device.device_id, memory, bytes, stream);
  };
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

Host::~Host() {
  permanent_->pool.store(nullptr, std::memory_order_release);
  permanent_->log_taken.store(nullptr, std::memory_order_release);
}

const tsr_host* Host::table() const { return &permanent_->table; }

void Host::log(int32_t level, const char* text) const { table()->log(table(), level, text); }

bool Host::attach_device(ComponentPtr part) {
  const auto type = static_cast<size_t>(part->api<tsr_device>().device_type);
  if (type >= Permanent::kDeviceTypes || permanent_->devices[type].load()) return false;
  permanent_->devices[type].store(new AttachedDevice{std::move(part)}, std::memory_order_release);
  return true;
}

ComponentPtr Host::attached_device(const std::string& id) const {
  for (const auto& device : permanent_->devices) {
    const AttachedDevice* attached = device.load();
    if (attached != nullptr && attached->part->id() == id) return attached->part;
  }
  return nullptr;
}

}  // namespace tessera::plugin

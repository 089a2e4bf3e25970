// Checks devices: memory, copies, streams and events.
#include "tessera/abi/draft/device.h"

#include <algorithm>
#include <cstdint>

#include "verify/check.h"

namespace tessera::cli::verify {
namespace {

struct Device {
  explicit Device(Subject& s) : subject(s), part(s.make()), api(part.api<tsr_device>()) {
    subject.asks("count", [&](tsr_error* err) { return api.count(part.self(), &count, err); });
    require(count >= 1, "the probe succeeded, but count gives ", count, " devices");
  }
  ~Device() {
    for (const auto& [memory, bytes] : lent) api.free(part.self(), index, memory, bytes, stream);
    if (stream != nullptr) api.stream_destroy(part.self(), index, stream);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void make_stream() {
    subject.asks("stream_create",
                 [&](tsr_error* err) { return api.stream_create(part.self(), index, nullptr, &stream, err); });
    require(stream != nullptr, "stream_create gives NULL, which is the default stream");
  }
  void* alloc(uint64_t bytes) {
    subject.doing(str_cat("alloc of ", bytes, " bytes"));
    void* memory = nullptr;
    Call call;
    call.succeeds(api.alloc(part.self(), index, bytes, stream, &memory, call.out()), "alloc");
    require(memory != nullptr, "alloc of ", bytes, " bytes gives NULL");
    require(reinterpret_cast<uintptr_t>(memory) % 256 == 0, "memory from alloc is not aligned to 256 bytes");
    lent.emplace_back(memory, bytes);
    return memory;
  }
  void copy(void* to, const void* from, uint64_t bytes, int32_t direction) const {
    subject.asks(str_cat("copy of ", bytes, " bytes"),
                 [&](tsr_error* err) { return api.copy(part.self(), index, to, from, bytes, direction, stream, err); });
  }
  void fill(void* memory, uint8_t value, uint64_t bytes) const {
    subject.asks(str_cat("fill of ", bytes, " bytes"),
                 [&](tsr_error* err) { return api.fill(part.self(), index, memory, value, bytes, stream, err); });
  }
  void synchronize() const {
    subject.asks("synchronize", [&](tsr_error* err) { return api.synchronize(part.self(), index, stream, err); });
  }
  tsr_device_stats stats() const {
    auto out = sdk::sized<tsr_device_stats>();
    subject.asks("stats", [&](tsr_error* err) { return api.stats(part.self(), index, &out, err); });
    return out;
  }
  Subject& subject;
  Made part;
  const tsr_device& api;
  int32_t count = 0, index = 0;
  tsr_stream stream = nullptr;
  std::vector<std::pair<void*, uint64_t>> lent;
};

void check_device_info(Subject& subject) {
  const Device device(subject);
  require(device.api.device_type > 0 && device.api.device_type != kDLCPU, "device_type is ", device.api.device_type,
          ", which is not a device");
  for (int32_t i = 0; i < device.count; ++i) {
    auto info = sdk::sized<tsr_device_info>();
    subject.asks(str_cat("info of device ", i),
                 [&](tsr_error* err) { return device.api.info(device.part.self(), i, &info, err); });
    require(info.total_bytes > 0 && info.free_bytes <= info.total_bytes, "device ", i, " has ", info.free_bytes,
            " free bytes of ", info.total_bytes);
    require(info.name[0] != '\0' && info.name[sizeof(info.name) - 1] == '\0', "device ", i, " has no name");
  }
  auto info = sdk::sized<tsr_device_info>();
  subject.doing("info of a device that does not exist");
  Call call;
  call.fails(device.api.info(device.part.self(), device.count, &info, call.out()),
             "info of a device that does not exist");
}

// Options with a flag that must be understood.
void check_device_options(Subject& subject) {
  constexpr uint32_t kUnknownFlag = 1u << 31;
  const Device device(subject);
  const auto& api = device.api;
  void *self = device.part.self(), *made = nullptr;
  const tsr_stream_options stream{sizeof(stream), kUnknownFlag};
  const tsr_event_options event{sizeof(event), kUnknownFlag};
  const tsr_host_memory_options memory{sizeof(memory), kUnknownFlag};
  subject.doing("options with an unknown flag that must be understood");
  const auto refused = [](tsr_code code, const char* what) {
    require(code == TSR_UNIMPLEMENTED, what, " with an unknown flag that must be understood gives ", name_of(code),
            " instead of TSR_UNIMPLEMENTED");
  };
  Call call;
  refused(api.stream_create(self, 0, &stream, &made, call.out()), "stream_create");
  refused(api.event_create(self, 0, &event, &made, call.out()), "event_create");
  refused(api.host_alloc(self, 64, &memory, &made, call.out()), "host_alloc");
}

std::vector<uint8_t> bytes_of(Random& random, uint64_t size) {
  std::vector<uint8_t> out(size);
  for (uint8_t& b : out) b = static_cast<uint8_t>(random());
  return out;
}

// Bytes go to the device, within it, and back, in several sizes and at odd places.
void check_device_copies(Subject& subject) {
  Device device(subject);
  device.make_stream();
  Random random = subject.random();
  for (const uint64_t size : {uint64_t{1}, uint64_t{255}, uint64_t{4099}, uint64_t{70001}, uint64_t{5000011}}) {
    const std::vector<uint8_t> sent = bytes_of(random, size);
    std::vector<uint8_t> got(size, 0);
    auto* a = static_cast<uint8_t*>(device.alloc(size));
    auto* b = static_cast<uint8_t*>(device.alloc(size + 3));
    device.fill(b, 0xA5, size + 3);
    device.copy(a, sent.data(), size, TSR_COPY_TO_DEVICE);
    device.copy(b + 1, a, size, TSR_COPY_ON_DEVICE);
    device.copy(got.data(), b + 1, size, TSR_COPY_TO_HOST);
    device.copy(got.data(), b, 0, TSR_COPY_TO_HOST);
    std::vector<uint8_t> around(3, 0);
    device.copy(around.data(), b, 1, TSR_COPY_TO_HOST);
    device.copy(around.data() + 1, b + 1 + size, 2, TSR_COPY_TO_HOST);
    device.synchronize();
    require(got == sent, "of ", size, " bytes that went to the device and back, byte ",
            std::mismatch(got.begin(), got.end(), sent.begin()).first - got.begin(), " is another one");
    require(around == std::vector<uint8_t>(3, 0xA5), "copy or fill of ", size, " bytes wrote beside them");
    device.fill(a, 0x3C, size);
    device.copy(got.data(), a, size, TSR_COPY_TO_HOST);
    device.synchronize();
    require(std::all_of(got.begin(), got.end(), [](uint8_t x) { return x == 0x3C; }), "fill of ", size,
            " bytes leaves some as they were");
  }
}

void check_device_events(Subject& subject) {
  Device device(subject);
  device.make_stream();
  const auto& api = device.api;
  void* self = device.part.self();
  tsr_stream other = nullptr;
  tsr_event event = nullptr;
  Call call;
  subject.doing("events");
  call.succeeds(api.stream_create(self, 0, nullptr, &other, call.out()), "stream_create");
  call.succeeds(api.event_create(self, 0, nullptr, &event, call.out()), "event_create");
  call.succeeds(api.event_synchronize(self, 0, event, call.out()), "event_synchronize before any record");
  constexpr uint64_t kBytes = 1 << 22;
  void* memory = device.alloc(kBytes);
  std::vector<uint8_t> got(kBytes);
  for (uint8_t value = 1; value <= 20; ++value) {
    device.fill(memory, value, kBytes);
    call.succeeds(api.event_record(self, 0, event, device.stream, call.out()), "event_record");
    call.succeeds(api.event_wait(self, 0, event, other, call.out()), "event_wait");
    call.succeeds(api.copy(self, 0, got.data(), memory, kBytes, TSR_COPY_TO_HOST, other, call.out()), "copy");
    call.succeeds(api.synchronize(self, 0, other, call.out()), "synchronize");
    require(std::all_of(got.begin(), got.end(), [&](uint8_t x) { return x == value; }),
            "a stream that waited for an event reads what was there before it");
    int32_t reached = -1;
    call.succeeds(api.event_query(self, 0, event, &reached, call.out()), "event_query");
    require(reached == 1, "event_query gives ", reached, " for an event that another stream has waited for");
  }
  api.event_destroy(self, 0, event);
  api.stream_destroy(self, 0, other);
}

void check_device_stats(Subject& subject) {
  Device device(subject);
  device.make_stream();
  const uint64_t before = device.stats().held_bytes;
  void* memory = device.alloc(1000000);
  const tsr_device_stats held = device.stats();
  require(held.held_bytes >= before + 1000000 && held.peak_bytes >= held.held_bytes,
          "with 1,000,000 bytes more, stats ", "says ", held.held_bytes, " held bytes after ", before, ", and ",
          held.peak_bytes, " at most");
  device.lent.clear();
  device.api.free(device.part.self(), 0, memory, 1000000, device.stream);
  device.api.free(device.part.self(), 0, nullptr, 0, device.stream);
  device.synchronize();
  require(device.stats().held_bytes == before, "after free, stats says ", device.stats().held_bytes,
          " held bytes, but ", before, " were held before");
  void* pinned = nullptr;
  subject.asks("host_alloc",
               [&](tsr_error* err) { return device.api.host_alloc(device.part.self(), 70001, nullptr, &pinned, err); });
  require(pinned != nullptr, "host_alloc gives NULL");
  std::fill_n(static_cast<unsigned char*>(pinned), 70001, static_cast<unsigned char>(1));
  device.api.host_free(device.part.self(), pinned, 70001);
}

}  // namespace

std::span<const Check> device_checks() {
  static constexpr const char* kKind = TSR_DEVICE_KIND;
  static constexpr Check kChecks[] = {
      {"device.info", 3, kKind, "abi/draft/device.h, tsr_device_info", 30, check_device_info},
      {"device.options", 3, kKind, "abi/base.h, flags", 30, check_device_options},
      {"device.copies", 4, kKind, "abi/draft/device.h, tsr_device::copy", 60, check_device_copies},
      {"device.events", 4, kKind, "abi/draft/device.h, tsr_device::event_wait", 60, check_device_events},
      {"device.stats", 4, kKind, "abi/draft/device.h, tsr_device_stats", 30, check_device_stats},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify

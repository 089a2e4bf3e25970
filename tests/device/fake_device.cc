#include "fake_device.h"

#include <cstdlib>
#include <cstring>

namespace tessera::test {
namespace {

constexpr uint64_t kGuard = 256;
constexpr unsigned char kGuardByte = 0xC3;
constexpr unsigned char kPoison = 0xFF;  // a NaN in every floating point type, -1 in integers

struct FakeEvent {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, reached = 0;
  void wait_for(uint64_t record) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached >= record; });
  }
};

bool guard_holds(const unsigned char* guard) {
  for (uint64_t i = 0; i < kGuard; ++i) {
    if (guard[i] != kGuardByte) return false;
  }
  return true;
}

void check_side(const void* p, bool device, const char* what) {
  if (on_fake_device(p) != device)
    sdk::fail(TSR_INVALID_ARGUMENT, "a copy says that its ", what, " is ", device ? "on the device" : "in host memory",
              ", which it is not");
}

// The moves, with copies of their host-side lists, which are borrowed only for the call.
struct Moves {
  explicit Moves(const tsr_row_moves& m) : moves(m) {
    moves.targets = to_host_address(m.targets);
    moves.runs = to_host_address(m.runs);
    moves.index = to_host_address(m.index);
    moves.scales = to_host_address(m.scales);
    moves.packed = to_host_address(m.packed);
    moves.spread = to_host_address(m.spread);
  }
  tsr_row_moves moves;

  // Calls body(spread row, scale, target).
  template <class Body>
  void for_each_row(const Body& body) const {
    for (uint32_t t = 0; t < moves.num_targets; ++t) {
      const tsr_row_target& target = moves.targets[t];
      if (target.rows * target.cols > moves.most_elements)
        sdk::fail(TSR_INVALID_ARGUMENT, "most_elements is too small");
      for (int64_t b = 0; b < target.rows; ++b) {
        body(target, b, moves.spread + target.begin + b * target.stride,
             target.scale < 0 ? 1.0f : moves.scales[target.scale + b]);
      }
    }
  }
};

}  // namespace

FakeDevice::FakeDevice(sdk::Options& options)
    : delay_(options.integer("delay_us", 20)),
      capacity_(static_cast<uint64_t>(options.integer("memory_mib", 256)) << 20) {}

FakeDevice::Memory& FakeDevice::memory_of(int32_t index) {
  if (index < 0 || index >= kCount) sdk::fail(TSR_INVALID_ARGUMENT, "there is no fake device ", index);
  return memory_[index];
}

FakeStream& FakeDevice::stream_of(int32_t index, tsr_stream stream) {
  memory_of(index);
  if (stream != nullptr) return FakeStream::of(stream);
  const std::lock_guard lock(mutex_);
  if (!default_[index]) default_[index] = std::make_unique<FakeStream>(delay_);
  return *default_[index];
}

void FakeDevice::info(int32_t index, tsr_device_info& out) {
  out.total_bytes = capacity_;
  out.free_bytes = capacity_ - memory_of(index).held;
  std::snprintf(out.name, sizeof(out.name), "fake device %d", index);
}

void FakeDeviceWithRows::info(int32_t index, tsr_device_info& out) {
  FakeDevice::info(index, out);
  out.memory_bandwidth = 10e9;
  out.link_bandwidth = 1e9;
}

void* FakeDevice::alloc(int32_t index, uint64_t bytes, tsr_stream stream) {
  Memory& memory = memory_of(index);
  FakeStream& queue = stream_of(index, stream);
  if (memory.held + bytes > capacity_) {
    sdk::fail(TSR_RESOURCE_EXHAUSTED, "no memory for ", bytes, " bytes: ", capacity_ - memory.held, " of ", capacity_,
              " are free");
  }
  memory.held += bytes;
  if (memory.held > memory.peak) memory.peak = memory.held.load();
  ++memory.allocations;
  void* block = nullptr;
  if (posix_memalign(&block, kGuard, bytes + 2 * kGuard) != 0) throw std::bad_alloc();
  queue.enqueue([block, bytes] {
    auto* p = static_cast<unsigned char*>(block);
    std::memset(p, kGuardByte, kGuard);
    std::memset(p + kGuard, kPoison, bytes);
    std::memset(p + kGuard + bytes, kGuardByte, kGuard);
  });
  return to_device_address(static_cast<unsigned char*>(block) + kGuard);
}

void FakeDevice::free(int32_t index, void* memory, uint64_t bytes, tsr_stream stream) noexcept {
  if (memory == nullptr) return;
  memory_of(index).held -= bytes;
  stream_of(index, stream).enqueue([memory, bytes] {
    auto* p = to_host_address(static_cast<unsigned char*>(memory));
    const bool intact = guard_holds(p - kGuard) && guard_holds(p + bytes);
    std::memset(p, kPoison, bytes);
    std::free(p - kGuard);
    if (!intact) sdk::fail(TSR_INTERNAL, "something wrote beyond a block of ", bytes, " bytes");
  });
}

void* FakeDevice::host_alloc(uint64_t bytes) {
  void* block = nullptr;
  if (posix_memalign(&block, 64, bytes == 0 ? 64 : bytes) != 0) throw std::bad_alloc();
  return block;
}

void FakeDevice::host_free(void* memory, uint64_t) noexcept { std::free(memory); }

void FakeDevice::copy(int32_t index, void* to, const void* from, uint64_t bytes, int32_t direction, tsr_stream stream) {
  if (bytes == 0) return;
  check_side(to, direction != TSR_COPY_TO_HOST, "target");
  check_side(from, direction != TSR_COPY_TO_DEVICE, "source");
  stream_of(index, stream).enqueue([=] {
    void* target = direction == TSR_COPY_TO_HOST ? to : to_host_address(static_cast<char*>(to));
    const void* source = direction == TSR_COPY_TO_DEVICE ? from : to_host_address(static_cast<const char*>(from));
    std::memmove(target, source, bytes);
  });
}

void FakeDevice::fill(int32_t index, void* memory, uint8_t value, uint64_t bytes, tsr_stream stream) {
  check_side(memory, true, "target");
  stream_of(index, stream).enqueue([=] { std::memset(to_host_address(static_cast<char*>(memory)), value, bytes); });
}

tsr_stream FakeDevice::stream_create(int32_t index) {
  memory_of(index);
  return new FakeStream(delay_);
}
void FakeDevice::stream_destroy(int32_t, tsr_stream stream) noexcept { delete static_cast<FakeStream*>(stream); }
void FakeDevice::synchronize(int32_t index, tsr_stream stream) {
  ++memory_of(index).synchronizes;
  stream_of(index, stream).synchronize();
}

tsr_event FakeDevice::event_create(int32_t) { return new std::shared_ptr<FakeEvent>(std::make_shared<FakeEvent>()); }
void FakeDevice::event_destroy(int32_t, tsr_event event) noexcept {
  delete static_cast<std::shared_ptr<FakeEvent>*>(event);
}
void FakeDevice::event_record(int32_t index, tsr_event event, tsr_stream stream) {
  const std::shared_ptr<FakeEvent> e = *static_cast<std::shared_ptr<FakeEvent>*>(event);
  uint64_t record = 0;
  {
    const std::lock_guard lock(e->mutex);
    record = ++e->recorded;
  }
  stream_of(index, stream).enqueue([e, record] {
    const std::lock_guard lock(e->mutex);
    e->reached = record;
    e->changed.notify_all();
  });
}
void FakeDevice::event_wait(int32_t index, tsr_event event, tsr_stream stream) {
  const std::shared_ptr<FakeEvent> e = *static_cast<std::shared_ptr<FakeEvent>*>(event);
  const std::lock_guard lock(e->mutex);
  stream_of(index, stream).enqueue([e, record = e->recorded] { e->wait_for(record); });
}
void FakeDevice::event_synchronize(int32_t index, tsr_event event) {
  memory_of(index);
  const std::shared_ptr<FakeEvent> e = *static_cast<std::shared_ptr<FakeEvent>*>(event);
  uint64_t record = 0;
  {
    const std::lock_guard lock(e->mutex);
    record = e->recorded;
  }
  e->wait_for(record);
}

bool FakeDevice::event_query(int32_t index, tsr_event event) {
  memory_of(index);
  const std::shared_ptr<FakeEvent> e = *static_cast<std::shared_ptr<FakeEvent>*>(event);
  const std::lock_guard lock(e->mutex);
  return e->reached >= e->recorded;
}

void FakeDevice::stats(int32_t index, tsr_device_stats& out) {
  const Memory& memory = memory_of(index);
  out.held_bytes = memory.held;
  out.peak_bytes = memory.peak;
  out.allocations = memory.allocations;
  out.synchronizes = memory.synchronizes;
}

void FakeDeviceWithRows::combine_rows(const tsr_row_moves& raw, tsr_stream stream) {
  stream_of(raw.device_index, stream).enqueue([all = Moves(raw)] {
    const tsr_row_moves& m = all.moves;
    all.for_each_row([&](const tsr_row_target& target, int64_t b, float* row, float scale) {
      std::fill_n(row, target.cols, 0.0f);
      for (int32_t r = target.first_run; r < target.first_run + target.num_runs; ++r) {
        const tsr_row_run& run = m.runs[r];
        const int32_t i = m.index[run.index + b];
        for (int32_t c = 0; i >= 0 && c < run.cols; ++c)
          row[run.col + c] += scale * m.packed[run.begin + int64_t{i} * run.cols + c];
      }
    });
  });
}

void FakeDeviceWithRows::split_rows(const tsr_row_moves& raw, tsr_stream stream) {
  stream_of(raw.device_index, stream).enqueue([all = Moves(raw)] {
    const tsr_row_moves& m = all.moves;
    all.for_each_row([&](const tsr_row_target& target, int64_t b, const float* row, float scale) {
      for (int32_t r = target.first_run; r < target.first_run + target.num_runs; ++r) {
        const tsr_row_run& run = m.runs[r];
        const int32_t i = m.index[run.index + b];
        for (int32_t c = 0; i >= 0 && c < run.cols; ++c)
          m.packed[run.begin + int64_t{i} * run.cols + c] = scale * row[run.col + c];
      }
    });
  });
}

}  // namespace tessera::test

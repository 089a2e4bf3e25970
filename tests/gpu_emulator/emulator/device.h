// emulator/device.h - the emulated GPU as a kernel sees it. Included through gpu/gpu.h.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "emulator/runtime.h"

namespace emulator {

// A source location, because clang 14 lacks std::source_location.
class Where {
 public:
  static constexpr Where current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    Where out;
    out.file_ = file;
    out.line_ = line;
    return out;
  }
  const char* file_name() const { return file_; }
  int line() const { return line_; }

 private:
  const char* file_ = "";
  int line_ = 0;
};

// The indices of the calling GPU thread.
struct Indices {
  dim3 thread, block, block_size, grid_size;
};
const Indices& indices();
int warp_size();  // may also be called on the host

// Memory of the block: one allocation per key, at the same address for all threads.
void* shared_memory(const void* key, size_t bytes, size_t alignment);
void* dynamic_shared_memory();

void sync_block(Where where = Where::current());
void sync_warp(Where where = Where::current());
uint64_t ballot(bool predicate, Where where = Where::current());

// Gathers 8 bytes from each lane of an aligned group of `width`. The table is indexed by lane in the warp; `present`
// has the lanes that exist. Valid until the group's second next collective.
struct Table {
  const uint64_t* values;
  uint64_t present;
  int lane;
};
Table exchange(uint64_t value, int width, Where where);

namespace detail {

template <class T>
uint64_t to_bits(T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle takes 4 or 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <class T>
T pick(const Table& table, int source, int width, T own) {
  const bool inside = source >= 0 && source / width == table.lane / width && (table.present >> source & 1) != 0;
  if (!inside) return own;
  T value;
  std::memcpy(&value, &table.values[source], sizeof(T));
  return value;
}

}  // namespace detail

template <class T>
T shfl(T value, int source, int width = warp_size(), Where where = Where::current()) {
  const Table table = exchange(detail::to_bits(value), width, where);
  return detail::pick(table, (table.lane & ~(width - 1)) + (source & (width - 1)), width, value);
}
template <class T>
T shfl_xor(T value, int lanes, int width = warp_size(), Where where = Where::current()) {
  const Table table = exchange(detail::to_bits(value), width, where);
  return detail::pick(table, table.lane ^ lanes, width, value);
}
template <class T>
T shfl_down(T value, int lanes, int width = warp_size(), Where where = Where::current()) {
  const Table table = exchange(detail::to_bits(value), width, where);
  return detail::pick(table, table.lane + lanes, width, value);
}
template <class T>
T shfl_up(T value, int lanes, int width = warp_size(), Where where = Where::current()) {
  const Table table = exchange(detail::to_bits(value), width, where);
  return detail::pick(table, table.lane - lanes, width, value);
}

template <class T>
T atomic_add(T* address, T value) {
  return std::atomic_ref<T>(*address).fetch_add(value, std::memory_order_relaxed);
}
template <class T>
T atomic_cas(T* address, T expected, T desired) {
  std::atomic_ref<T>(*address).compare_exchange_strong(expected, desired, std::memory_order_relaxed);
  return expected;
}
template <class T>
T atomic_max(T* address, T value) {
  std::atomic_ref<T> target(*address);
  T seen = target.load(std::memory_order_relaxed);
  while (seen < value && !target.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
  return seen;
}
template <class T>
T atomic_min(T* address, T value) {
  std::atomic_ref<T> target(*address);
  T seen = target.load(std::memory_order_relaxed);
  while (value < seen && !target.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
  return seen;
}
void fence_device();

}  // namespace emulator

#define threadIdx (::emulator::indices().thread)
#define blockIdx (::emulator::indices().block)
#define blockDim (::emulator::indices().block_size)
#define gridDim (::emulator::indices().grid_size)

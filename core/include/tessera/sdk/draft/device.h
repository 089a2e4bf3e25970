// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/draft/device.h - base class of a device plugin: memory, copies, streams and events of one DLDeviceType.
//
// abi/draft/device.h is the specification. A class C : Device declares the type that it serves:
//   static constexpr int32_t kDeviceType = kDLCUDA;
// Functions throw Failure, except those that free. Unknown flags of options are refused before a function is called.
// sdk/draft/device_ops.h has the core's arithmetic on a device.
#pragma once

#include <cstdint>

#include "tessera/abi/draft/device.h"
#include "tessera/sdk/plugin.h"
#include "tessera/sdk/structs.h"

namespace tessera::sdk {
inline namespace v1 {

class Device {
 public:
  virtual ~Device() = default;
  virtual int32_t count() = 0;
  virtual void info(int32_t index, tsr_device_info& out) = 0;  // `out` has every member, initially 0

  virtual void* alloc(int32_t index, uint64_t bytes, tsr_stream stream) = 0;
  virtual void free(int32_t index, void* memory, uint64_t bytes, tsr_stream stream) noexcept = 0;
  virtual void* host_alloc(uint64_t bytes) = 0;
  virtual void host_free(void* memory, uint64_t bytes) noexcept = 0;

  virtual void copy(int32_t index, void* to, const void* from, uint64_t bytes, int32_t direction,
                    tsr_stream stream) = 0;
  virtual void fill(int32_t index, void* memory, uint8_t value, uint64_t bytes, tsr_stream stream) = 0;

  virtual tsr_stream stream_create(int32_t index) = 0;
  virtual void stream_destroy(int32_t index, tsr_stream stream) noexcept = 0;
  virtual void synchronize(int32_t index, tsr_stream stream) = 0;

  virtual tsr_event event_create(int32_t index) = 0;
  virtual void event_destroy(int32_t index, tsr_event event) noexcept = 0;
  virtual void event_record(int32_t index, tsr_event event, tsr_stream stream) = 0;
  virtual void event_wait(int32_t index, tsr_event event, tsr_stream stream) = 0;
  virtual void event_synchronize(int32_t index, tsr_event event) = 0;
  virtual bool event_query(int32_t index, tsr_event event) = 0;

  virtual void stats(int32_t index, tsr_device_stats& out) = 0;

  static constexpr const char* kKind = TSR_DEVICE_KIND;
  template <class C>
  static const tsr_device table;

 private:
  static Device& of(void* self) { return *static_cast<Device*>(self); }
  // The stream of a call: abi/draft/device.h.
  static tsr_stream given(tsr_stream stream) {
    if (stream == nullptr)
      fail(TSR_INVALID_ARGUMENT, "the stream is NULL, which stands for host memory: give a stream");
    return stream;
  }

  template <class Options>
  static void check(const Options* options) {
    if (options != nullptr) check_flags(read_struct(*options).flags, 0, "the options");
  }

  static tsr_code count_slot(void* self, int32_t* count, tsr_error* err) noexcept {
    return guard(err, [&] { *count = of(self).count(); });
  }
  static tsr_code info_slot(void* self, int32_t index, tsr_device_info* out, tsr_error* err) noexcept {
    return guard(err, [&] {
      tsr_device_info info{};
      of(self).info(index, info);
      write_struct(info, out);
    });
  }
  static tsr_code alloc_slot(void* self, int32_t index, uint64_t bytes, tsr_stream stream, void** memory,
                             tsr_error* err) noexcept {
    return guard(err, [&] { *memory = of(self).alloc(index, bytes, given(stream)); });
  }
  static void free_slot(void* self, int32_t index, void* memory, uint64_t bytes, tsr_stream stream) noexcept {
    of(self).free(index, memory, bytes, stream);
  }
  static tsr_code host_alloc_slot(void* self, uint64_t bytes, const tsr_host_memory_options* options, void** memory,
                                  tsr_error* err) noexcept {
    return guard(err, [&] {
      check(options);
      *memory = of(self).host_alloc(bytes);
    });
  }
  static void host_free_slot(void* self, void* memory, uint64_t bytes) noexcept { of(self).host_free(memory, bytes); }
  static tsr_code copy_slot(void* self, int32_t index, void* to, const void* from, uint64_t bytes, int32_t direction,
                            tsr_stream stream, tsr_error* err) noexcept {
    return guard(err, [&] { of(self).copy(index, to, from, bytes, direction, given(stream)); });
  }
  static tsr_code fill_slot(void* self, int32_t index, void* memory, uint8_t value, uint64_t bytes, tsr_stream stream,
                            tsr_error* err) noexcept {
    return guard(err, [&] { of(self).fill(index, memory, value, bytes, given(stream)); });
  }
  static tsr_code stream_create_slot(void* self, int32_t index, const tsr_stream_options* options, tsr_stream* stream,
                                     tsr_error* err) noexcept {
    return guard(err, [&] {
      check(options);
      *stream = of(self).stream_create(index);
    });
  }
  static void stream_destroy_slot(void* self, int32_t index, tsr_stream stream) noexcept {
    of(self).stream_destroy(index, stream);
  }
  static tsr_code synchronize_slot(void* self, int32_t index, tsr_stream stream, tsr_error* err) noexcept {
    return guard(err, [&] { of(self).synchronize(index, given(stream)); });
  }
  static tsr_code event_create_slot(void* self, int32_t index, const tsr_event_options* options, tsr_event* event,
                                    tsr_error* err) noexcept {
    return guard(err, [&] {
      check(options);
      *event = of(self).event_create(index);
    });
  }
  static void event_destroy_slot(void* self, int32_t index, tsr_event event) noexcept {
    of(self).event_destroy(index, event);
  }
  static tsr_code event_record_slot(void* self, int32_t index, tsr_event event, tsr_stream stream,
                                    tsr_error* err) noexcept {
    return guard(err, [&] { of(self).event_record(index, event, given(stream)); });
  }
  static tsr_code event_wait_slot(void* self, int32_t index, tsr_event event, tsr_stream stream,
                                  tsr_error* err) noexcept {
    return guard(err, [&] { of(self).event_wait(index, event, given(stream)); });
  }
  static tsr_code event_synchronize_slot(void* self, int32_t index, tsr_event event, tsr_error* err) noexcept {
    return guard(err, [&] { of(self).event_synchronize(index, event); });
  }
  static tsr_code event_query_slot(void* self, int32_t index, tsr_event event, int32_t* reached,
                                   tsr_error* err) noexcept {
    return guard(err, [&] { *reached = of(self).event_query(index, event) ? 1 : 0; });
  }
  static tsr_code stats_slot(void* self, int32_t index, tsr_device_stats* out, tsr_error* err) noexcept {
    return guard(err, [&] {
      tsr_device_stats stats{};
      of(self).stats(index, stats);
      write_struct(stats, out);
    });
  }
};

template <class C>
constexpr tsr_device Device::table = {sizeof(tsr_device),  0,
                                      C::kDeviceType,      0,
                                      &count_slot,         &info_slot,
                                      &alloc_slot,         &free_slot,
                                      &host_alloc_slot,    &host_free_slot,
                                      &copy_slot,          &fill_slot,
                                      &stream_create_slot, &stream_destroy_slot,
                                      &synchronize_slot,   &event_create_slot,
                                      &event_destroy_slot, &event_record_slot,
                                      &event_wait_slot,    &event_synchronize_slot,
                                      &event_query_slot,   &stats_slot};

}  // namespace v1
}  // namespace tessera::sdk

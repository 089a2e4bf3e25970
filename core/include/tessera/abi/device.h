/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/device.h - tessera.device/1: memory, copies and streams of the devices of one DLDeviceType.
 *
 * The core names no vendor: what tsr_host::alloc gives for a device, how a batch gets there and how a stream is waited
 * for, all come from the device plugin of that DLDeviceType. A plugin registers it beside its kernel. Arithmetic that
 * the core may have done there is no part of it: abi/draft/device_ops.h, asked for through tsr_component::extension.
 *
 * Order. Work enqueued on one stream runs in that order; work on two streams has no order but what events make. NULL is
 * the device's default stream, a stream like any other here. Calls marked [enqueue] return before the work is done,
 * never wait for the device, and leave the caller's current device as it was. What fails on the device after a call has
 * returned is reported by a later call on that device, at the latest by synchronize.
 */
#ifndef TESSERA_ABI_DEVICE_H_
#define TESSERA_ABI_DEVICE_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_DEVICE_KIND "tessera.device/1"

/* A point in a stream. Recorded any number of times; the last one counts. */
typedef void* tsr_event;

/* Directions of a copy. The host side of an [enqueue] copy stays valid and unchanged until the stream reached it; it
 * overlaps with other work only where it came from host_alloc. */
enum { TSR_COPY_TO_DEVICE = 0, TSR_COPY_TO_HOST = 1, TSR_COPY_ON_DEVICE = 2 };

typedef struct tsr_device_info {
  uint32_t struct_size;
  int32_t warp_size;    /* threads that run in step; 0: means nothing here */
  uint64_t total_bytes; /* of memory */
  uint64_t free_bytes;
  char name[128]; /* for people: "NVIDIA H100 80GB HBM3" */
  /* Bytes per second, 0: not known. With both, a planner can price the device before anybody has measured it. */
  double memory_bandwidth; /* of the device's own memory */
  double link_bandwidth;   /* of one device to others of its host */
} tsr_device_info;

/* The memory, streams and events that the core and its plugins hold on one device through this component. */
typedef struct tsr_device_stats {
  uint32_t struct_size;
  uint32_t flags;       /* none is defined: 0 */
  uint64_t held_bytes;  /* allocated and not yet freed */
  uint64_t peak_bytes;  /* the most at one time */
  uint64_t allocations; /* since the part was created: stands still in a step that has warmed up */
  uint64_t synchronizes;
} tsr_device_stats;

typedef struct tsr_device {
  uint32_t struct_size;
  uint32_t flags;      /* none is defined: 0 */
  int32_t device_type; /* DLDeviceType; every device of that type in this process is served by one part */
  uint32_t reserved;

  /* [any-thread] How many there are; a part whose probe succeeded has at least one. */
  tsr_code (*count)(void* self, int32_t* count, tsr_error* err);
  /* [any-thread] */
  tsr_code (*info)(void* self, int32_t device_index, tsr_device_info* out, tsr_error* err);

  /* [any-thread][enqueue] Memory aligned to 256 bytes, usable in stream order from here on: only by work enqueued later
   * on `stream`, or on another one after an event. TSR_RESOURCE_EXHAUSTED names bytes asked for and free. */
  tsr_code (*alloc)(void* self, int32_t device_index, uint64_t bytes, tsr_stream stream, void** memory, tsr_error* err);
  /* [any-thread][enqueue] `bytes` as at alloc. Work already enqueued on `stream` may still use it. NULL is allowed. */
  void (*free)(void* self, int32_t device_index, void* memory, uint64_t bytes, tsr_stream stream);

  /* [any-thread] Host memory from which copies overlap with work (pinned). It may block, so it is kept, not made in a
   * step. */
  tsr_code (*host_alloc)(void* self, uint64_t bytes, void** memory, tsr_error* err);
  void (*host_free)(void* self, void* memory, uint64_t bytes);

  /* [any-thread][enqueue] TSR_COPY_*. 0 bytes: nothing. */
  tsr_code (*copy)(void* self, int32_t device_index, void* to, const void* from, uint64_t bytes, int32_t direction,
                   tsr_stream stream, tsr_error* err);
  /* [any-thread][enqueue] Every byte becomes `value`. */
  tsr_code (*fill)(void* self, int32_t device_index, void* memory, uint8_t value, uint64_t bytes, tsr_stream stream,
                   tsr_error* err);

  /* [any-thread] A new stream, without order towards the default one. */
  tsr_code (*stream_create)(void* self, int32_t device_index, tsr_stream* stream, tsr_error* err);
  /* [any-thread] Ends when its work is done; may return before. */
  void (*stream_destroy)(void* self, int32_t device_index, tsr_stream stream);
  /* [any-thread] Blocks until everything enqueued on the stream is done, and reports what failed. */
  tsr_code (*synchronize)(void* self, int32_t device_index, tsr_stream stream, tsr_error* err);

  /* [any-thread] */
  tsr_code (*event_create)(void* self, int32_t device_index, tsr_event* event, tsr_error* err);
  void (*event_destroy)(void* self, int32_t device_index, tsr_event event);
  /* [any-thread][enqueue] */
  tsr_code (*event_record)(void* self, int32_t device_index, tsr_event event, tsr_stream stream, tsr_error* err);
  /* [any-thread][enqueue] What is enqueued on `stream` from here on runs after the event. */
  tsr_code (*event_wait)(void* self, int32_t device_index, tsr_event event, tsr_stream stream, tsr_error* err);
  /* [any-thread] Blocks the caller until the event was reached; at once if it was never recorded. */
  tsr_code (*event_synchronize)(void* self, int32_t device_index, tsr_event event, tsr_error* err);

  /* [any-thread] */
  tsr_code (*stats)(void* self, int32_t device_index, tsr_device_stats* out, tsr_error* err);
} tsr_device;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DEVICE_H_ */

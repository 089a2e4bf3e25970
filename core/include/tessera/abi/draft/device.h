/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/device.h - tessera.device/draft-1: memory, copies and streams of the devices of one DLDeviceType.
 *
 *   1. The host creates the component and attaches it to the runtime for its device_type. From then on, tsr_host::alloc
 *      and free call this component for that type. It stays attached until the process ends.
 *   2. The host calls count(), chooses a device by the rank's number on its host, and calls stream_create().
 *   3. For a step, the host allocates memory and copies the batch to the device. It hands the stream to kernels,
 *      modules and transports, which enqueue their work on it. Nobody waits.
 *   4. Before the host reuses memory that a copy reads, it waits for an event: event_record() after the copy,
 *      event_synchronize() before the write. event_wait() orders the work of two streams.
 *   5. Before it reads results in host memory, the host calls synchronize().
 *   6. At the end the host frees the memory in stream order, calls synchronize() and then stream_destroy().
 *
 * The core knows no vendor. It uses a device's memory and streams only through the component of that DLDeviceType. A
 * plugin usually has this component next to its kernel. The core's own arithmetic on a device is not part of this
 * interface: the host asks tsr_component::extension for abi/draft/device_ops.h.
 *
 * Memory. Device memory is addressable: any byte address inside a block from alloc() names that byte, so tensors may be
 * parts of a block (DLTensor::data, byte_offset and strides). The host only computes with such addresses, and never
 * reads or writes through them. A device whose memory has no addresses cannot be a component of this kind.
 *
 * Order. Work on one stream runs in the order in which it was enqueued. Work on two streams has only the order that
 * events make. A stream is never NULL, except in free(). All work is on streams that stream_create() made, or that the
 * caller of the program made itself.
 *
 * Errors. Calls marked [enqueue] return before the work is done, never wait for the device, and leave the caller's
 * current device unchanged. If work fails on the device afterwards, a later call on that device reports it, at the
 * latest synchronize().
 */
#ifndef TESSERA_ABI_DRAFT_DEVICE_H_
#define TESSERA_ABI_DRAFT_DEVICE_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_DEVICE_KIND "tessera.device/draft-1"

/* A point in a stream. It may be recorded any number of times; the last record counts. */
typedef void* tsr_event;

/* Directions of a copy. Host memory of an [enqueue] copy stays valid and unchanged until the stream has passed the
 * copy. The copy overlaps with other work only if that memory came from host_alloc(). */
enum { TSR_COPY_TO_DEVICE = 0, TSR_COPY_TO_HOST = 1, TSR_COPY_ON_DEVICE = 2 };

/* Properties of one device. */
typedef struct tsr_device_info {
  uint32_t struct_size;
  uint32_t flags;       /* none is defined: 0 */
  uint64_t total_bytes; /* the device's memory, in bytes */
  uint64_t free_bytes;  /* free memory now, in bytes */
  char name[128];       /* for people: "NVIDIA H100 80GB HBM3" */
  /* Bandwidths in bytes per second; 0: not known. If both are known, a planner can estimate costs on the device before
   * anybody has measured it. */
  double memory_bandwidth; /* the device's own memory */
  double link_bandwidth;   /* from one device to others of its host */
} tsr_device_info;

/* The resources that the core and its plugins use on one device through this component. */
typedef struct tsr_device_stats {
  uint32_t struct_size;
  uint32_t flags;        /* none is defined: 0 */
  uint64_t held_bytes;   /* bytes allocated and not yet freed */
  uint64_t peak_bytes;   /* the largest held_bytes so far */
  uint64_t allocations;  /* calls since the component was created; stays the same after warm-up */
  uint64_t synchronizes; /* calls since the component was created */
} tsr_device_stats;

/* Options of a stream, an event and host memory. A NULL pointer means the defaults. The device refuses a high flag that
 * it does not know. */
typedef struct tsr_stream_options {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
} tsr_stream_options;
typedef struct tsr_event_options {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
} tsr_event_options;
typedef struct tsr_host_memory_options {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
} tsr_host_memory_options;

typedef struct tsr_device {
  uint32_t struct_size;
  uint32_t flags;      /* none is defined: 0 */
  int32_t device_type; /* a DLDeviceType, not kDLCPU; one component of a process serves all its devices */
  uint32_t reserved;   /* 0 */

  /* [any-thread] Sets *count to the number of devices. It is at least 1 if the probe succeeded. */
  tsr_code (*count)(void* self, int32_t* count, tsr_error* err);
  /* [any-thread] Fills `out` for one device. device_index is in [0, count). */
  tsr_code (*info)(void* self, int32_t device_index, tsr_device_info* out, tsr_error* err);

  /* [any-thread][enqueue] Allocates device memory, aligned to 256 bytes. The caller owns it until free(). Only work
   * that is enqueued later on `stream`, or on another stream after an event, may use it. TSR_RESOURCE_EXHAUSTED: the
   * message names the requested and the free bytes. */
  tsr_code (*alloc)(void* self, int32_t device_index, uint64_t bytes, tsr_stream stream, void** memory, tsr_error* err);
  /* [any-thread][enqueue] Frees memory from alloc(), with the same `bytes`. Work that is already enqueued on `stream`
   * may still use it. A NULL stream means that all work that uses the memory is done. `memory` may be NULL. */
  void (*free)(void* self, int32_t device_index, void* memory, uint64_t bytes, tsr_stream stream);

  /* [any-thread] Allocates pinned host memory, whose copies overlap with other work. The call may block, so the host
   * keeps the memory from step to step. The caller owns it until host_free(), which gets the same `bytes`. */
  tsr_code (*host_alloc)(void* self, uint64_t bytes, const tsr_host_memory_options* options, void** memory,
                         tsr_error* err);
  void (*host_free)(void* self, void* memory, uint64_t bytes);

  /* [any-thread][enqueue] Copies `bytes` bytes; 0 is allowed. `direction` is a TSR_COPY_*. */
  tsr_code (*copy)(void* self, int32_t device_index, void* to, const void* from, uint64_t bytes, int32_t direction,
                   tsr_stream stream, tsr_error* err);
  /* [any-thread][enqueue] Sets each of `bytes` bytes to `value`. */
  tsr_code (*fill)(void* self, int32_t device_index, void* memory, uint8_t value, uint64_t bytes, tsr_stream stream,
                   tsr_error* err);

  /* [any-thread] Makes a stream, which is not ordered relative to any other. The caller owns it until
   * stream_destroy(). */
  tsr_code (*stream_create)(void* self, int32_t device_index, const tsr_stream_options* options, tsr_stream* stream,
                            tsr_error* err);
  /* [any-thread] Destroys the stream once its work is done. The call may return before that. */
  void (*stream_destroy)(void* self, int32_t device_index, tsr_stream stream);
  /* [any-thread] Blocks until all work on the stream is done, and reports an error of that work. */
  tsr_code (*synchronize)(void* self, int32_t device_index, tsr_stream stream, tsr_error* err);

  /* [any-thread] Makes an event, which is not recorded yet. The caller owns it until event_destroy(). */
  tsr_code (*event_create)(void* self, int32_t device_index, const tsr_event_options* options, tsr_event* event,
                           tsr_error* err);
  void (*event_destroy)(void* self, int32_t device_index, tsr_event event);
  /* [any-thread][enqueue] The event stands for the work that is on `stream` now. */
  tsr_code (*event_record)(void* self, int32_t device_index, tsr_event event, tsr_stream stream, tsr_error* err);
  /* [any-thread][enqueue] Work that is enqueued on `stream` from now on runs after the event. */
  tsr_code (*event_wait)(void* self, int32_t device_index, tsr_event event, tsr_stream stream, tsr_error* err);
  /* [any-thread] Blocks the caller until the stream has reached the event. Returns at once if it was never recorded. */
  tsr_code (*event_synchronize)(void* self, int32_t device_index, tsr_event event, tsr_error* err);
  /* [any-thread] Sets *reached to 1 if event_synchronize() would return at once, otherwise to 0. It never blocks. */
  tsr_code (*event_query)(void* self, int32_t device_index, tsr_event event, int32_t* reached, tsr_error* err);

  /* [any-thread] Fills `out` for one device. */
  tsr_code (*stats)(void* self, int32_t device_index, tsr_device_stats* out, tsr_error* err);
} tsr_device;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_DEVICE_H_ */

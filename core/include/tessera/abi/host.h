/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/host.h - what the core lends to a plugin. Lives as long as the process. */
#ifndef TESSERA_ABI_HOST_H_
#define TESSERA_ABI_HOST_H_

#include "tessera/abi/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TSR_LOG_ERROR = 0, TSR_LOG_WARNING = 1, TSR_LOG_INFO = 2, TSR_LOG_DEBUG = 3 };

typedef struct tsr_host tsr_host;
struct tsr_host {
  uint32_t struct_size;
  uint32_t abi_minor; /* of the core */
  void* self;         /* the core's own */

  /* [any-thread] One line of text, copied. */
  void (*log)(const tsr_host* host, int32_t level, const char* text);

  /* [any-thread][enqueue] Memory on `device`, aligned to 64 bytes at least, ordered on `stream`. NULL on failure, with
   * `err` filled. Large CPU blocks come from huge pages where the machine has them. */
  void* (*alloc)(const tsr_host* host, DLDevice device, uint64_t bytes, tsr_stream stream, tsr_error* err);
  /* [any-thread][enqueue] `bytes` as at alloc. NULL is allowed. */
  void (*free)(const tsr_host* host, DLDevice device, void* memory, uint64_t bytes, tsr_stream stream);

  /* [any-thread] Runs body(ctx, i) for every i in [0, n), on up to num_threads() threads; returns when all are done.
   * `body` must not throw and must not call parallel_for. */
  void (*parallel_for)(const tsr_host* host, uint64_t n, void (*body)(void* ctx, uint64_t i), void* ctx);
  /* [any-thread] How many threads parallel_for uses at most; at least 1. May change between calls, never during one. */
  uint32_t (*num_threads)(const tsr_host* host);

  /* [any-thread] A further service by id, or NULL. Lives as long as the host. */
  const void* (*extension)(const tsr_host* host, const char* id);
};

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_HOST_H_ */

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/host.h - what the core lends to a plugin: a log, memory, threads.
 *
 *   1. The host makes one tsr_host for each runtime, and hands it to a plugin's entry, to probe() and to create().
 *   2. The object that create() makes keeps the pointer. It calls log, alloc, free and parallel_for from any thread,
 *      as often as it likes.
 *   3. The runtime may be closed before its last object. Until the process ends, the tsr_host remains valid:
 *      parallel_for() runs on the caller's thread, and log() writes to standard error.
 */
#ifndef TESSERA_ABI_HOST_H_
#define TESSERA_ABI_HOST_H_

#include "tessera/abi/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Levels of log(). */
enum { TSR_LOG_ERROR = 0, TSR_LOG_WARNING = 1, TSR_LOG_INFO = 2, TSR_LOG_DEBUG = 3 };

typedef struct tsr_host tsr_host;
struct tsr_host {
  uint32_t struct_size;
  uint32_t abi_minor; /* the core's minor: for people */
  void* self;         /* used only by the core */

  /* [any-thread] Logs one line of text, without a newline. `level` is a TSR_LOG_*. The text is copied. */
  void (*log)(const tsr_host* host, int32_t level, const char* text);

  /* [any-thread][enqueue] Returns memory on `device`, aligned to at least 64 bytes, for use in the order of `stream`.
   * The caller owns it until free(). Returns NULL and fills `err` on failure. Large blocks in host memory come from
   * huge pages if the machine has them. */
  void* (*alloc)(const tsr_host* host, DLDevice device, uint64_t bytes, tsr_stream stream, tsr_error* err);
  /* [any-thread][enqueue] Frees memory from alloc(), with the same `device` and `bytes`. A NULL stream means that all
   * work that uses the memory is already done. `memory` may be NULL. */
  void (*free)(const tsr_host* host, DLDevice device, void* memory, uint64_t bytes, tsr_stream stream);

  /* [any-thread] Runs body(ctx, i) for every i in [0, n), on up to num_threads() threads, and returns when all are
   * done. `body` must not throw. If the host's threads are busy with another parallel_for(), such as the one whose body
   * makes this call, the whole call runs on the calling thread. */
  void (*parallel_for)(const tsr_host* host, uint64_t n, void (*body)(void* ctx, uint64_t i), void* ctx);
  /* [any-thread] Returns how many threads parallel_for uses at most, which is at least 1. The number may change between
   * calls of parallel_for, but not during one. */
  uint32_t (*num_threads)(const tsr_host* host);

  /* [any-thread] Returns the table of another service of the host by its id, or NULL if there is none. The table lives
   * as long as the host. */
  const void* (*extension)(const tsr_host* host, const char* id);
};

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_HOST_H_ */

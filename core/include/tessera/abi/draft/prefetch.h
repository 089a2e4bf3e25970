/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/prefetch.h - tessera.kernel.prefetch/draft-2: the ids of a batch before its lookup.
 *
 *   1. When the host opens a kernel, it asks tsr_component::extension for this table.
 *   2. While a step runs, the input thread receives the ids of the next batch and calls prefetch() with them. The
 *      kernel reads their rows into memory.
 *   3. The step ends. The host calls forward() with the next batch, whose rows are in memory.
 *
 * This is an extension of tessera.kernel/1, for kernels whose rows are not all in memory.
 */
#ifndef TESSERA_ABI_DRAFT_PREFETCH_H_
#define TESSERA_ABI_DRAFT_PREFETCH_H_

#include "tessera/abi/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_PREFETCH "tessera.kernel.prefetch/draft-2"

/* The function of the extension. */
typedef struct tsr_prefetch {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  /* Fetches the rows of a later lookup of this instance, with the ids that this rank received from all ranks. Returns
   * when the rows are in memory. Two calls never run at once on one instance. But another thread may be in another call
   * of the instance, for an earlier step.
   * Batches come in the order of their lookups; the next one may come before the last one was looked up. A batch may
   * never be looked up, and a lookup may need rows that were not announced.
   * `lookup` has ids and offsets. Each feature has `table`, `bags` and `first_offset`. All of it was checked as for
   * forward(). There are no outputs, weights or step, and nothing else of `lookup` is read.
   * With a NULL stream, ids and offsets are in host memory, even if the kernel's device is another one. Otherwise they
   * are on the kernel's device, where `stream` has written them. TSR_UNIMPLEMENTED: the kernel does not read them
   * there. This host always has them in host memory. */
  tsr_code (*prefetch)(void* instance, const tsr_lookup* lookup, tsr_stream stream, tsr_error* err);
} tsr_prefetch;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_PREFETCH_H_ */

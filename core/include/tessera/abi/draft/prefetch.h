/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/prefetch.h - tessera.kernel.prefetch/draft-1: the ids of a batch before its lookup.
 *
 * Beside tessera.kernel/1, asked for by tsr_component::extension, of kernels whose rows are not all in memory.
 */
#ifndef TESSERA_ABI_DRAFT_PREFETCH_H_
#define TESSERA_ABI_DRAFT_PREFETCH_H_

#include "tessera/abi/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_PREFETCH "tessera.kernel.prefetch/draft-1"

typedef struct tsr_prefetch {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  /* Fetches the rows that a later lookup of this instance will ask for, as this rank received them from all, and
   * returns when they are in memory. Never two calls at once on one instance, but beside its other calls, from another
   * thread: that of a step before. Batches come in the order of their lookups, the next one before the last one was
   * looked up; a batch may never be looked up, and a lookup may ask for rows that were not announced.
   * `lookup` has the ids and offsets, in host memory whatever the device, and for each of its features `table`, `bags`
   * and `first_offset`; checked as for forward. Nothing else is read: it has no outputs, weights or step. */
  tsr_code (*prefetch)(void* instance, const tsr_lookup* lookup, tsr_error* err);
} tsr_prefetch;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_PREFETCH_H_ */

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/waits.h - tessera.collective.waits/draft-1: for whom a rank has waited.
 *
 * Beside tessera.collective/1, asked for by tsr_component::extension. For those who look for the rank that keeps the
 * others waiting.
 */
#ifndef TESSERA_ABI_DRAFT_WAITS_H_
#define TESSERA_ABI_DRAFT_WAITS_H_

#include "tessera/abi/collective.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_COLLECTIVE_WAITS "tessera.collective.waits/draft-1"

typedef struct tsr_collective_waits {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  /* [any-thread] Fills seconds[r] for each rank r of the group: how long this rank has had nothing to do but to wait,
   * in wait(), while what it needs of r was missing; where several ranks kept it waiting, each has the whole time. Its
   * own is 0. Since connect, over that group and all that were split off it, whichever of them is asked.
   * TSR_UNIMPLEMENTED: this group does not know. */
  tsr_code (*waited)(const tsr_group* group, double* seconds, tsr_error* err);
} tsr_collective_waits;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_WAITS_H_ */

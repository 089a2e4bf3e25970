/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/waits.h - tessera.collective.waits/draft-1: for which ranks a rank has waited.
 *
 *   1. The host asks the transport's tsr_component::extension for this table.
 *   2. While the job runs, it calls waited() from time to time. The transport fills in the seconds for each rank.
 *   3. `tessera train --metrics` shows them, so that people find the rank that makes the others wait.
 *
 * This is an extension of tessera.collective/1.
 */
#ifndef TESSERA_ABI_DRAFT_WAITS_H_
#define TESSERA_ABI_DRAFT_WAITS_H_

#include "tessera/abi/collective.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_COLLECTIVE_WAITS "tessera.collective.waits/draft-1"

/* The function of the extension. */
typedef struct tsr_collective_waits {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  /* [any-thread] Fills `seconds`, [world_size]. seconds[r] is the time for which this rank was idle in wait() because
   * data of rank r was missing. If data of several ranks was missing, each of them gets the whole time. This rank's own
   * value is 0.
   * Times count since connect(), over that group and all groups split off it, whichever of these groups is asked.
   * TSR_UNIMPLEMENTED: this group does not measure it. */
  tsr_code (*waited)(const tsr_group* group, double* seconds, tsr_error* err);
} tsr_collective_waits;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_WAITS_H_ */

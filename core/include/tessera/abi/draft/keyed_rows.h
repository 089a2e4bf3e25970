/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/keyed_rows.h - tessera.sharder.keyed_rows/draft-1: a sharder whose rows keep their ids.
 *
 * Beside tessera.sharder/1, asked for by tsr_component::extension. For tables whose rows come on demand
 * (TSR_KERNEL_ROWS_ON_DEMAND): their kernel decides by an id, and has to see the same one on any number of ranks.
 */
#ifndef TESSERA_ABI_DRAFT_KEYED_ROWS_H_
#define TESSERA_ABI_DRAFT_KEYED_ROWS_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_KEYED_ROWS "tessera.sharder.keyed_rows/draft-1"

/* A sharder that has this extension says: in its layouts with TSR_ROWS_ROUTED, route() gives an id's row set, and as
 * the local row the id itself; unroute() gives the local row back. A rectangle's `rows` says which part of the table's
 * rows the row set has, for the planner; the kernel's tsr_kernel_table::rows is the table's, and bounds its ids. */
typedef struct tsr_keyed_rows {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
} tsr_keyed_rows;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_KEYED_ROWS_H_ */

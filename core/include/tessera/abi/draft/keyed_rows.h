/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/keyed_rows.h - tessera.sharder.keyed_rows/draft-1: a sharder whose rows keep their ids.
 *
 *   1. The sharder proposes a layout with TSR_ROWS_ROUTED, and the plan uses it.
 *   2. The host asks the sharder's tsr_component::extension for this table. If it is there, the host requires a kernel
 *      with TSR_KERNEL_ROWS_ON_DEMAND.
 *   3. In each step the host calls route(), which writes an id's row set and, as its local row, the id itself. The host
 *      refuses any other local row.
 *   4. The kernel of that shard gets the id unchanged.
 *
 * This is an extension of tessera.sharder/1. A kernel whose rows come on demand decides by an id, such as which row to
 * drop. So it must see the same id on any number of ranks.
 */
#ifndef TESSERA_ABI_DRAFT_KEYED_ROWS_H_
#define TESSERA_ABI_DRAFT_KEYED_ROWS_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_KEYED_ROWS "tessera.sharder.keyed_rows/draft-1"

/* A sharder with this extension promises for its layouts with TSR_ROWS_ROUTED: route() writes an id's row set, and the
 * id itself as the local row. unroute() returns the local row as the id. A rectangle's `rows` tells the planner the
 * row set's share of the table's rows. The kernel's tsr_kernel_table::rows is that of the whole table, and bounds its
 * ids. */
typedef struct tsr_keyed_rows {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
} tsr_keyed_rows;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_KEYED_ROWS_H_ */

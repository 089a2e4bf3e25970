/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/shared_row.h - draft 1: the row that ids without one share.
 *
 * For kernels whose rows come on demand (TSR_KERNEL_ROWS_ON_DEMAND), and that read one row for all ids that have none,
 * instead of 0. It is an id in export_rows and import_rows that no table takes; and, beside tessera.kernel/1 and asked
 * for by tsr_component::extension, the word of which tables have it.
 */
#ifndef TESSERA_ABI_DRAFT_SHARED_ROW_H_
#define TESSERA_ABI_DRAFT_SHARED_ROW_H_

#include "tessera/abi/kernel.h"

/* The id of that row, where it was trained: ids are below. Checkpoints have it as any other; packed models read it for
 * ids without a row. */
#define TSR_SHARED_ROW_ID INT64_MAX

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_SHARED_ROW "tessera.kernel.shared_row/draft-1"

typedef struct tsr_shared_row {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  /* [serial] Whether ids without a row share one in a table: 0 or 1. The host refuses to cut the rows of such a table,
   * as each part would have a row of its own, and numbers would depend on how many there are. */
  tsr_code (*shares)(void* instance, uint32_t table, int32_t* out, tsr_error* err);
} tsr_shared_row;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TESSERA_ABI_DRAFT_SHARED_ROW_H_ */

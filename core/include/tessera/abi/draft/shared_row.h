/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/shared_row.h - tessera.kernel.shared_row/draft-1: a row that all ids without a row share.
 *
 *   1. The host asks the kernel's tsr_component::extension for this table, and calls shares() for each table.
 *   2. If a table has a shared row, the host refuses plans that divide the table's rows.
 *   3. A lookup of an id without a row reads the shared row instead of 0, and training updates it.
 *   4. export_rows() gives that row with the id TSR_SHARED_ROW_ID, and import_rows() takes it with that id.
 *
 * This is an extension of tessera.kernel/1, for kernels whose rows come on demand (TSR_KERNEL_ROWS_ON_DEMAND).
 */
#ifndef TESSERA_ABI_DRAFT_SHARED_ROW_H_
#define TESSERA_ABI_DRAFT_SHARED_ROW_H_

#include "tessera/abi/kernel.h"

/* The id of the shared row; all other ids are smaller. Checkpoints have it like any other row, if it was trained. A
 * packed model reads it for ids without a row. */
#define TSR_SHARED_ROW_ID INT64_MAX

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_SHARED_ROW "tessera.kernel.shared_row/draft-1"

/* The function of the extension. */
typedef struct tsr_shared_row {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  /* [serial] Sets *out to 1 if the ids without a row share one in this table, otherwise to 0. The host does not divide
   * the rows of such a table. Each shard would have its own shared row, and results would depend on the plan. */
  tsr_code (*shares)(void* instance, uint32_t table, int32_t* out, tsr_error* err);
} tsr_shared_row;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TESSERA_ABI_DRAFT_SHARED_ROW_H_ */

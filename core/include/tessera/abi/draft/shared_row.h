/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/shared_row.h - draft 1: the row that ids without one share.
 *
 * For kernels whose rows come on demand (TSR_KERNEL_ROWS_ON_DEMAND), and that read one row for all ids that have none,
 * instead of 0. It is no function: an id in export_rows and import_rows that no table takes.
 */
#ifndef TESSERA_ABI_DRAFT_SHARED_ROW_H_
#define TESSERA_ABI_DRAFT_SHARED_ROW_H_

#include "tessera/abi/kernel.h"

/* The id of that row, where it was trained: ids are below. Checkpoints have it as any other; packed models read it for
 * ids without a row. */
#define TSR_SHARED_ROW_ID INT64_MAX

#endif /* TESSERA_ABI_DRAFT_SHARED_ROW_H_ */

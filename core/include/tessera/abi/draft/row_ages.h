/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/row_ages.h - tessera.kernel.row_ages/draft-1: how full a table is, and when its rows were last
 * seen.
 *
 *   1. When the host writes a checkpoint, it asks the kernel's tsr_component::extension for this table.
 *   2. It calls ages() for each shard. The kernel counts the shard's rows by age.
 *   3. The checkpoint keeps the counts, and `tessera model inspect` shows them to people.
 *
 * This is an extension of tessera.kernel/1, for kernels whose rows come on demand (TSR_KERNEL_ROWS_ON_DEMAND).
 */
#ifndef TESSERA_ABI_DRAFT_ROW_AGES_H_
#define TESSERA_ABI_DRAFT_ROW_AGES_H_

#include "tessera/abi/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_ROW_AGES "tessera.kernel.row_ages/draft-1"

/* Number of age classes. */
#define TSR_AGE_CLASSES 33

/* The rows of a shard, counted by the step in which they were last seen. */
typedef struct tsr_table_ages {
  uint32_t struct_size;
  uint32_t flags;    /* none is defined: 0 */
  uint64_t capacity; /* number of rows that the shard can hold */
  /* Numbers of rows in use. The newest step is the last one that saw any row. rows[0] counts the rows seen in it, and
   * rows[k] those last seen 2^(k-1) to 2^k - 1 steps before it. */
  uint64_t rows[TSR_AGE_CLASSES];
} tsr_table_ages;

/* The function of the extension. */
typedef struct tsr_row_ages {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  /* [serial] Fills `out` for a shard in its current state. It visits each row. */
  tsr_code (*ages)(void* instance, uint32_t table, tsr_table_ages* out, tsr_error* err);
} tsr_row_ages;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_ROW_AGES_H_ */

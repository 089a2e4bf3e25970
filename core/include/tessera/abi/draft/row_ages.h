/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/row_ages.h - tessera.kernel.row_ages/draft-1: how full a table is, and how long its rows were not
 * seen.
 *
 * Beside tessera.kernel/1, asked for by tsr_component::extension, of kernels whose rows come on demand
 * (TSR_KERNEL_ROWS_ON_DEMAND). For people: a checkpoint keeps the figures, and `tessera model inspect` shows them.
 */
#ifndef TESSERA_ABI_DRAFT_ROW_AGES_H_
#define TESSERA_ABI_DRAFT_ROW_AGES_H_

#include "tessera/abi/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_ROW_AGES "tessera.kernel.row_ages/draft-1"

#define TSR_AGE_CLASSES 33

typedef struct tsr_table_ages {
  uint32_t struct_size;
  uint32_t flags;                 /* none is defined: 0 */
  uint64_t capacity;              /* rows that the shard has room for */
  uint64_t rows[TSR_AGE_CLASSES]; /* of the rows in use: rows[0] were seen in the newest step that saw one, rows[k] last
                                   * 2^(k-1) to 2^k - 1 steps before that */
} tsr_table_ages;

typedef struct tsr_row_ages {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  /* [serial] Of a shard, as it is now. Looks at each of its rows. */
  tsr_code (*ages)(void* instance, uint32_t table, tsr_table_ages* out, tsr_error* err);
} tsr_row_ages;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_ROW_AGES_H_ */

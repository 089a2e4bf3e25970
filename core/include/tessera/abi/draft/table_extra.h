/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/table_extra.h - tessera.kernel.table_extra/draft-1: what a kernel keeps of a table besides rows.
 *
 * Beside tessera.kernel/1, asked for by tsr_component::extension, of kernels whose rows come on demand
 * (TSR_KERNEL_ROWS_ON_DEMAND): how often ids were seen that have no row yet, when steps were. Checkpoints carry it, as
 * they carry tsr_rows::extra with each row.
 */
#ifndef TESSERA_ABI_DRAFT_TABLE_EXTRA_H_
#define TESSERA_ABI_DRAFT_TABLE_EXTRA_H_

#include "tessera/abi/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_TABLE_EXTRA "tessera.kernel.table_extra/draft-1"

typedef struct tsr_table_extra {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  /* [serial] What an instance keeps of a shard, as it likes it; nothing is written where it keeps nothing. */
  tsr_code (*save)(void* instance, uint32_t table, const tsr_stream_io* io, tsr_error* err);
  /* [serial] Adds what was saved of one shard. Behind import_rows with TSR_IMPORT_REPLACE, and once for each shard that
   * there was then: on which rank, and how the table is cut now, makes no difference. What is about rows that are
   * another instance's now may be kept or left out. */
  tsr_code (*add)(void* instance, uint32_t table, const tsr_stream_io* io, tsr_error* err);
} tsr_table_extra;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_TABLE_EXTRA_H_ */

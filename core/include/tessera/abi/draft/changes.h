/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/changes.h - tessera.kernel.changes/draft-3: which rows have changed since a mark.
 *
 *   1. The host asks tsr_component::extension of a kernel for this table. It calls mark() for a follower, such as
 *      publications or checkpoints of changes.
 *   2. The model trains. The instance remembers which rows change.
 *   3. The host calls count() for each table. It calls export_changed() and export_removed() until they give no more
 *      rows.
 *   4. It calls mark() again, and the follower's changes start anew.
 *
 * This is an extension of tessera.kernel/1. Programs that follow a model while it trains receive only the rows that
 * changed, and the ids whose rows were dropped.
 */
#ifndef TESSERA_ABI_DRAFT_CHANGES_H_
#define TESSERA_ABI_DRAFT_CHANGES_H_

#include "tessera/abi/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_KERNEL_CHANGES "tessera.kernel.changes/draft-3"

/* The functions of the extension. None of them changes rows or states.
 *
 * A row counts as changed if it was created, or if backward, apply or import_rows may have written its weights.
 * It also counts if a lookup that trains may have written its tsr_rows::extra. An instance may name an unchanged row,
 * but never leaves out a changed one. Before the first mark it remembers nothing, and spends neither time nor memory.
 *
 * A follower is a number below `followers`; any other is TSR_INVALID_ARGUMENT. Each has its own mark, so the followers
 * do not affect each other. */
typedef struct tsr_kernel_changes {
  uint32_t struct_size;
  uint32_t flags;     /* none is defined: 0 */
  uint32_t followers; /* how many an instance serves; this host has two, checkpoints and publications */
  uint32_t reserved;
  /* [serial] From now on the instance remembers for this follower which rows of its tables change. It forgets the
   * follower's earlier changes. */
  tsr_code (*mark)(void* instance, uint32_t follower, tsr_error* err);
  /* [serial] Counts the rows that export_changed gives, and the ids that export_removed gives, for one table since the
   * follower's mark. TSR_FAILED_PRECONDITION: the follower has no mark. */
  tsr_code (*count)(void* instance, uint32_t follower, uint32_t table, int64_t* changed, int64_t* removed,
                    tsr_error* err);
  /* [serial] Works like tsr_kernel::export_rows, but gives only existing rows that have changed since the follower's
   * mark, each once. Only the kernel understands the cursor, which ends when a cursor of export_rows would. */
  tsr_code (*export_changed)(void* instance, uint32_t follower, uint32_t table, uint64_t* cursor, tsr_rows* rows,
                             tsr_error* err);
  /* [serial] Gives in the same way the ids of rows that were dropped since the mark and do not exist now, each once
   * (TSR_KERNEL_ROWS_ON_DEMAND). Some of them may not have existed at the mark. Only rows->ids and rows->count are
   * used. */
  tsr_code (*export_removed)(void* instance, uint32_t follower, uint32_t table, uint64_t* cursor, tsr_rows* rows,
                             tsr_error* err);
} tsr_kernel_changes;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_CHANGES_H_ */

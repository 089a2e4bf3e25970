/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/changes.h - tessera.kernel.changes/draft-2: which rows have changed since a mark.
 *
 * Beside tessera.kernel/1, asked for by tsr_component::extension. For those who follow a model while it trains: rows
 * that changed go to them, and ids whose rows were given up.
 */
#ifndef TESSERA_ABI_DRAFT_CHANGES_H_
#define TESSERA_ABI_DRAFT_CHANGES_H_

#include "tessera/abi/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_KERNEL_CHANGES "tessera.kernel.changes/draft-2"

/* A follower of an instance is a number below this one (any other is TSR_INVALID_ARGUMENT). Each has a mark of its own:
 * what one of them is told, and when, makes no difference to the others. */
#define TSR_CHANGES_FOLLOWERS 2u

/* An instance remembers nothing, and spends neither time nor memory on it, before its first mark. A row counts as
 * changed when backward, apply, import_rows or load may have written its weights, or it came into being, and when a
 * lookup that trains may have written what is kept of it besides (tsr_rows::extra); one too many may be named, none is
 * left out. Nothing here changes rows or states. */
typedef struct tsr_kernel_changes {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  /* [serial] From here on the instance remembers for this follower which rows of its tables change, and forgets what it
   * remembered for it. */
  tsr_code (*mark)(void* instance, uint32_t follower, tsr_error* err);
  /* [serial] Since the follower's mark: how many rows of a table export_changed gives, and how many ids export_removed.
   * TSR_FAILED_PRECONDITION: it has no mark. */
  tsr_code (*count)(void* instance, uint32_t follower, uint32_t table, int64_t* changed, int64_t* removed,
                    tsr_error* err);
  /* [serial] As tsr_kernel::export_rows, of the rows alone that have changed since the follower's mark and exist, each
   * once; by a cursor of the kernel's own, which ends as those of export_rows do. */
  tsr_code (*export_changed)(void* instance, uint32_t follower, uint32_t table, uint64_t* cursor, tsr_rows* rows,
                             tsr_error* err);
  /* [serial] Likewise the ids of rows that were given up since the mark and do not exist (TSR_KERNEL_ROWS_ON_DEMAND),
   * each once; some may not have existed at the mark either. Of `rows` only ids and count mean something. */
  tsr_code (*export_removed)(void* instance, uint32_t follower, uint32_t table, uint64_t* cursor, tsr_rows* rows,
                             tsr_error* err);
} tsr_kernel_changes;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_CHANGES_H_ */

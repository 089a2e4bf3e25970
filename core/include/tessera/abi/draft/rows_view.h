/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/rows_view.h - tessera.kernel.rows_view/draft-1: a view of a table's rows in the kernel's memory.
 *
 *   1. The host asks the kernel's tsr_component::extension for this table, and calls view() for a table's rows or for
 *      one of its states.
 *   2. A program reads and writes rows through that memory, between the kernel's calls.
 *   3. The next lookup reads what was written, and the next update changes the same memory.
 *   4. The host closes the instance, which ends all its views.
 *
 * This is an extension of tessera.kernel/1, for kernels that store a table's rows as one matrix.
 */
#ifndef TESSERA_ABI_DRAFT_ROWS_VIEW_H_
#define TESSERA_ABI_DRAFT_ROWS_VIEW_H_

#include "tessera/abi/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_ROWS_VIEW "tessera.kernel.rows_view/draft-1"

/* The number of `state` that stands for the table's rows. States are numbered from 0, in the optimizer's order. */
#define TSR_VIEW_WEIGHTS (-1)

/* A matrix in the kernel's memory. Element (r, c) is at data + (r * stride + c) * size of an element. The address, the
 * sizes and the stride stay the same as long as the instance lives. */
typedef struct tsr_matrix_view {
  uint32_t struct_size;
  DLDataType dtype;
  DLDevice device;
  void* data;     /* may be NULL if there are no elements */
  int64_t rows;   /* rows of the table */
  int64_t cols;   /* dim of the table, or 1 for a state with one value per row */
  int64_t stride; /* elements from one row to the next; 0: all rows show one value, a state per table */
} tsr_matrix_view;

/* The function of the extension. */
typedef struct tsr_rows_view {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  /* [serial] Describes the rows of a table, or one of its states. The element type is the stored one. The caller does
   * not write while a call on the instance runs. After a view of a table's rows, a kernel with tessera.kernel.changes
   * counts all of them as changed from then on, because it does not see such writes. TSR_OUT_OF_RANGE: the table has no
   * such state. TSR_UNIMPLEMENTED: this table is not stored as a matrix. */
  tsr_code (*view)(void* instance, uint32_t table, int32_t state, tsr_matrix_view* out, tsr_error* err);
} tsr_rows_view;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_ROWS_VIEW_H_ */

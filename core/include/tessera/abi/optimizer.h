/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/optimizer.h - tessera.optimizer/1: how a row changes, given its summed gradient.
 *
 *   1. The host creates the optimizer with the table's options, reads learning_rate(), and hands the object to a
 *      kernel's supports() and open().
 *   2. The kernel calls state() until TSR_OUT_OF_RANGE. It stores these states with its rows, at their start values. It
 *      refuses in supports() a state that it cannot store.
 *   3. In each step the host sets the learning rate and the step's number in a tsr_update, and passes it to the
 *      kernel's backward() or apply().
 *   4. The kernel calls update_row(), or update_rows(), once for each row that occurred in the batch. It may instead
 *      compute the formula itself, if it knows the one that tsr_optimizer::formula names.
 */
#ifndef TESSERA_ABI_OPTIMIZER_H_
#define TESSERA_ABI_OPTIMIZER_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_OPTIMIZER_KIND "tessera.optimizer/1"

/* The number of values that a state has. */
enum {
  TSR_STATE_PER_ROW = 0,    /* one for each row */
  TSR_STATE_PER_ELEMENT = 1 /* one for each element of a row */
};

/* Describes values that are kept between steps. The description is the same in every call, and in all processes with
 * the same options. A kernel that does not know the kind or a high flag, or cannot store the dtype, refuses the
 * optimizer in supports() with a message. So does the host, which stores only float32. */
typedef struct tsr_state {
  uint32_t struct_size;
  int32_t kind;     /* TSR_STATE_* */
  DLDataType dtype; /* the type in which it is stored and travels (tsr_rows::states) */
  uint32_t flags;   /* none is defined: 0 */
  double start;     /* each value before the first update */
  const char* name; /* "momentum1", "momentum2": TorchRec's names. Lives as long as the optimizer */
} tsr_state;

/* Values that the host sets for every step. A high flag reaches only optimizers that have the same bit in
 * tsr_optimizer::flags; the host, and a kernel that calls one, check that. */
typedef struct tsr_update {
  uint32_t struct_size;
  uint32_t flags;       /* none is defined: 0 */
  double learning_rate; /* replaces the one in the options */
  int64_t step;         /* t of the formulas: 1 in the first step */
} tsr_update;

/* The functions of an optimizer. */
typedef struct tsr_optimizer {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */

  /* [any-thread] Fills `out` for the i-th state. TSR_OUT_OF_RANGE: there are no more. `out` comes zeroed. The states
   * and their start values may depend on the options. NULL: there are no states. */
  tsr_code (*state)(void* self, uint32_t i, tsr_state* out, tsr_error* err);

  /* [any-thread] Returns the learning rate of the options. */
  double (*learning_rate)(void* self);

  /* [any-thread] Updates one row in place. `weight` and `grad` are [dim]. states[k] has 1 or dim values according to
   * its kind; the function casts it if its dtype is not float32. `grad` is the sum over the whole batch.
   * The kernel calls it once for each row that occurred, even if the gradient is 0, and never twice at once for a row.
   * It must not fail: create() refuses bad options. NULL: rows are not updated, and gradients are handed out ("none").
   */
  void (*update_row)(void* self, const tsr_update* update, int64_t dim, float* weight, const float* grad,
                     float* const* states);

  /* [any-thread] Optional. Does the same as update_row for `count` different rows in one call, so that values which
   * depend only on the step are computed once. Row i has weights[i], grads[i] and states[k * count + i]. If there are
   * many rows, only the first 16 KiB of weights and states, at most 128 rows, are likely in the cache. The function
   * should prefetch the others. */
  void (*update_rows)(void* self, const tsr_update* update, int64_t dim, int64_t count, float* const* weights,
                      const float* const* grads, float* const* states);

  /* Optional. Names what update_row computes, with a revision: "tessera.adam/1" (docs/config.md has the options of
   * Tessera's own formulas, and tests/conformance/README.md what they compute). A kernel may compute that formula
   * itself from the optimizer's options (tsr_kernel_config::optimizer_options), with equal results up to rounding. It
   * knows an optimizer only by this name, never by the component's id, and refuses an option that it does not know. An
   * optimizer that learns an option which changes results has another revision. NULL: only update_row has it. */
  const char* formula;
} tsr_optimizer;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_OPTIMIZER_H_ */

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/optimizer.h - tessera.optimizer/1: how a row changes, given its summed gradient. */
#ifndef TESSERA_ABI_OPTIMIZER_H_
#define TESSERA_ABI_OPTIMIZER_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_OPTIMIZER_KIND "tessera.optimizer/1"

/* How many values of a state there are. */
enum {
  TSR_STATE_PER_ROW = 0,     /* one for each row */
  TSR_STATE_PER_ELEMENT = 1, /* one for each element of a row */
  TSR_STATE_PER_TABLE = 2    /* one for all rows of a shard: update_table sets it, update_row only reads it */
};

/* A state that is kept between steps. It is equal in all processes for equal options, and from call to call. A kernel
 * that does not know the kind or has no such dtype refuses the optimizer in `supports`, in a sentence. */
typedef struct tsr_state {
  uint32_t struct_size;
  int32_t kind;     /* TSR_STATE_* */
  DLDataType dtype; /* float32 for nearly all */
  uint32_t flags;   /* none is defined: 0 */
  double start;     /* what each value is before the first update */
  const char* name; /* "momentum1", "momentum2": TorchRec's names. Lives as long as the optimizer */
} tsr_state;

/* Values that the host sets for every step. */
typedef struct tsr_update {
  uint32_t struct_size;
  uint32_t reserved;
  double learning_rate; /* replaces the one in the options */
  int64_t step;         /* t of the formulas: 1 at the first step */
} tsr_update;

typedef struct tsr_optimizer {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */

  /* [any-thread] The i-th state; TSR_OUT_OF_RANGE behind the last one. `out` comes zeroed. What states there are, and
   * how they start, may depend on the options. NULL: none. */
  tsr_code (*state)(void* self, uint32_t i, tsr_state* out, tsr_error* err);

  /* [any-thread] The learning rate that the options named. */
  double (*learning_rate)(void* self);

  /* [any-thread] Updates one row in place. `weight` and `grad` have `dim` floats, states[k] 1 or dim values of its
   * dtype according to its kind: what is not float32 is cast to its own type. `grad` is the sum over the whole batch.
   * Called once for each row that occurred, even if its gradient is 0, and never twice at once for the same row. Must
   * not fail: what can be wrong is refused by create(). NULL: rows are not updated; gradients are handed out ("none").
   */
  void (*update_row)(void* self, const tsr_update* update, int64_t dim, float* weight, const float* grad,
                     float* const* states);

  /* [any-thread] Optional: update_row for `count` different rows in one call, with the same result. Row i has
   * weights[i], grads[i] and states[k * count + i]. What depends on the step alone is computed once per call. Of many
   * rows only the first 16 KiB of weights and states, 128 rows at most, are near in the caches: prefetch the others. */
  void (*update_rows)(void* self, const tsr_update* update, int64_t dim, int64_t count, float* const* weights,
                      const float* const* grads, float* const* states);

  /* [any-thread] Optional, of optimizers with states per table: called once in each step, also where no row of a shard
   * occurred, before its rows are updated. states[k] of other kinds is NULL. */
  void (*update_table)(void* self, const tsr_update* update, float* const* states);
} tsr_optimizer;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_OPTIMIZER_H_ */

/* tessera/abi/optimizer.h - tessera.optimizer/1: how a row changes, given its summed gradient. */
#ifndef TESSERA_ABI_OPTIMIZER_H_
#define TESSERA_ABI_OPTIMIZER_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_OPTIMIZER_KIND "tessera.optimizer/1"

/* What a state holds: one float per row, or one per element of the row. States are float32 and start at 0. */
enum { TSR_STATE_PER_ROW = 0, TSR_STATE_PER_ELEMENT = 1 };

/* What the host decides anew for every step. */
typedef struct tsr_update {
  uint32_t struct_size;
  uint32_t reserved;
  double learning_rate; /* replaces the one in the options */
  int64_t step;         /* t of the formulas: 1 at the first step */
} tsr_update;

typedef struct tsr_optimizer {
  uint32_t struct_size;
  uint32_t num_states;
  const char* const* state_names; /* "momentum1", "momentum2": TorchRec's names */
  const int32_t* state_kinds;     /* TSR_STATE_* */

  /* [any-thread] Updates one row in place. `weight` and `grad` have `dim` floats, states[k] 1 or dim according to its
   * kind. `grad` is the sum over the whole batch. Called once for each row that occurred, even if its gradient is 0,
   * and never twice at once for the same row. Must not fail: what can be wrong is refused by create().
   * NULL: rows are not updated; gradients are handed out ("none"). */
  void (*update_row)(void* self, const tsr_update* update, int64_t dim, float* weight, const float* grad,
                     float* const* states);

  /* [any-thread] The learning rate that the options named. */
  double (*learning_rate)(void* self);

  /* [any-thread] Optional: update_row for `count` different rows in one call, with the same result. Row i has
   * weights[i], grads[i] and states[k * count + i]. What depends on the step alone is computed once per call. Of many
   * rows only the first 16 KiB of weights and states, 128 rows at most, are near in the caches: prefetch the others. */
  void (*update_rows)(void* self, const tsr_update* update, int64_t dim, int64_t count, float* const* weights,
                      const float* const* grads, float* const* states);
  uint32_t flags; /* none is defined: 0 */
  uint32_t reserved;
} tsr_optimizer;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_OPTIMIZER_H_ */

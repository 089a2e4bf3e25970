/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/metric.h - tessera.metric/draft-1: how good predictions are, as one number.
 *
 *   1. The host creates the metric and calls info(), which tells the number of sums and which samples belong together.
 *   2. It sets the sums to 0. It calls add() for each piece of the samples, which adds to the sums.
 *   3. It adds up the sums of ranks, batches or a window.
 *   4. It calls value() with these sums. It may do so at any time, and add more afterwards.
 *
 * A metric knows neither ranks nor batches nor windows, because the core merges their sums. info() says what a piece
 * is: any samples; the samples of one group, which have the same value in a key column; or all samples together.
 *
 * A metric keeps nothing between calls, so all functions are [any-thread].
 */
#ifndef TESSERA_ABI_DRAFT_METRIC_H_
#define TESSERA_ABI_DRAFT_METRIC_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_METRIC_KIND "tessera.metric/draft-1"

/* The samples of one call of add(). */
enum {
  TSR_METRIC_ANY = 0,   /* any samples: a batch or part of one */
  TSR_METRIC_GROUP = 1, /* all samples of one group; groups come in no order */
  TSR_METRIC_ALL = 2    /* all samples, in a single call */
};

/* The value that counts as the best. The host keeps the best model by it. */
enum {
  TSR_METRIC_BEST_NONE = 0, /* no value is better than another */
  TSR_METRIC_BEST_LARGEST = 1,
  TSR_METRIC_BEST_SMALLEST = 2,
  TSR_METRIC_BEST_ONE = 3 /* the value nearest to 1 */
};

/* The description of a metric. */
typedef struct tsr_metric_info {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  int32_t pieces; /* TSR_METRIC_ANY, ... */
  int32_t best;   /* TSR_METRIC_BEST_NONE, ... */
  int64_t sums;   /* number of sums, at least 1 */
} tsr_metric_info;

/* Samples in host memory, borrowed for the call. Each array is [count]. */
typedef struct tsr_metric_samples {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  int64_t count;
  const double* scores;      /* the model's outputs, which are logits if the loss takes logits; never NaN */
  const double* predictions; /* the predicted labels: probabilities if the loss takes logits, otherwise the scores */
  const double* labels;
  const double* weights; /* never negative */
} tsr_metric_samples;

/* The functions of a metric. `sums` is [tsr_metric_info::sums], in memory of the host. */
typedef struct tsr_metric {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */

  /* Fills `out`, with the same values in every call. */
  tsr_code (*info)(void* self, tsr_metric_info* out, tsr_error* err);
  /* Adds a piece of the samples to `sums`. */
  tsr_code (*add)(void* self, const tsr_metric_samples* samples, double* sums, tsr_error* err);
  /* Writes the value for the sums of all pieces to *out. It is NaN if the value is not defined, as with sums of 0. */
  tsr_code (*value)(void* self, const double* sums, double* out, tsr_error* err);
} tsr_metric;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_METRIC_H_ */

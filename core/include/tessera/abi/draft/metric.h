/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/metric.h - tessera.metric/draft-1: how good predictions are, as one number.
 *
 * A metric turns samples into a few sums, and sums into its value. Sums of several pieces of the samples are added up,
 * so the core merges ranks, batches and windows, and a metric knows none of them. What is a piece, the metric says: any
 * part of the samples; the samples of one group, which have the same value in a key column; or all samples together.
 *
 *   create -> info -> add* -> value
 *
 * A metric keeps nothing between calls: everything is [any-thread].
 */
#ifndef TESSERA_ABI_DRAFT_METRIC_H_
#define TESSERA_ABI_DRAFT_METRIC_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_METRIC_KIND "tessera.metric/draft-1"

/* Which samples come together in one call of add(). */
enum {
  TSR_METRIC_ANY = 0,   /* any: batches, parts of them */
  TSR_METRIC_GROUP = 1, /* all of one group; groups in no order */
  TSR_METRIC_ALL = 2    /* all that there are, once */
};

/* Which value is best, for what keeps the best model. */
enum {
  TSR_METRIC_BEST_NONE = 0, /* there is no better and worse */
  TSR_METRIC_BEST_LARGEST = 1,
  TSR_METRIC_BEST_SMALLEST = 2,
  TSR_METRIC_BEST_ONE = 3 /* the nearest to 1 */
};

typedef struct tsr_metric_info {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  int32_t pieces; /* TSR_METRIC_ANY, ... */
  int32_t best;   /* TSR_METRIC_BEST_NONE, ... */
  int64_t sums;   /* how many, at least 1 */
} tsr_metric_info;

/* Samples: `count` of each. */
typedef struct tsr_metric_samples {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  int64_t count;
  const double* scores;      /* what the model gives; of a loss of logits, the logit. No NaN */
  const double* predictions; /* of labels: of a loss of logits, the probability; else the score */
  const double* labels;
  const double* weights; /* not negative */
} tsr_metric_samples;

typedef struct tsr_metric {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */

  tsr_code (*info)(void* self, tsr_metric_info* out, tsr_error* err);
  /* Adds a piece of the samples to `sums`. */
  tsr_code (*add)(void* self, const tsr_metric_samples* samples, double* sums, tsr_error* err);
  /* The value for the sums of all pieces. It is NaN if it is not defined, as with sums of 0. */
  tsr_code (*value)(void* self, const double* sums, double* out, tsr_error* err);
} tsr_metric;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_METRIC_H_ */

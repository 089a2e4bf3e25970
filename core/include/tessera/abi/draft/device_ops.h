/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/device_ops.h - tessera.device_ops/draft-1: the core's arithmetic on a device.
 *
 * A device plugin (abi/device.h) may have it: the core asks tsr_component::extension of the part for it by
 * TSR_DEVICE_OPS_DRAFT_1, and hands the part's object to its functions. All are optional, those of one group together;
 * what is absent the core does in host memory. Everything is [any-thread][enqueue], and borrowed for the call.
 */
#ifndef TESSERA_ABI_DRAFT_DEVICE_OPS_H_
#define TESSERA_ABI_DRAFT_DEVICE_OPS_H_

#include "tessera/abi/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_DEVICE_OPS_DRAFT_1 "tessera.device_ops/draft-1"

/* ---- rows: the optional pair combine_rows / split_rows ----
 *
 * Pooled rows arrive packed, one behind the other, and go to places in a wider array ("spread"), where several arrivals
 * may add up. A target is a block of `rows` rows in `spread`, row b beginning at element begin + b * stride. Its runs
 * [first_run, first_run + num_runs) each cover columns [col, col + cols) of it: row b of run r is the packed row
 * i = index[runs[r].index + b] beginning at element runs[r].begin + i * runs[r].cols of `packed`; i < 0: it has none.
 *
 *   combine: spread[target, b, c] = sum over the target's runs in order that cover c and have row b of
 *                                   scale(b) * packed row [c - col];      0 where there is none
 *   split:   packed row i of run r [c - col] = scale(b) * spread[target, b, c], for every run and row with i >= 0
 *
 * scale(b) is scales[target.scale + b], or 1 where target.scale < 0. In split every packed row is named at most once.
 * float32 throughout. All pointers are to memory of the device. */
typedef struct tsr_row_target {
  int64_t rows;
  int64_t cols;
  int64_t begin;
  int64_t stride;
  int64_t scale;
  int32_t first_run;
  int32_t num_runs;
} tsr_row_target;

typedef struct tsr_row_run {
  int64_t begin;
  int64_t index;
  int32_t col;
  int32_t cols;
} tsr_row_run;

typedef struct tsr_row_moves {
  uint32_t struct_size;
  int32_t device_index;
  uint32_t num_targets;
  uint32_t num_runs;
  int64_t most_elements; /* rows * cols of the largest target: what to launch for, known to the host */
  const tsr_row_target* targets;
  const tsr_row_run* runs;
  const int32_t* index;
  const float* scales;
  float* packed; /* read by combine, written by split */
  float* spread; /* written by combine, read by split */
} tsr_row_moves;

/* ---- jagged: the optional four sum_lengths, check_bounds, permute, bucketize ----
 *
 * Keyed-jagged features: `features` runs of `batch` bags, one behind the other; bag i has the ids [offsets[i],
 * offsets[i + 1]). All tensors are memory of one device. Output lengths and offsets have the type of the input's
 * offsets. Calls may allocate and free memory in the order of their stream. */
typedef struct tsr_jagged {
  uint32_t struct_size;
  int32_t features;
  int64_t batch;
  const DLTensor* ids;     /* int32 or int64 [n]; permute moves anything of 4 or 8 bytes */
  const DLTensor* offsets; /* int32 or int64 [features * batch + 1] */
  const DLTensor* weights; /* float32 [n], or NULL */
} tsr_jagged;

typedef struct tsr_jagged_output {
  uint32_t struct_size;
  uint32_t flags;            /* none is defined: 0 */
  const DLTensor* lengths;   /* [bags] */
  const DLTensor* offsets;   /* [bags + 1] */
  const DLTensor* ids;       /* as wide as the input's, room for all that arrive */
  const DLTensor* weights;   /* the same; NULL where the input has none */
  const DLTensor* positions; /* bucketize: int64 [n], where each id of the input went; may be NULL */
} tsr_jagged_output;

/* The result of a bounds check; all 0: every id was inside. */
typedef struct tsr_bounds_report {
  uint32_t bad_ids;     /* not in [0, rows of their feature) */
  uint32_t bad_offsets; /* bags that do not ascend inside [0, n], or the last one where it does not end at n */
  uint32_t first_bag;   /* 2^32 - 1 - the first bag where something was wrong */
} tsr_bounds_report;

/* ---- the arithmetic between a model's layers: the optional pair update_parameters / binary_cross_entropy ----
 *
 * The optimizers of dense parameters are the core's, with PyTorch's options; a device lends it their loops, so that one
 * call updates all parameters of a model. Each of a parameter's rows * columns values w has a gradient g, and with
 * e = sign * g + decay * w, the parameter's factors f and the call's constants c:
 *
 *   SGD               w -= f[0] e
 *   MOMENTUM          s = c[0] s + f[0] e;                       w -= c[1] e + c[2] s           s = states[0]
 *   ADAGRAD           s = s + e e;                               w -= f[0] e / (sqrt(s) + c[0])
 *   ROWWISE_ADAGRAD   s = s + mean of e e over the row's columns (one s per row), then as ADAGRAD
 *   ADAM              m = c[0] m + (1 - c[0]) e;                 v = c[1] v + c[3] e e;         m, v = states[0], [1]
 *                     w -= f[0] m / (sqrt(v) f[1] + c[2])        c[3] = 1 - beta2, which 1 - c[1] has few digits of
 *
 * float32 throughout. value, gradient and states are memory of the device. An older core's c[3] is 0: take 1 - c[1]. */
enum {
  TSR_UPDATE_SGD = 0,
  TSR_UPDATE_MOMENTUM = 1,
  TSR_UPDATE_ADAGRAD = 2,
  TSR_UPDATE_ROWWISE_ADAGRAD = 3,
  TSR_UPDATE_ADAM = 4
};

typedef struct tsr_parameter_update {
  float* value;
  const float* gradient; /* may be `value` itself */
  float* states[2];      /* NULL where the formula has fewer */
  int64_t rows;
  int64_t columns;
  float factors[2];
} tsr_parameter_update;

typedef struct tsr_parameter_updates {
  uint32_t struct_size;
  int32_t device_index;
  int32_t formula; /* TSR_UPDATE_* */
  uint32_t num_parameters;
  const tsr_parameter_update* parameters; /* in host memory, read before the call returns */
  float sign;
  float decay;
  float constants[4];
} tsr_parameter_updates;

/* The loss of n logits x against labels y in [0, 1]: *sum = the sum of max(x, 0) - x y + log(1 + exp(-|x|)), added up
 * in an order that n alone decides, and grad[i] = scale (sigmoid(x) - y), unless grad is NULL. All pointers are to
 * memory of the device. */
typedef struct tsr_binary_cross_entropy {
  uint32_t struct_size;
  int32_t device_index;
  int64_t n;
  const float* logits;
  const float* labels;
  float* grad;
  double* sum;
  double scale;
} tsr_binary_cross_entropy;

/* ---- clipping of gradients: the optional clip_gradients ----
 *
 * v stands for every value of all gradients of a call together.
 *
 *   norm      = (sum of |v|^p)^(1/p) for p = norm_type; the largest |v| where p is infinite. Sums in double.
 *   BY_NORM     v = v * min(1, max_gradient / (norm + 1e-6)), the factor rounded to float
 *   BY_VALUE    v = min(max(v, -max_gradient), max_gradient)
 *
 * A value that is not a number stays so, and makes the norm and that factor NaN; with an infinite norm the factor is 0,
 * as PyTorch has it. Sums have an order that the sizes alone decide. */
enum { TSR_CLIP_NONE = 0, TSR_CLIP_BY_NORM = 1, TSR_CLIP_BY_VALUE = 2 };
enum { TSR_CLIP_DOUBLES = 257 };

typedef struct tsr_gradient {
  float* values; /* memory of the device, written in place */
  int64_t count;
} tsr_gradient;

typedef struct tsr_clipping {
  uint32_t struct_size;
  int32_t device_index;
  int32_t mode; /* TSR_CLIP_* */
  uint32_t num_gradients;
  const tsr_gradient* gradients; /* in host memory, read before the call returns */
  double max_gradient;
  double norm_type; /* above 0 */
  /* [TSR_CLIP_DOUBLES] on the device: the first gets the norm before clipping, the others are the call's to use. NULL:
   * not wanted, BY_VALUE alone. */
  double* norm;
} tsr_clipping;

typedef struct tsr_device_ops {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */

  /* Optional, both or neither. Without them the core moves rows on the host. */
  tsr_code (*combine_rows)(void* self, const tsr_row_moves* moves, tsr_stream stream, tsr_error* err);
  tsr_code (*split_rows)(void* self, const tsr_row_moves* moves, tsr_stream stream, tsr_error* err);

  /* Optional, all four or none. Without them jagged features make the detour over the host.
   * offsets[i] = sum of the lengths in front of i, for i in [0, lengths]; both int32 or both int64. */
  tsr_code (*sum_lengths)(void* self, const DLTensor* lengths, const DLTensor* offsets, tsr_stream stream,
                          tsr_error* err);
  /* `rows`: int64 [features]. `repaired`: as the ids, may be the ids, or NULL; gets them with bad ones as 0. */
  tsr_code (*check_bounds)(void* self, const tsr_jagged* input, const DLTensor* rows, const DLTensor* repaired,
                           tsr_bounds_report* report, tsr_stream stream, tsr_error* err);
  /* `order`: int32 [outputs]. Feature i of the output is feature order[i] of the input. */
  tsr_code (*permute)(void* self, const tsr_jagged* input, const DLTensor* order, const tsr_jagged_output* output,
                      tsr_stream stream, tsr_error* err);
  /* Ids by the block that holds their rows: block k has the rows [k * b, (k + 1) * b) of a feature, b its entry in
   * `block_rows`, int64 [features]; every id is in one of the `blocks`. Output bags are in the order of block, feature,
   * bag; in each, ids keep their order and count from the first row of the block. */
  tsr_code (*bucketize)(void* self, const tsr_jagged* input, int32_t blocks, const DLTensor* block_rows,
                        const tsr_jagged_output* output, tsr_stream stream, tsr_error* err);

  /* Optional, both or neither. Without them the core computes the dense part of a model in host memory. An
   * unknown formula is TSR_UNIMPLEMENTED. */
  tsr_code (*update_parameters)(void* self, const tsr_parameter_updates* updates, tsr_stream stream, tsr_error* err);
  tsr_code (*binary_cross_entropy)(void* self, const tsr_binary_cross_entropy* loss, tsr_stream stream, tsr_error* err);

  /* Optional. Without it gradients are clipped in host memory. An unknown mode is TSR_UNIMPLEMENTED. */
  tsr_code (*clip_gradients)(void* self, const tsr_clipping* clipping, tsr_stream stream, tsr_error* err);
} tsr_device_ops;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_DEVICE_OPS_H_ */

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/device_ops.h - tessera.device_ops/draft-1: the core's arithmetic on a device.
 *
 *   1. The host asks tsr_component::extension of a device component (abi/draft/device.h) for TSR_DEVICE_OPS_DRAFT_1. It
 *      checks that each group of functions is complete or absent.
 *   2. For jagged features in device memory it calls sum_lengths(), check_bounds(), permute() and bucketize().
 *   3. After the exchange of rows in forward it calls combine_rows(). In backward it calls split_rows() before the
 *      exchange of gradients.
 *   4. For the dense part it calls binary_cross_entropy(), then clip_gradients(), then update_parameters().
 *
 * `self` of all functions is the component's object. The functions are optional, group by group. If a group is absent,
 * the core does its work in host memory. All functions are [any-thread][enqueue], and all arguments are borrowed for
 * the call; device memory stays valid until the stream has passed the work.
 */
#ifndef TESSERA_ABI_DRAFT_DEVICE_OPS_H_
#define TESSERA_ABI_DRAFT_DEVICE_OPS_H_

#include "tessera/abi/draft/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_DEVICE_OPS_DRAFT_1 "tessera.device_ops/draft-1"

/* ---- rows: the optional pair combine_rows / split_rows ----
 *
 * Pooled rows arrive packed, one after the other. They go to places in a wider array ("spread"), where several arrivals
 * may add up.
 *   - A target is a block of `rows` rows in `spread`. Its row b begins at element begin + b * stride.
 *   - A target has the runs [first_run, first_run + num_runs). Each run covers its columns [col, col + cols).
 *   - Row b of run r is packed row i = index[runs[r].index + b]. It begins at element runs[r].begin + i * runs[r].cols
 *     of `packed`. If i < 0, the run has no row b.
 *
 *   combine: spread[target, b, c] = sum over the target's runs in order that cover c and have row b of
 *                                   scale(b) * packed row [c - col];      0 if there is none
 *   split:   packed row i of run r [c - col] = scale(b) * spread[target, b, c], for every run and row with i >= 0
 *
 * scale(b) is scales[target.scale + b], or 1 if target.scale < 0. In split every packed row is named at most once. All
 * values are float32. */
typedef struct tsr_row_target {
  int64_t rows;      /* number of rows */
  int64_t cols;      /* number of columns */
  int64_t begin;     /* first element in `spread` */
  int64_t stride;    /* elements from one row to the next */
  int64_t scale;     /* index of the first scale; < 0: all scales are 1 */
  int32_t first_run; /* index of the first run */
  int32_t num_runs;  /* number of runs; they are consecutive */
} tsr_row_target;

/* Packed rows for some columns of a target. */
typedef struct tsr_row_run {
  int64_t begin; /* element in `packed` at which packed row 0 begins */
  int64_t index; /* index of the run's first entry in `index` */
  int32_t col;   /* first column in the target */
  int32_t cols;  /* number of columns, and width of a packed row */
} tsr_row_run;

/* The arguments of both functions. All pointers are to memory of the device. */
typedef struct tsr_row_moves {
  uint32_t struct_size;
  int32_t device_index;
  uint32_t num_targets;
  uint32_t num_runs;
  int64_t most_elements;         /* rows * cols of the largest target, from which the launch size follows */
  const tsr_row_target* targets; /* [num_targets] */
  const tsr_row_run* runs;       /* [num_runs] */
  const int32_t* index;          /* packed row of each run and row; < 0: none */
  const float* scales;           /* indexed by tsr_row_target::scale */
  float* packed;                 /* read by combine, written by split */
  float* spread;                 /* written by combine, read by split */
} tsr_row_moves;

/* ---- jagged: the optional four sum_lengths, check_bounds, permute, bucketize ----
 *
 * Keyed-jagged features are `features` runs of `batch` bags, one run after the other. Bag i has the ids [offsets[i],
 * offsets[i + 1]). All tensors are in memory of one device. Output lengths and offsets have the type of the input's
 * offsets. The functions may allocate and free memory in the order of their stream. */
typedef struct tsr_jagged {
  uint32_t struct_size;
  int32_t features;        /* number of features */
  int64_t batch;           /* bags of each feature */
  const DLTensor* ids;     /* int32 or int64 [n]; permute moves any elements of 4 or 8 bytes */
  const DLTensor* offsets; /* int32 or int64 [features * batch + 1] */
  const DLTensor* weights; /* float32 [n]; NULL: the ids have no weights */
} tsr_jagged;

/* The output of permute and bucketize, in memory of the caller. */
typedef struct tsr_jagged_output {
  uint32_t struct_size;
  uint32_t flags;            /* none is defined: 0 */
  const DLTensor* lengths;   /* [bags] */
  const DLTensor* offsets;   /* [bags + 1] */
  const DLTensor* ids;       /* elements of the input's width, large enough for all ids */
  const DLTensor* weights;   /* float32, as many as ids; NULL if the input has none */
  const DLTensor* positions; /* bucketize: int64 [n], the output position of each input id; NULL: not wanted */
} tsr_jagged_output;

/* The result of a bounds check. All members are 0 if every id and offset is right. */
typedef struct tsr_bounds_report {
  uint32_t bad_ids;     /* number of ids that are not in [0, rows of their feature) */
  uint32_t bad_offsets; /* number of bags that do not ascend inside [0, n]; also the last bag if it does not end at n */
  uint32_t first_bag;   /* 2^32 - 1 - i, where i is the first wrong bag */
} tsr_bounds_report;

/* ---- the arithmetic between a model's layers: the optional pair update_parameters / binary_cross_entropy ----
 *
 * The core owns the optimizers of dense parameters, which have PyTorch's options. A device only lends their loops, so
 * that one call updates all parameters of a model. Each of a parameter's rows * columns values w has a gradient g. With
 * e = sign * g + decay * w, the parameter's factors f and the call's constants c, the formulas are:
 *
 *   SGD               w -= f[0] e
 *   MOMENTUM          s = c[0] s + f[0] e;                       w -= c[1] e + c[2] s           s = states[0]
 *   ADAGRAD           s = s + e e;                               w -= f[0] e / (sqrt(s) + c[0])
 *   ROWWISE_ADAGRAD   s = s + mean of e e over the row's columns (one s per row), then as ADAGRAD
 *   ADAM              m = c[0] m + (1 - c[0]) e;                 v = c[1] v + c[3] e e;         m, v = states[0], [1]
 *                     w -= f[0] m / (sqrt(v) f[1] + c[2])        c[3] = 1 - beta2, more exact than 1 - c[1]
 *
 * All values are float32. value, gradient and states are memory of the device. An older core leaves c[3] at 0: then the
 * device takes 1 - c[1]. */
enum {
  TSR_UPDATE_SGD = 0,
  TSR_UPDATE_MOMENTUM = 1,
  TSR_UPDATE_ADAGRAD = 2,
  TSR_UPDATE_ROWWISE_ADAGRAD = 3,
  TSR_UPDATE_ADAM = 4
};

/* One parameter, updated in place. */
typedef struct tsr_parameter_update {
  float* value;          /* [rows, columns] */
  const float* gradient; /* [rows, columns]; may be `value` itself */
  float* states[2];      /* [rows, columns], or [rows] for ROWWISE_ADAGRAD; NULL if the formula has fewer states */
  int64_t rows;
  int64_t columns;
  float factors[2]; /* f of the formulas */
} tsr_parameter_update;

/* The arguments of update_parameters(). */
typedef struct tsr_parameter_updates {
  uint32_t struct_size;
  int32_t device_index;
  int32_t formula;                        /* TSR_UPDATE_* */
  uint32_t num_parameters;                /* number of `parameters` */
  const tsr_parameter_update* parameters; /* in host memory, read before the call returns */
  float sign;                             /* 1, or -1 to maximize */
  float decay;                            /* weight decay */
  float constants[4];                     /* c of the formulas */
} tsr_parameter_updates;

/* The loss of n logits x against labels y in [0, 1]. *sum becomes the sum of max(x, 0) - x y + log(1 + exp(-|x|)), in
 * an order that depends only on n. grad[i] becomes scale (sigmoid(x) - y). All pointers are to memory of the device. */
typedef struct tsr_binary_cross_entropy {
  uint32_t struct_size;
  int32_t device_index;
  int64_t n;           /* number of samples */
  const float* logits; /* [n] */
  const float* labels; /* [n] */
  float* grad;         /* [n]; NULL: not wanted */
  double* sum;         /* one value */
  double scale;        /* factor of the gradients */
} tsr_binary_cross_entropy;

/* ---- clipping of gradients: the optional clip_gradients ----
 *
 * v stands for each value of all gradients in a call.
 *
 *   norm      = (sum of |v|^p)^(1/p) for p = norm_type; the largest |v| if p is infinite. Sums are in double.
 *   BY_NORM     v = v * min(1, max_gradient / (norm + 1e-6)), the factor rounded to float
 *   BY_VALUE    v = min(max(v, -max_gradient), max_gradient)
 *
 * A NaN stays NaN, and makes the norm and the factor NaN. With an infinite norm the factor is 0, as in PyTorch. The
 * order of the sums depends only on the sizes. With TSR_CLIP_NONE only the norm is computed. */
enum { TSR_CLIP_NONE = 0, TSR_CLIP_BY_NORM = 1, TSR_CLIP_BY_VALUE = 2 };
/* Length of tsr_clipping::norm. */
enum { TSR_CLIP_DOUBLES = 257 };

/* The gradient of one parameter. */
typedef struct tsr_gradient {
  float* values; /* [count] in memory of the device, clipped in place */
  int64_t count;
} tsr_gradient;

/* The arguments of clip_gradients(). */
typedef struct tsr_clipping {
  uint32_t struct_size;
  int32_t device_index;
  int32_t mode;                  /* TSR_CLIP_* */
  uint32_t num_gradients;        /* number of `gradients` */
  const tsr_gradient* gradients; /* in host memory, read before the call returns */
  double max_gradient;           /* bound of the norm, or of each value */
  double norm_type;              /* p, above 0 */
  /* [TSR_CLIP_DOUBLES] on the device. The first element becomes the norm before clipping; the others are scratch
   * memory of the call. NULL: the norm is not wanted, which only BY_VALUE allows. */
  double* norm;
} tsr_clipping;

/* The functions of the extension. */
typedef struct tsr_device_ops {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */

  /* A component has both functions, or neither. Without them the core moves rows on the host. */
  tsr_code (*combine_rows)(void* self, const tsr_row_moves* moves, tsr_stream stream, tsr_error* err);
  tsr_code (*split_rows)(void* self, const tsr_row_moves* moves, tsr_stream stream, tsr_error* err);

  /* A component has all four functions, or none. Without them jagged features go through host memory.
   * sum_lengths sets offsets[i] to the sum of lengths [0, i), for i in [0, number of lengths]. Both tensors are int32,
   * or both int64. */
  tsr_code (*sum_lengths)(void* self, const DLTensor* lengths, const DLTensor* offsets, tsr_stream stream,
                          tsr_error* err);
  /* Counts bad ids and offsets and writes `report`, which is memory of the device. `rows` is int64 [features].
   * `repaired` gets the ids, with 0 for bad ones. It has the shape and type of the ids, and may be the ids themselves.
   * NULL: not wanted. */
  tsr_code (*check_bounds)(void* self, const tsr_jagged* input, const DLTensor* rows, const DLTensor* repaired,
                           tsr_bounds_report* report, tsr_stream stream, tsr_error* err);
  /* Copies features in another order: feature i of the output is feature order[i] of the input. `order` is int32, with
   * one entry for each output feature. */
  tsr_code (*permute)(void* self, const tsr_jagged* input, const DLTensor* order, const tsr_jagged_output* output,
                      tsr_stream stream, tsr_error* err);
  /* Sorts ids by the block of rows that they are in. Block k has the rows [k * b, (k + 1) * b) of a feature, where b is
   * the feature's entry in `block_rows`, int64 [features]. Every id is in one of the `blocks` blocks. Output bags are
   * in the order of block, feature, bag. In a bag, ids keep their order and count from the block's first row. */
  tsr_code (*bucketize)(void* self, const tsr_jagged* input, int32_t blocks, const DLTensor* block_rows,
                        const tsr_jagged_output* output, tsr_stream stream, tsr_error* err);

  /* A component has both functions, or neither. Without them the core computes the dense part in host memory. An
   * unknown formula is TSR_UNIMPLEMENTED. */
  tsr_code (*update_parameters)(void* self, const tsr_parameter_updates* updates, tsr_stream stream, tsr_error* err);
  tsr_code (*binary_cross_entropy)(void* self, const tsr_binary_cross_entropy* loss, tsr_stream stream, tsr_error* err);

  /* Optional. Without it the core clips gradients in host memory. An unknown mode is TSR_UNIMPLEMENTED. */
  tsr_code (*clip_gradients)(void* self, const tsr_clipping* clipping, tsr_stream stream, tsr_error* err);
} tsr_device_ops;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_DEVICE_OPS_H_ */

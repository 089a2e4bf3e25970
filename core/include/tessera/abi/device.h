/* tessera/abi/device.h - tessera.device/1: memory, copies and streams of the devices of one DLDeviceType.
 *
 * The core names no vendor: what tsr_host::alloc gives for a device, how a batch gets there and how a stream is waited
 * for, all come from the device part of that DLDeviceType. A plugin registers it beside its kernel.
 *
 * Order. Work enqueued on one stream runs in that order; work on two streams has no order but what events make. NULL is
 * the device's default stream, a stream like any other here. Calls marked [enqueue] return before the work is done,
 * never wait for the device, and leave the caller's current device as it was. What fails on the device after a call has
 * returned is reported by a later call on that device, at the latest by synchronize.
 */
#ifndef TESSERA_ABI_DEVICE_H_
#define TESSERA_ABI_DEVICE_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_DEVICE_KIND "tessera.device/1"

/* A point in a stream. Recorded any number of times; the last one counts. */
typedef void* tsr_event;

/* Directions of a copy. The host side of an [enqueue] copy stays valid and unchanged until the stream reached it; it
 * overlaps with other work only where it came from host_alloc. */
enum { TSR_COPY_TO_DEVICE = 0, TSR_COPY_TO_HOST = 1, TSR_COPY_ON_DEVICE = 2 };

typedef struct tsr_device_info {
  uint32_t struct_size;
  int32_t warp_size;    /* threads that run in step; 0: means nothing here */
  uint64_t total_bytes; /* of memory */
  uint64_t free_bytes;
  char name[128]; /* for people: "NVIDIA H100 80GB HBM3" */
  /* Bytes per second, 0: not known. With both, a planner can price the device before anybody has measured it. */
  double memory_bandwidth; /* of the device's own memory */
  double link_bandwidth;   /* of one device to others of its host */
} tsr_device_info;

/* What the core and its plugins hold on one device through this part. */
typedef struct tsr_device_stats {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t held_bytes;  /* allocated and not yet freed */
  uint64_t peak_bytes;  /* the most at one time */
  uint64_t allocations; /* since the part was created: stands still in a step that has warmed up */
  uint64_t synchronizes;
} tsr_device_stats;

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

/* ---- jagged: the optional four at the end of tsr_device ----
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
  uint32_t reserved;
  const DLTensor* lengths;   /* [bags] */
  const DLTensor* offsets;   /* [bags + 1] */
  const DLTensor* ids;       /* as wide as the input's, room for all that arrive */
  const DLTensor* weights;   /* the same; NULL where the input has none */
  const DLTensor* positions; /* bucketize: int64 [n], where each id of the input went; may be NULL */
} tsr_jagged_output;

/* What a bounds check found; all 0: nothing. */
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

/* Of n logits x against labels y in [0, 1]: *sum = the sum of max(x, 0) - x y + log(1 + exp(-|x|)), added up in an
 * order that n alone decides, and grad[i] = scale (sigmoid(x) - y), unless grad is NULL. All pointers are to memory of
 * the device. */
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
 * What is not a number stays so, and makes the norm and that factor NaN; with an infinite norm the factor is 0, as
 * PyTorch has it. Sums have an order that the sizes alone decide. */
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

typedef struct tsr_device {
  uint32_t struct_size;
  int32_t device_type; /* DLDeviceType; every device of that type in this process is served by one part */

  /* [any-thread] How many there are; a part whose probe succeeded has at least one. */
  tsr_code (*count)(void* self, int32_t* count, tsr_error* err);
  /* [any-thread] */
  tsr_code (*info)(void* self, int32_t device_index, tsr_device_info* out, tsr_error* err);

  /* [any-thread][enqueue] Memory aligned to 256 bytes, usable in stream order from here on: only by work enqueued later
   * on `stream`, or on another one after an event. TSR_RESOURCE_EXHAUSTED names bytes asked for and free. */
  tsr_code (*alloc)(void* self, int32_t device_index, uint64_t bytes, tsr_stream stream, void** memory, tsr_error* err);
  /* [any-thread][enqueue] `bytes` as at alloc. Work already enqueued on `stream` may still use it. NULL is allowed. */
  void (*free)(void* self, int32_t device_index, void* memory, uint64_t bytes, tsr_stream stream);

  /* [any-thread] Host memory from which copies overlap with work (pinned). It may block, so it is kept, not made in a
   * step. */
  tsr_code (*host_alloc)(void* self, uint64_t bytes, void** memory, tsr_error* err);
  void (*host_free)(void* self, void* memory, uint64_t bytes);

  /* [any-thread][enqueue] TSR_COPY_*. 0 bytes: nothing. */
  tsr_code (*copy)(void* self, int32_t device_index, void* to, const void* from, uint64_t bytes, int32_t direction,
                   tsr_stream stream, tsr_error* err);
  /* [any-thread][enqueue] Every byte becomes `value`. */
  tsr_code (*fill)(void* self, int32_t device_index, void* memory, uint8_t value, uint64_t bytes, tsr_stream stream,
                   tsr_error* err);

  /* [any-thread] A new stream, without order towards the default one. */
  tsr_code (*stream_create)(void* self, int32_t device_index, tsr_stream* stream, tsr_error* err);
  /* [any-thread] Ends when its work is done; may return before. */
  void (*stream_destroy)(void* self, int32_t device_index, tsr_stream stream);
  /* [any-thread] Blocks until everything enqueued on the stream is done, and reports what failed. */
  tsr_code (*synchronize)(void* self, int32_t device_index, tsr_stream stream, tsr_error* err);

  /* [any-thread] */
  tsr_code (*event_create)(void* self, int32_t device_index, tsr_event* event, tsr_error* err);
  void (*event_destroy)(void* self, int32_t device_index, tsr_event event);
  /* [any-thread][enqueue] */
  tsr_code (*event_record)(void* self, int32_t device_index, tsr_event event, tsr_stream stream, tsr_error* err);
  /* [any-thread][enqueue] What is enqueued on `stream` from here on runs after the event. */
  tsr_code (*event_wait)(void* self, int32_t device_index, tsr_event event, tsr_stream stream, tsr_error* err);
  /* [any-thread] Blocks the caller until the event was reached; at once if it was never recorded. */
  tsr_code (*event_synchronize)(void* self, int32_t device_index, tsr_event event, tsr_error* err);

  /* [any-thread] */
  tsr_code (*stats)(void* self, int32_t device_index, tsr_device_stats* out, tsr_error* err);

  /* Optional, both or neither. Without them the core moves rows on the host.
   * [any-thread][enqueue] `moves` itself is borrowed for the call. */
  tsr_code (*combine_rows)(void* self, const tsr_row_moves* moves, tsr_stream stream, tsr_error* err);
  tsr_code (*split_rows)(void* self, const tsr_row_moves* moves, tsr_stream stream, tsr_error* err);

  /* Optional, all four or none. Without them jagged features make the detour over the host. [any-thread][enqueue] All
   * arguments are borrowed for the call.
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

  /* Optional, both or neither. Without them the core computes the dense part of a model in host memory.
   * [any-thread][enqueue] The structs are borrowed for the call. An unknown formula is TSR_UNIMPLEMENTED. */
  tsr_code (*update_parameters)(void* self, const tsr_parameter_updates* updates, tsr_stream stream, tsr_error* err);
  tsr_code (*binary_cross_entropy)(void* self, const tsr_binary_cross_entropy* loss, tsr_stream stream, tsr_error* err);

  /* Optional. Without it gradients are clipped in host memory. [any-thread][enqueue] The struct is borrowed for the
   * call. An unknown mode is TSR_UNIMPLEMENTED. */
  tsr_code (*clip_gradients)(void* self, const tsr_clipping* clipping, tsr_stream stream, tsr_error* err);
  uint32_t flags; /* none is defined: 0 */
  uint32_t reserved;
} tsr_device;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DEVICE_H_ */

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/module.h - tessera.module/1: a layer with forward, backward, named parameters and named buffers.
 *
 * The created object (tsr_component::create with JSON options) describes the layer. Parameters, their gradients and
 * buffers belong to the core, which all-reduces, optimizes and saves them.
 */
#ifndef TESSERA_ABI_MODULE_H_
#define TESSERA_ABI_MODULE_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_MODULE_KIND "tessera.module/1"

/* Flags of the table. */
enum {
  /* Its calls of training, where there are several ranks, need tsr_module_call::sum_over_ranks; without this flag that
   * is NULL. */
  TSR_MODULE_SUMS_OVER_RANKS = 0x10000
};

/* How the core fills a parameter or a buffer at the start, with init_values a and b. Random values depend on the job's
 * seed and the tensor's whole name alone. */
enum {
  TSR_INIT_CONSTANT = 0, /* a */
  TSR_INIT_NORMAL = 1,   /* of mean a and standard deviation b */
  TSR_INIT_UNIFORM = 2   /* in [a, b) */
};

/* A parameter, which is trained, or a buffer, which is not: forward writes it, and it is saved and restored. */
typedef struct tsr_parameter {
  uint32_t struct_size;
  uint32_t flags;   /* none is defined: 0 */
  const char* name; /* "0.weight": behind the layer's own name in a state dict; lives as long as the object */
  DLDataType dtype; /* parameters float32; buffers float32 or int64, with TSR_INIT_CONSTANT where int64 */
  int32_t init;     /* TSR_INIT_* */
  double init_values[2];
  int64_t shape[4];
  int32_t ndim; /* 0 (buffers alone: one value) to 4; the core refuses others when the layer is made */
  int32_t reserved;
} tsr_parameter;

/* Flags of a value. */
enum {
  /* Other than one row for each sample: sample s has the rows [offsets[s], offsets[s + 1]). Inputs only. */
  TSR_VALUE_JAGGED = 0x10000
};

/* An input or output, as core and module agree on it before there is a batch: rows of `width` values. */
typedef struct tsr_value {
  uint32_t struct_size;
  uint32_t flags;   /* TSR_VALUE_* */
  DLDataType dtype; /* float32, int32 or int64; of outputs float32 */
  uint32_t reserved;
  int64_t width; /* values of a row; 0: the caller does not know it yet */
} tsr_value;

/* Flags of a call. */
enum {
  TSR_MODULE_TRAIN = 1 /* a step of training: dropout drops, batch norm takes the batch's statistics. Else evaluation */
};

/* The arguments of forward and backward. Tensors are contiguous and of one device; those of values are [rows, width],
 * an input that is not jagged and every output having `batch` rows. All arrays and structs are borrowed for the call;
 * the tensors of inputs, parameters and outputs stay as they are from forward until its backward. */
typedef struct tsr_module_call {
  uint32_t struct_size;
  uint32_t flags; /* TSR_MODULE_*; equal in forward and its backward, as are seed and step */
  uint64_t seed;  /* of the layer: of the job and the layer's name, other for every rank */
  int64_t step;   /* of training; equal on all ranks, and goes on where a checkpoint was loaded */
  int64_t batch;
  uint32_t num_inputs;
  uint32_t num_outputs;
  const DLTensor* inputs;
  const DLTensor* offsets;    /* of each input: int64 [batch + 1] where it is jagged, else data NULL; NULL: none is */
  const DLTensor* parameters; /* in the order of parameter() */
  const DLTensor* buffers;    /* in the order of buffer(); forward may write them where the call trains */
  const DLTensor* outputs;    /* forward writes them, backward reads them */
  /* Backward only, else NULL. */
  const DLTensor* grad_outputs;    /* of each output; data NULL: zeros */
  const DLTensor* grad_inputs;     /* of each input; written; data NULL: not wanted. Integer inputs have none */
  const DLTensor* grad_parameters; /* added to */
  tsr_stream stream;
  /* Replaces `inout` (float32 or float64) by its sum over all ranks, in the order of the stream. If it is not NULL,
   * all ranks call it equally often, with equal sizes, in forward and in backward. NULL: there is one rank, or the call
   * does not train. */
  tsr_code (*sum_over_ranks)(void* ranks, const DLTensor* inout, tsr_error* err);
  void* ranks;
} tsr_module_call;

typedef struct tsr_module_context tsr_module_context;

typedef struct tsr_module {
  uint32_t struct_size;
  uint32_t flags; /* TSR_MODULE_SUMS_OVER_RANKS */

  /* [any-thread] The i-th parameter; TSR_OUT_OF_RANGE ends the list. */
  tsr_code (*parameter)(void* self, uint32_t i, tsr_parameter* out, tsr_error* err);
  /* [any-thread] Optional. The i-th buffer; TSR_OUT_OF_RANGE ends the list. */
  tsr_code (*buffer)(void* self, uint32_t i, tsr_parameter* out, tsr_error* err);
  /* [any-thread] The i-th output for inputs such as these (the k-th is k * stride bytes behind the first); refuses
   * those that do not fit. TSR_OUT_OF_RANGE ends the list, and nothing else has that code. */
  tsr_code (*output)(void* self, uint32_t i, uint32_t num_inputs, uint32_t stride, const tsr_value* inputs,
                     tsr_value* out, tsr_error* err);

  /* [serial][enqueue] `context` NULL: no backward will follow. */
  tsr_code (*forward)(void* self, const tsr_module_call* call, tsr_module_context** context, tsr_error* err);
  /* [serial][enqueue] Releases the context, successful or not. */
  tsr_code (*backward)(void* self, const tsr_module_call* call, tsr_module_context* context, tsr_error* err);
  /* [serial] For a context whose backward will not come. */
  void (*release)(void* self, tsr_module_context* context);

  /* Optional. The DLDeviceTypes whose memory forward and backward take, ended by 0. Absent: {kDLCPU, 0}. */
  const int32_t* device_types;
  /* Optional. The layer that this computes, in place of, or on other devices than, components of other ids. Models ask
   * for layers (a DLRM for "mlp" and "dot_interaction"; a config cannot name others): "mlp" is the usable component of
   * the highest priority whose layer is that and which serves the device that the model is on. Which one that was
   * stands in the output of a training, in its report and in `tessera plugins`. Components of one layer agree in
   * options, parameters and formulas. Absent: the component's id. */
  const char* layer;
} tsr_module;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_MODULE_H_ */

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/module.h - tessera.module/1: a layer with forward, backward, named parameters and named buffers.
 *
 *   1. The host creates the layer with its JSON options. It calls parameter() and buffer() until TSR_OUT_OF_RANGE,
 *      allocates this memory, and fills it with start values or from a checkpoint.
 *   2. It describes the inputs to output(), until TSR_OUT_OF_RANGE, to learn what the layer computes from them.
 *   3. Before a batch, if an output is a sequence with offsets of its own, it asks max_rows() how much memory to give.
 *   4. For a step of training it calls forward() with TSR_MODULE_TRAIN. The layer writes the outputs, the offsets of
 *      its own, and may make a context.
 *   5. It calls backward() with the same call, the gradients of the outputs, and the context. The layer writes the
 *      gradients of the inputs and adds to those of the parameters.
 *   6. It calls release() with the context, after backward() or instead of it.
 *   7. The host adds the parameters' gradients up over the ranks and lets an optimizer update the parameters.
 *   8. For an evaluation it calls forward() without TSR_MODULE_TRAIN and without a context.
 *
 * A value of a graph is dense, with one row for each sample, or a sequence: sample s has the rows [offsets[s],
 * offsets[s + 1]), which may be none. Parameters, their gradients and buffers belong to the core, which all-reduces,
 * optimizes and saves them.
 */
#ifndef TESSERA_ABI_MODULE_H_
#define TESSERA_ABI_MODULE_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_MODULE_KIND "tessera.module/1"

/* Flags of the table. */
/* The layer has the option "precision": the type to which inputs of its matrix products are rounded, "float32" or
 * "bfloat16". Parameters, gradients and sums are float32. create() gives TSR_UNAVAILABLE if this machine lacks what it
 * needs and, for "auto" (optional), if bfloat16 is slower. The core passes a job's precision only to these layers. */
#define TSR_MODULE_PRECISION 0x1u
/* The layer is a loss of classes: input 0 has a value for each class, input 1 has the number of the class from 0 on,
 * and the model's probabilities are the softmax of the values. The core judges such heads by metrics of classes. */
#define TSR_MODULE_CLASSES 0x2u
/* The option "precision" also takes "int8": inputs of products are rounded to 8 bits, and sums are exact. Such a layer
 * only predicts, with parameters that never change, and refuses backward(). This flag is a hint. */
#define TSR_MODULE_INT8 0x4u
/* The layer's training calls need tsr_module_call::sum_over_ranks if there are several ranks. Without this flag that
 * function is NULL. */
#define TSR_MODULE_SUMS_OVER_RANKS 0x10000u

/* How the core fills a parameter or a buffer at the start, with init_values a and b. Random values depend only on the
 * job's seed and on the tensor's whole name. */
enum {
  TSR_INIT_CONSTANT = 0, /* all values are a */
  TSR_INIT_NORMAL = 1,   /* normal, with mean a and standard deviation b */
  TSR_INIT_UNIFORM = 2   /* uniform in [a, b) */
};

/* Flag of a parameter [rows, columns], a hint: the layer rounds it to integers from -127 to 127 with one scale for each
 * row, the row's largest magnitude divided by 127. A packed model may store these integers. */
#define TSR_PARAMETER_INT8_ROWS 0x1u

/* A parameter, which is trained, or a buffer, which is not. forward() writes buffers; both are saved and restored. */
typedef struct tsr_parameter {
  uint32_t struct_size;
  uint32_t flags;        /* TSR_PARAMETER_* */
  const char* name;      /* "0.weight": follows the layer's name in a state dict; lives as long as the object */
  DLDataType dtype;      /* float32; a buffer with TSR_INIT_CONSTANT may also be int64 */
  int32_t init;          /* TSR_INIT_* */
  double init_values[2]; /* a and b */
  int64_t shape[4];      /* the first `ndim` are used; each is at least 1 */
  int32_t ndim;          /* 1 to 4; a buffer may also have 0, which is one value. The core refuses others */
  int32_t reserved;      /* 0 */
} tsr_parameter;

/* Flags of a value. */
/* The value is a sequence: it has the offsets that `rows_like` names instead of one row for each sample. */
#define TSR_VALUE_JAGGED 0x10000u
/* Flags of a sequence input that is split over the ranks: each rank has a part of one set, such as the candidates of a
 * loss. TSR_VALUE_SPLIT is for calls that train, TSR_VALUE_SPLIT_IN_EVALUATION for calls that do not.
 * A layer that computes each row by itself may take such an input. Any other layer must combine the ranks' results by
 * sum_over_ranks(), or refuse the input. */
#define TSR_VALUE_SPLIT 0x20000u
#define TSR_VALUE_SPLIT_IN_EVALUATION 0x40000u
/* Hints about inputs that are sequences: the input has rows only in calls that train, or only in calls that do not. */
#define TSR_VALUE_ONLY_IN_TRAINING 0x1u
#define TSR_VALUE_ONLY_IN_EVALUATION 0x2u
/* A hint about the output of a loss: the smaller its first input, the larger the label, as with a distance. The core
 * then compares that input with no label in metrics, which take a larger value for a larger label. */
#define TSR_VALUE_FALLS_WITH_LABEL 0x4u

/* Values of tsr_value::rows_like that are no index. */
enum {
  TSR_ROWS_OWN = -1 /* the output has offsets of its own */
};

/* An input or output, as core and module agree on it before there is a batch: rows of `width` values. */
typedef struct tsr_value {
  uint32_t struct_size;
  uint32_t flags;   /* TSR_VALUE_* */
  DLDataType dtype; /* inputs: float32, int32 or int64; outputs: float32 */
  /* For sequences only; 0 without TSR_VALUE_JAGGED. For an input: index of the first input that has the same offsets in
   * every batch, which is its own index if no earlier one has them. For an output: index of the input, a sequence,
   * whose offsets it has; or TSR_ROWS_OWN. */
  int32_t rows_like;
  int64_t width; /* values of a row; 0: the caller does not know it yet */
} tsr_value;

/* A flag of a call that is part of training: dropout drops values, and batch norm uses the batch's statistics. A call
 * without this flag is an evaluation. A module refuses a call with a high flag that it does not know. */
#define TSR_MODULE_TRAIN 0x10000u

/* The arguments of forward() and backward(). Tensors are contiguous and on one device. Values are [rows, width]; dense
 * ones have `batch` rows, and sequences have as many as their offsets say. All arrays and structs are borrowed for the
 * call. The tensors of inputs, parameters and outputs stay unchanged from forward() until its backward(). */
typedef struct tsr_module_call {
  uint32_t struct_size;
  uint32_t flags; /* TSR_MODULE_*; flags, seed and step are the same in forward() and its backward() */
  uint64_t seed;  /* from the job's seed and the layer's name; different on every rank */
  int64_t step;   /* training step; the same on all ranks, and it continues after a checkpoint was loaded */
  int64_t batch;  /* number of samples */
  uint32_t num_inputs;
  uint32_t num_outputs;
  const DLTensor* inputs; /* [num_inputs] */
  /* [num_inputs], each int64 [batch + 1], from 0, never falling, up to the input's rows. Data NULL: the input is dense.
   * NULL: all inputs are dense. */
  const DLTensor* offsets;
  const DLTensor* parameters; /* in the order of parameter() */
  const DLTensor* buffers;    /* in the order of buffer(); forward() may write them if the call trains */
  /* [num_outputs]; forward() writes them, backward() reads them. A sequence with offsets of its own has as many rows in
   * forward() as max_rows() said, and in backward() as its offsets say. */
  const DLTensor* outputs;
  /* These three are for backward() only; in forward() they are NULL. */
  const DLTensor* grad_outputs;    /* [num_outputs], shaped like the outputs; data NULL: all zeros */
  const DLTensor* grad_inputs;     /* [num_inputs], written; data NULL: not wanted, or the input has integers */
  const DLTensor* grad_parameters; /* in the order of parameter(); the layer adds to them */
  tsr_stream stream;               /* stream of the tensors' device; NULL in host memory */
  /* [serial][enqueue] The layer calls it inside forward() and backward(), on the same thread. Replaces `inout` (float32
   * or float64) by its sum over all ranks, in stream order. If it is not NULL, all ranks call it equally often and with
   * equal sizes, in forward() and in backward(). NULL: there is only one rank, or the call does not train and has no
   * input that is TSR_VALUE_SPLIT_IN_EVALUATION. */
  tsr_code (*sum_over_ranks)(void* ranks, const DLTensor* inout, tsr_error* err);
  void* ranks; /* first argument of sum_over_ranks */
  /* [num_outputs], each int64 [batch + 1]: offsets of sequences with TSR_ROWS_OWN. forward() writes them: from 0, never
   * falling, up to at most max_rows(). backward() reads them. Data NULL: the output has no offsets of its own. NULL: no
   * output has. */
  const DLTensor* output_offsets;
  /* The calling rank, and the number of ranks that sum_over_ranks adds up. If that is NULL: 0 and 1. */
  int32_t rank;
  int32_t world_size;
} tsr_module_call;

/* The state that forward() keeps for backward(). */
typedef struct tsr_module_context tsr_module_context;

/* The functions of a layer. */
typedef struct tsr_module {
  uint32_t struct_size;
  uint32_t flags; /* TSR_MODULE_PRECISION, TSR_MODULE_CLASSES, TSR_MODULE_INT8, TSR_MODULE_SUMS_OVER_RANKS */

  /* [any-thread] Fills `out` for the i-th parameter. TSR_OUT_OF_RANGE: there are no more. */
  tsr_code (*parameter)(void* self, uint32_t i, tsr_parameter* out, tsr_error* err);
  /* [any-thread] Optional. Fills `out` for the i-th buffer. TSR_OUT_OF_RANGE: there are no more. */
  tsr_code (*buffer)(void* self, uint32_t i, tsr_parameter* out, tsr_error* err);
  /* [any-thread] Fills `out` for the i-th output, given these inputs. Input k begins k * stride bytes after `inputs`.
   * Refuses inputs that do not fit, for example sequences with different offsets that it would read row by row.
   * TSR_OUT_OF_RANGE: there are no more outputs; it has no other meaning here. */
  tsr_code (*output)(void* self, uint32_t i, uint32_t num_inputs, uint32_t stride, const tsr_value* inputs,
                     tsr_value* out, tsr_error* err);

  /* [serial][enqueue] Writes the outputs. *context is for the caller, who ends it with release(). `context` NULL: no
   * backward will follow. */
  tsr_code (*forward)(void* self, const tsr_module_call* call, tsr_module_context** context, tsr_error* err);
  /* [serial][enqueue] Computes the gradients. The context stays the caller's. */
  tsr_code (*backward)(void* self, const tsr_module_call* call, tsr_module_context* context, tsr_error* err);
  /* [serial] Frees a context (never NULL) after its backward(), even if that failed, or instead of it. */
  void (*release)(void* self, tsr_module_context* context);

  /* Optional. The DLDeviceTypes whose memory forward() and backward() take, ended by 0. NULL: {kDLCPU, 0}. */
  const int32_t* device_types;
  /* Optional. Name of the layer that this component computes, if it is not the component's id. Components with the same
   * layer agree in options, parameters and formulas; they replace each other, or serve different devices.
   * Models ask for layers: "mlp" is the usable component with the highest priority that has this layer and serves the
   * model's device. A config may name a component's id instead of a layer, unless a component has a layer of that name.
   * Training's output and report, and `tessera plugins`, name the chosen component. */
  const char* layer;
  /* [any-thread] Needed by layers that have an output with TSR_ROWS_OWN. Writes to max_rows[k], for each output k, the
   * most rows that forward() can give for this call; what it writes for other outputs is not read. `call` has `batch`,
   * the inputs and their offsets, and no outputs yet. Only sizes may be read, because the data may not be there yet. */
  tsr_code (*max_rows)(void* self, const tsr_module_call* call, int64_t* max_rows, tsr_error* err);
} tsr_module;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_MODULE_H_ */

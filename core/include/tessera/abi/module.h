/* tessera/abi/module.h - tessera.module/1: a dense layer with forward, backward and named parameters.
 *
 * The created object (tsr_component::create with JSON options) describes the layer; parameters and their gradients
 * belong to the core, which all-reduces, optimizes and saves them.
 */
#ifndef TESSERA_ABI_MODULE_H_
#define TESSERA_ABI_MODULE_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_MODULE_KIND "tessera.module/1"

/* How the core fills a parameter at the start. */
enum {
  TSR_INIT_ZERO = 0,
  TSR_INIT_XAVIER_NORMAL = 1 /* normal, std = sqrt(2 / (shape[0] + shape[1])) */
};

typedef struct tsr_parameter {
  uint32_t struct_size;
  int32_t init;     /* TSR_INIT_* */
  const char* name; /* "0.weight": behind the layer's own name in a state dict; lives as long as the object */
  int32_t ndim;
  int32_t reserved;
  int64_t shape[4];
} tsr_parameter;

typedef struct tsr_module_context tsr_module_context;

/* All tensors float32, contiguous, of one device. The first dimension of every input and output is the batch. */
typedef struct tsr_module {
  uint32_t struct_size;
  uint32_t reserved;

  /* [any-thread] The i-th parameter; TSR_OUT_OF_RANGE ends the list. */
  tsr_code (*parameter)(void* self, uint32_t i, tsr_parameter* out, tsr_error* err);
  /* [any-thread] How many values per sample the output has, given those of each input (0 where unknown to the caller):
   * refuses inputs that do not fit. */
  tsr_code (*output_width)(void* self, uint32_t num_inputs, const int64_t* widths, int64_t* width, tsr_error* err);

  /* [serial][enqueue] inputs[i] is [batch, width_i]; output [batch, width]; parameters in the order of parameter().
   * `context` NULL: no backward will follow. Inputs and output stay as they are until backward. */
  tsr_code (*forward)(void* self, uint32_t num_inputs, const DLTensor* inputs, const DLTensor* parameters,
                      const DLTensor* output, tsr_stream stream, tsr_module_context** context, tsr_error* err);
  /* [serial][enqueue] grad_inputs[i] is written (entries with data NULL are not wanted); grad_parameters are added to.
   * Releases the context, successful or not. */
  tsr_code (*backward)(void* self, tsr_module_context* context, uint32_t num_inputs, const DLTensor* inputs,
                       const DLTensor* parameters, const DLTensor* output, const DLTensor* grad_output,
                       const DLTensor* grad_inputs, const DLTensor* grad_parameters, tsr_stream stream, tsr_error* err);
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

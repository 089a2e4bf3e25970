/* tessera/infer.h - a packed model (docs/models.md) in a C program: load, describe, predict, count, close.
 *
 *   tsr_error err = {.struct_size = sizeof(err)};
 *   tsr_model* model;
 *   if (tsr_model_open("model", NULL, &model, &err) != TSR_OK) { puts(err.message); return 1; }
 *   tsr_model_predict(model, &input, scores, &err);
 *   tsr_model_close(model);
 *
 * C11, in libtessera. Codes and errors are those of the plugin contract (abi/base.h): every function returns a code
 * and, when it is not TSR_OK, writes one sentence into the caller's tsr_error, which may be NULL. Structs that a caller
 * fills begin with struct_size and grow at the end only; those that the library fills are written as far as the
 * caller's struct_size says. No function throws or exits; warnings, as of ids that a model leaves out, are lines on
 * standard error. All functions but tsr_model_close() may be called by several threads at once.
 */
#ifndef TESSERA_INFER_H_
#define TESSERA_INFER_H_

#include "tessera/abi/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_model tsr_model;

typedef struct tsr_model_options {
  uint32_t struct_size;
  int32_t threads;         /* that one prediction may use; 0: one, which is best where predictions run side by side */
  const char* plugin_path; /* a directory of plugins searched first; NULL: those installed with the library */
  const char* kernel;      /* kernel plugin; NULL: the best */
} tsr_model_options;

/* Maps a packed model: processes on a host share its tables, and no row is read before it is asked for. `options` may
 * be NULL. TSR_NOT_FOUND: nothing there. TSR_DATA_LOSS: damaged, the file is named. TSR_UNIMPLEMENTED: of a newer
 * format, or no plugin can serve it. */
tsr_code tsr_model_open(const char* directory, const tsr_model_options* options, tsr_model** model, tsr_error* err);
/* No call on the model runs any more. NULL is allowed. */
void tsr_model_close(tsr_model* model);

/* The inputs of the model. Strings live as long as the model. */
typedef struct tsr_model_info {
  uint32_t struct_size;
  int32_t is_weighted; /* 1: features may bring weights */
  const char* name;
  const char* version; /* 16 hexadecimal digits of the contents */
  const char* type;    /* "dlrm", "graph" */
  int64_t dense_inputs;
  uint32_t num_features;
  uint32_t num_tables;
  uint32_t num_outputs; /* at least 1 */
  uint32_t reserved;
  const char* encoding; /* JSON: the columns that it was trained on, as checkpoints have them; "": on none */
} tsr_model_info;
tsr_code tsr_model_describe(const tsr_model* model, tsr_model_info* info, tsr_error* err);

typedef struct tsr_model_feature {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;
  int64_t ids; /* valid ones are [0, ids) */
} tsr_model_feature;
/* Feature i of num_features, in the order of tsr_model_input::features. TSR_OUT_OF_RANGE beyond. */
tsr_code tsr_model_get_feature(const tsr_model* model, uint32_t i, tsr_model_feature* feature, tsr_error* err);

typedef struct tsr_model_table {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;
  const char* format; /* "int8", ... */
  int64_t rows, dim;
  int64_t bytes;
} tsr_model_table;
tsr_code tsr_model_get_table(const tsr_model* model, uint32_t i, tsr_model_table* table, tsr_error* err);

typedef struct tsr_model_output {
  uint32_t struct_size;
  int32_t probability; /* 1: in (0, 1); 0: what the head takes, as its own loss has it */
  const char* name;    /* of the head */
  int64_t width;       /* values of a sample */
} tsr_model_output;
tsr_code tsr_model_get_output(const tsr_model* model, uint32_t i, tsr_model_output* output, tsr_error* err);

/* The ids of one feature, all samples one after the other. */
typedef struct tsr_model_ids {
  const int64_t* values;  /* [num_values] */
  const int32_t* lengths; /* [batch]: ids of each sample, adding up to num_values */
  const float* weights;   /* [num_values]; NULL: all 1 */
  int64_t num_values;
} tsr_model_ids;

/* `batch` samples, borrowed for the call. */
typedef struct tsr_model_input {
  uint32_t struct_size;
  uint32_t num_features; /* the model's */
  int64_t batch;
  const float* dense;            /* [batch, dense_inputs] */
  const tsr_model_ids* features; /* [num_features] */
} tsr_model_input;

/* The first output: scores[batch], probabilities in (0, 1). Allocates nothing once as many threads have called it with
 * as large a batch. TSR_INVALID_ARGUMENT, TSR_OUT_OF_RANGE: the sentence names feature, sample and bound; nothing was
 * written. TSR_FAILED_PRECONDITION: that output has several values a sample. */
tsr_code tsr_model_predict(tsr_model* model, const tsr_model_input* input, float* scores, tsr_error* err);

/* The same as tensors in host memory, of any strides: a column of a larger array, rows with gaps. Borrowed for the
 * call; what is compact and int64, int32 (lengths) or float32 is read where it is. */
typedef struct tsr_model_tensors {
  uint32_t struct_size;
  uint32_t num_features;          /* the model's */
  const DLTensor* dense;          /* float32 or float64 [batch, dense_inputs]; NULL where the model has none */
  const DLTensor* const* values;  /* [num_features]: int64 or int32 [num_values] */
  const DLTensor* const* lengths; /* [num_features]: int32 or int64 [batch] */
  const DLTensor* const* weights; /* NULL, or [num_features]: float32 [num_values], NULL: all 1 */
} tsr_model_tensors;
/* scores: float32 [batch] or [batch, 1]. Errors as of tsr_model_predict(). */
tsr_code tsr_model_predict_tensors(tsr_model* model, const tsr_model_tensors* input, const DLTensor* scores,
                                   tsr_error* err);

/* All outputs that are wanted, of one prediction: outputs[i], float32 [batch, width of output i], or [batch] where that
 * is 1; NULL: not wanted. Of any strides; at least one is not NULL. Errors as of tsr_model_predict(). */
tsr_code tsr_model_predict_outputs(tsr_model* model, const tsr_model_tensors* input, const DLTensor* const* outputs,
                                   uint32_t num_outputs, tsr_error* err);

typedef struct tsr_model_stats {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t predictions; /* calls that succeeded */
  uint64_t samples;     /* of these */
  uint64_t bad_ids;     /* out of range, over all tables; counted where the model lets them pass */
} tsr_model_stats;
tsr_code tsr_model_get_stats(const tsr_model* model, tsr_model_stats* stats, tsr_error* err);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_INFER_H_ */

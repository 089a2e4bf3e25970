/* tessera/infer.h - a packed model (docs/models.md) in a C program: load, describe, predict, count, close.
 *
 *   tsr_error err = {.struct_size = sizeof(err)};
 *   tsr_model* model;
 *   if (tsr_model_open("model", NULL, &model, &err) != TSR_OK) { puts(err.message); return 1; }
 *   tsr_model_predict(model, &input, scores, &err);
 *   tsr_model_close(model);
 *
 * The header is C11, and the functions are in libtessera. Codes and errors are those of the plugin contract
 * (abi/base.h). Every function returns a code; if that is not TSR_OK, it writes one sentence into the caller's
 * tsr_error, which may be NULL. Structs that the caller fills begin with struct_size and grow only at their end.
 * Structs that the library fills are written as far as the caller's struct_size allows. No function throws or exits.
 * Warnings, such as about ids that a model leaves out, go to standard error. Several threads may call all functions
 * except tsr_model_close() at once.
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
  int32_t threads;         /* number for one prediction; 0: one, which is best if predictions run side by side */
  const char* plugin_path; /* directory of plugins that is searched first; NULL: only the installed ones */
  const char* kernel;      /* id of a kernel component; NULL: the best one */
} tsr_model_options;

/* Maps a packed model into memory. Processes on a host share its tables, and a row is read only when it is needed.
 * `options` may be NULL. TSR_NOT_FOUND: there is no model. TSR_DATA_LOSS: it is damaged, and the message names the
 * file. TSR_UNIMPLEMENTED: its format is newer, or no plugin can serve it. */
tsr_code tsr_model_open(const char* directory, const tsr_model_options* options, tsr_model** model, tsr_error* err);
/* Closes the model. No other call on it may be running. NULL is allowed. */
void tsr_model_close(tsr_model* model);

/* The properties of a model. Strings live as long as the model. */
typedef struct tsr_model_info {
  uint32_t struct_size;
  int32_t is_weighted; /* 1: features may have weights */
  const char* name;
  const char* version;   /* 16 hexadecimal digits that identify the contents */
  const char* type;      /* "dlrm", "graph" */
  int64_t dense_inputs;  /* number of dense inputs of a sample */
  uint32_t num_features; /* number of features */
  uint32_t num_tables;   /* number of tables */
  uint32_t num_outputs;  /* number of outputs, at least 1 */
  uint32_t reserved;     /* 0 */
  const char* encoding;  /* JSON of the columns that it was trained on, as in checkpoints; "": not on columns */
} tsr_model_info;
tsr_code tsr_model_describe(const tsr_model* model, tsr_model_info* info, tsr_error* err);

typedef struct tsr_model_feature {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
  const char* name;
  int64_t ids; /* valid ids are in [0, ids) */
} tsr_model_feature;
/* Describes feature i, in the order of tsr_model_input::features. TSR_OUT_OF_RANGE: there is no feature i. */
tsr_code tsr_model_get_feature(const tsr_model* model, uint32_t i, tsr_model_feature* feature, tsr_error* err);

typedef struct tsr_model_table {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
  const char* name;
  const char* format; /* "int8", ... */
  int64_t rows, dim;
  int64_t bytes; /* size of all rows */
} tsr_model_table;
tsr_code tsr_model_get_table(const tsr_model* model, uint32_t i, tsr_model_table* table, tsr_error* err);

typedef struct tsr_model_output {
  uint32_t struct_size;
  int32_t probability; /* 1: a probability in (0, 1); 0: a value in the terms of the head's own loss */
  const char* name;    /* the head's name */
  int64_t width;       /* values of each sample */
} tsr_model_output;
tsr_code tsr_model_get_output(const tsr_model* model, uint32_t i, tsr_model_output* output, tsr_error* err);

/* The ids of one feature, for all samples one after the other. */
typedef struct tsr_model_ids {
  const int64_t* values;  /* [num_values] */
  const int32_t* lengths; /* [batch] number of ids of each sample; together num_values */
  const float* weights;   /* [num_values]; NULL: all 1 */
  int64_t num_values;
} tsr_model_ids;

/* A batch of samples, borrowed for the call. */
typedef struct tsr_model_input {
  uint32_t struct_size;
  uint32_t num_features;         /* the model's number */
  int64_t batch;                 /* number of samples */
  const float* dense;            /* [batch, dense_inputs] */
  const tsr_model_ids* features; /* [num_features] */
} tsr_model_input;

/* Computes the first output: scores[batch], probabilities in (0, 1). Repeated calls with batches of the same size
 * allocate no memory. TSR_INVALID_ARGUMENT, TSR_OUT_OF_RANGE: the message names feature, sample and bound, and nothing
 * was written. TSR_FAILED_PRECONDITION: that output has several values for each sample. */
tsr_code tsr_model_predict(tsr_model* model, const tsr_model_input* input, float* scores, tsr_error* err);

/* The same input as tensors in host memory. They may have any strides, such as a column of a larger array or rows with
 * gaps. They are borrowed for the call. Compact int64, int32 (lengths) and float32 tensors are read in place. */
typedef struct tsr_model_tensors {
  uint32_t struct_size;
  uint32_t num_features;          /* the model's number */
  const DLTensor* dense;          /* float32 or float64 [batch, dense_inputs]; NULL if the model has no dense inputs */
  const DLTensor* const* values;  /* [num_features], each int64 or int32 [num_values] */
  const DLTensor* const* lengths; /* [num_features], each int32 or int64 [batch] */
  const DLTensor* const* weights; /* [num_features], each float32 [num_values] or NULL: all 1; NULL: all are 1 */
} tsr_model_tensors;
/* Computes the first output: `scores` is float32 [batch] or [batch, 1]. Errors are those of tsr_model_predict(). */
tsr_code tsr_model_predict_tensors(tsr_model* model, const tsr_model_tensors* input, const DLTensor* scores,
                                   tsr_error* err);

/* Computes all wanted outputs in one prediction. outputs[i] is float32 [batch, width of output i], or [batch] if that
 * width is 1, with any strides. NULL: not wanted; at least one is wanted. Errors are those of tsr_model_predict(). */
tsr_code tsr_model_predict_outputs(tsr_model* model, const tsr_model_tensors* input, const DLTensor* const* outputs,
                                   uint32_t num_outputs, tsr_error* err);

typedef struct tsr_model_stats {
  uint32_t struct_size;
  uint32_t reserved;    /* 0 */
  uint64_t predictions; /* number of successful calls */
  uint64_t samples;     /* number of samples in these calls */
  uint64_t bad_ids;     /* number of ids out of range, over all tables, if the model lets them pass */
} tsr_model_stats;
tsr_code tsr_model_get_stats(const tsr_model* model, tsr_model_stats* stats, tsr_error* err);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_INFER_H_ */

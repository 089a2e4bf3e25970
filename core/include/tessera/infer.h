/* tessera/infer.h - a packed model (docs/models.md) in a C program: load, describe, predict, count, close.
 *
 *   1. tsr_model_open() maps the model that a directory has.
 *   2. tsr_model_describe() and tsr_model_get_feature() tell which features and how many dense values a sample has.
 *   3. tsr_model_predict() computes the wanted outputs for a batch. Any number of threads may call it.
 *   4. tsr_model_close() frees the model, after the last prediction has returned.
 *
 *   tsr_error err = {.struct_size = sizeof(err)};
 *   tsr_model* model;
 *   if (tsr_model_open("model", NULL, &model, &err) != TSR_OK) { puts(err.message); return 1; }
 *   const DLTensor* const outputs[] = {&scores};
 *   tsr_model_predict(model, &input, outputs, 1, &err);
 *   tsr_model_close(model);
 *
 * The header is C11, and the functions are in libtessera, under the symbol version TESSERA_C_1. Codes and errors are
 * those of the plugin contract (abi/base.h). Every function returns a code; if that is not TSR_OK, it writes one
 * sentence into the caller's tsr_error, which may be NULL. No function throws or exits.
 *
 * Structs begin with struct_size, the sizeof that the caller was compiled with, and grow only at their end. In a struct
 * that the caller fills, zeros are the defaults. A member that this library does not know must be 0, otherwise the call
 * gets TSR_UNIMPLEMENTED; so nothing that a newer caller asks for is silently left out. A `reserved` member must be 0
 * too. Structs that the library fills are written as far as the caller's struct_size allows, and the rest is zeroed.
 *
 * Several threads may call all functions except tsr_model_close() at once.
 */
#ifndef TESSERA_INFER_H_
#define TESSERA_INFER_H_

#include "tessera/abi/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the version of the library that runs, as "MAJOR.MINOR.PATCH". */
const char* tsr_version(void);
/* Returns the same as a number that can be compared: MAJOR * 1000000 + MINOR * 1000 + PATCH. */
uint32_t tsr_version_number(void);
/* Returns the name of a code, such as "TSR_NOT_FOUND". An unknown code is treated as TSR_INTERNAL (abi/base.h), so it
 * has that name. The text lives as long as the process. */
const char* tsr_code_name(tsr_code code);

/* A runtime, which finds plugins. tessera.h opens one; a program that only predicts needs none. */
typedef struct tsr_runtime tsr_runtime;

typedef struct tsr_model tsr_model;

typedef struct tsr_model_options {
  uint32_t struct_size;
  int32_t threads;         /* number for one prediction; 0: one, which is best if predictions run side by side */
  const char* plugin_path; /* directory of plugins that is searched first; NULL: only the installed ones */
  const char* kernel;      /* id of a kernel component; NULL: the best one */
  /* The runtime whose plugins, threads and log serve this model, such as one for several models. The model keeps it
   * alive. `threads`, `plugin_path` and `log` are then not set (TSR_INVALID_ARGUMENT). NULL: a runtime of its own. */
  const tsr_runtime* runtime;
  /* Gets each logged line, such as a warning about ids that the model leaves out. `level` is a TSR_LOG_* (abi/host.h).
   * Any thread may call it until the model is closed. NULL: lines go to standard error. */
  void (*log)(void* user, int32_t level, const char* text);
  void* log_user; /* first argument of `log` */
  /* The type to which the inputs of the dense layers' matrix products are rounded: "float32", "bfloat16", or "auto",
   * which is bfloat16 if it is faster here. TSR_UNAVAILABLE: a processor lacks it. NULL: "int8" if the model was
   * packed so, otherwise "float32". A model in int8 takes only "int8" and "auto". */
  const char* dense_precision;
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

/* A batch of samples, as tensors in host memory. They may have any strides, such as a column of a larger array or rows
 * with gaps. They are borrowed for the call. Compact int64 values, int32 lengths, and float32 dense values and weights
 * are read in place; others are copied. */
typedef struct tsr_model_input {
  uint32_t struct_size;
  uint32_t num_features;          /* the model's number */
  const DLTensor* dense;          /* float32 or float64 [batch, dense_inputs]; NULL if the model has no dense inputs */
  const DLTensor* const* values;  /* [num_features], each int64 or int32 [num_values]: all samples' ids in turn */
  const DLTensor* const* lengths; /* [num_features], each int32 or int64 [batch]: number of ids of each sample */
  const DLTensor* const* weights; /* [num_features], each float32 [num_values] or NULL: all 1; NULL: all are 1 */
} tsr_model_input;

/* Computes all wanted outputs in one prediction. outputs[i] is float32 [batch, width of output i], or [batch] if that
 * width is 1, with any strides. NULL: not wanted; at least one is wanted. Repeated calls with batches of the same size
 * allocate no memory. TSR_INVALID_ARGUMENT, TSR_OUT_OF_RANGE: the message names feature, sample and bound, and nothing
 * was written. */
tsr_code tsr_model_predict(tsr_model* model, const tsr_model_input* input, const DLTensor* const* outputs,
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

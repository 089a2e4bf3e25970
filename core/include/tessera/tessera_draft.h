/* tessera/tessera_draft.h - more functions over the handles of tessera.h: quantized copies, packed models, the trainer,
 * and a program's own data. They follow interfaces that are drafts themselves (graphs, configs, readers, words), so
 * they may change after tessera.h is final. Their symbol version is TESSERA_C_DRAFT. The rules are those of tessera.h.
 */
#ifndef TESSERA_TESSERA_DRAFT_H_
#define TESSERA_TESSERA_DRAFT_H_

#include "tessera/tessera.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Quantized tables: they only infer -----------------------------------------------------------------------------
 */

typedef struct tsr_quant_collection tsr_quant_collection;

/* Collective. Makes a copy of a collection with quantized rows (docs/quantization.md). Every rank has all rows, and the
 * copy never communicates. One thread at a time uses it (TSR_FAILED_PRECONDITION). `options` is JSON, such as
 * {"format": "int8", "formats": {"film": "int4"}, "bounds_check": "fatal"}; NULL: all defaults. Formats are int8, int4,
 * int2, fp16, fp8 and fp32. TSR_INVALID_ARGUMENT: a row has NaN or infinity, or the format does not allow the dim; the
 * message names the table. */
tsr_code tsr_collection_quantize(tsr_collection* collection, const char* options, tsr_quant_collection** quantized,
                                 tsr_error* err);
void tsr_quant_collection_close(tsr_quant_collection* quantized);
/* Gives the number of bytes of all rows. */
tsr_code tsr_quant_collection_bytes(const tsr_quant_collection* quantized, int64_t* bytes, tsr_error* err);
/* For bags: writes the pooled rows to `output`, float32 [samples, width]. Columns and features are those of the
 * collection. Batches have no strides. */
tsr_code tsr_quant_collection_forward(tsr_quant_collection* quantized, const tsr_batch* batch, const DLTensor* output,
                                      tsr_error* err);
/* For sequences: writes the rows of output i, as of the collection, to outputs[i], float32 [ids of its feature, dim].
 * NULL: not wanted. */
tsr_code tsr_quant_collection_sequences(tsr_quant_collection* quantized, const tsr_batch* batch,
                                        const DLTensor* const* outputs, uint32_t num_outputs, tsr_error* err);

/* ---- Packed models: tables and a dense part, for predictions (docs/models.md) --------------------------------------
 */

typedef struct tsr_pack_options {
  uint32_t struct_size;
  uint32_t num_collections;
  /* [num_collections], all over one group or all only on this rank. Their tables have different names. At least one
   * collection is of bags. Sequences are for layers that take one (docs/layers.md). */
  tsr_collection* const* collections;
  /* The dense part (docs/graphs.md), as JSON {"dense_inputs": 13, "layers": [...], "heads": [...]}. */
  const char* graph;
  /* [num_tensors] names of the dense part's parameters, such as "top.0.weight", and their tensors. Tensors are float32;
   * a buffer may be int64. */
  const char* const* names;
  const DLTensor* const* tensors;
  /* JSON {"name": "", "format": "int8", "formats": {"film": "int4"}, "bounds_check": "fatal"}; NULL: all defaults. */
  const char* settings;
  uint32_t num_tensors;
  uint32_t flags; /* none is defined: 0 */
} tsr_pack_options;

/* Collective. Rank 0 writes the directory, which `tessera serve` and infer.h open. `report` gets JSON on rank 0 that
 * says what became of each table; it may be NULL. TSR_ALREADY_EXISTS: the directory exists. TSR_INVALID_ARGUMENT: the
 * graph is wrong, a parameter is missing, or two tables have one name. */
tsr_code tsr_pack(const char* directory, const tsr_pack_options* options, tsr_text** report, tsr_error* err);

/* ---- The trainer of `tessera train` --------------------------------------------------------------------------------
 */

typedef struct tsr_train_options {
  uint32_t struct_size;
  uint32_t num_overrides;
  /* TOML (docs/config.md). Its [plugins] and [comm] are not used: the runtime and the group decide these. */
  const char* config;
  const char* source;           /* the config's name in error messages; NULL: "the config" */
  const char* const* overrides; /* [num_overrides] changes of the config: "data.epochs=2" */
  /* The following members are the options of `tessera train` with these names. */
  const char* save;      /* directory for checkpoints; NULL: none */
  const char* save_best; /* directory for the best checkpoint; NULL: none */
  const char* load;      /* directory of the checkpoint to start from; NULL: none */
  int64_t save_every;    /* steps between checkpoints; 0: only at the end */
  int64_t max_steps;     /* number of steps in all; 0: until the last epoch ends */
  int32_t keep;          /* number of checkpoints to keep; 0: 2 */
  /* Only with `load`. 0: training goes on after the last batch before the checkpoint, so data, batch size and seed must
   * be those of that run (TSR_INVALID_ARGUMENT). 1: the checkpoint gives the model and the optimizers' states, and
   * training starts with the first batch of the data, which may be other data. */
  int32_t new_data;
  /* Called before each step with event NULL. Called with JSON {"step", "epoch", "samples", "loss"} every
   * report.log_every steps, and with {"step", "validation": {"auc", "logloss", ...}}. If it does not return 0, training
   * ends within a few steps on all ranks. The thread in tsr_train() calls it. NULL: not called. */
  int32_t (*watch)(void* user, const char* event);
  void* user;        /* first argument of `watch` */
  int32_t overwrite; /* 1: the first checkpoint replaces those of another run in `save` or `save_best` */
  uint32_t flags;    /* none is defined: 0 */
} tsr_train_options;

/* Collective. Reads the data, plans, trains, and evaluates the model on the test part; with `save_best` it evaluates
 * the best model. `group` NULL: only this rank. `report` gets JSON on every rank: the contents of `tessera train`'s
 * report.json, and "stopped", which tells if `watch` ended the training. TSR_INVALID_ARGUMENT and others: the config or
 * the data are wrong. An error on one rank aborts the group. */
tsr_code tsr_train(const tsr_runtime* runtime, tsr_process_group* group, const tsr_train_options* options,
                   tsr_text** report, tsr_error* err);

/* ---- Values and rows of a program's own data -----------------------------------------------------------------------
 */

/* Gives the word of each value, one line each (tessera/sdk/values.h). Vocabularies, hashes and crosses know a value by
 * its word. The line is empty for NaN and infinity. `values` is int64, uint64, float32 or float64 [n]. `unit` is NULL
 * for numbers. For int64 it may be "bool", "day" (days since 1970), "s", "ms", "us" or "ns" (times since 1970), or
 * "time" (nanoseconds of a day). */
tsr_code tsr_words(const DLTensor* values, const char* unit, tsr_text** words, tsr_error* err);

/* Predicts for rows of a file as `tessera predict` does, in their order. The model's own vocabularies, hashes and
 * transforms of columns are used. `reader` is a reader component of the runtime, which reads the rows from `path`.
 * Labels, and columns that the model does not use, may be missing. outputs[i] is float32 [rows, width of output i], or
 * [rows]; NULL: not wanted. `warnings` gets a line for each column with many ids that are in no vocabulary; it may be
 * NULL. TSR_FAILED_PRECONDITION: the model was not trained on columns. TSR_NOT_FOUND: a column is missing. */
tsr_code tsr_model_predict_rows(const tsr_runtime* runtime, tsr_model* model, const char* reader, const char* path,
                                const DLTensor* const* outputs, uint32_t num_outputs, tsr_text** warnings,
                                tsr_error* err);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_TESSERA_DRAFT_H_ */

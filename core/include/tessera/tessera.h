/* tessera/tessera.h - sharded embedding tables from C, and from every language that can call C: docs/c.md.
 *
 *   tsr_error err = {.struct_size = sizeof(err)};
 *   tsr_runtime_open(NULL, &runtime, &err);                       // finds the plugins
 *   tsr_process_group_connect(runtime, NULL, &group, &err);       // the ranks that a launcher has started
 *   tsr_model_parallel_create(runtime, group, &options, &model, &err);    // plans, and makes this rank's shards
 *   tsr_model_parallel_collection(model, "", &tables, &err);
 *   tsr_collection_forward(tables, &batch, NULL, &step, &err);    // rows of this rank's samples, wherever they live
 *   tsr_step_output(step, 0, &rows, &err);
 *   tsr_step_backward(step, &grad, 1, &err);                      // updates the rows where they live
 *
 * A DRAFT: until it is said to be final, functions may change from one version to the next. In libtessera, under the
 * symbol version TESSERA_C_1. C11.
 *
 * Errors. Every function that can fail returns a code and, when that is not TSR_OK, writes one sentence into the
 * caller's tsr_error, which may be NULL (abi/base.h; a sentence that is longer than its array is cut). Nothing throws,
 * exits or prints, but for warnings of a runtime without a log sink on standard error. Pointers that must not be NULL
 * and are: TSR_INVALID_ARGUMENT. Handles are opaque. A handle keeps what it was made from, so they may be closed in any
 * order; closing NULL is allowed. Structs that a caller fills begin with struct_size and grow at the end only; zeros
 * are the defaults. Those that the library fills are written as far as the caller's struct_size says. Strings are
 * NUL-terminated UTF-8; those handed in are borrowed for the call, those handed out live as long as their handle.
 * Tensors are DLPack's, in host memory, compact and row-major, borrowed for the call unless it is said otherwise.
 * Devices. Tables and tensors are in host memory: a tensor on a device gets TSR_UNIMPLEMENTED and a sentence with its
 * name. So no function takes a stream, and all of it has been done when a call returns.
 * Threads. A runtime serves any number of threads. A process group, and all models over it, are used by one thread at a
 * time: a second one gets TSR_FAILED_PRECONDITION. tsr_process_group_abort() alone may be called by any thread, at any
 * time. Functions marked "collective" are called by all ranks of the group in the same order.
 * Processes. After fork() the child gets TSR_FAILED_PRECONDITION from whatever was opened before.
 */
#ifndef TESSERA_TESSERA_H_
#define TESSERA_TESSERA_H_

#include "tessera/abi/plugin.h"
#include "tessera/abi/tensor.h"
#include "tessera/infer.h"

/* DLPack 1.0's tensor with an owner, where the header that is installed is older. */
#if !defined(DLPACK_MAJOR_VERSION) || DLPACK_MAJOR_VERSION < 1
typedef struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
} DLPackVersion;
typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self); /* once, by whoever has the tensor, in any thread */
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0": of the library that runs. */
const char* tsr_version(void);

/* ---- Texts of any length, made by the library ----------------------------------------------------------------------
 */

typedef struct tsr_text tsr_text;
const char* tsr_text_data(const tsr_text* text); /* as long as the text lives; "" for NULL */
void tsr_text_free(tsr_text* text);

/* ---- Runtime: finds plugins, checks them, makes parts of them ------------------------------------------------------
 */

typedef struct tsr_runtime tsr_runtime;

typedef struct tsr_runtime_options {
  uint32_t struct_size;
  int32_t threads;                /* that large lookups and planning may use; 0: one, -1: one per core */
  const char* const* plugin_path; /* absolute directories searched first */
  const char* const* require;     /* ids of parts that must be usable, or the runtime does not open */
  uint32_t num_plugin_paths;
  uint32_t num_required;
  /* Plugins that the program holds itself (abi/plugin.h), found before all files: a transport, a sharder, a reader of
   * its own. The tables live as long as the process. */
  const tsr_plugin* const* plugins;
  /* Takes the lines that are logged (level: TSR_LOG_*, abi/host.h), up to TESSERA_LOG; NULL: standard error has them.
   * Called by any thread, not any more when the runtime and all that was made from it are closed. */
  void (*log)(void* user, int32_t level, const char* text);
  void* log_user;
  uint32_t num_plugins;
  uint32_t reserved;
} tsr_runtime_options;

/* `options` may be NULL. TSR_NOT_FOUND, TSR_FAILED_PRECONDITION: a required part is not there, with the reason.
 * TSR_INVALID_ARGUMENT: a plugin of the program's own is wrong. */
tsr_code tsr_runtime_open(const tsr_runtime_options* options, tsr_runtime** runtime, tsr_error* err);
void tsr_runtime_close(tsr_runtime* runtime);
/* The plugins that were found, as JSON: {"searched": [...], "plugins": [{"id", "kind", "state", "reason", ...}]}. Opens
 * everything, so that every line has its final state. [any-thread] */
tsr_code tsr_runtime_report(const tsr_runtime* runtime, tsr_text** json, tsr_error* err);

/* ---- Plans ---------------------------------------------------------------------------------------------------------
 */

/* The plan of a model, as JSON (docs/plans.md). `model`: its description, `planner`: topology and search, or the
 * sharding of each table (docs/c.md has the keys of both). Talks to nobody. `report`, which may be NULL: tables for a
 * person. TSR_INVALID_ARGUMENT names the key; TSR_RESOURCE_EXHAUSTED, TSR_FAILED_PRECONDITION: there is no plan, and
 * what would help. [any-thread] */
tsr_code tsr_plan(const tsr_runtime* runtime, const char* model, const char* planner, tsr_text** plan,
                  tsr_text** report, tsr_error* err);

/* ---- Process group: the ranks of a job -----------------------------------------------------------------------------
 */

typedef struct tsr_process_group tsr_process_group;

/* Zeros: who this process is comes from the environment, as torchrun, `tessera launch`, mpirun and Slurm set it;
 * without any of them, one rank. */
typedef struct tsr_process_group_options {
  uint32_t struct_size;
  int32_t world_size; /* 0: all of this from the environment */
  int32_t rank;
  int32_t local_rank;
  int32_t local_world_size; /* ranks on this host; 0: the transport is asked */
  int32_t master_port;      /* where rank 0 is met */
  const char* master_addr;
  const char* token;   /* the job's secret; NULL: TESSERA_JOB_TOKEN */
  const char* backend; /* a transport's id, "tcp?shm=false"; NULL: "auto" */
  double timeout_s;    /* for connecting, and of every operation; 0: 30 */
} tsr_process_group_options;

/* Collective: returns when all ranks have met. `options` may be NULL. One rank needs no network.
 * TSR_DEADLINE_EXCEEDED names who is missing. */
tsr_code tsr_process_group_connect(const tsr_runtime* runtime, const tsr_process_group_options* options,
                                   tsr_process_group** group, tsr_error* err);
void tsr_process_group_close(tsr_process_group* group);

typedef struct tsr_process_group_info {
  uint32_t struct_size;
  int32_t rank, world_size;
  int32_t local_rank, local_world_size;
  int32_t reserved;
  const char* backend; /* the transport's id; "local" for one rank */
} tsr_process_group_info;
tsr_code tsr_process_group_describe(const tsr_process_group* group, tsr_process_group_info* info, tsr_error* err);

/* The dense part of a model. All collective; every rank gives tensors of the same type and number of elements.
 * op: TSR_REDUCE_SUM, _MAX, _MIN (abi/collective.h: 0, 1, 2), over float32, float64, int32, int64. */
tsr_code tsr_process_group_all_reduce(tsr_process_group* group, const DLTensor* inout, int32_t op, tsr_error* err);
tsr_code tsr_process_group_broadcast(tsr_process_group* group, const DLTensor* inout, int32_t root, tsr_error* err);
/* recv has world_size times the elements of send, by rank. */
tsr_code tsr_process_group_all_gather(tsr_process_group* group, const DLTensor* send, const DLTensor* recv,
                                      tsr_error* err);
/* send has world_size pieces of recv's elements, by rank of whom they are for; recv becomes the pieces meant for this
 * rank, put together by op. Types as of all_reduce. */
tsr_code tsr_process_group_reduce_scatter(tsr_process_group* group, const DLTensor* send, const DLTensor* recv,
                                          int32_t op, tsr_error* err);
/* Pieces of any length, by rank: send_counts[r] elements go to rank r, recv_counts[r] come from it. */
tsr_code tsr_process_group_all_to_all(tsr_process_group* group, const DLTensor* send, const int64_t* send_counts,
                                      const DLTensor* recv, const int64_t* recv_counts, tsr_error* err);
tsr_code tsr_process_group_barrier(tsr_process_group* group, tsr_error* err);
/* Ends whatever waits in this group here, and as far as possible on the other ranks, which get `reason`. The group and
 * its models are of no use afterwards, but for closing. [any-thread] */
tsr_code tsr_process_group_abort(tsr_process_group* group, const char* reason, tsr_error* err);

/* ---- Models: collections of tables, sharded over a group -----------------------------------------------------------
 */

typedef struct tsr_model_parallel tsr_model_parallel;
typedef struct tsr_collection tsr_collection;

typedef struct tsr_model_parallel_options {
  uint32_t struct_size;
  uint32_t reserved;
  const char* model;   /* the description: modules, their tables, optimizer (docs/c.md) */
  const char* plan;    /* of tsr_plan() or a file; NULL: rank 0 plans, all get its plan */
  const char* planner; /* for that; NULL: defaults. Its topology is that of the group */
} tsr_model_parallel_options;

/* Collective. `group` NULL: all tables are on this rank alone. TSR_FAILED_PRECONDITION: ranks want different models or
 * plans; TSR_INVALID_ARGUMENT: the description, or a plan that was made for other tables. */
tsr_code tsr_model_parallel_create(const tsr_runtime* runtime, tsr_process_group* group,
                                   const tsr_model_parallel_options* options, tsr_model_parallel** model,
                                   tsr_error* err);
void tsr_model_parallel_close(tsr_model_parallel* model);
tsr_code tsr_model_parallel_plan(const tsr_model_parallel* model, tsr_text** plan, tsr_error* err);

/* Collective. A checkpoint of all tables with their optimizers' state (docs/checkpoints.md), independent of plan and
 * number of ranks. `progress`: any text, which tsr_model_parallel_load() gives back; NULL: none. `keep`: how many may
 * be in the directory then; 0: 2. TSR_UNAVAILABLE, TSR_RESOURCE_EXHAUSTED name the path. */
tsr_code tsr_model_parallel_save(tsr_model_parallel* model, const char* directory, const char* progress, int32_t keep,
                                 tsr_error* err);
/* Collective. The newest one in `directory`. `progress` may be NULL. TSR_NOT_FOUND: none there; TSR_DATA_LOSS: damaged;
 * TSR_INVALID_ARGUMENT: of another model. Nothing changes unless everything fits. */
tsr_code tsr_model_parallel_load(tsr_model_parallel* model, const char* directory, tsr_text** progress, tsr_error* err);

/* A view of a parameter of the dense part, as the description names it: float32, the library's, as long as the model
 * lives. What the caller writes there is in the next checkpoint; a load writes there. TSR_NOT_FOUND lists the names. */
tsr_code tsr_model_parallel_dense(const tsr_model_parallel* model, const char* name, DLTensor* view, tsr_error* err);

/* The collection of that path; TSR_NOT_FOUND lists the paths. */
tsr_code tsr_model_parallel_collection(tsr_model_parallel* model, const char* path, tsr_collection** collection,
                                       tsr_error* err);
void tsr_collection_close(tsr_collection* collection);

enum { TSR_COLLECTION_BAGS = 0, TSR_COLLECTION_SEQUENCES = 1 };

typedef struct tsr_collection_info {
  uint32_t struct_size;
  int32_t kind; /* TSR_COLLECTION_* */
  uint32_t num_tables;
  uint32_t num_features; /* that a batch must have */
  uint32_t num_outputs;  /* one for each feature of each table */
  uint32_t num_shards;   /* on this rank, also replicated ones */
  int64_t width;         /* of bags: the sum of the outputs' dims */
  int64_t steps;         /* updates done */
  int64_t dropped_ids;   /* by this rank's bounds check, where it lets ids pass */
} tsr_collection_info;
tsr_code tsr_collection_describe(const tsr_collection* collection, tsr_collection_info* info, tsr_error* err);

typedef struct tsr_table_info {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;
  const char* key; /* in a state dict: "embedding_bags.film.weight" */
  int64_t rows, dim;
} tsr_table_info;
tsr_code tsr_collection_get_table(const tsr_collection* collection, uint32_t i, tsr_table_info* info, tsr_error* err);
/* The features in the order in which tables name them first. */
tsr_code tsr_collection_get_feature(const tsr_collection* collection, uint32_t i, const char** name, tsr_error* err);

typedef struct tsr_output_info {
  uint32_t struct_size;
  uint32_t table;   /* index */
  const char* name; /* the feature; "feature@table" where several tables have it */
  int64_t dim;
  int64_t column; /* of bags: where it begins */
} tsr_output_info;
tsr_code tsr_collection_get_output(const tsr_collection* collection, uint32_t i, tsr_output_info* info, tsr_error* err);

/* The counters of this rank for the collection, as JSON: {"rank", "world_size", "updates", "dropped_ids", "steps",
 * "stages": {"route": SECONDS, ...}, "bytes_sent": {"ids": {"in_host", "across_hosts"}, ...}, "tables": {"film":
 * {"weight_bytes", "state_bytes", "lookups", "rows"}, ...}}. "steps" and "stages" (time, waiting for other ranks
 * included) count from the last call with `restart` 1, the others from the beginning; a table's figures are those of
 * this rank's shards. Not collective. */
tsr_code tsr_collection_stats(tsr_collection* collection, int32_t restart, tsr_text** stats, tsr_error* err);

/* ---- Steps ---------------------------------------------------------------------------------------------------------
 */

/* The samples of this rank. Key-major: the bags of all samples for key 0, then for key 1, ... */
typedef struct tsr_batch {
  uint32_t struct_size;
  uint32_t num_keys;
  const char* const* keys; /* [num_keys], in any order, further ones are ignored; NULL: the collection's features */
  const DLTensor* values;  /* ids, int32 or int64 [n] */
  const DLTensor* lengths; /* int32 or int64 [num_keys * samples]; or offsets, or both */
  const DLTensor* offsets; /* int32 or int64 [num_keys * samples + 1] */
  const DLTensor* weights; /* float32 [n], of weighted collections; NULL: none */
  const int64_t* strides;  /* [num_keys] samples of each key, where they differ; NULL: all alike */
  const DLTensor* inverse; /* int64 [num_keys, samples]: with strides, which of its samples each one has */
  int32_t finished;        /* 1: this rank has no further batches; it goes on with empty ones until all_finished */
  int32_t reserved;
  const char* refused; /* NULL; or why this rank has no batch, which ends the step on all ranks; the rest is not read */
} tsr_batch;

/* The state that a forward keeps: its outputs, and the needs of backward. */
typedef struct tsr_step tsr_step;

/* Collective. Rows of this rank's samples, float32. `output`: NULL, or the caller's memory, to which they are copied:
 * of bags [samples, width]; of sequences not. `step`: NULL, where neither tsr_step_output() nor backward follows, or
 * the step; the memory of `batch` then stays as it is until the step's backward is done or it is closed. An id out of
 * range or a batch of wrong types or shapes ends the step on all ranks with TSR_INVALID_ARGUMENT and "rank N: ..."; the
 * next step may follow. */
tsr_code tsr_collection_forward(tsr_collection* collection, const tsr_batch* batch, const DLTensor* output,
                                tsr_step** step, tsr_error* err);
/* The same in two halves: start() has the ids checked and exchanged, and wait() looks the rows up and brings them here;
 * both collective. Between them the dense part may be at work, and other calls in the group may stand. `batch` stays as
 * it is until the wait has returned, or backward. What comes behind wait() is that of a forward; an error of
 * wait() leaves a step that can only be closed. Closing a step that was not waited for waits for it: collective. */
tsr_code tsr_collection_start(tsr_collection* collection, const tsr_batch* batch, tsr_step** step, tsr_error* err);
tsr_code tsr_step_wait(tsr_step* step, tsr_error* err);
void tsr_step_close(tsr_step* step);

typedef struct tsr_step_info {
  uint32_t struct_size;
  uint32_t num_outputs; /* of tsr_step_output(): 1 of bags */
  int32_t all_finished; /* every rank said `finished` */
  int32_t any_finished; /* of bags: some rank did */
} tsr_step_info;
tsr_code tsr_step_describe(const tsr_step* step, tsr_step_info* info, tsr_error* err);
/* A view of the step's own memory, float32, until the step is closed. Of bags: output 0, [samples, width]. Of
 * sequences: output i, [ids of its feature, dim], in the order of the ids. The caller may write to it. */
tsr_code tsr_step_output(const tsr_step* step, uint32_t i, DLTensor* view, tsr_error* err);
/* The same memory with an owner, for libraries that take DLPack's tensors: it lives until its deleter was called,
 * whatever was closed before. */
tsr_code tsr_step_export(const tsr_step* step, uint32_t i, DLManagedTensorVersioned** output, tsr_error* err);
/* Collective, once for each step: updates the tables by their optimizer. grads: shaped like the outputs, of this rank's
 * loss; ranks are averaged, unless the description says otherwise. grads[i] NULL: zeros, of sequences only.
 * TSR_FAILED_PRECONDITION: a table has no optimizer. */
tsr_code tsr_step_backward(tsr_step* step, const DLTensor* const* grads, uint32_t num_grads, tsr_error* err);
/* Collective, before the batch's backward: the gradients of its weights, float32 [n] like them, of a weighted
 * collection of bags; grad: [samples, width] as of backward. The rows are looked up once more. TSR_FAILED_PRECONDITION:
 * the collection is not weighted; TSR_UNIMPLEMENTED: of sequences. */
tsr_code tsr_collection_weight_gradients(tsr_collection* collection, const tsr_batch* batch, const DLTensor* grad,
                                         const DLTensor* gradients, tsr_error* err);

/* ---- Optimizers ----------------------------------------------------------------------------------------------------
 */

/* table NULL: all tables. Tables with the same optimizer change together. */
tsr_code tsr_collection_set_learning_rate(tsr_collection* collection, const char* table, double value, tsr_error* err);
/* TSR_FAILED_PRECONDITION where this rank has no table with that optimizer. */
tsr_code tsr_collection_get_learning_rate(const tsr_collection* collection, const char* table, double* value,
                                          tsr_error* err);
/* Updates done: Adam's t. */
tsr_code tsr_collection_set_steps(tsr_collection* collection, int64_t steps, tsr_error* err);

/* ---- Rows ----------------------------------------------------------------------------------------------------------
 */

/* Collective. Rows [first, first + count) of a table, to every rank: float32 [count, dim]. */
tsr_code tsr_collection_read_rows(tsr_collection* collection, const char* table, int64_t first, const DLTensor* rows,
                                  tsr_error* err);
/* Writes what this rank holds of these rows; not collective. All ranks together write them all. Optimizer state stays.
 */
tsr_code tsr_collection_write_rows(tsr_collection* collection, const char* table, int64_t first, const DLTensor* rows,
                                   tsr_error* err);

/* A rectangle of a table on this rank. */
typedef struct tsr_shard_info {
  uint32_t struct_size;
  uint32_t table; /* index */
  int32_t shard;  /* index in the plan */
  uint32_t num_states;
  int64_t rows, cols;
  int64_t row, col; /* the first ones; where a sharder deals rows out, row says nothing: tsr_shard_ids() */
} tsr_shard_info;
tsr_code tsr_collection_get_shard(const tsr_collection* collection, uint32_t i, tsr_shard_info* info, tsr_error* err);

typedef struct tsr_state_info {
  uint32_t struct_size;
  int32_t per_row;  /* 1: [rows]; 0: [rows, cols] */
  const char* name; /* "momentum1" */
} tsr_state_info;
tsr_code tsr_shard_get_state(const tsr_collection* collection, uint32_t shard, uint32_t i, tsr_state_info* info,
                             tsr_error* err);
/* Rows [first, first + count) of a shard, by cursor: weights float32 [count, cols], and all states or, with NULL,
 * none: each float32 [count] or [count, cols]. Not collective. */
tsr_code tsr_shard_read(const tsr_collection* collection, uint32_t shard, int64_t first, const DLTensor* weights,
                        const DLTensor* const* states, uint32_t num_states, tsr_error* err);
tsr_code tsr_shard_write(tsr_collection* collection, uint32_t shard, int64_t first, const DLTensor* weights,
                         const DLTensor* const* states, uint32_t num_states, tsr_error* err);
/* The table's row ids behind them: int64 [count]. */
tsr_code tsr_shard_ids(const tsr_collection* collection, uint32_t shard, int64_t first, const DLTensor* ids,
                       tsr_error* err);

/* ---- Quantized tables: they only infer -----------------------------------------------------------------------------
 */

typedef struct tsr_quant_collection tsr_quant_collection;

/* Collective. A copy of a collection with quantized rows (docs/quantization.md), whole on every rank: it talks
 * to nobody, and is used by one thread at a time (TSR_FAILED_PRECONDITION). `options`: JSON, NULL: all defaults,
 * {"format": "int8", "formats": {"film": "int4"}, "bounds_check": "fatal"}; formats are int8, int4, int2, fp16, fp8 and
 * fp32. TSR_INVALID_ARGUMENT: a row with NaN or infinity, or a dim that the format cannot have, by table. */
tsr_code tsr_collection_quantize(tsr_collection* collection, const char* options, tsr_quant_collection** quantized,
                                 tsr_error* err);
void tsr_quant_collection_close(tsr_quant_collection* quantized);
/* Bytes of all rows. */
tsr_code tsr_quant_collection_bytes(const tsr_quant_collection* quantized, int64_t* bytes, tsr_error* err);
/* Bags: pooled rows, into the caller's float32 [samples, width]; columns and features are those of the collection.
 * Batches without strides. */
tsr_code tsr_quant_collection_forward(tsr_quant_collection* quantized, const tsr_batch* batch, const DLTensor* output,
                                      tsr_error* err);
/* Sequences: rows of output i, as of the collection, into outputs[i], float32 [ids of its feature, dim]; NULL: they
 * are not wanted. */
tsr_code tsr_quant_collection_sequences(tsr_quant_collection* quantized, const tsr_batch* batch,
                                        const DLTensor* const* outputs, uint32_t num_outputs, tsr_error* err);

/* ---- Models that answer: tables and a dense part, packed (docs/models.md) ------------------------------------------
 */

typedef struct tsr_pack_options {
  uint32_t struct_size;
  uint32_t num_collections;
  /* All over one group, or each on this rank alone; their tables have names of their own. Rows of sequences are for
   * layers that take one (docs/layers.md); at least one collection is of bags. */
  tsr_collection* const* collections;
  /* JSON {"dense_inputs": 13, "layers": [...], "heads": [...]}: how the dense part is computed (docs/graphs.md). */
  const char* graph;
  /* Its parameters: names in the layers, "top.0.weight", and tensors, float32 (int64: a buffer that counts). */
  const char* const* names;
  const DLTensor* const* tensors;
  /* JSON, NULL: all defaults, {"name": "", "format": "int8", "formats": {"film": "int4"}, "bounds_check": "fatal"}. */
  const char* settings;
  uint32_t num_tensors;
  uint32_t reserved;
} tsr_pack_options;

/* Collective: rank 0 writes the directory, which `tessera serve` and infer.h open. `report`, which may be NULL: JSON,
 * what each table has become, on rank 0. TSR_ALREADY_EXISTS: the directory is there. TSR_INVALID_ARGUMENT: the graph, a
 * parameter that it lacks, tables of one name. */
tsr_code tsr_pack(const char* directory, const tsr_pack_options* options, tsr_text** report, tsr_error* err);

/* ---- The trainer of `tessera train` --------------------------------------------------------------------------------
 */

typedef struct tsr_train_options {
  uint32_t struct_size;
  uint32_t num_overrides;
  const char* config; /* TOML (docs/config.md); [plugins] and [comm] are the runtime's and the group's matter */
  const char* source; /* the config's name in error texts; NULL: "the config" */
  const char* const* overrides; /* "data.epochs=2" */
  const char* save;             /* directory for checkpoints; NULL: none. These are as the options of `tessera train` */
  const char* save_best;
  const char* load;
  int64_t save_every; /* steps; 0: at the end */
  int64_t max_steps;  /* in all; 0: to the last epoch's end */
  int32_t keep;       /* 0: 2 */
  int32_t new_data;
  /* Before each step with event NULL, and with JSON, {"step", "epoch", "samples", "loss"}, every report.log_every
   * steps, and {"step", "validation": {"auc", "logloss", ...}}. Not 0: training ends within a few steps, on all ranks.
   * Called by the thread that called tsr_train(). NULL: nobody asks. */
  int32_t (*watch)(void* user, const char* event);
  void* user;
  int32_t overwrite; /* the first checkpoint takes the place of another run's in `save` or `save_best` */
  int32_t reserved;  /* 0 */
} tsr_train_options;

/* Collective: reads the data, plans, trains, evaluates on the test part, with `save_best` the best model. `group` NULL:
 * this rank alone. `report`: JSON, what `tessera train` writes to report.json, and "stopped", whether `watch` ended it;
 * on every rank. TSR_INVALID_ARGUMENT, ...: what in config or data cannot be. An error on one rank aborts the group. */
tsr_code tsr_train(const tsr_runtime* runtime, tsr_process_group* group, const tsr_train_options* options,
                   tsr_text** report, tsr_error* err);

/* ---- Values and rows of a program's own data -----------------------------------------------------------------------
 */

/* The word of each value (tessera/sdk/values.h), which vocabularies, hashes and crosses know it by: a line each, empty
 * for NaN and infinity. `values`: [n], int64, uint64, float32 or float64. `unit`: NULL for numbers; of int64, "bool",
 * "day" (dates since 1970), "s", "ms", "us", "ns" (times since 1970), "time" (nanoseconds of a day). */
tsr_code tsr_words(const DLTensor* values, const char* unit, tsr_text** words, tsr_error* err);

/* What a model says of rows, in their order, as `tessera predict` reads them: by the vocabularies, hashes and
 * transforms of the columns that it was trained on. The part `reader` of the runtime reads them from `path`; columns
 * that the model does not use, and labels, may be missing. outputs[i]: float32 [rows, width of output i], or [rows];
 * NULL: not wanted. `warnings`, which may be NULL: a sentence for each column of whose ids many are in no vocabulary,
 * a line each. TSR_FAILED_PRECONDITION: the model was not trained on columns. TSR_NOT_FOUND: a column is missing. */
tsr_code tsr_model_predict_rows(const tsr_runtime* runtime, tsr_model* model, const char* reader, const char* path,
                                const DLTensor* const* outputs, uint32_t num_outputs, tsr_text** warnings,
                                tsr_error* err);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_TESSERA_H_ */

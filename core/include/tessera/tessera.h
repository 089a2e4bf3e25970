/* tessera/tessera.h - sharded embedding tables from C, and from every language that can call C: docs/c.md.
 *
 *   tsr_error err = {.struct_size = sizeof(err)};
 *   tsr_runtime_open(NULL, &runtime, &err);                       // finds the plugins
 *   tsr_process_group_connect(runtime, NULL, &group, &err);       // meets the ranks that a launcher has started
 *   tsr_model_parallel_create(runtime, group, &options, &model, &err);    // plans, and makes this rank's shards
 *   tsr_model_parallel_collection(model, "", &tables, &err);
 *   tsr_collection_forward(tables, &batch, NULL, &step, &err);    // gets the rows of this rank's samples
 *   tsr_step_output(step, 0, &rows, &err);
 *   tsr_step_backward(step, &grad, 1, NULL, &err);                // updates the rows on the ranks that own them
 *
 * This is a DRAFT: functions may change from one version to the next until it is declared final. The functions are in
 * libtessera, under the symbol version TESSERA_C_1. The header is C11. tessera_draft.h has more functions, which will
 * stay drafts for longer.
 *
 * Errors. Every function that can fail returns a code. If that is not TSR_OK, the function writes one sentence into the
 * caller's tsr_error, which may be NULL (abi/base.h). A sentence that is longer than the array is cut. No function
 * throws, exits or prints, except that a runtime without a log function writes warnings to standard error. A pointer
 * that must not be NULL gets TSR_INVALID_ARGUMENT if it is NULL.
 *
 * Memory. Handles are opaque. A handle keeps alive what it was made from, so handles may be closed in any order.
 * Closing NULL is allowed. A finalizer may close a handle that no call uses, in any thread. Strings are NUL-terminated
 * UTF-8. The caller's strings are borrowed for the call; the library's strings live as long as their handle. Tensors
 * are DLPack's, in host memory, compact and row-major. They are borrowed for the call unless a comment says otherwise.
 *
 * Structs follow the rules of infer.h: they begin with struct_size, zeros are the defaults, and a member that the
 * library does not know must be 0 (TSR_UNIMPLEMENTED). The high 16 bits of `flags` are refused if the library does not
 * know them, the low 16 bits are hints (abi/base.h). Arrays have pointers, numbers or strings as elements, never
 * structs that may grow.
 *
 * Devices. If a model has a device, its shards and the outputs of its steps are on it, and gradients may be. All other
 * tensors are in host memory; one on a device gets TSR_UNIMPLEMENTED, with its name in the message. No function takes a
 * stream: what a call is given must be complete, and all work is done when it returns.
 *
 * Threads. A runtime serves any number of threads. A process group and all models over it are used by one thread at a
 * time; a second one gets TSR_FAILED_PRECONDITION. Only tsr_process_group_abort() may be called by any thread at any
 * time. Functions marked "Collective" are called by all ranks of the group, in the same order.
 *
 * Processes. After fork(), the child gets TSR_FAILED_PRECONDITION from everything that was opened before.
 */
#ifndef TESSERA_TESSERA_H_
#define TESSERA_TESSERA_H_

#include "tessera/abi/plugin.h"
#include "tessera/abi/tensor.h"
#include "tessera/infer.h"

/* DLPack 1.0's tensor with an owner, defined here if the installed DLPack is older. */
#if !defined(DLPACK_MAJOR_VERSION) || DLPACK_MAJOR_VERSION < 1
typedef struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
} DLPackVersion;
typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self); /* the tensor's holder calls it once, in any thread */
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Texts of any length, made by the library ----------------------------------------------------------------------
 */

/* A text of the library. The caller owns it and frees it. */
typedef struct tsr_text tsr_text;
const char* tsr_text_data(const tsr_text* text); /* valid as long as the text lives; "" for NULL */
void tsr_text_free(tsr_text* text);

/* ---- Runtime: finds plugins, checks them, creates their components -------------------------------------------------
 */

typedef struct tsr_runtime_options {
  uint32_t struct_size;
  int32_t threads;                /* number for large lookups and planning; 0: one, -1: one per core */
  const char* const* plugin_path; /* [num_plugin_paths] absolute directories that are searched first */
  const char* const* require;     /* [num_required] ids of components that must be usable; otherwise open fails */
  uint32_t num_plugin_paths;
  uint32_t num_required;
  /* [num_plugins] plugins that are part of the program (abi/plugin.h), such as its own transport, sharder or reader.
   * They come before all files. The tables live as long as the process. */
  const tsr_plugin* const* plugins;
  /* Gets each logged line up to the level of TESSERA_LOG. `level` is a TSR_LOG_* (abi/host.h). Any thread may call it,
   * until the runtime and everything made from it are closed. NULL: lines go to standard error. */
  void (*log)(void* user, int32_t level, const char* text);
  void* log_user; /* first argument of `log` */
  uint32_t num_plugins;
  uint32_t flags; /* none is defined: 0 */
} tsr_runtime_options;

/* Finds and checks the plugins. `options` may be NULL. TSR_NOT_FOUND, TSR_FAILED_PRECONDITION: a required component is
 * missing or unusable; the message has the reason. TSR_INVALID_ARGUMENT: a plugin of the program is wrong. */
tsr_code tsr_runtime_open(const tsr_runtime_options* options, tsr_runtime** runtime, tsr_error* err);
void tsr_runtime_close(tsr_runtime* runtime);
/* Lists the plugins that were found, as JSON: {"searched": [...], "plugins": [{"id", "kind", "state", "reason", ...}]}.
 * It opens all of them, so that every state is final. [any-thread] */
tsr_code tsr_runtime_report(const tsr_runtime* runtime, tsr_text** json, tsr_error* err);

/* ---- Plans ---------------------------------------------------------------------------------------------------------
 */

/* Makes a plan for a model, as JSON (docs/plans.md). It does not communicate. `model` describes the model. `planner`
 * has the topology and the search's options, or the sharding of each table (docs/c.md lists the keys of both). `report`
 * gets tables for people; it may be NULL. TSR_INVALID_ARGUMENT: the message names the key. TSR_RESOURCE_EXHAUSTED,
 * TSR_FAILED_PRECONDITION: there is no plan; the message says what would help. [any-thread] */
tsr_code tsr_plan(const tsr_runtime* runtime, const char* model, const char* planner, tsr_text** plan,
                  tsr_text** report, tsr_error* err);

/* ---- Process group: the ranks of a job -----------------------------------------------------------------------------
 */

typedef struct tsr_process_group tsr_process_group;

/* This process's place in the job. If all is 0, the environment says it, as torchrun, `tessera launch`, mpirun and
 * Slurm set it. Without any of them there is one rank. */
typedef struct tsr_process_group_options {
  uint32_t struct_size;
  int32_t world_size;       /* number of ranks; 0: all of this struct's numbers come from the environment */
  int32_t rank;             /* number of this rank, in [0, world_size) */
  int32_t local_rank;       /* number of this rank on its host */
  int32_t local_world_size; /* ranks on this host; 0: the transport tells */
  int32_t master_port;      /* port at which rank 0 listens */
  const char* master_addr;  /* address at which rank 0 listens */
  const char* token;        /* the job's secret; NULL: TESSERA_JOB_TOKEN */
  const char* backend;      /* the transport's id, such as "tcp?shm=false"; NULL: "auto" */
  double timeout_s;         /* deadline of connecting and of every operation, in seconds; 0: 30 */
} tsr_process_group_options;

/* Collective. Returns when all ranks have met. `options` may be NULL. A single rank needs no network.
 * TSR_DEADLINE_EXCEEDED: the message names the missing ranks. */
tsr_code tsr_process_group_connect(const tsr_runtime* runtime, const tsr_process_group_options* options,
                                   tsr_process_group** group, tsr_error* err);
void tsr_process_group_close(tsr_process_group* group);

typedef struct tsr_process_group_info {
  uint32_t struct_size;
  int32_t rank, world_size;
  int32_t local_rank, local_world_size; /* the rank's number on its host, and the ranks per host */
  int32_t reserved;
  const char* backend; /* the transport's id; "local" for one rank */
} tsr_process_group_info;
tsr_code tsr_process_group_describe(const tsr_process_group* group, tsr_process_group_info* info, tsr_error* err);

/* The operations for the dense part of a model. All are collective. Every rank gives tensors of the same type and
 * number of elements. `op` is TSR_REDUCE_SUM, _MAX or _MIN (abi/collective.h: 0, 1, 2), over float32, float64, int32,
 * int64. */
tsr_code tsr_process_group_all_reduce(tsr_process_group* group, const DLTensor* inout, int32_t op, tsr_error* err);
tsr_code tsr_process_group_broadcast(tsr_process_group* group, const DLTensor* inout, int32_t root, tsr_error* err);
/* `recv` gets the elements of every rank's `send`, in rank order: world_size times as many. */
tsr_code tsr_process_group_all_gather(tsr_process_group* group, const DLTensor* send, const DLTensor* recv,
                                      tsr_error* err);
/* `send` has world_size pieces, each as long as `recv`; piece r is for rank r. `recv` becomes the reduction of the
 * pieces that are for this rank. Types are those of all_reduce. */
tsr_code tsr_process_group_reduce_scatter(tsr_process_group* group, const DLTensor* send, const DLTensor* recv,
                                          int32_t op, tsr_error* err);
/* Exchanges pieces of any length, in rank order: send_counts[r] elements go to rank r, and recv_counts[r] come from it.
 */
tsr_code tsr_process_group_all_to_all(tsr_process_group* group, const DLTensor* send, const int64_t* send_counts,
                                      const DLTensor* recv, const int64_t* recv_counts, tsr_error* err);
tsr_code tsr_process_group_barrier(tsr_process_group* group, tsr_error* err);
/* Ends all waiting calls of this group here and, as far as possible, on the other ranks, which get `reason`. Afterwards
 * the group and its models can only be closed. [any-thread] */
tsr_code tsr_process_group_abort(tsr_process_group* group, const char* reason, tsr_error* err);

/* ---- Models: collections of tables, sharded over a group -----------------------------------------------------------
 */

typedef struct tsr_model_parallel tsr_model_parallel;
typedef struct tsr_collection tsr_collection;

typedef struct tsr_model_parallel_options {
  uint32_t struct_size;
  uint32_t flags;      /* none is defined: 0 */
  const char* model;   /* the description: modules, their tables, optimizer (docs/c.md) */
  const char* plan;    /* a plan from tsr_plan() or a file; NULL: rank 0 plans for all ranks */
  const char* planner; /* options for that planning; NULL: defaults. The topology is that of the group */
  const char* device;  /* of the shards: "cuda", "hip" or another device plugin's id, or "auto": a device if there is
                        * one that works, and a kernel for it; NULL or "cpu": host memory. Ranks of a host take its
                        * devices in turn. */
} tsr_model_parallel_options;

/* Collective. Makes this rank's shards of a model. `group` NULL: all tables are on this rank. TSR_FAILED_PRECONDITION:
 * ranks have different models or plans. TSR_INVALID_ARGUMENT: the description is wrong, or the plan is for other
 * tables. TSR_NOT_FOUND: there is no such device plugin; TSR_UNAVAILABLE: it does not work here. */
tsr_code tsr_model_parallel_create(const tsr_runtime* runtime, tsr_process_group* group,
                                   const tsr_model_parallel_options* options, tsr_model_parallel** model,
                                   tsr_error* err);
void tsr_model_parallel_close(tsr_model_parallel* model);
tsr_code tsr_model_parallel_plan(const tsr_model_parallel* model, tsr_text** plan, tsr_error* err);

typedef struct tsr_save_options {
  uint32_t struct_size;
  uint32_t flags;       /* none is defined: 0 */
  const char* progress; /* any text, which tsr_model_parallel_load() returns; NULL: "" */
  int32_t keep;         /* number of checkpoints that stay in the directory; 0: 2 */
  uint32_t reserved;    /* 0 */
} tsr_save_options;

/* Collective. Saves a checkpoint of all tables with their optimizer states (docs/checkpoints.md). It does not depend on
 * the plan or the number of ranks. `options` may be NULL. TSR_UNAVAILABLE, TSR_RESOURCE_EXHAUSTED: the message names
 * the path. */
tsr_code tsr_model_parallel_save(tsr_model_parallel* model, const char* directory, const tsr_save_options* options,
                                 tsr_error* err);

typedef struct tsr_load_options {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
} tsr_load_options;

/* Collective. Loads the newest checkpoint in `directory`. `options` and `progress` may be NULL. TSR_NOT_FOUND: there is
 * none. TSR_DATA_LOSS: it is damaged. TSR_INVALID_ARGUMENT: it is of another model. If it does not fit, nothing
 * changes. */
tsr_code tsr_model_parallel_load(tsr_model_parallel* model, const char* directory, const tsr_load_options* options,
                                 tsr_text** progress, tsr_error* err);

/* Gives a view of a parameter of the dense part by its name in the description. It is float32, owned by the library,
 * and valid as long as the model lives. The next checkpoint has what the caller writes there, and a load writes there.
 * TSR_NOT_FOUND: the message lists the names. */
tsr_code tsr_model_parallel_dense(const tsr_model_parallel* model, const char* name, DLTensor* view, tsr_error* err);

/* Gives the collection with this path. TSR_NOT_FOUND: the message lists the paths. */
tsr_code tsr_model_parallel_collection(tsr_model_parallel* model, const char* path, tsr_collection** collection,
                                       tsr_error* err);
void tsr_collection_close(tsr_collection* collection);

enum { TSR_COLLECTION_BAGS = 0, TSR_COLLECTION_SEQUENCES = 1 };

typedef struct tsr_collection_info {
  uint32_t struct_size;
  int32_t kind; /* TSR_COLLECTION_* */
  uint32_t num_tables;
  uint32_t num_features; /* number of features that a batch must have */
  uint32_t num_outputs;  /* one for each feature of each table */
  uint32_t num_shards;   /* shards on this rank, including replicated ones */
  int64_t width;         /* for bags: the sum of the outputs' dims */
  int64_t steps;         /* number of updates so far */
  int64_t dropped_ids;   /* ids that this rank's bounds check dropped, if it is set to drop them */
} tsr_collection_info;
tsr_code tsr_collection_describe(const tsr_collection* collection, tsr_collection_info* info, tsr_error* err);

typedef struct tsr_table_info {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
  const char* name;
  const char* key; /* name in a state dict: "embedding_bags.film.weight" */
  int64_t rows, dim;
} tsr_table_info;
tsr_code tsr_collection_get_table(const tsr_collection* collection, uint32_t i, tsr_table_info* info, tsr_error* err);
/* Gives the name of feature i. Features are in the order in which the tables first name them. */
tsr_code tsr_collection_get_feature(const tsr_collection* collection, uint32_t i, const char** name, tsr_error* err);

typedef struct tsr_output_info {
  uint32_t struct_size;
  uint32_t table;   /* index of the table */
  const char* name; /* the feature; "feature@table" if several tables have it */
  int64_t dim;
  int64_t column; /* for bags: first column in the pooled rows */
} tsr_output_info;
tsr_code tsr_collection_get_output(const tsr_collection* collection, uint32_t i, tsr_output_info* info, tsr_error* err);

/* Gives this rank's counters for the collection, as JSON: {"rank", "world_size", "updates", "dropped_ids", "steps",
 * "stages": {"route": SECONDS, ...}, "bytes_sent": {"ids": {"in_host", "across_hosts"}, ...}, "tables": {"film":
 * {"weight_bytes", "state_bytes", "lookups", "rows"}, ...}}. "steps" and "stages" count from the last call with
 * `restart` 1, the others from the beginning. Stage times include waiting for other ranks. A table's figures are those
 * of this rank's shards. Not collective. */
tsr_code tsr_collection_stats(tsr_collection* collection, int32_t restart, tsr_text** stats, tsr_error* err);

/* ---- Steps ---------------------------------------------------------------------------------------------------------
 */

/* The samples of this rank, in key-major order: the bags of all samples for key 0, then for key 1, ... */
typedef struct tsr_batch {
  uint32_t struct_size;
  uint32_t num_keys;
  const char* const* keys; /* [num_keys] in any order, of which unknown ones are ignored; NULL: the collection's */
  const DLTensor* values;  /* ids, int32 or int64 [n] */
  const DLTensor* lengths; /* int32 or int64 [num_keys * samples]; may be NULL if there are offsets */
  const DLTensor* offsets; /* int32 or int64 [num_keys * samples + 1]; may be NULL if there are lengths */
  const DLTensor* weights; /* float32 [n] for weighted collections; NULL: none */
  const int64_t* strides;  /* [num_keys] number of samples of each key, if they differ; NULL: they are equal */
  const DLTensor* inverse; /* int64 [num_keys, samples]; with strides: the key's sample that each sample uses */
  int32_t finished;        /* 1: this rank has no more batches; it sends empty ones until all_finished */
  uint32_t flags;          /* none is defined: 0 */
  const char* refused;     /* the reason why this rank has no batch: ends the step on all ranks; NULL: it has one */
} tsr_batch;

/* The state that a forward keeps: its outputs, and what backward needs. */
typedef struct tsr_step tsr_step;

/* Collective. Gets the rows of this rank's samples, float32. `output` is the caller's memory, of the host or of the
 * model's device, to which the rows of bags are copied, [samples, width]; NULL: none, as always for sequences.
 * `step` gets the step; NULL: neither tsr_step_output() nor backward follows. With a step, the memory of `batch`
 * stays unchanged until the step's backward is done or the step is closed. TSR_INVALID_ARGUMENT with "rank N: ...":
 * an id is out of range, or the batch has wrong types or shapes. This ends the step on all ranks, and the next step
 * may follow. */
tsr_code tsr_collection_forward(tsr_collection* collection, const tsr_batch* batch, const DLTensor* output,
                                tsr_step** step, tsr_error* err);
/* Does the same in two halves, both collective. start() checks and exchanges the ids. wait() looks up the rows and
 * brings them here. Between them the dense part may work, and the group may be used for other calls. `batch` stays
 * unchanged until wait() or, if it follows, backward has returned. After wait() the step is like that of a forward. If
 * wait() fails, the step can only be closed. */
tsr_code tsr_collection_start(tsr_collection* collection, const tsr_batch* batch, tsr_step** step, tsr_error* err);
tsr_code tsr_step_wait(tsr_step* step, tsr_error* err);
/* Gives up a step that was started. Collective, like wait(), in whose place it is called: this rank sends the rows that
 * other ranks wait for, and drops its own. After wait() it is not collective, and frees what backward would need. The
 * step can then only be closed. */
tsr_code tsr_step_cancel(tsr_step* step, tsr_error* err);
/* Frees the step. It never communicates, so a finalizer may call it in any thread, while another thread is in the
 * group. If the step was started and neither waited for nor cancelled, this rank's part in it is done at its next
 * collective call on the group, before that call's own work, in the order in which steps were started; a wait() or
 * backward of an earlier step comes first. If no such call follows, it is done when the last handle over the group is
 * closed. Until then the batch's memory stays unchanged, and other ranks that wait for the step keep waiting. */
void tsr_step_close(tsr_step* step);

typedef struct tsr_step_info {
  uint32_t struct_size;
  uint32_t num_outputs; /* number of outputs of tsr_step_output(): 1 for bags */
  int32_t all_finished; /* 1: every rank's batch was `finished` */
  int32_t any_finished; /* for bags: 1 if some rank's batch was `finished` */
} tsr_step_info;
tsr_code tsr_step_describe(const tsr_step* step, tsr_step_info* info, tsr_error* err);
/* Gives a view of the step's own memory, float32, on the model's device, valid until the step is closed. Bags have
 * output 0, [samples, width]. Sequences have output i, [ids of its feature, dim], in the order of the ids. The
 * caller may write to it. */
tsr_code tsr_step_output(const tsr_step* step, uint32_t i, DLTensor* view, tsr_error* err);
/* Gives the same memory with an owner, for libraries that take DLPack's tensors. It lives until its deleter is called,
 * whatever is closed before that. */
tsr_code tsr_step_export(const tsr_step* step, uint32_t i, DLManagedTensorVersioned** output, tsr_error* err);

typedef struct tsr_backward_options {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
} tsr_backward_options;

/* Collective, once for each step. Updates the tables by their optimizers. grads[i] has the shape of output i and is
 * the gradient of this rank's loss, in host memory or on the model's device. Ranks are averaged unless the
 * description says otherwise. For sequences grads[i] may be NULL: zeros. `options` may be NULL.
 * TSR_FAILED_PRECONDITION: a table has no optimizer. TSR_INVALID_ARGUMENT: a gradient has another shape; the step
 * still waits for its backward, and so do the other ranks. */
tsr_code tsr_step_backward(tsr_step* step, const DLTensor* const* grads, uint32_t num_grads,
                           const tsr_backward_options* options, tsr_error* err);
/* Collective, before the batch's backward. Computes the gradients of the batch's weights, float32 [n], for a weighted
 * collection of bags. `grad` is [samples, width], as for backward. The rows are looked up again.
 * TSR_FAILED_PRECONDITION: the collection is not weighted. TSR_UNIMPLEMENTED: it is one of sequences. */
tsr_code tsr_collection_weight_gradients(tsr_collection* collection, const tsr_batch* batch, const DLTensor* grad,
                                         const DLTensor* gradients, tsr_error* err);

/* ---- Optimizers ----------------------------------------------------------------------------------------------------
 */

/* Sets the learning rate of a table, and of all tables with the same optimizer. `table` NULL: of all tables. */
tsr_code tsr_collection_set_learning_rate(tsr_collection* collection, const char* table, double value, tsr_error* err);
/* Gets the learning rate of a table. TSR_FAILED_PRECONDITION: this rank has no table with that optimizer. */
tsr_code tsr_collection_get_learning_rate(const tsr_collection* collection, const char* table, double* value,
                                          tsr_error* err);
/* Sets the number of updates that were done, which is t in Adam's formula. */
tsr_code tsr_collection_set_steps(tsr_collection* collection, int64_t steps, tsr_error* err);

/* ---- Rows ----------------------------------------------------------------------------------------------------------
 */

/* Collective. Gives rows [first, first + count) of a table to every rank, float32 [count, dim]. */
tsr_code tsr_collection_read_rows(tsr_collection* collection, const char* table, int64_t first, const DLTensor* rows,
                                  tsr_error* err);
/* Writes those of the given rows that this rank has. Not collective: together, the calls of all ranks write all rows.
 * Optimizer states do not change. */
tsr_code tsr_collection_write_rows(tsr_collection* collection, const char* table, int64_t first, const DLTensor* rows,
                                   tsr_error* err);

/* A shard on this rank: a rectangle of a table. */
typedef struct tsr_shard_info {
  uint32_t struct_size;
  uint32_t table;      /* index of the table */
  int32_t shard;       /* index of the shard in the plan */
  uint32_t num_states; /* number of optimizer states */
  int64_t rows, cols;
  int64_t row, col;  /* the first row and column; if the sharder routes rows, row is unused: see tsr_shard_ids() */
  int32_t on_demand; /* 1: rows exist only for ids that occurred (docs/dynamic_tables.md); see tsr_shard_next_rows() */
  uint32_t reserved; /* 0 */
} tsr_shard_info;
tsr_code tsr_collection_get_shard(const tsr_collection* collection, uint32_t i, tsr_shard_info* info, tsr_error* err);

/* A state of the optimizer. */
typedef struct tsr_state_info {
  uint32_t struct_size;
  int32_t kind;      /* TSR_STATE_PER_ROW: [rows]; TSR_STATE_PER_ELEMENT: [rows, cols] (abi/optimizer.h: 0, 1) */
  DLDataType dtype;  /* the type of its tensors in the functions below: float32 */
  uint32_t reserved; /* 0 */
  const char* name;  /* "momentum1" */
} tsr_state_info;
tsr_code tsr_shard_get_state(const tsr_collection* collection, uint32_t shard, uint32_t i, tsr_state_info* info,
                             tsr_error* err);
/* Read or write rows [first, first + count) of a shard. `weights` is float32 [count, cols]. `states` has all states,
 * each [count] or [count, cols], of its kind and dtype; NULL: none. Not collective. TSR_UNIMPLEMENTED: the rows have no
 * range, because they are on demand. */
tsr_code tsr_shard_read(const tsr_collection* collection, uint32_t shard, int64_t first, const DLTensor* weights,
                        const DLTensor* const* states, uint32_t num_states, tsr_error* err);
tsr_code tsr_shard_write(tsr_collection* collection, uint32_t shard, int64_t first, const DLTensor* weights,
                         const DLTensor* const* states, uint32_t num_states, tsr_error* err);
/* Reads the next rows of a shard that exist, with their ids. It serves all kernels, also those whose rows are on
 * demand.
 *
 *   for (uint64_t cursor = 0;;) {
 *     if (tsr_shard_next_rows(tables, shard, &cursor, &ids, &weights, NULL, 0, &count, &err) != TSR_OK || count == 0)
 *       break;
 *     ...  // ids[i] and row i of weights, for i in [0, count)
 *   }
 *
 * `ids` is int64 [capacity], at least 1, and gets the table's ids. `weights` is float32 [capacity, cols]. `states` are
 * as in tsr_shard_read(), with `capacity` rows. *count becomes the number of rows; 0: there are no more. Rows come in
 * any order, each once, if no call changes the table between the first and the last. A row that ids without a row share
 * has the id TSR_SHARED_ROW_ID (abi/draft/on_demand.h). Not collective. */
tsr_code tsr_shard_next_rows(const tsr_collection* collection, uint32_t shard, uint64_t* cursor, const DLTensor* ids,
                             const DLTensor* weights, const DLTensor* const* states, uint32_t num_states,
                             int64_t* count, tsr_error* err);
/* Gives a view of a shard's own memory, for programs that read and write rows in place: [rows, cols] for `state` -1,
 * and for state i [rows] or [rows, cols]. Rows and states have the element type in which they are stored; strides are
 * given. The next lookup reads what is written there. Write only while no call on the collection's group runs. The
 * memory lives until the view's deleter is called, whatever is closed before that. Not collective. TSR_UNIMPLEMENTED:
 * the kernel gives no view, or the rows are on a device; use tsr_shard_read() and tsr_shard_write(). */
tsr_code tsr_shard_export(const tsr_collection* collection, uint32_t shard, int32_t state,
                          DLManagedTensorVersioned** view, tsr_error* err);
/* Gives the table's ids of these rows, int64 [count]. */
tsr_code tsr_shard_ids(const tsr_collection* collection, uint32_t shard, int64_t first, const DLTensor* ids,
                       tsr_error* err);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_TESSERA_H_ */

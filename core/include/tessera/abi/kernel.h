/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/kernel.h - tessera.kernel/1: looks up and updates rows of several shards in one call.
 *
 * Training:
 *   1. The host asks supports() whether the kernel can serve some shards. While it plans, it may ask the draft
 *      tessera.kernel.cost for costs.
 *   2. It calls open() with the shards of a rank that share a data type, an optimizer and a compute kernel. Unless the
 *      kernel makes its rows itself, the host sets their start values with import_rows().
 *   3. In a step the host calls forward() with ids that it has checked. It gets the pooled rows and a context.
 *   4. It calls backward() with that context and the gradient of the output. The kernel updates each row once.
 *      With TSR_COMPUTE_DENSE the host calls backward_rows() instead. It adds these gradients up over the ranks and
 *      hands the sums to apply().
 *   5. It calls release() with the context.
 *   6. Between steps it calls export_rows(), read_rows(), import_rows() and stats(), for checkpoints and reports.
 *   7. It calls close() after all contexts are released.
 * Inference:
 *   1. The host calls open() with TSR_MODE_INFER, then import_rows(), or adopt_rows() with rows in the stored format.
 *   2. It calls forward() without a context, from several threads if TSR_KERNEL_FORWARD_ANY_THREAD allows that.
 *   3. It calls close().
 *
 * An instance owns the rows of its shards ("tables" here) and their optimizer states. Storage is opaque: nothing
 * outside may assume that row i of a matrix exists anywhere. Rows are addressed by local row ids in [0, rows).
 */
#ifndef TESSERA_ABI_KERNEL_H_
#define TESSERA_ABI_KERNEL_H_

#include "tessera/abi/optimizer.h"
#include "tessera/abi/row_formats.h"
#include "tessera/abi/sharder.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_KERNEL_KIND "tessera.kernel/1"

/* The purpose of an instance. An instance for inference is never updated. */
enum { TSR_MODE_TRAIN = 0, TSR_MODE_INFER = 1 };

/* The compute kernels that the host knows. A plugin may serve others under its own names, such as "acme.cached". Such a
 * kernel trains as TSR_COMPUTE_FUSED does. */
#define TSR_COMPUTE_FUSED "fused" /* backward() updates the rows */
#define TSR_COMPUTE_DENSE "dense" /* backward_rows() hands out gradients, apply() updates: for replicated rows */
#define TSR_COMPUTE_QUANT "quant" /* only infers, from rows in a format of tessera/abi/row_formats.h */

/* Flags in tsr_kernel::flags. */
/* The kernel takes lookups with several outputs and with output_rows. Without this flag it gets neither. */
#define TSR_KERNEL_PLACES_ROWS 0x1u
/* forward() is [any-thread] on an instance for inference. The host may then serve several threads from one instance. */
#define TSR_KERNEL_FORWARD_ANY_THREAD 0x2u
/* open() sets all rows to tsr_kernel_config::start_values. The host imports no start values. */
#define TSR_KERNEL_STARTS_ROWS 0x4u
/* A row is created when import_rows(), or a lookup without TSR_LOOKUP_READ_ONLY, first names it. A table's `rows`
 * bounds its ids and costs no memory, unless TSR_TABLE_ANY_ID is set. export_rows() gives the existing rows, by a
 * cursor that only the kernel understands. Such a kernel knows TSR_TABLE_ANY_ID and TSR_IMPORT_REPLACE. */
#define TSR_KERNEL_ROWS_ON_DEMAND 0x10000u
/* The kernel wraps another one, which create() gets as `inner` ("acme.cache(cpu)"). If the config names no inner
 * kernel, the host takes the best one for the same device that serves TSR_COMPUTE_FUSED and wraps nothing itself. */
#define TSR_KERNEL_WRAPS 0x20000u

/* A flag in tsr_kernel_table::flags, only for kernels with TSR_KERNEL_ROWS_ON_DEMAND. Ids may be any number in
 * [0, INT64_MAX), and `rows` says how many rows the table should have at a time. */
#define TSR_TABLE_ANY_ID 0x10000u

/* A shard that an instance owns. */
typedef struct tsr_kernel_table {
  uint32_t struct_size;
  uint32_t flags; /* TSR_TABLE_* */
  const char* name;
  int64_t rows;        /* number of rows; may be 0 */
  int64_t dim;         /* columns of this shard */
  const char* options; /* JSON options of this table, such as a hash table's capacity; NULL: none */
  uint32_t poolings;   /* bits 1 << TSR_POOLING_* that lookups of this table may ask for; 0: not known yet */
  uint32_t reserved;   /* 0 */
} tsr_kernel_table;

/* The formula of start values, with which a device can make them itself. Element (row, col) of the shard, with
 * r = first_row + row and c = first_col + col, is
 *     ((float)(b >> 8) + 0.5f) * scale,    b: int32_t, shifted arithmetically; rounded to float32 after + and after *
 * where b is the lower half of h for an even c and the upper half for an odd c. In 64 bits that wrap around,
 *     h = mix(mix(key + G * (r + 1)) + G * (c / 2 + 1)),    G = 0x9e3779b97f4a7c15
 *     mix(x): x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;  x = (x ^ x >> 27) * 0x94d049bb133111eb;  x ^ x >> 31
 * The values are uniform in +-scale * 2^23. They are 0 if scale is 0. */
typedef struct tsr_start_formula {
  uint32_t struct_size;
  float scale;
  uint64_t key;      /* a hash of the job's seed and the table's name */
  int64_t first_row; /* first row of the shard in the whole table */
  int64_t first_col; /* first column of the shard in the whole table */
} tsr_start_formula;

/* The values that rows have before training. They depend on the job's seed, on the table's name, and on row and column
 * of the whole table, which the host knows. They do not depend on how the table is sharded. */
typedef struct tsr_start_values {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  void* self;     /* used only by the host */
  /* [any-thread] Writes the start values of `count` rows of a table to out, float32 [count, dim] in host memory.
   * `rows` are local row ids in [0, rows), in any order. */
  tsr_code (*fill)(void* self, uint32_t table, int64_t count, const int64_t* rows, float* out, tsr_error* err);
  /* [any-thread] Fills `out` with the formula of the same values. TSR_UNIMPLEMENTED: a sharder routes the table's rows
   * (TSR_ROWS_ROUTED), so only fill() has their values. */
  tsr_code (*formula)(void* self, uint32_t table, tsr_start_formula* out, tsr_error* err);
} tsr_start_values;

/* The description of an instance. It is borrowed for the call, except for members that say otherwise. */
typedef struct tsr_kernel_config {
  uint32_t struct_size;
  uint32_t flags;             /* none is defined: 0 */
  int32_t mode;               /* TSR_MODE_* */
  uint32_t reserved;          /* 0 */
  const char* compute_kernel; /* TSR_COMPUTE_*, or a name of the plugin's own */
  DLDevice device;            /* device of the rows, the outputs and the gradients */
  /* Type of the stored rows: of their values or, with a row_format, of their codes, such as kDLUInt of 4 bits. */
  DLDataType weight_dtype;
  DLDataType output_dtype; /* type of the outputs of forward() and of grad_output */
  uint32_t num_tables;
  uint32_t table_stride;          /* bytes from one table to the next */
  const tsr_kernel_table* tables; /* [num_tables] */
  const tsr_instance* optimizer;  /* tessera.optimizer/1; outlives the instance. NULL: nothing is updated */
  const char* optimizer_options;  /* the optimizer's JSON options, for kernels with their own fused form of it */
  double max_gradient;            /* each element of grad_output is clamped to [-this, this]; 0: not clamped */
  /* Start values of rows that the kernel makes itself: all rows if it has no import_rows (a tensor train) or has
   * TSR_KERNEL_STARTS_ROWS; new rows if it has TSR_KERNEL_ROWS_ON_DEMAND. Other kernels set rows to 0, and the host
   * imports values. The pointer outlives the instance. NULL: rows start at 0; calls before open() always get NULL. */
  const tsr_start_values* start_values;
  /* Name of the layout of a stored row: TSR_ROW_FORMAT_* (abi/row_formats.h), or a plugin's own such as "acme.mx4".
   * NULL: `dim` plain values of weight_dtype. A kernel refuses a name that it does not know. */
  const char* row_format;
  /* The source of all random choices that a kernel makes, such as stochastic rounding. It is the job's seed, so it is
   * the same on all ranks and in every run of the job. The kernel mixes into it the table's name, the row and column in
   * the whole table, and the step, so that results repeat under any plan. tsr_start_values::formula has the first row
   * and column of the shard. */
  uint64_t seed;
} tsr_kernel_config;

/* A run of bags that read one table. Bag i has the ids at positions [offsets[first_offset + i],
 * offsets[first_offset + i + 1]), and its result goes to output[output_offset + i * output_stride + 0..dim).
 * With TSR_POOLING_NONE, the row of the id at position p goes to
 * output[output_offset + (p - offsets[first_offset]) * output_stride + 0..dim).
 *
 * A lookup may have several outputs, because some results travel to another rank and others stay. A feature writes to
 * output number `output`. If `listed` is not 0, bag i is row output_rows[first_offset + i] of that output instead of
 * row i. A feature with TSR_POOLING_NONE is never listed. */
typedef struct tsr_lookup_feature {
  int32_t table;         /* index in tsr_kernel_config::tables */
  int32_t pooling;       /* TSR_POOLING_* */
  int64_t bags;          /* number of bags */
  int64_t first_offset;  /* index in the lookup's offsets */
  int64_t output_offset; /* first element in the output */
  int64_t output_stride; /* elements from one output row to the next */
  uint32_t output;       /* < num_outputs of the lookup */
  int32_t listed;        /* 0 or 1 */
} tsr_lookup_feature;

/* A batch. The caller has checked it: offsets ascend and stay inside ids, every id is in [0, rows) of its table, and
 * the listed rows of a feature ascend. Several features may read one table. Outputs of different features may
 * interleave, but do not overlap. The tensors are on the kernel's device. */
typedef struct tsr_lookup {
  uint32_t struct_size;
  uint32_t flags; /* TSR_LOOKUP_* */
  uint32_t num_features;
  uint32_t feature_stride;            /* bytes from one feature to the next */
  uint32_t num_outputs;               /* 0 and 1: one output, whatever tsr_lookup_feature::output is */
  uint32_t reserved;                  /* 0 */
  const tsr_lookup_feature* features; /* [num_features], in host memory */
  const DLTensor* ids;                /* int32 or int64 [n] */
  const DLTensor* offsets;            /* int32 or int64 */
  const DLTensor* weights;            /* float32 [n], one per id; NULL: all 1. With MEAN: sum(w * row) / bag length */
  const DLTensor* output_rows;        /* int32, one for each offset; NULL: no feature is listed */
  int64_t step;                       /* number of the batch's step, as tsr_update::step: 1 in the first one */
  double time;                        /* seconds since 1970 UTC, by this rank's clock; 0: not known */
} tsr_lookup;

/* A flag in tsr_lookup::flags, for an evaluation. The lookup creates no row, and changes neither the time nor the
 * frequency of any row. Rows that do not exist read as 0. Without this flag a lookup trains, with or without a
 * context. */
#define TSR_LOOKUP_READ_ONLY 0x10000u

/* The state that forward() keeps for backward(). Several contexts of one instance may exist at once. */
typedef struct tsr_context tsr_context;

/* The arguments of backward() and backward_rows(), borrowed for the call. */
typedef struct tsr_backward {
  uint32_t struct_size;
  uint32_t flags;               /* none is defined: 0 */
  const tsr_lookup* lookup;     /* the same contents as in forward(), perhaps at other addresses */
  const DLTensor* grad_output;  /* an array with one gradient for each output, in the layout of the outputs */
  const DLTensor* grad_weights; /* float32 [n], written at every position that was looked up; NULL: not wanted */
  double grad_scale;            /* grad_output is multiplied by this before anything else (1 / world size, or 1) */
  const tsr_update* update;     /* learning rate and step; backward_rows() ignores it */
} tsr_backward;

/* The gradient of one table. The tensors are views of memory that the context owns. */
typedef struct tsr_row_gradient {
  DLTensor rows;   /* int64 [u], ascending and unique */
  DLTensor values; /* float32 [u, dim] */
} tsr_row_gradient;

/* A flag in tsr_rows::flags, in import_rows() of a kernel with TSR_KERNEL_ROWS_ON_DEMAND. The kernel first drops the
 * table's rows, and everything else that it keeps for the table. `count` may be 0. */
#define TSR_IMPORT_REPLACE 0x10000u

/* Rows to be exported or imported, in host memory of the caller. */
typedef struct tsr_rows {
  uint32_t struct_size;
  uint32_t flags;                /* TSR_IMPORT_* */
  uint32_t num_states;           /* the optimizer's number of states; 0: states are neither read nor written */
  uint32_t extra_stride;         /* bytes from one row of `extra` to the next */
  int64_t count;                 /* rows in use; the caller of import_rows() sets it, export_rows() writes it */
  const DLTensor* ids;           /* int64 [capacity] */
  const DLTensor* weights;       /* float32 [capacity, dim], whatever the stored type is */
  const DLTensor* const* states; /* each [capacity] or [capacity, dim], of the state's own dtype (tsr_state) */
  /* Bytes that the kernel keeps for each row besides values and states, such as a frequency or a time. Each row has
   * tsr_kernel_stats::extra_bytes of them, aligned to 4. Only the kernel knows their meaning; the host moves them along
   * with the row. NULL: they are neither read nor written. */
  void* extra;
} tsr_rows;

/* Rows in the format in which they are stored, in host memory of the caller. Row r begins at bytes + r * stride. */
typedef struct tsr_stored_rows {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  const void* bytes;
  uint64_t size;  /* of the memory, in bytes */
  int64_t stride; /* bytes from one row to the next */
  /* The format of the bytes: the same name as tsr_kernel_config::row_format of the instance. */
  const char* row_format;
} tsr_stored_rows;

/* Figures of one table. Counters count from open() on. */
typedef struct tsr_kernel_stats {
  uint32_t struct_size;
  uint32_t extra_bytes;    /* bytes of a row's tsr_rows::extra: a multiple of 4 that never changes; 0: none */
  uint64_t weight_bytes;   /* memory of the rows, as stored */
  uint64_t state_bytes;    /* memory of the optimizer states */
  uint64_t other_bytes;    /* scratch memory that is kept between calls */
  uint64_t lookups;        /* number of ids looked up */
  uint64_t rows_in_use;    /* number of existing rows; all rows, unless they come on demand */
  uint64_t hits;           /* number of lookups whose row existed and, if the kernel has a cache, was in it */
  uint64_t evictions;      /* number of rows dropped, or written back from the cache */
  uint64_t storage_reads;  /* number of rows read from disk */
  uint64_t storage_writes; /* number of rows written to disk */
  double read_seconds;     /* time that the reads from disk took */
  double wait_seconds;     /* the share of read_seconds during which a lookup waited: prefetching did not hide it */
} tsr_kernel_stats;

/* The functions of a kernel. An `instance` is what open() made. */
typedef struct tsr_kernel {
  uint32_t struct_size;
  uint32_t flags;                     /* TSR_KERNEL_* */
  const char* const* compute_kernels; /* names of the compute kernels that it serves, ended by NULL: "fused", ... */
  const int32_t* device_types;        /* DLDeviceTypes that it serves, ended by 0 */

  /* [any-thread] Returns TSR_OK if open() would accept the config. Otherwise returns a code, with the reason in `why`.
   * Allocates nothing. */
  tsr_code (*supports)(void* self, const tsr_kernel_config* config, tsr_error* why);
  /* [any-thread] Makes an instance, which the caller owns until close(). States have their start values. Rows are 0,
   * except for rows that tsr_kernel_config::start_values describes. TSR_RESOURCE_EXHAUSTED: too little memory. */
  tsr_code (*open)(void* self, const tsr_kernel_config* config, void** instance, tsr_error* err);
  /* [serial] Frees the instance. All its contexts have been released. */
  void (*close)(void* instance);

  /* [serial][enqueue] Looks up a batch. `output` is an array of the lookup's outputs, of output_dtype and on the
   * kernel's device. Every output element of a bag is written, with 0 for an empty bag. *context is for the caller, who
   * ends it with release(). `context` NULL: no backward will follow. */
  tsr_code (*forward)(void* instance, const tsr_lookup* lookup, const DLTensor* output, tsr_stream stream,
                      tsr_context** context, tsr_error* err);
  /* backward, backward_rows and apply are NULL in a kernel that only infers.
   * [serial][enqueue] Sums each row's gradient over the batch, and updates the row once. */
  tsr_code (*backward)(void* instance, tsr_context* context, const tsr_backward* args, tsr_stream stream,
                       tsr_error* err);
  /* [serial] Hands out the gradients instead of updating rows. `out` is [num_tables], valid until release(context). */
  tsr_code (*backward_rows)(void* instance, tsr_context* context, const tsr_backward* args, tsr_row_gradient* out,
                            tsr_stream stream, tsr_error* err);
  /* [serial] Updates rows by given gradients: `rows` is int64 [u], unique and ascending, `values` float32 [u, dim]. */
  tsr_code (*apply)(void* instance, uint32_t table, const DLTensor* rows, const DLTensor* values,
                    const tsr_update* update, tsr_stream stream, tsr_error* err);
  /* [serial] Frees a context. */
  void (*release)(void* instance, tsr_context* context);

  /* [serial] Optional, because a tensor-train table has no rows. Writes the next rows of a table, at most the capacity
   * of rows->ids, sets rows->count and advances *cursor. The caller sets *cursor to 0 before the first call. A count of
   * 0 means that all rows were given. A kernel whose rows are a range takes any row number as cursor.
   *
   * Calls that change the table end its cursors: a lookup that trains (with TSR_KERNEL_ROWS_ON_DEMAND), backward,
   * apply, import_rows, adopt_rows. After them the caller starts again at 0. A kernel may refuse an ended cursor
   * with TSR_FAILED_PRECONDITION. At worst, such a cursor gives some rows twice or not at all. */
  tsr_code (*export_rows)(void* instance, uint32_t table, uint64_t* cursor, tsr_rows* rows, tsr_error* err);
  /* [serial] Optional. Sets the weights of the named rows, and their states and extra bytes if they are given. */
  tsr_code (*import_rows)(void* instance, uint32_t table, const tsr_rows* rows, tsr_error* err);

  /* [serial] Fills `stats` for one table. */
  tsr_code (*stats)(void* instance, uint32_t table, tsr_kernel_stats* stats, tsr_error* err);

  /* [serial] Optional. Replaces the table's rows by the given ones, which are read in place, and neither copied nor
   * written. Therefore many instances can share them, and also many processes if the memory is a mapped file. The
   * memory outlives the instance, or lives until the table's next adopt_rows. */
  tsr_code (*adopt_rows)(void* instance, uint32_t table, const tsr_stored_rows* rows, tsr_error* err);

  /* [serial] Optional. Reads the rows that rows->ids names, rows->count of them, in that order. It writes their
   * weights, and their states and extra bytes if these are wanted. An id may occur twice. Nothing changes, and no row
   * is created: a row that does not exist (TSR_KERNEL_ROWS_ON_DEMAND) is TSR_NOT_FOUND. */
  tsr_code (*read_rows)(void* instance, uint32_t table, tsr_rows* rows, tsr_error* err);
} tsr_kernel;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_KERNEL_H_ */

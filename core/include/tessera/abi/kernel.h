/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/kernel.h - tessera.kernel/1: lookups in, and updates of, a group of shards, in one call for all.
 *
 * An instance owns the rows of its shards ("tables" here) and their optimizer state. Storage is opaque: nothing outside
 * may assume that row i of a matrix exists anywhere. Rows are addressed by local row ids in [0, rows).
 */
#ifndef TESSERA_ABI_KERNEL_H_
#define TESSERA_ABI_KERNEL_H_

#include "tessera/abi/optimizer.h"
#include "tessera/abi/sharder.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_KERNEL_KIND "tessera.kernel/1"

enum { TSR_MODE_TRAIN = 0, TSR_MODE_INFER = 1 };

/* Compute kernels that mean something to the host. A plugin may serve others under names of its own, "acme.cached":
 * they train as FUSED does, and estimate says what is special about them. */
#define TSR_COMPUTE_FUSED "fused" /* backward updates the rows */
#define TSR_COMPUTE_DENSE "dense" /* backward_rows hands gradients out, apply updates: replicas need it */
#define TSR_COMPUTE_QUANT "quant" /* only infers, on rows as tessera/sdk/row_format.h has them */

/* Flags in tsr_kernel::flags. */
enum {
  /* It takes lookups with several outputs, and with output_rows; a kernel without it gets neither. */
  TSR_KERNEL_PLACES_ROWS = 1 << 0,
  /* On an instance opened to infer, forward is [any-thread]; the host then serves several threads from one. */
  TSR_KERNEL_FORWARD_ANY_THREAD = 1 << 1,
  /* All rows start as tsr_kernel_config::start_values say, and the host imports none of them. */
  TSR_KERNEL_STARTS_ROWS = 1 << 2,
  /* A row comes into being when a lookup without TSR_LOOKUP_READ_ONLY, or import_rows, first names it; a table's `rows`
   * bound its ids and cost no memory, unless TSR_TABLE_ANY_ID says otherwise. export_rows gives the rows there are, by
   * a cursor of the kernel's own. Such a kernel knows TSR_TABLE_ANY_ID and TSR_IMPORT_REPLACE. */
  TSR_KERNEL_ROWS_ON_DEMAND = 1 << 16,
  /* It works around another kernel, which create gets as `inner` ("acme.cache(cpu)"). Where the config names none, the
   * host takes the best one of its device that serves TSR_COMPUTE_FUSED and wraps nothing itself. */
  TSR_KERNEL_WRAPS = 1 << 17
};

/* A flag in tsr_kernel_table::flags, only for kernels with TSR_KERNEL_ROWS_ON_DEMAND: ids are any in [0, INT64_MAX),
 * and `rows` says how many rows are wanted at a time. */
enum { TSR_TABLE_ANY_ID = 1 << 16 };

typedef struct tsr_kernel_table {
  uint32_t struct_size;
  uint32_t flags; /* TSR_TABLE_* */
  const char* name;
  int64_t rows;        /* may be 0 */
  int64_t dim;         /* columns of this shard */
  const char* options; /* JSON of this table alone; NULL: none. The ranks of a tensor train, a hash table's capacity */
  uint32_t poolings;   /* bit 1 << TSR_POOLING_*: those that lookups of this table may ask for; 0: not known yet */
  uint32_t reserved;
} tsr_kernel_table;

/* The formula of start values, which lets a device make them itself. Element (row, col) of the shard, with
 * r = first_row + row and c = first_col + col, is
 *     ((float)(b >> 8) + 0.5f) * scale,    b: int32_t, shifted arithmetically; two float32 roundings, that of * last
 * where b is the lower half of h for an even c, its upper half for an odd one, and, in 64 bits that wrap,
 *     h = mix(mix(key + G * (r + 1)) + G * (c / 2 + 1)),    G = 0x9e3779b97f4a7c15
 *     mix(x): x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;  x = (x ^ x >> 27) * 0x94d049bb133111eb;  x ^ x >> 31
 * That is uniform in +-scale * 2^23; a scale of 0 makes zeros. */
typedef struct tsr_start_formula {
  uint32_t struct_size;
  float scale;
  uint64_t key; /* of the job's seed and the table's name */
  int64_t first_row;
  int64_t first_col;
} tsr_start_formula;

/* Values that rows have before anything was learned. They depend on the job's seed and on the table's name, row and
 * column, which the host knows, and not on how the table is cut. */
typedef struct tsr_start_values {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  void* self;
  /* [any-thread] Start values of `count` rows of a table into out, float32 [count, dim], host memory. `rows` are local
   * row ids, any of [0, rows) in any order. */
  tsr_code (*fill)(void* self, uint32_t table, int64_t count, const int64_t* rows, float* out, tsr_error* err);
  /* [any-thread] The same as a formula. TSR_UNIMPLEMENTED where a table's rows are routed: those only fill knows. */
  tsr_code (*formula)(void* self, uint32_t table, tsr_start_formula* out, tsr_error* err);
} tsr_start_values;

typedef struct tsr_kernel_config {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  int32_t mode;   /* TSR_MODE_* */
  uint32_t reserved;
  const char* compute_kernel; /* TSR_COMPUTE_*, or one of the plugin's own */
  DLDevice device;
  DLDataType weight_dtype; /* of the stored rows. kDLUInt of 8, 4 or 2 bits: codes behind a scale and a bias of each row
                              (tessera/sdk/row_format.h), for compute kernels that only infer */
  DLDataType output_dtype; /* of the forward's output and of grad_output */
  uint32_t num_tables;
  uint32_t table_stride;
  const tsr_kernel_table* tables;
  const tsr_instance* optimizer; /* tessera.optimizer/1; outlives the instance. NULL where nothing is updated */
  const char* optimizer_options; /* the JSON it was created with: for kernels that bring their own fused form */
  double max_gradient;           /* grad_output is clamped to [-this, this] elementwise; 0: not */
  /* For rows that the kernel makes itself: all of a table where it has no import_rows (a tensor train) or says
   * TSR_KERNEL_STARTS_ROWS, and those that appear with TSR_KERNEL_ROWS_ON_DEMAND. Other kernels leave rows at 0, and
   * the host imports them. Outlives the instance; NULL: rows start at 0, and so it is for supports and estimate. */
  const tsr_start_values* start_values;
} tsr_kernel_config;

/* One run of bags that read one table. Bag i has the ids at positions [offsets[first_offset + i],
 * offsets[first_offset + i + 1]) and its result goes to output[output_offset + i * output_stride + 0..dim).
 * With TSR_POOLING_NONE the id at position p goes to output[output_offset + (p - offsets[first_offset]) *
 * output_stride + 0..dim). Offsets and strides of the output count elements.
 * Rows of a sharded step leave the rank or stay. Which of the outputs a feature writes is `output`; where `listed` is
 * not 0, bag i is row output_rows[first_offset + i] of it instead of row i (not with TSR_POOLING_NONE). */
typedef struct tsr_lookup_feature {
  int32_t table;
  int32_t pooling; /* TSR_POOLING_* */
  int64_t bags;
  int64_t first_offset;
  int64_t output_offset;
  int64_t output_stride;
  uint32_t output; /* < num_outputs of the lookup */
  int32_t listed;
} tsr_lookup_feature;

/* A batch. The caller has checked it: offsets ascend and stay inside ids, every id is in [0, rows) of its table, and
 * the listed rows of a feature ascend. Several features may read one table and outputs of different features may
 * interleave, but do not overlap. */
typedef struct tsr_lookup {
  uint32_t struct_size;
  uint32_t flags; /* TSR_LOOKUP_* */
  uint32_t num_features;
  uint32_t feature_stride;
  uint32_t num_outputs; /* 0 and 1: one, whatever the features say */
  uint32_t reserved;
  const tsr_lookup_feature* features; /* host memory */
  const DLTensor* ids;                /* int32 or int64 [n] */
  const DLTensor* offsets;            /* int32 or int64 */
  const DLTensor* weights;            /* float32 [n], one per id; NULL: all 1. With MEAN: sum(w * row) / bag length */
  const DLTensor* output_rows;        /* int32, one for each offset; NULL: none is listed */
  int64_t step;                       /* that this batch is of, as tsr_update::step: 1 at the first one */
  double time;                        /* seconds since 1970, UTC, by this rank's clock; 0: not known */
} tsr_lookup;

/* A flag in tsr_lookup::flags for an evaluation: the lookup inserts no row and touches none, neither its time nor its
 * frequency. Rows that do not exist are 0. Without it, a lookup trains, whether a context is wanted or not. */
enum { TSR_LOOKUP_READ_ONLY = 1 << 16 };

/* The state that forward keeps for backward. Several of one instance may be live at once. */
typedef struct tsr_context tsr_context;

typedef struct tsr_backward {
  uint32_t struct_size;
  uint32_t flags;               /* none is defined: 0 */
  const tsr_lookup* lookup;     /* the same as at forward, perhaps at other addresses */
  const DLTensor* grad_output;  /* as many as the outputs, laid out as they were */
  const DLTensor* grad_weights; /* out, float32 [n], written at every looked-up position; may be NULL */
  double grad_scale;            /* multiplies grad_output before anything else (1 / world size; 1) */
  const tsr_update* update;     /* ignored by backward_rows */
} tsr_backward;

/* Gradient of one table: rows ascending and unique. Views of memory that the context owns. */
typedef struct tsr_row_gradient {
  DLTensor rows;   /* int64 [u] */
  DLTensor values; /* float32 [u, dim] */
} tsr_row_gradient;

/* A flag in tsr_rows::flags, in import_rows of a kernel with TSR_KERNEL_ROWS_ON_DEMAND: the rows that the table had
 * before are given up first, and what the kernel kept of it besides. `count` may be 0. */
enum { TSR_IMPORT_REPLACE = 1 << 16 };

/* Rows on their way in or out, host memory. */
typedef struct tsr_rows {
  uint32_t struct_size;
  uint32_t flags;                /* TSR_IMPORT_* */
  uint32_t num_states;           /* as the optimizer has; 0: states are left alone */
  uint32_t extra_stride;         /* bytes from row to row of `extra` */
  int64_t count;                 /* rows in use: set by the caller of import_rows, by export_rows itself */
  const DLTensor* ids;           /* int64 [capacity] */
  const DLTensor* weights;       /* float32 [capacity, dim], whatever the stored type */
  const DLTensor* const* states; /* float32 [capacity] or [capacity, dim] each; a table's value beside every row */
  /* The bytes that the kernel keeps for a row beside its values and states, such as a frequency or a time:
   * tsr_kernel_stats::extra_bytes of it for each row, aligned to 4. What the bytes mean is the kernel's own; the host
   * carries them with the row. NULL: left alone. */
  void* extra;
} tsr_rows;

/* Rows as they are stored, in host memory of the caller: row r begins at bytes + r * stride. What its bytes mean
 * follows from the weight_dtype: for the CPU, tessera/sdk/row_format.h says it. */
typedef struct tsr_stored_rows {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  const void* bytes;
  uint64_t size; /* of the memory, in bytes */
  int64_t stride;
} tsr_stored_rows;

/* Byte streams for save and load; a code other than TSR_OK ends the call with that code. */
typedef struct tsr_stream_io {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  void* self;
  tsr_code (*write)(void* self, const void* bytes, uint64_t size, tsr_error* err);
  tsr_code (*read)(void* self, void* bytes, uint64_t size, tsr_error* err); /* all or an error */
} tsr_stream_io;

typedef struct tsr_kernel_stats {
  uint32_t struct_size;
  uint32_t extra_bytes;    /* of each row's tsr_rows::extra, a multiple of 4 that never changes; 0: none */
  uint64_t weight_bytes;   /* held for rows, as stored */
  uint64_t state_bytes;    /* held for optimizer state */
  uint64_t other_bytes;    /* scratch kept between calls */
  uint64_t lookups;        /* ids looked up since creation */
  uint64_t rows_in_use;    /* that exist; all of a table whose rows do not come on demand */
  uint64_t hits;           /* of the lookups: the row was there, and in the cache where the kernel has one */
  uint64_t evictions;      /* rows given up, or written back from the cache, since creation */
  uint64_t storage_reads;  /* rows read from disk since creation */
  uint64_t storage_writes; /* and written there */
  double read_seconds;     /* that these reads took */
  double wait_seconds;     /* of these, those that a lookup waited: what prefetching did not hide */
} tsr_kernel_stats;

/* The cost of rows of row_bytes on some machine, in seconds, when reuse_bytes of tables are touched between two visits
 * of a row: that decides which cache it still lies in. */
typedef struct tsr_row_cost {
  double row_bytes;
  double reuse_bytes;
  double lookup;       /* forward, for each id */
  double update;       /* backward, for each different row: sort, gradient, row and state */
  double repeat;       /* backward, for each further id of a row */
  double bag_forward;  /* for each bag */
  double bag_backward; /* for each bag */
} tsr_row_cost;

/* Figures of a machine, measured with this kernel by `tessera calibrate`; sdk/cost.h reads between them. */
typedef struct tsr_machine {
  uint32_t struct_size;
  uint32_t num_row_costs;
  uint32_t row_cost_stride;
  uint32_t reserved;
  const tsr_row_cost* row_costs; /* a full grid: by row_bytes, then by reuse_bytes, both ascending */
  double run_forward;            /* for each tsr_lookup_feature */
  double run_backward;
} tsr_machine;

/* The question to a kernel's cost model, for one shard and one step on one rank. */
typedef struct tsr_workload {
  uint32_t struct_size;
  int32_t pooling;
  int64_t rows;
  int64_t dim;
  double ids;  /* looked up here in a step */
  double bags; /* of these ids */
  int32_t weighted;
  int32_t reserved;
  double distinct;            /* different rows among the ids; 0: as many as ids */
  double reuse_bytes;         /* touched between a row's visits in two steps; 0: the shard alone */
  double runs;                /* tsr_lookup_features of the call that are this shard's */
  const tsr_machine* machine; /* NULL: typical figures, the kernel's own */
  double update_bytes;        /* touched between a row's lookup and its update; 0: as reuse_bytes */
} tsr_workload;

typedef struct tsr_estimate {
  uint32_t struct_size;
  uint32_t reserved;
  double forward_seconds;
  double backward_seconds; /* update included */
  uint64_t bytes;          /* rows and state, caches included; 0 for all rows of a shard: the kernel does not say */
  uint64_t host_bytes;     /* of these, in host memory although the device is another one */
  uint64_t storage_bytes;  /* of these, on disk */
  double storage_reads;    /* rows read from disk in a step */
} tsr_estimate;

typedef struct tsr_kernel {
  uint32_t struct_size;
  uint32_t flags;                     /* TSR_KERNEL_* */
  const char* const* compute_kernels; /* those it serves, ended by NULL: "fused", "dense", ... */
  const int32_t* device_types;        /* DLDeviceType, ended by 0 */

  /* [any-thread] TSR_OK, or the reason why not. Allocates nothing. */
  tsr_code (*supports)(void* self, const tsr_kernel_config* config, tsr_error* why);
  /* [any-thread] Optional. The config's one table is the shard, with its options; the workload is about its rows, or
   * those of them that are asked for alike: answers add up. A shard that cannot be held is refused, as by supports. */
  tsr_code (*estimate)(void* self, const tsr_kernel_config* config, const tsr_workload* workload,
                       tsr_estimate* estimate, tsr_error* err);

  /* [any-thread] A new instance; states as they start, rows 0 but where tsr_kernel_config::start_values is for them. */
  tsr_code (*open)(void* self, const tsr_kernel_config* config, void** instance, tsr_error* err);
  /* [serial] All contexts have been released. */
  void (*close)(void* instance);

  /* [serial][enqueue] `output`: the first of the lookup's outputs, all of output_dtype and on the kernel's device.
   * `context` NULL: no backward will follow. Every output element of a bag is written (zeros for an empty bag). */
  tsr_code (*forward)(void* instance, const tsr_lookup* lookup, const DLTensor* output, tsr_stream stream,
                      tsr_context** context, tsr_error* err);
  /* backward, backward_rows and apply are NULL in a kernel that only infers.
   * [serial][enqueue] Sums each row's gradient over the batch and updates the row, once. */
  tsr_code (*backward)(void* instance, tsr_context* context, const tsr_backward* args, tsr_stream stream,
                       tsr_error* err);
  /* [serial] The unfused form: `out` has num_tables entries, valid until release(context). */
  tsr_code (*backward_rows)(void* instance, tsr_context* context, const tsr_backward* args, tsr_row_gradient* out,
                            tsr_stream stream, tsr_error* err);
  /* [serial] The update alone: unique ascending `rows` int64 [u], `values` float32 [u, dim]. */
  tsr_code (*apply)(void* instance, uint32_t table, const DLTensor* rows, const DLTensor* values,
                    const tsr_update* update, tsr_stream stream, tsr_error* err);
  /* [serial] */
  void (*release)(void* instance, tsr_context* context);

  /* [serial] The table with its state as the kernel likes it; readable by the same kernel of any later version. */
  tsr_code (*save)(void* instance, uint32_t table, const tsr_stream_io* io, tsr_error* err);
  tsr_code (*load)(void* instance, uint32_t table, const tsr_stream_io* io, tsr_error* err);

  /* [serial] Optional (a tensor-train table has no rows). Fills at most the capacity of rows->ids, sets rows->count and
   * moves *cursor, which is 0 before the first call; count 0: done. A kernel whose rows are a range takes any row
   * number as cursor.
   * Calls that change the table end its other cursors: a lookup that trains (TSR_KERNEL_ROWS_ON_DEMAND), backward,
   * apply, import_rows, load, adopt_rows. What follows begins at 0 again and gives the rows as they are then; a cursor
   * that has ended may be refused, TSR_FAILED_PRECONDITION, and never does worse than give some row twice or not. */
  tsr_code (*export_rows)(void* instance, uint32_t table, uint64_t* cursor, tsr_rows* rows, tsr_error* err);
  /* [serial] Optional. Sets weights, and states and extra where given, of the rows named. */
  tsr_code (*import_rows)(void* instance, uint32_t table, const tsr_rows* rows, tsr_error* err);

  /* [serial] Of one table. */
  tsr_code (*stats)(void* instance, uint32_t table, tsr_kernel_stats* stats, tsr_error* err);

  /* [serial] Optional. The rows of the table are from now on those given. They are read in place: nothing is copied,
   * nothing is written, so many instances and, through files mapped into memory, many processes share them. The memory
   * outlives the instance, or the table's next adopt_rows or load. */
  tsr_code (*adopt_rows)(void* instance, uint32_t table, const tsr_stored_rows* rows, tsr_error* err);
} tsr_kernel;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_KERNEL_H_ */

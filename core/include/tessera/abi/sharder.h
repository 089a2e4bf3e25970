/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/sharder.h - tessera.sharder/1: how may a table be cut?
 *
 *   1. The planner calls propose() for each table, with the topology and the constraints of that table.
 *   2. The sharder calls sink->add() for each layout that it offers, best first. The host checks and copies it.
 *   3. The planner estimates the cost of each layout, chooses one and assigns ranks to its rectangles. It saves the
 *      chosen layout in the plan, with its cookie.
 *   4. If the layout has TSR_ROWS_ROUTED, every rank checks route() against unroute() before it trains. The ranks also
 *      compare how they route a sample of ids.
 *   5. In each step the host calls route() with the batch's ids, to learn the row set and the local row of each.
 *   6. The host calls unroute() when it needs the ids of a shard's rows, for start values and checkpoints.
 *
 * A sharder is a pure function from a table and a topology to layouts. It never communicates, and equal input gives
 * equal output in every process. A layout says where rows and columns live, and how their results are combined. The
 * planner chooses the ranks, and the core moves the data.
 */
#ifndef TESSERA_ABI_SHARDER_H_
#define TESSERA_ABI_SHARDER_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_SHARDER_KIND "tessera.sharder/1"

/* The ranks on which the rectangles of a layout part may be placed, with TorchRec's name in parentheses. */
enum {
  TSR_PLACE_ANY_RANK = 0,   /* each on any rank, independently of the others          (device) */
  TSR_PLACE_ONE_HOST = 1,   /* all on one host, rectangle i on its local rank i       (host) */
  TSR_PLACE_IN_HOST = 2,    /* all on one host, each on any of its ranks              (host) */
  TSR_PLACE_EVERY_RANK = 3, /* rectangle i on rank i                                  (uniform) */
  TSR_PLACE_HOSTS = 4       /* consecutive runs of local_world_size rectangles, each run on one host in local rank
                               order, runs on consecutive hosts                       (multi_host) */
};

/* How the results of a layout part's rectangles become the table's output. Column shards are always concatenated. */
enum {
  TSR_COMBINE_CONCAT = 0,   /* every rectangle holds all rows of its columns */
  TSR_COMBINE_SUM = 1,      /* rows are cut: partial sums are added at the rank that owns the sample */
  TSR_COMBINE_HOST_SUM = 2, /* rows are cut inside a host: partial sums are added there before they cross hosts */
  TSR_COMBINE_REPLICA = 3   /* all rectangles are equal: looked up locally, gradients averaged over all ranks */
};

/* How a layout part says which rows its rectangles hold. All parts of a layout use the same way. */
enum {
  TSR_ROWS_RANGE = 0, /* a rectangle has the table's rows [row, row + rows) */
  TSR_ROWS_ROUTED = 1 /* route() decides; a rectangle's `rows` counts the rows of its row set, and its `row` is 0 */
};

/* How the rows of a bag become one output row. NONE: there is one output row for each id. */
enum { TSR_POOLING_NONE = 0, TSR_POOLING_SUM = 1, TSR_POOLING_MEAN = 2, TSR_POOLING_MAX = 3 };

/* A flag of tsr_sharder: the planner uses this sharder only for tables whose constraints name it. */
#define TSR_SHARDER_WHEN_ASKED 0x1u
/* A flag of tsr_sharder that must be understood: in its layouts with TSR_ROWS_ROUTED, rows keep their ids. route()
 * writes an id's row set and, as its local row, the id itself; the host refuses any other local row. unroute() returns
 * the local row as the id. A rectangle's `rows` tells the planner the row set's share of the table's rows. The host
 * requires a kernel with TSR_KERNEL_ROWS_ON_DEMAND, whose tsr_kernel_table::rows counts the whole table and bounds its
 * ids: such a kernel decides by an id which row to drop, so it must see the same id on any number of ranks. */
#define TSR_SHARDER_KEEPS_IDS 0x10000u

/* The table to be cut. */
typedef struct tsr_table {
  uint32_t struct_size;
  uint32_t flags;              /* none is defined: 0 */
  const char* name;            /* as in the config and the plan */
  int64_t rows;                /* number of rows */
  int64_t cols;                /* values per row */
  DLDataType dtype;            /* type of a stored value */
  int32_t pooling;             /* TSR_POOLING_*; NONE for a table of an EmbeddingCollection */
  uint32_t reserved;           /* 0 */
  uint32_t num_features;       /* number of `features` */
  const char* const* features; /* [num_features] names of the features that look up this table */
} tsr_table;

/* The ranks of the job. */
typedef struct tsr_topology {
  uint32_t struct_size;
  uint32_t flags;               /* none is defined: 0 */
  uint32_t world_size;          /* number of ranks */
  uint32_t local_world_size;    /* ranks per host; rank r is on host r / local_world_size */
  int32_t device_type;          /* DLDeviceType on which the shards live */
  uint32_t reserved;            /* 0 */
  const uint64_t* device_bytes; /* [world_size] memory of each rank for shards on that device; NULL in tsr_route */
} tsr_topology;

/* The user's limits for one table. */
typedef struct tsr_constraints {
  uint32_t struct_size;
  uint32_t flags;        /* none is defined: 0 */
  int64_t min_partition; /* smallest width of a column shard; 0: the sharder's default */
  int64_t max_shards;    /* 0: no limit. A sharder that cannot keep to it proposes nothing */
} tsr_constraints;

/* A shard: the cells [row, row + rows) x [col, col + cols) of the table. With TSR_ROWS_ROUTED, `row` is 0 and `rows`
 * counts the rows of the row set. */
typedef struct tsr_rectangle {
  int64_t row;
  int64_t rows; /* may be 0: a shard without rows */
  int64_t col;
  int64_t cols;
} tsr_rectangle;

/* Rectangles that are placed and combined by one rule. */
typedef struct tsr_layout_part {
  uint32_t struct_size;
  uint32_t flags;                  /* none is defined: 0 */
  int32_t placement;               /* TSR_PLACE_* */
  int32_t combine;                 /* TSR_COMBINE_* */
  int32_t row_set;                 /* TSR_ROWS_* */
  uint32_t num_rectangles;         /* number of shards */
  uint32_t rectangle_stride;       /* bytes from one rectangle to the next */
  uint32_t reserved;               /* 0 */
  const tsr_rectangle* rectangles; /* [num_rectangles] */
} tsr_layout_part;

/* One way to cut the table. Together, the parts' rectangles cover every cell once, except that all rectangles of a
 * REPLICA part cover the same cells. Parts that hold different rows of the same columns add up: for example, hot rows
 * in a REPLICA part and the other rows in a SUM part.
 *
 * A row set is the set of rows that a shard holds. Column shards of the same rows share one row set. With
 * TSR_ROWS_ROUTED, row sets are numbered over all parts, in their order:
 *   - A REPLICA part is one row set.
 *   - In any other part, the k-th rectangle of each block of columns has the part's k-th row set.
 * So each part covers all columns, and all its blocks of columns have the same number of rectangles and of rows. */
typedef struct tsr_layout {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  uint32_t num_parts;
  uint32_t part_stride;         /* bytes from one part to the next */
  uint32_t num_row_sets;        /* with TSR_ROWS_ROUTED, including row sets without rows; with TSR_ROWS_RANGE 0 */
  uint32_t reserved;            /* 0 */
  const tsr_layout_part* parts; /* [num_parts] */
  /* Any number that the sharder chooses, saved in plans. It tells route() which layout was chosen. 0: not needed. */
  int64_t cookie;
} tsr_layout;

/* The host's collector of layouts. It is valid until propose() returns. */
typedef struct tsr_layout_sink tsr_layout_sink;
struct tsr_layout_sink {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  void* self;     /* used only by the host */
  /* [serial] propose() calls it, on its own thread. It copies `layout`, and refuses one that does not cover the table.
   * TSR_UNIMPLEMENTED: this host cannot run the layout; propose() may go on with the next one. */
  tsr_code (*add)(const tsr_layout_sink* sink, const tsr_layout* layout, tsr_error* err);
};

/* The arguments of route() and unroute(): n ids and the places of their rows. The three tensors have n elements and are
 * on one device. Everything is borrowed for the call. */
typedef struct tsr_route {
  uint32_t struct_size;
  uint32_t flags;               /* none is defined: 0 */
  uint32_t num_row_sets;        /* the layout's */
  uint32_t reserved;            /* 0 */
  const tsr_table* table;       /* the same as in propose() */
  const tsr_topology* topology; /* the same as in propose(), but device_bytes is NULL */
  int64_t cookie;               /* the layout's */
  const DLTensor* ids;          /* int64 [n], each in [0, rows of the table) */
  const DLTensor* row_sets;     /* int32 [n], each in [0, num_row_sets) */
  const DLTensor* local_rows;   /* int64 [n], each in [0, rows of its row set), or the id, with KEEPS_IDS */
  tsr_stream stream;            /* of the tensors' device; NULL in host memory, where this core keeps them */
} tsr_route;

/* The functions of a sharder. */
typedef struct tsr_sharder {
  uint32_t struct_size;
  uint32_t flags; /* TSR_SHARDER_* */

  /* [any-thread] Hands every layout that it offers to `sink`, best first. All arguments are borrowed for the call. It
   * is no error to offer none: then the table cannot be cut this way. */
  tsr_code (*propose)(void* self, const tsr_table* table, const tsr_topology* topology,
                      const tsr_constraints* constraints, const tsr_layout_sink* sink, tsr_error* err);

  /* route and unroute are both needed for layouts with TSR_ROWS_ROUTED; otherwise both are NULL. Each is the inverse of
   * the other: no two ids have the same row, and every row has an id. Before it trains, the core checks this for every
   * row, and checks on a sample that all ranks route alike. TSR_UNIMPLEMENTED: it cannot on that device.
   * [any-thread] Reads ids, and writes all row_sets and local_rows. */
  tsr_code (*route)(void* self, const tsr_route* route, tsr_error* err);
  /* [any-thread] Reads row_sets and local_rows, and writes all ids. */
  tsr_code (*unroute)(void* self, const tsr_route* route, tsr_error* err);
} tsr_sharder;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_SHARDER_H_ */

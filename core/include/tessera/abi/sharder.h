/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/sharder.h - tessera.sharder/1: how may a table be cut?
 *
 * A sharder is a pure function from a table and a topology to layouts. It never communicates, and on equal input it
 * gives equal output in every process. A layout says where rows and columns live and how pieces are put together; the
 * planner chooses ranks, the core moves the data.
 */
#ifndef TESSERA_ABI_SHARDER_H_
#define TESSERA_ABI_SHARDER_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_SHARDER_KIND "tessera.sharder/1"

/* The ranks on which the rectangles of a part may be placed. */
enum {
  TSR_PLACE_ANY_RANK = 0,   /* each on any rank, whatever the others do              (TorchRec: device) */
  TSR_PLACE_ONE_HOST = 1,   /* all on one host, rectangle i on its local rank i       (host) */
  TSR_PLACE_IN_HOST = 2,    /* all on one host, each on any of its ranks              (host) */
  TSR_PLACE_EVERY_RANK = 3, /* rectangle i on rank i                                  (uniform) */
  TSR_PLACE_HOSTS = 4       /* consecutive runs of local_world_size rectangles, each run on one host in local rank
                               order, runs on consecutive hosts                       (multi_host) */
};

/* How the pieces of a part become the table's output again. Pieces beside each other are concatenated in every case. */
enum {
  TSR_COMBINE_CONCAT = 0,   /* every rectangle holds all rows of its columns */
  TSR_COMBINE_SUM = 1,      /* rows are cut: partial sums are added at the rank that asked */
  TSR_COMBINE_HOST_SUM = 2, /* rows are cut inside a host: partial sums are added there first, then cross hosts */
  TSR_COMBINE_REPLICA = 3   /* every rectangle is the same; looked up locally, gradients averaged over all ranks */
};

/* Which rows the rectangles of a part hold. All parts of a layout have the same. */
enum {
  TSR_ROWS_RANGE = 0, /* rectangle (row, rows): the table's rows [row, row + rows) */
  TSR_ROWS_ROUTED = 1 /* route() decides; a rectangle's `rows` is the row count of its row set, its `row` is 0 */
};

enum { TSR_POOLING_NONE = 0, TSR_POOLING_SUM = 1, TSR_POOLING_MEAN = 2, TSR_POOLING_MAX = 3 };

/* A flag of tsr_sharder: only for tables whose constraints name it: a planner does not try it by itself. */
enum { TSR_SHARDER_WHEN_ASKED = 1 };

typedef struct tsr_table {
  uint32_t struct_size;
  int32_t pooling; /* TSR_POOLING_*; NONE: an EmbeddingCollection's table */
  const char* name;
  int64_t rows;
  int64_t cols;
  DLDataType dtype;
  uint32_t num_features;
  const char* const* features;
} tsr_table;

typedef struct tsr_topology {
  uint32_t struct_size;
  uint32_t world_size;
  uint32_t local_world_size;    /* ranks per host; rank r is on host r / local_world_size */
  int32_t device_type;          /* DLDeviceType */
  const uint64_t* device_bytes; /* free memory per rank where shards of that device live; world_size entries */
} tsr_topology;

typedef struct tsr_constraints {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t min_partition; /* least width of a column shard; 0: the sharder's default */
  int64_t max_shards;    /* 0: no limit. A sharder that cannot keep it proposes nothing */
} tsr_constraints;

typedef struct tsr_rectangle {
  int64_t row;
  int64_t rows; /* may be 0: a shard without rows */
  int64_t col;
  int64_t cols;
} tsr_rectangle;

typedef struct tsr_layout_part {
  uint32_t struct_size;
  int32_t placement; /* TSR_PLACE_* */
  int32_t combine;   /* TSR_COMBINE_* */
  int32_t row_set;   /* TSR_ROWS_* */
  uint32_t num_rectangles;
  uint32_t rectangle_stride;
  const tsr_rectangle* rectangles;
} tsr_layout_part;

/* One way to cut the table. The parts' rectangles together cover every cell: once, or, in a REPLICA part, once each.
 * Parts that hold different rows of the same columns add up: hot rows in a REPLICA part, the others in a SUM part.
 *
 * A row set is the rows that one shard holds, or several do that hold other columns of them. With TSR_ROWS_ROUTED they
 * are numbered over all parts in their order: a REPLICA part is one; in another part the k-th rectangle of some columns
 * has the part's k-th row set, and so has the k-th of any others. So each part covers all columns, and each of its
 * blocks of columns has as many rectangles, with as many rows. */
typedef struct tsr_layout {
  uint32_t struct_size;
  uint32_t num_parts;
  uint32_t part_stride;
  uint32_t num_row_sets; /* with TSR_ROWS_ROUTED, those without rows too; 0 where rows are ranges */
  const tsr_layout_part* parts;
  int64_t
      cookie; /* tells route() which layout was chosen: the sharder's own number, saved in plans; 0: nothing to tell */
} tsr_layout;

typedef struct tsr_layout_sink tsr_layout_sink;
struct tsr_layout_sink {
  uint32_t struct_size;
  uint32_t reserved;
  void* self;
  /* Copies `layout`. Refuses one that does not tile the table, and with TSR_UNIMPLEMENTED one that this host cannot
   * run: propose may go on with the next. */
  tsr_code (*add)(const tsr_layout_sink* sink, const tsr_layout* layout, tsr_error* err);
};

/* n ids and where their rows are. The three tensors are of length n, on one device, and of these types. */
typedef struct tsr_route {
  uint32_t struct_size;
  uint32_t num_row_sets;        /* as the layout, and cookie too */
  const tsr_table* table;       /* as propose got it */
  const tsr_topology* topology; /* likewise, without device_bytes: that is NULL */
  int64_t cookie;
  const DLTensor* ids;        /* int64, each in [0, rows of the table) */
  const DLTensor* row_sets;   /* int32, each in [0, num_row_sets) */
  const DLTensor* local_rows; /* int64, each in [0, rows of its row set) */
  tsr_stream stream;          /* of the tensors' device; NULL in host memory, where they are today */
} tsr_route;

typedef struct tsr_sharder {
  uint32_t struct_size;
  uint32_t flags; /* TSR_SHARDER_* */

  /* [any-thread] Hands every layout it offers to `sink`, best first. Offering none is not an error: the table cannot be
   * cut this way. */
  tsr_code (*propose)(void* self, const tsr_table* table, const tsr_topology* topology,
                      const tsr_constraints* constraints, const tsr_layout_sink* sink, tsr_error* err);

  /* Only for layouts with TSR_ROWS_ROUTED, then both are needed; otherwise NULL. Each is the inverse of the other: no
   * two ids have one row, and every row has an id. All outputs are written. The core checks this for every row, and on
   * a sample that all ranks route alike, before it trains. TSR_UNIMPLEMENTED: not on that device.
   * [any-thread] From ids to row sets and local rows. */
  tsr_code (*route)(void* self, const tsr_route* route, tsr_error* err);
  /* [any-thread] From row sets and local rows back to ids. */
  tsr_code (*unroute)(void* self, const tsr_route* route, tsr_error* err);
} tsr_sharder;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_SHARDER_H_ */

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/cost.h - tessera.kernel.cost/draft-1: how long a kernel takes for a shard, and how much memory.
 *
 *   1. `tessera calibrate` measures a kernel on a machine and saves the figures (tsr_machine).
 *   2. While the host plans, it asks the kernel's tsr_component::extension for this table. It calls estimate() for each
 *      layout that it considers, with the workload of one shard and the figures, if there are any.
 *   3. The kernel answers with seconds and bytes. It can call sdk/cost.h, which interpolates between the figures.
 *   4. The planner adds up the answers of each rank and chooses the plan with the shortest step.
 *
 * This is an extension of tessera.kernel/1. A kernel without it is planned with the figures of another one.
 */
#ifndef TESSERA_ABI_DRAFT_COST_H_
#define TESSERA_ABI_DRAFT_COST_H_

#include "tessera/abi/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_KERNEL_COST "tessera.kernel.cost/draft-1"

/* The cost of rows of row_bytes bytes on some machine, in seconds. reuse_bytes is the amount of table memory that is
 * touched between two visits of a row; it decides in which cache the row still is. */
typedef struct tsr_row_cost {
  double row_bytes;
  double reuse_bytes;
  double lookup;       /* forward, for each id */
  double update;       /* backward, for each distinct row: sort, gradient, row and state */
  double repeat;       /* backward, for each further id of a row */
  double bag_forward;  /* for each bag */
  double bag_backward; /* for each bag */
} tsr_row_cost;

/* Figures of a machine, measured with this kernel by `tessera calibrate`. sdk/cost.h interpolates between them. */
typedef struct tsr_machine {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  uint32_t num_row_costs;
  uint32_t row_cost_stride;      /* bytes from one row cost to the next */
  const tsr_row_cost* row_costs; /* [num_row_costs], a full grid: by row_bytes, then by reuse_bytes, both ascending */
  double run_forward;            /* seconds for each tsr_lookup_feature */
  double run_backward;           /* seconds for each tsr_lookup_feature */
} tsr_machine;

/* The input of a kernel's cost model: the work of one rank on one shard in one step. */
typedef struct tsr_workload {
  uint32_t struct_size;
  uint32_t flags;             /* none is defined: 0 */
  int32_t pooling;            /* TSR_POOLING_* */
  int32_t weighted;           /* 1: ids have weights */
  int64_t rows;               /* rows of the shard, or of the part of it that this workload is about */
  int64_t dim;                /* columns of the shard */
  double ids;                 /* ids looked up in a step */
  double bags;                /* bags that these ids are in */
  double distinct;            /* distinct rows among the ids; 0: as many as ids */
  double reuse_bytes;         /* bytes touched between a row's visits in two steps; 0: the size of the shard */
  double runs;                /* number of tsr_lookup_features that read this shard */
  const tsr_machine* machine; /* measured figures; NULL: the kernel uses typical ones of its own */
  double update_bytes;        /* bytes touched between a row's lookup and its update; 0: the same as reuse_bytes */
} tsr_workload;

/* The output of a kernel's cost model, for one step. */
typedef struct tsr_estimate {
  uint32_t struct_size;
  uint32_t flags;          /* none is defined: 0 */
  double forward_seconds;  /* time of forward() */
  double backward_seconds; /* time of backward(), including the update */
  uint64_t bytes;          /* rows, states and caches; 0 for all rows of a shard: the kernel does not know */
  uint64_t host_bytes;     /* the share of `bytes` that is in host memory although the device is another one */
  uint64_t storage_bytes;  /* the share of `bytes` that is on disk */
  double storage_reads;    /* rows read from disk in a step */
} tsr_estimate;

/* The function of the extension. */
typedef struct tsr_kernel_cost {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  /* [any-thread] Estimates costs. The config has one table, which is the shard. The workload is about the shard's rows,
   * or about a part of them with the same frequency; estimates of all parts add up. A shard that the kernel cannot hold
   * is refused as in tsr_kernel::supports. */
  tsr_code (*estimate)(void* self, const tsr_kernel_config* config, const tsr_workload* workload,
                       tsr_estimate* estimate, tsr_error* err);
} tsr_kernel_cost;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_COST_H_ */

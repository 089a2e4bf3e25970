/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/collective.h - tessera.collective/1: ranks that exchange tensors, with a deadline on every call.
 *
 * Operations on one group start in the same order on all its ranks. An operation that fails poisons its group: every
 * later one fails with the first error, which names the rank at fault (tsr_error.rank, too) and the operation where
 * that is known, and every other rank of the group learns of it within its own deadline. A rank is a device, not a
 * process.
 *
 * Threads. A group and its works are one object: [serial] guards them all together, so that an operation starts, or a
 * work is waited for, while nothing else of the group runs but [any-thread] calls. Groups from one connect, and those
 * split off it, may be used by different threads at once.
 *
 * Order. Works are waited for in the order in which they were started, so that a part that wraps another may start its
 * inner operations in wait().
 *
 * Lifetime. Structs, arrays of counts and strings are read before a call returns. What a DLTensor points to stays
 * until the work was waited for, and, where the call has a stream, until that stream has passed the operation.
 *
 * Late failures. With a stream, wait() may return TSR_OK for an operation that fails on the device afterwards: the
 * next call on the group reports it, status() too.
 */
#ifndef TESSERA_ABI_COLLECTIVE_H_
#define TESSERA_ABI_COLLECTIVE_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_COLLECTIVE_KIND "tessera.collective/1"

/* Flags of the table: what is known before there is an object. */
enum {
  TSR_COLLECTIVE_LAUNCHES = 1, /* ranks and world size are its own launcher's (MPI under mpirun) */
  /* Works through the part that it wraps; named alone, it is given the one that serves host memory best ("nccl" is
   * "nccl(tcp)"), so that it is never created with inner NULL. */
  TSR_COLLECTIVE_WRAPS = 0x10000
};

enum { TSR_REDUCE_SUM = 0, TSR_REDUCE_MAX = 1, TSR_REDUCE_MIN = 2 };

/* The abilities of one object: a wrapper says what it can do together with the component that it wraps. All that is
 * pointed to lives as long as the object. */
typedef struct tsr_collective_info {
  uint32_t struct_size;
  uint32_t flags;        /* none is defined: 0 */
  uint64_t capabilities; /* bits for inputs that change results; none is defined: 0 */
  /* DLDeviceTypes whose memory is exchanged without a detour over the host, ended by 0: for jobs on such a device this
   * transport is what "auto" means. NULL: none, the core stages what is on a device. Tensors in host memory are taken
   * by every transport; in one call all are of one kind. */
  const int32_t* device_types;
  /* The types that all_reduce and reduce_scatter_v take: float32, float64, int32 and int64 at least. Others, such as
   * float16, in memory of its device types; of a part that has none, in host memory. The other operations take any
   * type. */
  const DLDataType* reducible;
  uint32_t num_reducible;
  uint32_t reserved;
} tsr_collective_info;

/* The members of a group and where they meet. */
typedef struct tsr_rendezvous {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  int32_t rank;
  int32_t world_size;
  int32_t local_rank;
  int32_t local_world_size; /* ranks on this host; 0: the launcher does not say */
  /* The device of this rank's tables and of the tensors that are not in host memory; {kDLCPU, 0}: all are in host
   * memory. */
  DLDevice device;
  const char* master_addr; /* where rank 0 listens */
  int32_t master_port;
  int32_t reserved;
  const char* token; /* the job's secret; NULL or "": none, then only loopback addresses are accepted */
  double timeout_s;  /* for connecting, and the default of every operation */
} tsr_rendezvous;

typedef struct tsr_group tsr_group;
typedef struct tsr_work tsr_work; /* one operation in flight */

/* Flags of a call. All of these are hints. */
enum {
  /* Values may lose precision on the way (a codec may quantize them); without it they arrive as sent. */
  TSR_CALL_LOSSY = 1,
  TSR_CALL_FORWARD = 2, /* of a step's forward: ids, rows */
  TSR_CALL_BACKWARD = 4 /* of its backward: gradients */
};

/* Common to all operations. */
typedef struct tsr_collective_call {
  uint32_t struct_size;
  uint32_t flags; /* TSR_CALL_* bits */
  tsr_stream stream;
  double timeout_s;  /* 0: the group's default */
  const char* label; /* what the caller calls this operation, for error texts and traces; may be NULL */
  /* The place in the program that calls: equal on all ranks and in all steps, another one for every exchange of a step.
   * What a codec keeps from step to step (errors that it feeds back) belongs to it. 0: none. */
  uint64_t site;
  /* The elements are rows of so many, all of one width; 0: they are no rows, or not of one width. */
  int64_t row_elements;
} tsr_collective_call;

typedef struct tsr_collective {
  uint32_t struct_size;
  uint32_t flags; /* TSR_COLLECTIVE_* bits */

  /* [any-thread] Fills `out`; the same at every call. */
  tsr_code (*describe)(void* self, tsr_collective_info* out, tsr_error* err);
  /* [any-thread] Blocks until all ranks have met, or the deadline. The message then names who is missing. */
  tsr_code (*connect)(void* self, const tsr_rendezvous* where, tsr_group** group, tsr_error* err);
  /* [serial] Called by every rank of `group` in the same order; ranks with equal color >= 0 form a new group, ordered
   * by `key`, those of equal keys by their rank in `group`. color -1: this rank joins none and *child becomes NULL.
   * `call`: its deadline and label; it blocks, and has no stream. */
  tsr_code (*split)(tsr_group* group, int32_t color, int32_t key, const tsr_collective_call* call, tsr_group** child,
                    tsr_error* err);
  /* [any-thread] */
  int32_t (*rank)(const tsr_group* group);
  int32_t (*world_size)(const tsr_group* group);

  /* [serial][enqueue] The operations start here and end in wait(). Counts are numbers of elements, one per rank, and
   * pieces lie one after the other in rank order. `send` and `recv` have the same dtype and do not overlap; their shape
   * is not looked at beyond the number of elements. */
  tsr_code (*all_to_all_v)(tsr_group* group, const DLTensor* send, const int64_t* send_counts, const DLTensor* recv,
                           const int64_t* recv_counts, const tsr_collective_call* call, tsr_work** work,
                           tsr_error* err);
  tsr_code (*all_reduce)(tsr_group* group, const DLTensor* inout, int32_t op, const tsr_collective_call* call,
                         tsr_work** work, tsr_error* err);
  /* Rank r gets the reduction of everybody's piece r: counts[r] elements. */
  tsr_code (*reduce_scatter_v)(tsr_group* group, const DLTensor* send, const int64_t* counts, const DLTensor* recv,
                               int32_t op, const tsr_collective_call* call, tsr_work** work, tsr_error* err);
  tsr_code (*all_gather_v)(tsr_group* group, const DLTensor* send, const DLTensor* recv, const int64_t* counts,
                           const tsr_collective_call* call, tsr_work** work, tsr_error* err);
  tsr_code (*broadcast)(tsr_group* group, const DLTensor* inout, int32_t root, const tsr_collective_call* call,
                        tsr_work** work, tsr_error* err);
  tsr_code (*barrier)(tsr_group* group, const tsr_collective_call* call, tsr_work** work, tsr_error* err);

  /* [serial] Ends the work, successful or not, and frees it. With a stream, makes the stream wait. */
  tsr_code (*wait)(tsr_work* work, tsr_error* err);

  /* [any-thread] Unblocks every waiter here and, as far as possible, on the other ranks; they all get `reason`. */
  void (*abort)(tsr_group* group, const char* reason);
  /* [serial] Frees the group. Says goodbye to the peers, so that a rank that closes is not taken for a dead one. */
  void (*close)(tsr_group* group);

  /* [any-thread] Optional. Bytes that this rank sent to other ranks since connect. */
  uint64_t (*bytes_sent)(const tsr_group* group);

  /* [any-thread] Optional. Ranks with the same number share a machine, as far as the transport knows; -1: it does not
   * know. The numbers mean nothing else. The core asks where the launcher did not say (local_world_size 0). */
  int32_t (*host_of)(const tsr_group* group, int32_t rank);

  /* [any-thread] Optional. The failure that the group is poisoned with, as its next operation will report it; TSR_OK:
   * none is known here. It asks nobody and does not block. */
  tsr_code (*status)(const tsr_group* group, tsr_error* err);

  /* [any-thread] Optional. Bytes that travel for a piece of `elements` elements between two ranks in a call of
   * all_to_all_v with these row_elements and flags (TSR_CALL_*): what plans and reports count. Never more for fewer
   * elements. NULL: as many as the elements have. */
  int64_t (*wire_bytes)(void* self, DLDataType dtype, int64_t elements, int64_t row_elements, uint32_t flags);
} tsr_collective;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_COLLECTIVE_H_ */

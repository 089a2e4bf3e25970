/* tessera/abi/collective.h - tessera.collective/1: ranks that exchange tensors, with a deadline on every call.
 *
 * Operations on one group start in the same order on all its ranks. An operation that fails poisons its group: every
 * later one fails with the first error, which names the rank at fault and the operation where that is known, and every
 * other rank of the group learns of it within its own deadline. A rank is a device, not a process.
 */
#ifndef TESSERA_ABI_COLLECTIVE_H_
#define TESSERA_ABI_COLLECTIVE_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_COLLECTIVE_KIND "tessera.collective/1"

/* Capability bits. */
enum {
  TSR_COLLECTIVE_HOST_MEMORY_ONLY = 1, /* tensors must be in host memory; the core stages device buffers */
  TSR_COLLECTIVE_LAUNCHES = 2,         /* knows rank and world size by itself (MPI under mpirun) */
  TSR_COLLECTIVE_WRAPS = 4             /* works through the part that it wraps; named alone, it is given the one that
                                          serves host memory best ("nccl" is "nccl(tcp)"), so that it is never created
                                          with inner NULL */
};

enum { TSR_REDUCE_SUM = 0, TSR_REDUCE_MAX = 1, TSR_REDUCE_MIN = 2 };

/* Who meets where. */
typedef struct tsr_rendezvous {
  uint32_t struct_size;
  int32_t rank;
  int32_t world_size;
  int32_t local_rank;
  int32_t local_world_size; /* ranks on this host; 0: the launcher does not say */
  int32_t master_port;
  const char* master_addr; /* where rank 0 listens */
  const char* token;       /* the job's secret; NULL or "": none, then only loopback addresses are accepted */
  double timeout_s;        /* for connecting, and the default of every operation */
} tsr_rendezvous;

typedef struct tsr_group tsr_group;
typedef struct tsr_work tsr_work; /* one operation in flight */

/* Flags of a call. */
enum {
  /* Values may lose precision on the way (a codec may quantize them); without it they arrive as sent. This core does
   * not set it yet. */
  TSR_CALL_LOSSY = 1
};

/* Common to all operations. Buffers are borrowed until the work was waited for. */
typedef struct tsr_collective_call {
  uint32_t struct_size;
  uint32_t flags; /* TSR_CALL_* bits */
  tsr_stream stream;
  double timeout_s;  /* 0: the group's default */
  const char* label; /* what the caller calls this operation, for error texts and traces; may be NULL */
} tsr_collective_call;

typedef struct tsr_collective {
  uint32_t struct_size;
  uint32_t capabilities; /* TSR_COLLECTIVE_* bits */

  /* [any-thread] Blocks until all ranks have met, or the deadline. The message then names who is missing. */
  tsr_code (*connect)(void* self, const tsr_rendezvous* where, tsr_group** group, tsr_error* err);
  /* [serial] Called by every rank of `group` in the same order; ranks with equal color >= 0 form a new group, ordered
   * by their rank in `group`. color -1: this rank joins none and *child becomes NULL. */
  tsr_code (*split)(tsr_group* group, int32_t color, tsr_group** child, tsr_error* err);
  /* [any-thread] */
  int32_t (*rank)(const tsr_group* group);
  int32_t (*world_size)(const tsr_group* group);

  /* [serial][enqueue] The operations start here and end in wait(). Counts are numbers of elements, one per rank, and
   * pieces lie one after the other in rank order. `send` and `recv` have the same dtype and do not overlap; their shape
   * is not looked at beyond the number of elements. dtypes: reductions take float32, float64, int32, int64 and, if the
   * part says so, float16; the others take any. */
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

  /* DLDeviceTypes whose memory is exchanged without a detour over the host, ended by 0: for jobs on such a device this
   * transport is what "auto" means. NULL: none. Tensors in host memory are taken by every transport; in one call all
   * are of one kind. */
  const int32_t* device_types;
} tsr_collective;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_COLLECTIVE_H_ */

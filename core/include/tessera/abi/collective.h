/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/collective.h - tessera.collective/1: ranks that exchange tensors, with a deadline on every call.
 *
 *   1. Every rank creates the component, calls describe() and then connect(), which returns a group of all ranks. If
 *      the launcher did not say which ranks share a host, the core asks host_of().
 *   2. The ranks may call split() to form smaller groups, such as one for each host.
 *   3. In a step, every rank starts the same operation, such as all_to_all_v(), and gets a tsr_work.
 *   4. It may do other things meanwhile. Then it calls wait(), which ends the operation and frees the work.
 *   5. If an operation fails on a rank, the others learn of it within their deadlines. A rank that cannot go on calls
 *      abort(), which unblocks the others. A failed group can only be closed.
 *   6. At the end every rank waits for all works, calls close() for each group and then destroys the component.
 *
 * Failures. A failed operation poisons its group: every later operation fails with the first error. The message, and
 * tsr_error.rank, name the rank at fault if it is known; the message also names the operation. Every other rank of the
 * group learns of the failure within its own deadline. A rank is a device, not a process.
 *
 * Threads. A group and its works count as one object for [serial]. While one thread starts an operation or waits for a
 * work, other threads make only [any-thread] calls on that group. Different groups may be used by different threads at
 * once, even if they come from one connect() or one was split off another.
 *
 * Order. Operations on a group start in the same order on all its ranks. The caller waits for works in the order in
 * which it started them. So a component that wraps another one may start operations of that one in wait().
 *
 * Lifetime. A group is closed after all of its works were waited for. A group that split() made may outlive its parent
 * group. The component is destroyed after all of its groups are closed. Once close() has begun, nobody calls abort(),
 * status(), bytes_sent() or any other function of that group.
 * Structs, arrays of counts and strings are read before a call returns. The memory of a DLTensor stays valid
 * until its work was waited for and, if the call has a stream, until that stream has passed the operation.
 *
 * Late failures. With a stream, wait() may return TSR_OK for an operation that fails on the device afterwards. Then the
 * next call on the group reports the failure, and so does status().
 */
#ifndef TESSERA_ABI_COLLECTIVE_H_
#define TESSERA_ABI_COLLECTIVE_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_COLLECTIVE_KIND "tessera.collective/1"

/* Flags of the table, which are known before there is an object. */
#define TSR_COLLECTIVE_LAUNCHES 0x1u /* ranks and world size come from its own launcher (MPI under mpirun) */
/* It works through the component that it wraps, and is never created with inner NULL. If a config names it without an
 * inner component, the host adds the best one for host memory: "nccl" is "nccl(tcp)". */
#define TSR_COLLECTIVE_WRAPS 0x10000u

/* The operation of a reduction. */
enum { TSR_REDUCE_SUM = 0, TSR_REDUCE_MAX = 1, TSR_REDUCE_MIN = 2 };

/* The abilities of one object. A wrapper reports what it can do together with the component that it wraps. All pointers
 * are valid as long as the object lives. */
typedef struct tsr_collective_info {
  uint32_t struct_size;
  /* Each bit stands for an input that changes results; the host hands the input only to an object with the bit. No bit
   * is defined: 0. A wrapper gives the inner describe() a struct of its own, and reports only bits that it knows. */
  uint32_t flags;
  /* DLDeviceTypes whose memory is exchanged directly, ended by 0. "auto" chooses this transport for jobs on such a
   * device. NULL: none, and the core copies tensors to host memory first. Every transport takes tensors in host memory.
   * All tensors of one call are in the same kind of memory. */
  const int32_t* device_types;
  /* Element types that all_reduce and reduce_scatter_v take: at least float32, float64, int32 and int64. Further types,
   * such as float16, are for memory of device_types only, or for host memory if device_types is NULL. The other
   * operations take any type. */
  const DLDataType* reducible;
  uint32_t num_reducible; /* number of `reducible` */
  uint32_t reserved;      /* 0 */
} tsr_collective_info;

/* This rank's place in the group, and where the ranks meet. */
typedef struct tsr_rendezvous {
  uint32_t struct_size;
  uint32_t flags;           /* none is defined: 0 */
  int32_t rank;             /* number of this rank, in [0, world_size) */
  int32_t world_size;       /* number of ranks */
  int32_t local_rank;       /* number of this rank on its host */
  int32_t local_world_size; /* ranks on this host; 0: the launcher did not say */
  /* The device of this rank's tables, and of tensors that are not in host memory. {kDLCPU, 0}: all tensors are in host
   * memory. */
  DLDevice device;
  const char* master_addr; /* address at which rank 0 listens */
  int32_t master_port;     /* port at which rank 0 listens */
  int32_t reserved;        /* 0 */
  const char* token;       /* the job's secret; NULL or "": none, and only loopback addresses are accepted */
  double timeout_s;        /* deadline of connect(), and the default deadline of every operation, in seconds */
} tsr_rendezvous;

typedef struct tsr_group tsr_group; /* ranks that exchange tensors */
typedef struct tsr_work tsr_work;   /* one operation in flight */

/* Flags of a call. All of these are hints. */
/* Values may lose precision on the way: a codec may quantize them. Without this flag they arrive as sent. */
#define TSR_CALL_LOSSY 0x1u
#define TSR_CALL_FORWARD 0x2u  /* part of a step's forward: ids or rows */
#define TSR_CALL_BACKWARD 0x4u /* part of a step's backward: gradients */

/* Arguments that all operations have. */
typedef struct tsr_collective_call {
  uint32_t struct_size;
  uint32_t flags;    /* TSR_CALL_* bits */
  tsr_stream stream; /* stream of the tensors' device, never NULL for one; NULL for tensors in host memory */
  double timeout_s;  /* deadline in seconds; 0: the group's default */
  const char* label; /* the caller's name for this operation, for error messages and traces; may be NULL */
  /* A number for the calling place in the program. It is the same on all ranks and in all steps, and different for each
   * exchange of a step. A codec keeps a state for each site, such as the errors that it adds back in the next step. 0:
   * the place is not known. */
  uint64_t site;
  /* Width of a row in elements, if the elements form rows of one width; otherwise 0. */
  int64_t row_elements;
} tsr_collective_call;

/* The functions of a transport. */
typedef struct tsr_collective {
  uint32_t struct_size;
  uint32_t flags; /* TSR_COLLECTIVE_* bits */

  /* [any-thread] Fills `out`, with the same values in every call. */
  tsr_code (*describe)(void* self, tsr_collective_info* out, tsr_error* err);
  /* [any-thread] Blocks until all ranks have met, and makes a group, which the caller owns until close().
   * TSR_DEADLINE_EXCEEDED: the message names the missing ranks. */
  tsr_code (*connect)(void* self, const tsr_rendezvous* where, tsr_group** group, tsr_error* err);
  /* [serial] Makes smaller groups. Every rank of `group` calls it. Ranks with the same color >= 0 form a new group, in
   * the order of `key`; ranks with the same key are in the order of `group`. With color -1 this rank joins no group,
   * and *child becomes NULL. The caller owns *child until close(). The call blocks. split() reads only the deadline and
   * the label of `call`. */
  tsr_code (*split)(tsr_group* group, int32_t color, int32_t key, const tsr_collective_call* call, tsr_group** child,
                    tsr_error* err);
  /* [any-thread] Return this rank's number in the group, and the group's number of ranks. */
  int32_t (*rank)(const tsr_group* group);
  int32_t (*world_size)(const tsr_group* group);

  /* [serial][enqueue] The six operations start here and end in wait(). Each makes a *work, which the caller hands to
   * wait(). Counts are [world_size] numbers of elements. The blocks of the ranks follow each other in rank order.
   * `send` and `recv` have the same dtype and do not overlap; `send` is only read. Shapes do not matter.
   *
   * all_to_all_v sends send_counts[r] elements to rank r, and receives recv_counts[r] elements from it. */
  tsr_code (*all_to_all_v)(tsr_group* group, const DLTensor* send, const int64_t* send_counts, const DLTensor* recv,
                           const int64_t* recv_counts, const tsr_collective_call* call, tsr_work** work,
                           tsr_error* err);
  /* `inout` becomes its reduction over all ranks. `op` is a TSR_REDUCE_*. */
  tsr_code (*all_reduce)(tsr_group* group, const DLTensor* inout, int32_t op, const tsr_collective_call* call,
                         tsr_work** work, tsr_error* err);
  /* Rank r gets the reduction of all ranks' block r, which has counts[r] elements. */
  tsr_code (*reduce_scatter_v)(tsr_group* group, const DLTensor* send, const int64_t* counts, const DLTensor* recv,
                               int32_t op, const tsr_collective_call* call, tsr_work** work, tsr_error* err);
  /* Every rank gets what all ranks sent. Rank r sends counts[r] elements. */
  tsr_code (*all_gather_v)(tsr_group* group, const DLTensor* send, const DLTensor* recv, const int64_t* counts,
                           const tsr_collective_call* call, tsr_work** work, tsr_error* err);
  /* Every rank gets the elements of rank `root`. */
  tsr_code (*broadcast)(tsr_group* group, const DLTensor* inout, int32_t root, const tsr_collective_call* call,
                        tsr_work** work, tsr_error* err);
  /* The work ends after all ranks have started it. */
  tsr_code (*barrier)(tsr_group* group, const tsr_collective_call* call, tsr_work** work, tsr_error* err);

  /* [serial] Blocks until the operation is done, and frees the work, whether it succeeded or not. If the call had a
   * stream, that stream waits for the operation, and not the caller. */
  tsr_code (*wait)(tsr_work* work, tsr_error* err);

  /* [any-thread] Unblocks every waiter of the group here and, as far as possible, on the other ranks. All of them fail
   * with `reason`. It is not called after close() has begun. */
  void (*abort)(tsr_group* group, const char* reason);
  /* [serial] Frees the group. It tells the peers first, so that they do not take this rank for a dead one. */
  void (*close)(tsr_group* group);

  /* [any-thread] Optional. Returns the number of bytes that this rank has sent to other ranks since connect(). */
  uint64_t (*bytes_sent)(const tsr_group* group);

  /* [any-thread] Optional. Returns a number for the host of a rank: ranks with the same number share a host. The
   * numbers have no other meaning. -1: not known. The core asks if tsr_rendezvous::local_world_size is 0. */
  int32_t (*host_of)(const tsr_group* group, int32_t rank);

  /* [any-thread] Optional. Returns the failure that poisoned the group, as its next operation will report it. TSR_OK:
   * no failure is known on this rank. It does not communicate and does not block. */
  tsr_code (*status)(const tsr_group* group, tsr_error* err);

  /* [any-thread] Optional. Returns the number of bytes on the wire for `elements` elements between two ranks, in an
   * all_to_all_v with these row_elements and flags (TSR_CALL_*). Plans and reports use it. Fewer elements never take
   * more bytes. NULL: it is the size of the elements. */
  int64_t (*wire_bytes)(void* self, DLDataType dtype, int64_t elements, int64_t row_elements, uint32_t flags);
} tsr_collective;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_COLLECTIVE_H_ */

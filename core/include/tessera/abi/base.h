/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/base.h - versions, codes, errors. The plugin contract starts here; read plugin.h next.
 *
 * ABI 1 is a RELEASE CANDIDATE, of epoch TSR_ABI_EPOCH: docs/ABI.md says what may still change.
 *
 * Rules of every header in this folder (docs/ABI.md has the reasons):
 *   - C11, fixed-width types, explicit padding; every struct that may grow begins with `struct_size`: the sizeof that
 *     the owner of its memory was compiled with. Structs grow at the end only.
 *   - A struct that is handed in was filled by its owner. One that is to be filled comes zeroed, but for its
 *     struct_size: the callee writes no member beyond that (TSR_FITS), and never changes struct_size itself.
 *   - A member exists when it lies inside struct_size (TSR_FITS); a function exists when it is also not NULL (TSR_HAS).
 *     Sizes and versions are never compared for equality.
 *   - Arrays of structs carry a stride in bytes, so that either side may have the longer struct. A struct that grows
 *     never stands by value in another.
 *   - `flags` of a table, a struct or a call: the low 16 bits are hints, which may be ignored. The high 16 bits
 *     (TSR_MUST_UNDERSTAND) change what is asked for: whoever does not know one of them refuses with TSR_UNIMPLEMENTED.
 *     A new input that changes results and is no flag has a capability bit in the callee's table or description, and
 *     nobody hands it to a part that lacks the bit.
 *   - No exception crosses. A function returns a tsr_code and, when it is not TSR_OK, fills the caller's tsr_error,
 *     which is never NULL and comes as TSR_ERROR_INIT has it.
 *   - The process is the host's: opening or calling a plugin leaves locale, working directory, signal handlers and the
 *     floating-point mode as they were, and never forks. A library linked with -ffast-math changes the floating-point
 *     mode when it is opened; the host undoes that and says so.
 *   - Strings are NUL-terminated UTF-8, borrowed for the call unless a comment says otherwise.
 *   - Thread tags: [any-thread] may be called concurrently, also from inside a parallel_for, where it may start none
 *     of its own; [serial] never two calls at once on one object, though from different threads over time; [enqueue]
 *     only enqueues on the stream and never blocks.
 */
#ifndef TESSERA_ABI_BASE_H_
#define TESSERA_ABI_BASE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The major is part of the entry symbol's name; the minor grows by one when any struct gains a member. */
#define TSR_ABI_MAJOR 1u
#define TSR_ABI_MINOR 0u
/* Which release candidate. It rises with every release that changes the contract in another way than by growth, and a
 * host refuses plugins of another epoch by name. The first one had 0. */
#define TSR_ABI_EPOCH 2u

/* Bytes of a struct of type `type` up to the end of `field`. */
#ifdef __cplusplus
#define TSR_END_OF(type, field) (offsetof(type, field) + sizeof(static_cast<type*>(nullptr)->field))
#else
#define TSR_END_OF(type, field) (offsetof(type, field) + sizeof(((type*)0)->field))
#endif
/* True when the struct that `ptr` points to (of type `type`, not NULL) is long enough for `field`. */
#define TSR_FITS(type, ptr, field) ((ptr)->struct_size >= TSR_END_OF(type, field))
/* True when `ptr` (likewise, or NULL) is long enough for `field` and the field is not 0/NULL. */
#define TSR_HAS(type, ptr, field) ((ptr) != NULL && TSR_FITS(type, ptr, field) && (ptr)->field != 0)

/* The bits of `flags` that the other side must know, or refuse. */
#define TSR_MUST_UNDERSTAND 0xFFFF0000u

/* Codes: the numbers of absl and gRPC. Values of other numbers are treated as TSR_INTERNAL. */
typedef int32_t tsr_code;
enum {
  TSR_OK = 0,
  TSR_CANCELLED = 1, /* abort() was called on this side */
  TSR_UNKNOWN = 2,
  TSR_INVALID_ARGUMENT = 3,  /* the caller's input is wrong, whatever the state of the world */
  TSR_DEADLINE_EXCEEDED = 4, /* a deadline passed; the message says who or what was late */
  TSR_NOT_FOUND = 5,
  TSR_ALREADY_EXISTS = 6,
  TSR_PERMISSION_DENIED = 7,
  TSR_RESOURCE_EXHAUSTED = 8,  /* memory, files, ... */
  TSR_FAILED_PRECONDITION = 9, /* right call, wrong moment */
  TSR_ABORTED = 10,            /* a peer failed or aborted; this rank is not at fault */
  TSR_OUT_OF_RANGE = 11,
  TSR_UNIMPLEMENTED = 12, /* this part cannot do that; unknown constants end here too */
  TSR_INTERNAL = 13,
  TSR_UNAVAILABLE = 14,
  TSR_DATA_LOSS = 15 /* a file or message is damaged */
};

/* Owned by the caller, nothing to free, outlives every plugin. The message is one sentence for a person: what, which
 * part, what to do. It comes zeroed, but for struct_size and rank; the callee writes it only when it returns a code
 * other than TSR_OK. */
typedef struct tsr_error {
  uint32_t struct_size;
  tsr_code code;
  /* The rank at fault, by its number in the group that connect() made, which the message uses too. It comes as -1 and
   * stays so if the rank is not known or no rank is at fault. */
  int32_t rank;
  char message[500];
} tsr_error;
#define TSR_ERROR_INIT                   \
  {                                      \
    sizeof(tsr_error), TSR_OK, -1, { 0 } \
  }

/* A queue of device work: a cudaStream_t, a hipStream_t, or NULL on the CPU, where a call is done when it returns. */
typedef void* tsr_stream;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_BASE_H_ */

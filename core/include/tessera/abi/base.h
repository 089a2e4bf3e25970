/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/base.h - versions, codes and errors. The plugin contract starts here; read plugin.h next.
 *
 * ABI 1 is a RELEASE CANDIDATE, of epoch TSR_ABI_EPOCH: docs/ABI.md says what may still change.
 *
 * A call between a host and a plugin that were compiled with different minors goes like this:
 *
 *   1. The caller sets each struct's struct_size to the sizeof that it was compiled with. It fills the structs that it
 *      hands in, and zeroes those that the callee is to fill. It sets its tsr_error to TSR_ERROR_INIT.
 *   2. The callee reads or writes a member only if that lies inside struct_size (TSR_FITS). A missing member has the
 *      value 0. The callee refuses must-understand flags that it does not know, with TSR_UNIMPLEMENTED.
 *   3. If all went well, the callee returns TSR_OK and leaves the tsr_error alone.
 *   4. Otherwise it writes the code and one sentence into the tsr_error, and returns the same code.
 *   5. The caller reads what was filled, or shows the sentence to a person. There is nothing to free.
 *
 * Rules of every header in this folder (docs/ABI.md has the reasons):
 *   - Both sides are 64-bit programs, little-endian, of Linux on x86-64 or aarch64. A plugin of another architecture is
 *     refused by its ELF header.
 *   - The headers are C11, with fixed-width types and explicit padding. Every struct that may grow begins with
 *     `struct_size`: the sizeof that the owner of its memory was compiled with. Structs grow only at their end.
 *   - A struct that is handed in was filled by its owner. A struct that is to be filled comes zeroed, except for its
 *     struct_size. The callee writes no member beyond struct_size (TSR_FITS), and never changes struct_size itself.
 *   - A member exists if it lies inside struct_size (TSR_FITS). A function exists if it is also not NULL (TSR_HAS).
 *     Sizes and versions are never compared for equality.
 *   - Arrays of structs carry a stride in bytes, so that either side may have the longer struct. A struct that may
 *     grow is never a by-value member of another one.
 *   - The low 16 bits of the `flags` of a table, a struct or a call are hints, which may be ignored. The high 16
 *     bits (TSR_MUST_UNDERSTAND) change what is requested: a callee that does not know one refuses with
 *     TSR_UNIMPLEMENTED. The host and every plugin check the high flags of each table, description or struct that
 *     they receive.
 *   - If a new input that is not a flag changes results, the callee's table or description has a capability bit for it.
 *     The host never hands the input to a component without that bit.
 *   - No exception crosses the boundary. A function returns a tsr_code. If that is not TSR_OK, the function fills the
 *     caller's tsr_error, which is never NULL and comes as TSR_ERROR_INIT sets it.
 *   - The process belongs to the host. Opening or calling a plugin never forks, and leaves locale, working directory,
 *     signal handlers and floating-point mode unchanged. A library linked with -ffast-math changes the floating-point
 *     mode when it is opened; the host undoes that and reports it.
 *   - Strings are NUL-terminated UTF-8. They are borrowed for the call unless a comment says otherwise.
 *   - Comments start with thread tags:
 *       [any-thread]  The function may be called concurrently, also from inside a parallel_for. It may call
 *                     parallel_for itself: a nested call runs on the calling thread.
 *       [serial]      Two calls never run at once on one object, but different threads may call one after the other.
 *       [enqueue]     The function only enqueues work on the stream and never blocks.
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
/* Number of the release candidate. It rises with every release that does more than append to the contract. A host
 * refuses plugins of another epoch with a message that names it. The first release candidate had 0. Release 1.0 keeps
 * the number of its last candidate, and then the number stays for as long as the major is 1. */
#define TSR_ABI_EPOCH 3u

/* Makes a symbol visible outside of its library, whatever the compiler's options say. */
#define TSR_EXPORT __attribute__((visibility("default")))

/* Number of bytes in a struct of type `type` up to the end of `field`. */
#ifdef __cplusplus
#define TSR_END_OF(type, field) (offsetof(type, field) + sizeof(static_cast<type*>(nullptr)->field))
#else
#define TSR_END_OF(type, field) (offsetof(type, field) + sizeof(((type*)0)->field))
#endif
/* True if the struct at `ptr` (of type `type`, not NULL) is long enough to have `field`. */
#define TSR_FITS(type, ptr, field) ((ptr)->struct_size >= TSR_END_OF(type, field))
/* True if the struct at `ptr` has `field`, and the field is not 0 or NULL. False if `ptr` is NULL. */
#define TSR_HAS(type, ptr, field) ((ptr) != NULL && TSR_FITS(type, ptr, field) && (ptr)->field != 0)

/* Mask of the bits of `flags` that the other side must either know or refuse. */
#define TSR_MUST_UNDERSTAND 0xFFFF0000u

/* Result codes, with the numbers of absl and gRPC. Any other number is treated as TSR_INTERNAL. */
typedef int32_t tsr_code;
enum {
  TSR_OK = 0,
  TSR_CANCELLED = 1, /* abort() was called on this side */
  TSR_UNKNOWN = 2,
  TSR_INVALID_ARGUMENT = 3,  /* the caller's input is wrong, independent of any state */
  TSR_DEADLINE_EXCEEDED = 4, /* a deadline passed; the message says who or what was late */
  TSR_NOT_FOUND = 5,
  TSR_ALREADY_EXISTS = 6,
  TSR_PERMISSION_DENIED = 7,
  TSR_RESOURCE_EXHAUSTED = 8,  /* memory, files, ... */
  TSR_FAILED_PRECONDITION = 9, /* the call is right, but not in the current state */
  TSR_ABORTED = 10,            /* a peer failed or aborted; this rank is not at fault */
  TSR_OUT_OF_RANGE = 11,
  TSR_UNIMPLEMENTED = 12, /* this component cannot do that, or does not know a constant */
  TSR_INTERNAL = 13,
  TSR_UNAVAILABLE = 14,
  TSR_DATA_LOSS = 15 /* a file or message is damaged */
};

/* An error, in memory of the caller; nothing has to be freed. It comes as TSR_ERROR_INIT sets it. The callee writes it
 * only if it returns a code other than TSR_OK. */
typedef struct tsr_error {
  uint32_t struct_size;
  tsr_code code; /* the same as the returned code */
  /* The rank at fault, as numbered in the group of tsr_collective::connect(); the message uses the same number. It
   * stays -1 if the rank is unknown or no rank is at fault. */
  int32_t rank;
  char message[500]; /* one NUL-terminated sentence for a person: what failed, in which component, what to do */
} tsr_error;
#define TSR_ERROR_INIT                   \
  {                                      \
    sizeof(tsr_error), TSR_OK, -1, { 0 } \
  }

/* Fills `err` and returns `code`, in C: return tsr_refuse(err, TSR_NOT_FOUND, "there is no table 7"). A message
 * that is too long for the caller's struct is cut between two characters. */
static inline tsr_code tsr_refuse(tsr_error* err, tsr_code code, const char* message) {
  size_t room = 0, end = 0;
  if (TSR_FITS(tsr_error, err, code)) err->code = code;
  if (err->struct_size > offsetof(tsr_error, message)) room = err->struct_size - offsetof(tsr_error, message);
  if (room > sizeof(err->message)) room = sizeof(err->message);
  if (room == 0) return code;
  while (end + 1 < room && message[end] != '\0') ++end;
  while (end > 0 && (message[end] & 0xC0) == 0x80) --end; /* inside of a character of several bytes */
  for (size_t i = 0; i < end; ++i) err->message[i] = message[i];
  err->message[end] = '\0';
  return code;
}

/* A queue of device work: a cudaStream_t or a hipStream_t. A call whose tensors are on a device always has a stream,
 * which is not NULL. NULL stands for host memory: then the work is done when the call returns. */
typedef void* tsr_stream;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_BASE_H_ */

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/histories.h - tessera.reader.histories/draft-1: histories of users whose events come one by one.
 *
 *   0. A trainer opens files with the reader, and asks it for settled().
 *   1. A server creates the reader that made the histories of a model's training data, and asks
 *      tsr_component::extension for this table. It opens no files with it.
 *   2. It asks which columns an event has, and which lists the reader makes of them.
 *   3. It calls begin() with the lists that the model takes.
 *   4. It calls add() for events in the order in which they come, and take() for a user's lists. The reader gives the
 *      same lists for a file with these events.
 *
 * All calls are [serial] on one object. All values are texts, as in files. begin() bounds the memory. Beyond that, the
 * reader forgets the user whose newest event is the oldest, with all events of that user.
 */
#ifndef TESSERA_ABI_DRAFT_HISTORIES_H_
#define TESSERA_ABI_DRAFT_HISTORIES_H_

#include "tessera/abi/draft/reader.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_READER_HISTORIES "tessera.reader.histories/draft-1"

/* The values that a list keeps if a user has more of them than it may hold. */
enum {
  TSR_HISTORY_NEWEST = 0, /* the last ones */
  TSR_HISTORY_OLDEST = 1, /* the first ones */
  TSR_HISTORY_MIXED = 2   /* values of several kinds of events; each kind has a bound of its own */
};

/* Figures of the kept events. */
typedef struct tsr_history_counts {
  uint32_t struct_size;
  uint32_t flags;    /* none is defined: 0 */
  int64_t users;     /* users with events */
  int64_t bytes;     /* memory that they take */
  int64_t forgotten; /* users that were forgotten since begin(), because memory was full */
} tsr_history_counts;

/* The functions of the extension. */
typedef struct tsr_reader_histories {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */

  /* The name of the i-th column of an event: first the user's, second the time's, then others. The name is valid as
   * long as the reader. TSR_OUT_OF_RANGE: there are no more. */
  tsr_code (*event_column)(void* self, int64_t i, const char** name, tsr_error* err);
  /* The name of the i-th list. It is valid as long as the reader. TSR_OUT_OF_RANGE: there are no more. */
  tsr_code (*list)(void* self, int64_t i, const char** name, tsr_error* err);
  /* Forgets all events, and chooses the lists that take() gives. There are `count` of them. Users and events take at
   * most `most_bytes` (> 0). TSR_NOT_FOUND: there is no such list. */
  tsr_code (*begin)(void* self, int64_t count, const char* const* lists, int64_t most_bytes, tsr_error* err);
  /* Adds `rows` events. There is one element of `values` for each column of event_column(), `stride` bytes apart, with
   * texts. Writes to `added` how many events were added. TSR_INVALID_ARGUMENT: the next one has no user, no time or no
   * value, or is earlier than one of the same user; the message names the column. */
  tsr_code (*add)(void* self, int64_t rows, uint32_t stride, const tsr_reader_values* values, int64_t* added,
                  tsr_error* err);
  /* Gives the lists of the event that would be the user's next: one element of `out` for each list of begin(), `stride`
   * bytes apart, with one row. They are valid until the reader's next call. Writes to `events` how many events the user
   * has in them; 0: the user is unknown, and the lists are empty. The user's name has `bytes` bytes. */
  tsr_code (*take)(void* self, const char* user, uint64_t bytes, uint32_t stride, tsr_reader_values* out,
                   int64_t* events, tsr_error* err);
  tsr_code (*counts)(void* self, tsr_history_counts* out, tsr_error* err);
  /* Optional. Writes how many values the i-th list has at most, and which values it keeps if there are more:
   * TSR_HISTORY_NEWEST, ... INT64_MAX: any number. TSR_OUT_OF_RANGE: there is no such list. */
  tsr_code (*most)(void* self, int64_t i, int64_t* most, int32_t* which, tsr_error* err);
  /* Optional. Writes the option of the reader that the files of open() have decided, such as time_form=number, or an
   * empty text. A trainer adds it to the reader's name that the model keeps, so that a server which begins without
   * events reads times as training did. The text is valid as long as the reader. */
  tsr_code (*settled)(void* self, const char** option, tsr_error* err);
} tsr_reader_histories;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_HISTORIES_H_ */

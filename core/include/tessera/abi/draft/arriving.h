/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/arriving.h - tessera.reader.arriving/draft-1: rows that arrive, without end, in an order of their
 * own.
 *
 * Beside tessera.reader/draft-1, asked for by tsr_component::extension, for readers of what grows: a directory that
 * files come to, a topic of a broker. There are no blocks to deal out. One rank reads the rows, in the order in which
 * the reader has them, and a position says where to go on, to the row: a checkpoint holds it.
 *
 *   create -> follow -> column* -> select -> (next, position)*
 *
 * Everything is [serial] on one object. What cannot be reached is waited for within bounds of the reader's own, then
 * TSR_UNAVAILABLE with one sentence. Other errors as those of tessera.reader.
 */
#ifndef TESSERA_ABI_DRAFT_ARRIVING_H_
#define TESSERA_ABI_DRAFT_ARRIVING_H_

#include "tessera/abi/draft/reader.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_READER_ARRIVING "tessera.reader.arriving/draft-1"

/* Flags of tsr_reader_arrived. */
enum {
  TSR_ARRIVED_LAST = 1 /* no row will come behind these */
};

/* The rows of one call. */
typedef struct tsr_reader_arrived {
  uint32_t struct_size;
  uint32_t flags;      /* TSR_ARRIVED_LAST */
  int64_t rows;        /* 0: none has come */
  int64_t first_row;   /* number of the first row in `where`, from 0 */
  const char* where;   /* for sentences: a file's path, "topic clicks, partition 0" */
  const double* times; /* event times, one for each row, in seconds since 1970, NaN where there is none; or NULL */
} tsr_reader_arrived;

typedef struct tsr_reader_arriving {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */

  /* Instead of tsr_reader::open. Rows begin behind `position`, a text that position() of such a reader has given; NULL:
   * with the first one that there is. What `source->path` names may still be empty. tsr_reader::column lists what can
   * be known of the columns by now, which may be nothing. */
  tsr_code (*follow)(void* self, const tsr_reader_source* source, const char* position, tsr_error* err);
  /* At most `most` (> 0) rows that follow, in the columns of tsr_reader::select, one element of `values` for each,
   * `stride` bytes apart; waits at most about `wait_s` seconds (>= 0) for the first of them, and for no further one.
   * TSR_NOT_FOUND: rows lack a column that was selected. */
  tsr_code (*next)(void* self, int64_t most, double wait_s, uint32_t stride, tsr_reader_values* values,
                   tsr_reader_arrived* out, tsr_error* err);
  /* The position after all rows that next() has given. JSON; valid until the next call. */
  tsr_code (*position)(void* self, const char** text, tsr_error* err);
} tsr_reader_arriving;

#define TSR_READER_PIPE "tessera.reader.pipe/draft-1"

/* An extension of a reader of files: the same table, tsr_reader_arriving, for a source that can be read only once and
 * in order, as it comes. follow() takes the path of such a file, or "-", the process's standard input, which sentences
 * call that; it waits until the columns are known, all of which tsr_reader::column lists then. `position` is NULL: what
 * a pipe has given is gone, and position() is TSR_UNIMPLEMENTED. */

#define TSR_READER_SKIPS "tessera.reader.skips/draft-1"

/* An extension of a reader of rows that arrive, if some of them may be left out: whoever sent them cannot be asked to
 * send them anew. How many may be is the reader's own option. */
typedef struct tsr_reader_skips {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */

  /* Row `row`, from 0, of those that the last next() gave is not what its columns are to be: `why` is the sentence.
   * TSR_OK: the reader has counted it, and said so; it is left out. Otherwise what ends the reading. */
  tsr_code (*skip)(void* self, int64_t row, const char* why, tsr_error* err);
} tsr_reader_skips;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_ARRIVING_H_ */

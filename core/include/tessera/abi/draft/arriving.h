/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/arriving.h - tessera.reader.arriving/draft-1: rows that arrive without end, in the source's order.
 *
 *   1. The host creates a reader and asks tsr_component::extension for this table.
 *   2. It calls follow() with the source, and with the position from a checkpoint if it has one.
 *   3. It may list the columns that are known with tsr_reader::column. It calls tsr_reader::select.
 *   4. It calls next() again and again. Each call waits for rows, for a bounded time, and lends them to the host.
 *   5. If a row is bad and the reader has tsr_reader_skips, the host calls skip() for it.
 *   6. For a checkpoint it calls position() and saves the text, from which follow() later continues, exact to the row.
 *
 * This is an extension of tessera.reader/draft-1, for sources that grow: a directory to which files are added, a topic
 * of a broker. There are no blocks. One rank reads all rows, in the order in which the reader gives them.
 *
 * All calls are [serial] on one object. If the source cannot be reached, the reader retries within its own limits.
 * Then it fails with TSR_UNAVAILABLE and one sentence. Other errors are the same as in tessera.reader.
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
  TSR_ARRIVED_LAST = 1 /* these rows are the last ones */
};

/* The rows of one next(). Arrays and strings belong to the reader and are valid until its next call. */
typedef struct tsr_reader_arrived {
  uint32_t struct_size;
  uint32_t flags;      /* TSR_ARRIVED_LAST */
  int64_t rows;        /* number of rows; 0: none has arrived */
  int64_t first_row;   /* number of the first row in `where`, from 0 */
  const char* where;   /* for messages: a file's path, or "topic clicks, partition 0" */
  const double* times; /* [rows] event times in seconds since 1970, NaN for a row without one; NULL: no row has one */
} tsr_reader_arrived;

/* The functions of the extension. */
typedef struct tsr_reader_arriving {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */

  /* Opens the source; called instead of tsr_reader::open. Rows begin after `position`, which is a text of position().
   * NULL: they begin with the first row that exists. The source may still be empty. Afterwards tsr_reader::column lists
   * the columns that are known so far, which may be none. */
  tsr_code (*follow)(void* self, const tsr_reader_source* source, const char* position, tsr_error* err);
  /* Gives the following rows, at most `most` (> 0), in the columns of tsr_reader::select. There is one element of
   * `values` for each column, `stride` bytes apart. The call waits about `wait_s` seconds (>= 0) for the first row, and
   * does not wait for others. TSR_NOT_FOUND: rows lack a selected column. */
  tsr_code (*next)(void* self, int64_t most, double wait_s, uint32_t stride, tsr_reader_values* values,
                   tsr_reader_arrived* out, tsr_error* err);
  /* Gives the position after the last row that next() gave, as JSON. The text is valid until the reader's next call. */
  tsr_code (*position)(void* self, const char** text, tsr_error* err);
} tsr_reader_arriving;

#define TSR_READER_PIPE "tessera.reader.pipe/draft-1"

/* This extension of a reader of files has the same table, tsr_reader_arriving. Its source can be read only once and in
 * order, as rows arrive. follow() takes the path of such a file, or "-" for standard input; messages use that name. It
 * waits until the columns are known, so that tsr_reader::column lists all of them. `position` is NULL, and position()
 * returns TSR_UNIMPLEMENTED, because a pipe cannot be read again. */

#define TSR_READER_SKIPS "tessera.reader.skips/draft-1"

/* An extension of a reader of arriving rows, for sources whose sender cannot repeat a bad row. An option of the reader
 * says how many rows may be skipped. */
typedef struct tsr_reader_skips {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */

  /* Reports that a row has values that do not suit its columns. `row` counts from 0 within the rows of the last next().
   * `why` is the message. TSR_OK: the reader has counted and logged it, and the host leaves the row out. Any other code
   * ends the reading. */
  tsr_code (*skip)(void* self, int64_t row, const char* why, tsr_error* err);
} tsr_reader_skips;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_ARRIVING_H_ */

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/reader_paths.h - tessera.reader.paths/draft-1: a reader that knows its files, and their columns.
 *
 *   1. A job has a path but no reader. The host asks each reader opens(). The one that opens the path reads it.
 *   2. A job has no [[column]]. The host asks its reader describe(), and takes the columns as the answer says.
 *
 * This is an extension of tessera.reader/draft-1. Both functions may be called before tsr_reader::open.
 */
#ifndef TESSERA_ABI_DRAFT_READER_PATHS_H_
#define TESSERA_ABI_DRAFT_READER_PATHS_H_

#include "tessera/abi/draft/reader.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_READER_PATHS "tessera.reader.paths/draft-1"

/* The functions of the extension. Texts are valid until the next call on the object. A NULL function stands for one
 * that always answers NULL. */
typedef struct tsr_reader_paths {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  /* [serial] Looks at the path's name, and at most at the first bytes of a file. *options is NULL if the reader does
   * not read such files. Otherwise it has the options for such files, as written after a component's name:
   * "delimiter=;", or "". */
  tsr_code (*opens)(void* self, const char* path, const char** options, tsr_error* err);
  /* [serial] *json is NULL if the job must describe the columns. Otherwise it is an object:
   *   "columns": a list of objects with the keys of a [[column]] and "table", the name of its table. All are learned.
   *     With ids = "hash" the row is row_of(table + "=", text, rows) of sdk/fields.h. Without "rows", the job's
   *     data.rows is used. Without "columns" the job must describe them.
   *   "name": optional; the data set's name
   *   "test_files": optional; a number n: the last n of the reader's files are the test part
   *   "validation_files": optional; a number n: the n files before those are rows for validation.split = "data"
   *   "own_past": optional; true if a row has values of rows before it, so that test rows in other files are refused */
  tsr_code (*describe)(void* self, const char* path, const char** json, tsr_error* err);
} tsr_reader_paths;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_READER_PATHS_H_ */

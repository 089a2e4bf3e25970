/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/reader.h - tessera.reader/draft-1: rows of columns out of files, block by block.
 *
 * A reader says which columns the files have and where rows can be read: in blocks, each some consecutive rows of one
 * file. The core deals the blocks out: which rank reads which, in what order, how rows are shuffled, where a run goes
 * on. So a reader knows no rank and has no position, and all formats are split, shuffled and resumed alike.
 *
 *   create -> open -> file*, column*, block* -> select -> read*
 *
 * Everything is [serial] on one object. An error text is one sentence that names file, row (the first row of a file's
 * data is row 1) and column, as far as there are any. TSR_NOT_FOUND: no such file. TSR_INVALID_ARGUMENT: it is there,
 * and not what it should be. TSR_DATA_LOSS: it is damaged or cut off.
 */
#ifndef TESSERA_ABI_DRAFT_READER_H_
#define TESSERA_ABI_DRAFT_READER_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_READER_KIND "tessera.reader/draft-1"

/* What the values of a column are. */
enum {
  /* The column is listed so that messages can name it; nothing can be read of it, and select() refuses it. */
  TSR_READER_UNREADABLE = -1,
  TSR_READER_TEXT = 0, /* bytes, of any encoding */
  TSR_READER_FLOAT32 = 1,
  TSR_READER_INT64 = 2,
  TSR_READER_FLOAT64 = 3 /* numbers with all their digits: the core rounds to float32 after it has transformed them */
};

/* Flags of a column and of what is wanted of it. */
enum {
  TSR_READER_LIST = 0x10000,    /* any number of values a row, otherwise one or none */
  TSR_READER_WEIGHTED = 0x20000 /* with a float32 beside each value */
};

/* What is to be read. */
typedef struct tsr_reader_source {
  uint32_t struct_size;
  uint32_t flags;      /* none is defined: 0 */
  const char* path;    /* a file, a directory, or a pattern of glob(3), in which case files are in ascending order */
  int64_t block_bytes; /* how large blocks should be, in memory, where the format leaves it open; a hint, above 0 */
} tsr_reader_source;

/* A column that the files have. A format without types says TSR_READER_TEXT and no flags, and reads whatever type and
 * flags are wanted out of the text. */
typedef struct tsr_reader_column {
  uint32_t struct_size;
  uint32_t flags;   /* TSR_READER_LIST, TSR_READER_WEIGHTED */
  const char* name; /* lives until the next open() */
  int32_t type;     /* TSR_READER_TEXT, ... */
  int32_t reserved;
  /* The column's type in the format's own words, for messages: "struct<a: int64>"; lives as long as the name. NULL: the
   * format has no types. */
  const char* about;
} tsr_reader_column;

/* Flags of a block. */
enum {
  /* Cheap to read only behind the block before it (a compressed file); else as cheap at any time. */
  TSR_READER_BEHIND = 1
};

/* Blocks are numbered file by file, in the order of their rows; together they are all rows. */
typedef struct tsr_reader_block {
  uint32_t struct_size;
  uint32_t flags;    /* TSR_READER_BEHIND */
  int64_t file;      /* index of its file */
  int64_t first_row; /* in the file, from 0 */
  int64_t rows;
  int64_t bytes; /* about what is in memory while it is read */
} tsr_reader_block;

/* What is wanted of a column. Types and flags beyond what the column can be are refused by select(). */
typedef struct tsr_reader_want {
  uint32_t struct_size;
  uint32_t flags;   /* TSR_READER_LIST, TSR_READER_WEIGHTED */
  const char* name; /* of the column */
  int32_t type;
  /* Of formats without lists: what stands between the values of one, and between a value and its weight; one byte. */
  char separator;
  char weight_separator;
  char reserved[2];
} tsr_reader_want;

/* The rows of a block in one column. Arrays belong to the reader, and are valid until its next call. They are those of
 * Arrow's layouts, with int64 offsets; they are lent, where Arrow's C data interface would have each released. */
typedef struct tsr_reader_values {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  const void*
      values; /* float32, int64 or float64, one for each value; of text, the bytes of all, one behind the other */
  const int64_t* texts; /* text: value i is [texts[i], texts[i + 1]) of the bytes; else NULL */
  const int64_t* lists; /* list: row r has the values [lists[r], lists[r + 1]); else NULL, and row r has value r */
  const float* weights; /* weighted: one for each value; else NULL */
  /* 0 where row r has no value (what stands in its place is a NaN, 0 or an empty text), 1 where it has; NULL: all rows
   * have. Lists: NULL, a row without values is an empty one. */
  const uint8_t* present;
} tsr_reader_values;

typedef struct tsr_reader {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */

  /* Finds the files and their blocks; leaves what was open before. May read the files once, whole. */
  tsr_code (*open)(void* self, const tsr_reader_source* source, tsr_error* err);
  /* The i-th file's path, column, block of what is open; TSR_OUT_OF_RANGE ends each list. A path lives until the next
   * open(). */
  tsr_code (*file)(void* self, int64_t i, const char** path, tsr_error* err);
  tsr_code (*column)(void* self, int64_t i, tsr_reader_column* out, tsr_error* err);
  tsr_code (*block)(void* self, int64_t i, tsr_reader_block* out, tsr_error* err);
  /* Which columns read() gives, and as what: `count` of them, the k-th k * stride bytes behind the first.
   * TSR_NOT_FOUND: there is no such column, with the nearest name. */
  tsr_code (*select)(void* self, int64_t count, uint32_t stride, const tsr_reader_want* wants, tsr_error* err);
  /* The rows of a block, in the selected columns: one element of `out` for each, `stride` bytes apart. */
  tsr_code (*read)(void* self, int64_t block, uint32_t stride, tsr_reader_values* out, tsr_error* err);
} tsr_reader;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_READER_H_ */

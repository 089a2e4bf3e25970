/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/reader.h - tessera.reader/draft-1: rows of columns out of files, block by block.
 *
 *   1. The host creates the reader and calls open() with a path. The reader finds the files and divides their rows into
 *      blocks.
 *   2. The host lists files, columns and blocks with file(), column() and block(), each until TSR_OUT_OF_RANGE.
 *   3. It calls select() with the columns that the model needs, and the type that it wants for each.
 *   4. It calls read() for one block after the other, in an order that it chooses. The reader lends the values until
 *      its next call.
 *
 * A block is some consecutive rows of one file. The core decides which rank reads which block, in which order, how rows
 * are shuffled, and where a run continues. So a reader knows no rank and has no position, and all formats are split,
 * shuffled and resumed in the same way.
 *
 * All calls are [serial] on one object. An error message is one sentence that names file, row and column if there are
 * any; the first row of a file's data is row 1. TSR_NOT_FOUND: there is no such file. TSR_INVALID_ARGUMENT: the file
 * has wrong contents. TSR_DATA_LOSS: the file is damaged or truncated.
 */
#ifndef TESSERA_ABI_DRAFT_READER_H_
#define TESSERA_ABI_DRAFT_READER_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_READER_KIND "tessera.reader/draft-1"

/* The type of a column's values. */
enum {
  /* The column is listed only so that messages can name it. It cannot be read, and select() refuses it. */
  TSR_READER_UNREADABLE = -1,
  TSR_READER_TEXT = 0, /* bytes in any encoding */
  TSR_READER_FLOAT32 = 1,
  TSR_READER_INT64 = 2,
  TSR_READER_FLOAT64 = 3 /* exact numbers: the core rounds them to float32 after it has transformed them */
};

/* Flags of tsr_reader_column and tsr_reader_want. */
#define TSR_READER_LIST 0x10000u     /* any number of values per row; without it, one value or none */
#define TSR_READER_WEIGHTED 0x20000u /* each value has a float32 weight */

/* The files to be read. It is borrowed for the call. */
typedef struct tsr_reader_source {
  uint32_t struct_size;
  uint32_t flags;      /* none is defined: 0 */
  const char* path;    /* a file, a directory, or a pattern of glob(3), whose files are in ascending order */
  int64_t block_bytes; /* wanted size of a block in memory, if the format does not decide it; a hint, above 0 */
} tsr_reader_source;

/* A column of the files. A format without types says TSR_READER_TEXT and no flags. Then select() may ask for any type
 * and flags, and the reader parses the text. */
typedef struct tsr_reader_column {
  uint32_t struct_size;
  uint32_t flags;   /* TSR_READER_LIST, TSR_READER_WEIGHTED */
  const char* name; /* valid until the next open() */
  int32_t type;     /* TSR_READER_TEXT, ... */
  int32_t reserved; /* 0 */
  /* The format's own name of the type, for messages: "struct<a: int64>". It is valid as long as `name`. NULL: the
   * format has no types; of an unreadable column also that the first file lacks it and others have it. */
  const char* about;
} tsr_reader_column;

/* Flags of a block. */
enum {
  /* The block is cheap to read only directly after the one before it, as in a compressed file. Without this flag it is
   * equally cheap at any time. */
  TSR_READER_BEHIND = 1
};

/* A block of consecutive rows. Blocks are numbered file by file, in the order of their rows. Together they have all
 * rows. */
typedef struct tsr_reader_block {
  uint32_t struct_size;
  uint32_t flags;    /* TSR_READER_BEHIND */
  int64_t file;      /* index of its file */
  int64_t first_row; /* number of its first row in the file, from 0 */
  int64_t rows;      /* number of rows */
  int64_t bytes;     /* approximate memory that it takes while it is read */
} tsr_reader_block;

/* A column to be read, and the form of its values. select() refuses types and flags that the column cannot have. */
typedef struct tsr_reader_want {
  uint32_t struct_size;
  uint32_t flags;        /* TSR_READER_LIST, TSR_READER_WEIGHTED */
  const char* name;      /* the column's name */
  int32_t type;          /* TSR_READER_TEXT, ... */
  char separator;        /* for formats without lists: the byte between two values of a list */
  char weight_separator; /* for formats without lists: the byte between a value and its weight */
  char reserved[2];      /* 0 */
} tsr_reader_want;

/* The values of one column in some rows. The reader owns the arrays, which are valid until its next call. They have
 * Arrow's layouts, with int64 offsets. Unlike in Arrow's C data interface, nobody has to release them. */
typedef struct tsr_reader_values {
  uint32_t struct_size;
  uint32_t flags;       /* none is defined: 0 */
  const void* values;   /* float32, int64 or float64, one for each value; for text the bytes of all values */
  const int64_t* texts; /* for text: value i is [texts[i], texts[i + 1]) of the bytes; otherwise NULL */
  const int64_t* lists; /* for lists: row r has the values [lists[r], lists[r + 1]); NULL: row r has value r */
  const float* weights; /* if weighted: one for each value; otherwise NULL */
  /* One byte for each row: 1 if the row has a value, 0 if not. The place of a missing value holds a NaN, 0 or an empty
   * text. NULL: all rows have one. It is NULL for lists, where a row without values is an empty list. */
  const uint8_t* present;
} tsr_reader_values;

/* The functions of a reader. */
typedef struct tsr_reader {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */

  /* Finds the files and their blocks, and closes files of an earlier open(). It may read all files once. */
  tsr_code (*open)(void* self, const tsr_reader_source* source, tsr_error* err);
  /* These three give the path of the i-th file, the i-th column and the i-th block. TSR_OUT_OF_RANGE: there are no
   * more. A path is valid until the next open(). */
  tsr_code (*file)(void* self, int64_t i, const char** path, tsr_error* err);
  tsr_code (*column)(void* self, int64_t i, tsr_reader_column* out, tsr_error* err);
  tsr_code (*block)(void* self, int64_t i, tsr_reader_block* out, tsr_error* err);
  /* Chooses the columns that read() gives, and their form. There are `count` of them; want k begins k * stride bytes
   * after `wants`. TSR_NOT_FOUND: there is no such column, and the message has the nearest name. */
  tsr_code (*select)(void* self, int64_t count, uint32_t stride, const tsr_reader_want* wants, tsr_error* err);
  /* Gives the rows of a block in the selected columns. There is one element of `out` for each column, `stride` bytes
   * apart. */
  tsr_code (*read)(void* self, int64_t block, uint32_t stride, tsr_reader_values* out, tsr_error* err);
} tsr_reader;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_READER_H_ */

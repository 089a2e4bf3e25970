/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/index.h - tessera.index/draft-1: finds vectors of items with large dot products, without comparing
 * all of them.
 *
 *   1. The host creates the index and calls build() once, with the vectors of all items.
 *   2. It calls search() for queries, from any thread. The index answers with rows of the items' matrix.
 *   3. The host computes the dot products of the rows that were found, and orders them.
 *
 * So the host never trusts an index with a score: an index can only miss an item. The host measures how many of the
 * best items it finds, by an exact search for some queries. The dot product is the only measure; for vectors of length
 * 1 it is the cosine.
 */
#ifndef TESSERA_ABI_DRAFT_INDEX_H_
#define TESSERA_ABI_DRAFT_INDEX_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_INDEX_KIND "tessera.index/draft-1"

/* The items, in host memory, borrowed for the call. */
typedef struct tsr_index_items {
  uint32_t struct_size;
  uint32_t flags;       /* none is defined: 0 */
  int64_t count;        /* at least 1 */
  int64_t dim;          /* at least 1 */
  const float* vectors; /* [count, dim], finite; row i is item i */
} tsr_index_items;

/* Queries and the place for their answers, in host memory, borrowed for the call. */
typedef struct tsr_index_search {
  uint32_t struct_size;
  uint32_t flags;       /* none is defined: 0 */
  int64_t count;        /* at least 1 */
  int64_t k;            /* rows that each query wants: 1 to tsr_index_items::count */
  const float* queries; /* [count, dim], finite */
  int64_t* rows;        /* [count, k]: distinct rows for each query, in any order; -1 at the end if it found fewer */
} tsr_index_search;

/* The functions of an index. */
typedef struct tsr_index {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */

  /* Reads the items. The host calls it once, before any search. */
  tsr_code (*build)(void* self, const tsr_index_items* items, tsr_error* err);
  /* [any-thread] Fills `rows`. A query's rows depend neither on other queries nor on earlier searches. */
  tsr_code (*search)(void* self, const tsr_index_search* search, tsr_error* err);
} tsr_index;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_INDEX_H_ */

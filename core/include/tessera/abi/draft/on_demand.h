/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/on_demand.h - tessera.kernel.on_demand/draft-1: data that a kernel keeps for a table with rows on
 * demand, besides the rows.
 *
 *   1. The host asks tsr_component::extension of a kernel with TSR_KERNEL_ROWS_ON_DEMAND for this table, and calls
 *      shares() for each table. If a table has a shared row, the host refuses plans that divide the table's rows.
 *   2. When the host writes a checkpoint, it calls save() for each shard and stores the bytes. It calls ages(), and the
 *      checkpoint keeps the counts, which `tessera model inspect` shows to people.
 *   3. When it loads the checkpoint, it first calls import_rows() with TSR_IMPORT_REPLACE for each of its shards. For
 *      each shard that was saved, it calls add() with the saved bytes. The kernel adds them to what it has. Then it
 *      calls import_rows() for the rows.
 *
 * A kernel may keep, for example, how often ids without a row were seen. Data of a single row is in tsr_rows::extra
 * instead.
 */
#ifndef TESSERA_ABI_DRAFT_ON_DEMAND_H_
#define TESSERA_ABI_DRAFT_ON_DEMAND_H_

#include "tessera/abi/kernel.h"

/* The id of the shared row; all other ids are smaller. A lookup of an id without a row reads this row instead of 0, and
 * training updates it. Checkpoints have it like any other row, if it was trained. A packed model reads it for ids
 * without a row. */
#define TSR_SHARED_ROW_ID INT64_MAX

/* Number of age classes. */
#define TSR_AGE_CLASSES 33

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_ON_DEMAND "tessera.kernel.on_demand/draft-1"

/* The host's byte stream for save() and add(), valid during the call. If one of its functions fails, save() or add()
 * ends and returns that code. */
typedef struct tsr_stream_io {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  void* self;     /* used only by the host */
  tsr_code (*write)(void* self, const void* bytes, uint64_t size, tsr_error* err);
  tsr_code (*read)(void* self, void* bytes, uint64_t size, tsr_error* err); /* reads all `size` bytes or fails */
} tsr_stream_io;

/* The rows of a shard, counted by the step in which they were last seen. */
typedef struct tsr_table_ages {
  uint32_t struct_size;
  uint32_t flags;    /* none is defined: 0 */
  uint64_t capacity; /* number of rows that the shard can hold */
  /* Numbers of rows in use. The newest step is the last one that saw any row. rows[0] counts the rows seen in it, and
   * rows[k] those last seen 2^(k-1) to 2^k - 1 steps before it. */
  uint64_t rows[TSR_AGE_CLASSES];
} tsr_table_ages;

/* The functions of the extension. Each may be NULL; its comment says what that means. save and add are either both NULL
 * or both given. */
typedef struct tsr_on_demand {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  /* [serial] Sets *out to 1 if all ids without a row share one row of this table, otherwise to 0. The host does not
   * divide the rows of such a table, because each shard would have its own shared row, and results would depend on the
   * plan. NULL: no table has a shared row. */
  tsr_code (*shares)(void* instance, uint32_t table, int32_t* out, tsr_error* err);
  /* [serial] Writes what the instance keeps for a shard besides rows, in a format of its own. It writes nothing if it
   * keeps nothing. NULL: it keeps nothing. */
  tsr_code (*save)(void* instance, uint32_t table, const tsr_stream_io* io, tsr_error* err);
  /* [serial] Adds the saved bytes of one shard. The host calls it after import_rows with TSR_IMPORT_REPLACE, once for
   * each shard that was saved, whatever its rank was and however the table is cut now. Data about rows that another
   * instance has now may be kept or dropped. */
  tsr_code (*add)(void* instance, uint32_t table, const tsr_stream_io* io, tsr_error* err);
  /* [serial] Fills `out` for a shard in its current state. It visits each row. NULL: ages are not known. */
  tsr_code (*ages)(void* instance, uint32_t table, tsr_table_ages* out, tsr_error* err);
} tsr_on_demand;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_ON_DEMAND_H_ */

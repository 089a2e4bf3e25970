/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/table_extra.h - tessera.kernel.table_extra/draft-1: what a kernel keeps for a table besides rows.
 *
 *   1. When the host writes a checkpoint, it asks the kernel's tsr_component::extension for this table. It calls save()
 *      for each shard and stores the bytes.
 *   2. When it loads the checkpoint, it first calls import_rows() with TSR_IMPORT_REPLACE for each of its shards.
 *   3. For each shard that was saved, it calls add() with the saved bytes. The kernel adds them to what it has.
 *   4. It calls import_rows() for the rows.
 *
 * This is an extension of tessera.kernel/1, for kernels whose rows come on demand (TSR_KERNEL_ROWS_ON_DEMAND). They may
 * keep, for example, how often ids without a row were seen. What belongs to one row is in tsr_rows::extra instead.
 */
#ifndef TESSERA_ABI_DRAFT_TABLE_EXTRA_H_
#define TESSERA_ABI_DRAFT_TABLE_EXTRA_H_

#include "tessera/abi/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_TABLE_EXTRA "tessera.kernel.table_extra/draft-1"

/* The host's byte stream for save() and add(), valid during the call. If one of its functions fails, save() or add()
 * ends and returns that code. */
typedef struct tsr_stream_io {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  void* self;     /* used only by the host */
  tsr_code (*write)(void* self, const void* bytes, uint64_t size, tsr_error* err);
  tsr_code (*read)(void* self, void* bytes, uint64_t size, tsr_error* err); /* reads all `size` bytes or fails */
} tsr_stream_io;

/* The functions of the extension. */
typedef struct tsr_table_extra {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  /* [serial] Writes what the instance keeps for a shard, in a format of its own. It writes nothing if it keeps nothing.
   */
  tsr_code (*save)(void* instance, uint32_t table, const tsr_stream_io* io, tsr_error* err);
  /* [serial] Adds the saved bytes of one shard. The host calls it after import_rows with TSR_IMPORT_REPLACE, once for
   * each shard that was saved, whatever its rank was and however the table is cut now. Data about rows that another
   * instance has now may be kept or dropped. */
  tsr_code (*add)(void* instance, uint32_t table, const tsr_stream_io* io, tsr_error* err);
} tsr_table_extra;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_TABLE_EXTRA_H_ */

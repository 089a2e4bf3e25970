// Backward, before any row is touched: which entries each table has, sorted so that those of a row lie side by side.
//
// Work is cut into pieces that differ in rows, never in what is summed: a row's gradients are added in order of
// position by one thread. So results are the same bits for any number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/config.h"
#include "context.h"
#include "entries.h"
#include "row_ops.h"

namespace tessera_cpu {

// The entries of one table.
struct TableEntries {
  uint32_t table;
  std::span<const uint32_t> features;  // those that read it, in order
  int64_t count;
  bool full;            // FullEntry rather than PlainEntry
  bool sorted;          // rows mostly occur again, going by earlier batches
  bool summed;          // for SumPass
  bool formula;         // no output_rows: one feature, scale 1
  int64_t rows;         // of the table
  int row_bits;         // rows <= 2^row_bits
  int bucket_bits;      // cut by so many low bits of the row; 0: not cut
  int64_t first_chunk;  // of the cut tables' chunks
  int64_t num_output_rows;
  char* entries;  // NULL with `other` and `output_rows`: those of the worker that sorts the table
  char* other;
  OutputRow* output_rows;
};

// A run of a table's entries that one thread sorts and walks: a whole table, or one bucket of it.
struct Piece {
  uint32_t plan;  // index into tables()
  int64_t begin;
  int64_t end;
};

// The sources of the entries.
struct GradientInput {
  const Batch& batch;  // values: the output's gradient
  const Config& config;
  const Context& context;
  const RowOps& ops;
};

struct GradientOptions {
  uint32_t threads;
  bool rows_in_order;   // the whole table ascending, as backward_rows hands it out: tables are not cut
  bool want_positions;  // grad_weights
};

class GradientPlan {
 public:
  explicit GradientPlan(sdk::Host host) : host_(host), scratch_(host), zeros_(host) {}

  // Lays out memory and pieces for a batch; large tables are partitioned by the low bits of their rows.
  void build(const GradientInput& input, const GradientOptions& options);

  std::span<const Piece> pieces() const { return pieces_; }
  const TableEntries& table_of(const Piece& piece) const { return tables_[piece.plan]; }
  int64_t total() const { return total_; }

  // Leaves `walk` with the entries of the piece, those of a row side by side and in order of position, rows ascending.
  // If walk has a block, rows that occur once may have been updated, or wait in the block, and be missing. The
  // entries stay until the worker's next piece, or with rows_in_order until the next build(). [any-thread] for
  // different pieces and workers below `threads`.
  void prepare(const Piece& piece, const GradientInput& input, uint32_t worker, Walk* walk) const;

  uint64_t bytes() const { return scratch_.bytes() + zeros_.bytes(); }

 private:
  // Bags [begin, end) of a feature of a cut table.
  struct Chunk {
    uint32_t plan;
    uint32_t feature;
    int64_t begin;
    int64_t end;
    int64_t first_output_row;  // of bag `begin`
  };

  void group_features(const Batch& batch, const Config& config);
  TableEntries describe(const GradientInput& input, uint32_t table, bool want_positions) const;
  int bucket_bits(const TableEntries& t, const GradientOptions& options) const;
  bool keeps_entries(const TableEntries& t) const { return rows_in_order_ || t.bucket_bits > 0; }
  void lay_out(const GradientInput& input, const GradientOptions& options);
  bool update_once(const TableEntries& t, const Piece& piece, const GradientInput& input, char* map, Walk* walk) const;
  void update_summed(const TableEntries& t, const Piece& piece, const GradientInput& input, char* zeros,
                     Walk* walk) const;
  void add_chunks(const Batch& batch, uint32_t plan);
  void start_buckets();
  void partition(const GradientInput& input, uint32_t threads);

  sdk::Host host_;
  Scratch scratch_;
  Scratch zeros_;                     // of each worker, for SumPass
  std::vector<uint32_t> features_;    // grouped by table
  std::vector<uint32_t> first_of_;    // per table, into features_
  std::vector<TableEntries> tables_;  // those with ids
  std::vector<Piece> pieces_;
  std::vector<Chunk> chunks_;
  std::vector<int64_t> bucket_starts_;     // per chunk and bucket: counts, then where its next entry goes
  mutable std::vector<uint32_t> to_sort_;  // per table: so many batches are sorted without another look
  int64_t total_ = 0;
  bool rows_in_order_ = false;
  // Memory of each worker, in scratch_: a OnceMap, and the entries of a table that has none of its own.
  char* worker_rooms_ = nullptr;
  int64_t map_bytes_ = 0;
  int64_t room_bytes_ = 0;
  int64_t zero_bytes_ = 0;
};

}  // namespace tessera_cpu

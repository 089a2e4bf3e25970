// The first part of backward, before any row is touched: it makes the entries of each table, and sorts them so that
// entries of the same row are neighbours.
//
// Work is divided into pieces by row, never within a sum: one thread adds a row's gradients in order of position.
// Therefore results have the same bits for any number of threads.
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
  std::span<const uint32_t> features;  // features that read the table, in order
  int64_t count;
  bool full;            // true: FullEntry; false: PlainEntry
  bool sorted;          // in earlier batches, rows mostly occurred again
  bool summed;          // SumPass handles the table
  bool formula;         // needs no output_rows: one feature, scale 1
  int64_t rows;         // rows of the table
  int row_bits;         // rows <= 2^row_bits
  int bucket_bits;      // divided by this many low bits of the row; 0: not divided
  int64_t first_chunk;  // first among the chunks of divided tables
  int64_t num_output_rows;
  char* entries;  // NULL, like `other` and `output_rows`, if the table uses memory of the worker that sorts it
  char* other;
  OutputRow* output_rows;
};

// A run of a table's entries that one thread sorts and walks: a whole table, or one of its buckets.
struct Piece {
  uint32_t plan;  // index into tables()
  int64_t begin;
  int64_t end;
};

// The inputs from which entries are made.
struct GradientInput {
  const Batch& batch;  // `values` is the output's gradient
  const Config& config;
  const Context& context;
  const RowOps& ops;
};

struct GradientOptions {
  uint32_t threads;
  bool rows_in_order;   // for backward_rows: a table's rows ascend, so that tables are not divided
  bool want_positions;  // for grad_weights
};

class GradientPlan {
 public:
  explicit GradientPlan(sdk::Host host) : host_(host), scratch_(host), zeros_(host) {}

  // Lays out memory and pieces for a batch; partitions large tables by the low bits of their rows.
  void build(const GradientInput& input, const GradientOptions& options);

  std::span<const Piece> pieces() const { return pieces_; }
  const TableEntries& table_of(const Piece& piece) const { return tables_[piece.plan]; }
  int64_t total() const { return total_; }

  // Sets `walk` to the entries of the piece: rows ascend, and the entries of a row are in order of position. If `walk`
  // has a block, rows that occur once may be missing, because they were updated or wait in the block. The entries are
  // valid until the worker's next piece, or with rows_in_order until the next build(). [any-thread] for different
  // pieces and workers below `threads`.
  void prepare(const Piece& piece, const GradientInput& input, uint32_t worker, Walk* walk) const;

  uint64_t bytes() const { return scratch_.bytes() + zeros_.bytes(); }

 private:
  // Bags [begin, end) of a feature of a divided table.
  struct Chunk {
    uint32_t plan;
    uint32_t feature;
    int64_t begin;
    int64_t end;
    int64_t first_output_row;  // first output row of bag `begin`
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
  Scratch zeros_;                     // per worker, for SumPass
  std::vector<uint32_t> features_;    // grouped by table
  std::vector<uint32_t> first_of_;    // per table, index into features_
  std::vector<TableEntries> tables_;  // tables with ids
  std::vector<Piece> pieces_;
  std::vector<Chunk> chunks_;
  std::vector<int64_t> bucket_starts_;     // per chunk and bucket: the count, later the position of the next entry
  mutable std::vector<uint32_t> to_sort_;  // per table: number of batches still sorted without a check
  int64_t total_ = 0;
  bool rows_in_order_ = false;
  // Memory of each worker in scratch_: a OnceMap, and entries for a table without its own.
  char* worker_rooms_ = nullptr;
  int64_t map_bytes_ = 0;
  int64_t room_bytes_ = 0;
  int64_t zero_bytes_ = 0;
};

}  // namespace tessera_cpu

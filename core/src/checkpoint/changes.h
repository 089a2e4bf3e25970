// Collects the rows of a model that have changed since a publisher's mark, by their ids and independent of the plan. It
// is like the rows of a checkpoint (row_blocks.h) with most of them left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "tessera/distributed_model_parallel.h"

namespace tessera::checkpoint {

// Every rank knows all of it.
struct ChangedTable {
  std::string name;
  int64_t dim = 0;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> ids;      // ascending
  std::vector<int64_t> removed;  // ids whose rows were removed; ascending
};

class ChangedRows {
 public:
  static constexpr auto kFollower = Lookup::Follower::kPublications;
  // Copies the rows that this rank stores. `before` holds rows that changed up to the mark and were not published; they
  // are included. kUnimplemented: a kernel cannot tell which rows have changed. kFailedPrecondition: a weight is
  // infinite or no number. Collective.
  explicit ChangedRows(DistributedModelParallel& model, const ChangedRows* before = nullptr);
  const std::vector<ChangedTable>& tables() const { return tables_; }

  // Tensors [ids, dim] of the tables' own types, one for each table.
  StoredTensors announced() const;
  static std::string tensor_of(const std::string& table) { return "tables/" + table; }
  // Writes this rank's rows into a file that has those tensors.
  void write(SafetensorsWriter& file) const;

 private:
  struct Piece {  // the changes of one shard
    size_t table;
    int64_t col, cols;
    std::vector<int64_t> ids;
    std::vector<float> weights;
    std::vector<int64_t> removed;
    void add_older(const Piece& before);
  };
  void read(ShardedEmbeddings& collection, const HeldShard& shard, size_t table);
  std::string ids_here() const;
  void merge(const std::vector<std::string>& of_ranks);

  std::vector<ChangedTable> tables_;
  std::vector<Piece> pieces_;
};

}  // namespace tessera::checkpoint

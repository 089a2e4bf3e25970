// The rows of a model that have changed since the mark of those who publish it, by their ids, whatever the plan: the
// stream of rows of a checkpoint (row_blocks.h) with most of them left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "tessera/distributed_model_parallel.h"

namespace tessera::checkpoint {

// Known on every rank.
struct ChangedTable {
  std::string name;
  int64_t dim = 0;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> ids;      // ascending
  std::vector<int64_t> removed;  // of rows that were given up; ascending
};

class ChangedRows {
 public:
  static constexpr auto kFollower = Lookup::Follower::kPublications;
  // Takes the rows that this rank stores aside. `before`: rows that changed up to the mark and went nowhere, which are
  // among these then. kUnimplemented: a kernel does not know which rows have changed; kFailedPrecondition: a weight is
  // infinite or no number. Collective.
  explicit ChangedRows(DistributedModelParallel& model, const ChangedRows* before = nullptr);
  const std::vector<ChangedTable>& tables() const { return tables_; }

  // Tensors [ids, dim] of the tables' own types, one for each table.
  StoredTensors announced() const;
  static std::string tensor_of(const std::string& table) { return "tables/" + table; }
  // This rank's rows into a file that has those tensors.
  void write(SafetensorsWriter& file) const;

 private:
  struct Piece {  // what a shard gives
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

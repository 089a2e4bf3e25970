// An open checkpoint and the base beside it, which has the rows that have not changed since. Every reader of a table
// reads it in parts; some readers belong to no job.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace tessera::checkpoint {

struct OpenCheckpoint {
  HeldCheckpoint held;  // empty if another rank holds it
  std::string directory;
  Manifest manifest;
  TensorFiles model, optimizer;
  std::unique_ptr<OpenCheckpoint> base;  // Manifest::base

  // kDataLoss: a file lacks a tensor, or the tensor differs from the manifest.
  void check(const TensorFiles& files, const std::string& name, const StoredTensor& expected) const;
};

// Opens the checkpoint that hold_checkpoint() finds in `directory`, and its base. `open` calls the function that it
// gets to hold one, and opens its files. Throws what hold_checkpoint() and hold_base() throw.
using OpenHeld = std::function<OpenCheckpoint(const std::function<HeldCheckpoint()>& hold)>;
OpenCheckpoint open_with_base(const std::string& directory, const OpenHeld& open);

// Rows of a table that are stored together.
struct TablePart {
  const OpenCheckpoint* in;
  const TableEntry* entry;  // an entry of in->manifest
  // Ids whose rows were removed or are in the next part; ascending. Only set if rows come on demand.
  std::vector<int64_t> without = {};

  bool counts(int64_t id) const;  // true if the part's row of this id is valid
  // Returns the ids of its stored rows [first, first + count).
  std::vector<int64_t> ids(int64_t first, int64_t count) const;
};
// Lists the parts of a table in the order in which they are to be read. If two parts have a row, the later one counts;
// for on-demand rows it is the part that has it not in `without`. kDataLoss: the base has another table, or files lack
// its rows.
std::vector<TablePart> parts_of(const OpenCheckpoint& checkpoint, const std::string& parameter);

}  // namespace tessera::checkpoint

// A checkpoint whose files are open, and the one beside it that has the rows which have not changed since. Whoever
// reads a table, a job or a program without one, reads its parts.
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
  HeldCheckpoint held;  // where another rank holds it, nothing
  std::string directory;
  Manifest manifest;
  TensorFiles model, optimizer;
  std::unique_ptr<OpenCheckpoint> base;  // Manifest::base

  // kDataLoss: one of its files lacks a tensor, or has another one than the manifest says.
  void check(const TensorFiles& files, const std::string& name, const StoredTensor& expected) const;
};

// What hold_checkpoint() says of `directory`, and its base: `open` opens the files of one that it holds by the given
// function, which throws what hold_checkpoint() and hold_base() do.
using OpenHeld = std::function<OpenCheckpoint(const std::function<HeldCheckpoint()>& hold)>;
OpenCheckpoint open_with_base(const std::string& directory, const OpenHeld& open);

// Rows of a table that are stored together.
struct TablePart {
  const OpenCheckpoint* in;
  const TableEntry* entry;  // of in->manifest
  // Of rows on demand: ids whose rows are gone, or in the next part; ascending.
  std::vector<int64_t> without = {};

  bool counts(int64_t id) const;  // a row of it
  // The ids of its stored rows [first, first + count).
  std::vector<int64_t> ids(int64_t first, int64_t count) const;
};
// Of a checkpoint that has the table, in the order in which they are to be read: where two have a row, the later one
// counts, and of those on demand the one that is not `without`. kDataLoss: its base has another table, or files lack
// its rows.
std::vector<TablePart> parts_of(const OpenCheckpoint& checkpoint, const std::string& parameter);

}  // namespace tessera::checkpoint

// What a directory of publications holds: base-N.json beside the packed model base-N, and delta-N.json beside
// delta-N.safetensors. The JSON comes last, by a rename, and is what makes it a publication (docs/online.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/files.h"
#include "checkpoint/safetensors.h"
#include "tessera/tensor.h"

namespace tessera::publishing {

struct Publication {
  enum Kind { kBase, kDelta };
  struct Table {
    std::string name;
    int64_t changed = 0, removed = 0;
  };

  Kind kind = kDelta;
  int64_t number = 0;
  std::string chain;     // of one run of a trainer, 16 hexadecimal digits
  std::string previous;  // a delta's: hash of the publication with the number before
  std::string hash;      // what the next delta has there; read_publication() sets that of a delta
  int64_t step = 0;
  double time = 0;                             // seconds since 1970
  std::vector<Table> tables;                   // a delta's
  std::optional<checkpoint::StoredFile> file;  // a delta's

  static std::string name_of(Kind kind, int64_t number);  // "delta-7"
  std::string name() const { return name_of(kind, number); }
  // kDataLoss: damaged. kUnimplemented: of a newer format. Both name `path`.
  static Publication from_json(const std::string& text, const std::string& path);
};

// Writes NAME.json, synced, by one rename, and returns the hash of what it says.
std::string write_publication(const std::string& directory, const Publication& what);
// Errors as from_json(), and kDataLoss: it is not what its name says.
Publication read_publication(const std::string& directory, Publication::Kind kind, int64_t number);

// Numbers of the publications of a kind, ascending.
std::vector<int64_t> publications_in(const std::string& directory, Publication::Kind kind);

// The tensors of a delta.
struct DeltaTable {
  std::string name;
  Tensor ids;      // int64 [n], ascending
  Tensor rows;     // uint8 [n, bytes from row to row], as in the base's table
  Tensor removed;  // int64 [m]
};
struct Delta {
  std::vector<DeltaTable> tables;
  std::map<std::string, Tensor> dense;  // all of it
};

// Into NAME.safetensors, synced, by one rename.
checkpoint::StoredFile write_delta(const std::string& directory, const std::string& name, const Delta& delta);
// kDataLoss names the file: it is not there, of another size or sum, or lacks a tensor.
Delta read_delta(const std::string& directory, const Publication& what);

std::string hash_of(const std::string& text);  // 16 hexadecimal digits

}  // namespace tessera::publishing

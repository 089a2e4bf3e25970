// Contents of a directory of publications: base-N.json with the packed model base-N, and delta-N.json with
// delta-N.safetensors. The JSON is renamed into place last, and makes it a publication (docs/online.md).
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
  std::string chain;     // one run of a trainer: 16 hexadecimal digits
  std::string previous;  // of a delta: hash of the publication before it
  std::string hash;      // `previous` of the next delta; read_publication() sets it for a delta
  int64_t step = 0;
  double time = 0;                             // seconds since 1970
  std::vector<Table> tables;                   // of a delta
  std::optional<checkpoint::StoredFile> file;  // of a delta

  static std::string name_of(Kind kind, int64_t number);  // "delta-7"
  std::string name() const { return name_of(kind, number); }
  // kDataLoss: it is damaged. kUnimplemented: it has a newer format. Both errors name `path`.
  static Publication from_json(const std::string& text, const std::string& path);
};

// Writes NAME.json, synced, by one rename. Returns the hash of its content.
std::string write_publication(const std::string& directory, const Publication& what);
// Throws the errors of from_json(), and kDataLoss if the content contradicts the name.
Publication read_publication(const std::string& directory, Publication::Kind kind, int64_t number);

// Numbers of the publications of a kind, ascending.
std::vector<int64_t> publications_in(const std::string& directory, Publication::Kind kind);

// The tensors of one table in a delta.
struct DeltaTable {
  std::string name;
  Tensor ids;      // int64 [n], ascending
  Tensor rows;     // uint8 [n, bytes from row to row], in the base's format
  Tensor removed;  // int64 [m]
};
struct Delta {
  std::vector<DeltaTable> tables;
  std::map<std::string, Tensor> dense;  // all dense parameters
};

// Writes NAME.safetensors, synced, by one rename.
checkpoint::StoredFile write_delta(const std::string& directory, const std::string& name, const Delta& delta);
// kDataLoss: the file is missing, has another size or checksum, or lacks a tensor; the error names it.
Delta read_delta(const std::string& directory, const Publication& what);

std::string hash_of(const std::string& text);  // 16 hexadecimal digits

}  // namespace tessera::publishing

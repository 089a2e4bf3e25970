// model.json: what a packed model is, beside its tensors, and the sums that show damage (docs/models.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/files.h"
#include "tessera/packed_model.h"

namespace tessera::inference {

// Types of models: a DLRM by the sizes of its layers, with TorchRec's names, or any graph of layers.
inline constexpr const char* kDlrm = "dlrm";
inline constexpr const char* kGraph = "graph";

inline constexpr const char* kManifestFile = "model.json";
inline constexpr const char* kDenseFile = "dense.safetensors";

using StoredFile = checkpoint::StoredFile;

struct Manifest {
  std::string name;
  std::string version;  // of what it says, name aside: 16 hexadecimal digits; set by from_json()
  std::string type = kDlrm;
  DlrmOptions dlrm;  // of that type
  ModelGraph graph;
  BoundsCheckMode bounds_check = BoundsCheckMode::kFatal;
  bool is_weighted = false;
  std::string encoding;  // Dataset::encoding, JSON; empty: none
  struct Table {
    EmbeddingBagConfig config;  // with its row_format
    StoredFile file;
    std::optional<StoredFile> keys;  // rows have ids of their own: where those are
    int64_t ids = 0;                 // and what they are below
    std::optional<RowFigures> figures = {};
  };
  std::vector<Table> tables;
  StoredFile dense;

  std::string json() const;
  // kDataLoss: damaged. kUnimplemented: of a newer format, or of a type that is not known. All name `path`.
  static Manifest from_json(const std::string& text, const std::string& path);
};

const char* to_string(BoundsCheckMode mode);  // "fatal", ...

// Fills in what follows from the description's type, tables, and dlrm or graph: embeddings, dimension, and the
// description's tables and features. kInvalidArgument where they do not fit each other.
void complete(InferenceModel& model);

}  // namespace tessera::inference

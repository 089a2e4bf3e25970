// model.json: a packed model's contents except its tensors, and the checksums that show damage (docs/models.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/files.h"
#include "tessera/predictor.h"

namespace tessera::inference {

// Types of models: a DLRM by its layer sizes, with TorchRec's names, or any graph of layers.
inline constexpr const char* kDlrm = "dlrm";
inline constexpr const char* kGraph = "graph";

inline constexpr const char* kManifestFile = "model.json";
inline constexpr const char* kDenseFile = "dense.safetensors";

using StoredFile = checkpoint::StoredFile;

struct Manifest {
  std::string name;
  std::string version;  // of the content without its name: 16 hexadecimal digits; set by from_json()
  std::string type = kDlrm;
  DlrmOptions dlrm;  // only for kDlrm
  ModelGraph graph;
  BoundsCheckMode bounds_check = BoundsCheckMode::kFatal;
  bool is_weighted = false;
  std::string encoding;    // Dataset::encoding, JSON; empty: none
  std::string trained_on;  // ModelDescription::trained_on, JSON; empty: unknown
  struct Table {
    EmbeddingBagConfig config;  // with its row_format
    StoredFile file;
    std::optional<StoredFile> keys;  // file of the rows' own ids; unset: an id is its row
    int64_t ids = 0;                 // with `keys`: ids are below this
    std::optional<RowFigures> figures = {};
  };
  std::vector<Table> tables;
  StoredFile dense;
  bool int8_layers = false;  // `dense` has weights in int8 (int8_dense.h)

  std::string json() const;
  // kDataLoss: it is damaged. kUnimplemented: it has a newer format or an unknown type. All errors name `path`.
  static Manifest from_json(const std::string& text, const std::string& path);
};

const char* to_string(BoundsCheckMode mode);  // "fatal", ...

// Fills the members that follow from the description's type, its tables, and `dlrm` or `graph`: embeddings, dimension,
// and the description's features. kInvalidArgument: they do not fit each other.
void complete(InferenceModel& model);

}  // namespace tessera::inference

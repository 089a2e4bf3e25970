// A job that begins with what another one has learned, as far as that fits: tables by name, layers' parameters by name.
#pragma once

#include <string>
#include <vector>

#include "tessera/model_trainer.h"

namespace tessera {

struct WarmStart {
  int tables = 0, parameters = 0;  // of the model's: of which something was taken
  // A sentence for each table and parameter that was not taken whole, on either side.
  std::vector<std::string> notes;
};

// Takes weights from `path`, a checkpoint of ours or float tensors with TorchRec's names (tessera/packed_model.h); the
// optimizers' states stay as they begin. Rows go by their number; where `encoding` (Dataset::encoding) and that of the
// checkpoint have vocabularies, by their words. What fits nothing keeps its start values: rows that a table has more,
// values of another shape. kInvalidArgument: nothing fits; kNotFound, kDataLoss: of the files. Collective.
WarmStart start_from(const std::string& path, ModelTrainer& trainer, const std::string& encoding);

}  // namespace tessera

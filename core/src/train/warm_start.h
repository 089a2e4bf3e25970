// Starts a job with the weights of another one, as far as they fit. Tables and parameters are matched by name.
#pragma once

#include <string>
#include <vector>

#include "tessera/trainer.h"

namespace tessera {

struct WarmStart {
  int tables = 0, parameters = 0;  // how many of the model's got weights
  // A sentence for each table or parameter, of either model, that was not taken completely.
  std::vector<std::string> notes;
};

// Takes weights from `path`: a checkpoint, or float tensors with TorchRec's names (tessera/predictor.h). Optimizer
// states are not taken. Rows are matched by number, or by word if both `encoding` (Dataset::encoding) and the
// checkpoint's have vocabularies. Rows and values without a match keep their start values. kInvalidArgument: nothing
// matches. kNotFound, kDataLoss: errors of the files. Collective.
WarmStart start_from(const std::string& path, ModelTrainer& trainer, const std::string& encoding);

}  // namespace tessera

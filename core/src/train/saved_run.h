// The state of a run that `tessera train` stores in a checkpoint beside the model: its progress and its data.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tessera/config.h"
#include "tessera/data.h"

namespace tessera {

// Identifies the data: if it is equal, batch N has the same samples, wherever the files are. It has settings,
// sizes, and a hash of some samples.
nlohmann::ordered_json data_fingerprint(const Config& config, const Dataset& data);

// The model_description() in the result of load_checkpoint(); null: it has none.
nlohmann::ordered_json saved_model(const std::string& progress);

struct SavedRun {
  // State of the run's validations.
  struct Scores {
    std::string monitor;
    double least = 0;
    int64_t since_best = 0;
  };
  int64_t step = 0;                             // steps done
  nlohmann::ordered_json data;                  // data_fingerprint()'s; earlier versions stored less of it
  std::optional<Scores> scores = std::nullopt;  // unset: the run has not validated
  std::optional<int64_t> model_step = {};  // the step of the weights, if validation.restore_best took an earlier one
  std::string arrived = {};                // position in the arriving rows; empty: the run read files
  // For tessera quantize, because tensors do not tell it; only set for text().
  nlohmann::ordered_json model = {};
  std::string encoding = {};  // Dataset::encoding

  // The text that checkpoints hold beside the model.
  std::string text() const;

  // Parses the result of load_checkpoint(). kDataLoss: `tessera train` did not write it; the error names `path`.
  static SavedRun from_progress(const std::string& progress, const std::string& path);
  // kInvalidArgument, with the first difference: the job has other data, or reads it in another order.
  void check_same_data(const nlohmann::ordered_json& fingerprint, const std::string& path) const;
};

}  // namespace tessera

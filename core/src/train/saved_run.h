// What a checkpoint of `tessera train` says about its run beside the model: how far it had come, in which data.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tessera/config.h"
#include "tessera/data.h"

namespace tessera {

// What makes batch N the same samples again, wherever the files are: settings, sizes, and a hash of some samples, as
// JSON.
std::string data_fingerprint(const Config& config, const Dataset& data);

struct SavedRun {
  // How its validations stood.
  struct Scores {
    std::string monitor;
    double least = 0;
    int64_t since_best = 0;
  };
  int64_t step = 0;             // steps done
  nlohmann::ordered_json data;  // data_fingerprint()'s, or a part of it in checkpoints of earlier versions
  std::optional<Scores> scores = std::nullopt;  // of a run that had validated
  std::string arrived;  // behind which of the rows that arrive it goes on; empty: of a run that had others

  // Of load_checkpoint(). kDataLoss: it is none of `tessera train`; names `path`.
  static SavedRun from_progress(const std::string& progress, const std::string& path);
  // kInvalidArgument, with the first difference: the job has other data, or takes it in another order.
  void check_same_data(const std::string& fingerprint, const std::string& path) const;
};

// Of load_checkpoint(): the steps done; none where it is not of `tessera train`.
std::optional<int64_t> saved_step(const std::string& progress);
// Dataset::encoding of the newest checkpoint in `directory`; empty: it has none, or there is no checkpoint.
std::string saved_encoding(const std::string& directory);

}  // namespace tessera

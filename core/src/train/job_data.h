// Data of training jobs, whose rows may arrive over time.
#pragma once

#include <memory>
#include <string>

#include "data/arriving_rows.h"
#include "tessera/train_job.h"

namespace tessera {

struct TrainingData : JobData {
  std::unique_ptr<data::ArrivingRows> arriving = nullptr;  // used instead of data's samples
};
// Does what read_job_data() does.
TrainingData read_training_data(const Runtime& runtime, const Config& config, const std::string& encoding);

}  // namespace tessera

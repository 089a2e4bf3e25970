// Checks a job before its data is read.
#pragma once

#include <string>
#include <vector>

#include "tessera/config.h"
#include "tessera/metrics.h"
#include "tessera/runtime.h"

namespace tessera {

// A head that metrics cannot judge, and why.
struct UnjudgedHead {
  std::string name, why;
};

struct JobOutline {
  std::vector<Prediction> heads;  // outputs that the model will predict
  std::vector<UnjudgedHead> others;
  std::vector<DataColumn> columns;  // columns of ids in the data
};
// Checks a job before its data is read: the model's names, cycles, labels, and layers that no plugin has. With what the
// data declares (describe_dataset()) it also checks tables, components (check_components()), widths and options.
// kInvalidArgument, kNotFound.
JobOutline check_job(const Runtime& runtime, const Config& config, const std::string& encoding,
                     const std::string& compute_device);

}  // namespace tessera

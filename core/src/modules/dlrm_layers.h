// The three layers of a DLRM's dense part: what they are made with, and TorchRec's names of their parameters.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/dlrm.h"

namespace tessera {

const DlrmOptions& checked(const DlrmOptions& options);  // kInvalidArgument where the sizes do not fit

int64_t interaction_width(const DlrmOptions& options);
DenseLayerOptions bottom_options(const DlrmOptions& options);
DenseLayerOptions interaction_options(const DlrmOptions& options);
DenseLayerOptions top_options(const DlrmOptions& options);

// "dense_arch.0.weight" -> TorchRec's name; the last layer of the top MLP is a plain Linear behind the others there.
std::string torchrec_name(const std::string& name, size_t top_layers);

}  // namespace tessera

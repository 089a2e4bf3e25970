// DLRM-HSTU's encoders, preprocessors, towers and heads, for the cases of area "sequences".
#pragma once

#include <string>

#include "conformance/sequence_net.h"

namespace tessera::cli {

// Options of the layer "action_embedding" whose rows are the case's parameter `table`.
json action_options(const SequenceNet& net, const json& options, const std::string& table);

OpTable dlrm_hstu_ops();

}  // namespace tessera::cli

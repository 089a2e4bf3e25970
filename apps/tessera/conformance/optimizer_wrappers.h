// Shared by the two files of area "optimizer_wrappers".
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "conformance/parity/warmup_optimizer.h"
#include "conformance/runner.h"
#include "tessera/optim.h"

namespace tessera::cli {

// Reads a list of {"key", "value"}.
ParameterList parameters_from(const json& params);
DenseOptimizerSpec dense_spec_from(const json& given);  // reads the fields optimizer and optimizer_kwargs
WarmupStage warmup_stage_from(const json& stage);

// The state is key -> name -> tensor; it must have exactly the keys and names expected.
void check_optimizer_state(CaseContext& c, const std::string& field, const json& want,
                           const std::vector<std::pair<std::string, OptimizerState>>& state);

// Ops whose optimizer runs during backward.
OpTable in_backward_ops();

// Op "error": finds the call that `what` describes and makes it with the smallest inputs that fit.
void optimizer_error_op(CaseContext& c);

}  // namespace tessera::cli

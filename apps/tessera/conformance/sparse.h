// Shared by the two files of area "sparse".
#pragma once

#include <vector>

#include "conformance/runner.h"

namespace tessera::cli {

std::vector<Tensor> tensors_from(const json& list);  // null is not allowed
JaggedTensor jt_from(const json& value);             // reads the fields of op jagged_tensor
std::vector<KeyedJaggedTensor> kjts_from(const json& list);
KeyedTensor keyed_tensor_from(const json& value);  // reads the fields of op keyed_tensor_from_tensor_list
std::vector<KeyedTensor> keyed_tensors_from(const json& list);

// Op "error": finds the call that `what` describes and makes it with the given inputs, or with the smallest that fit.
void sparse_error_op(CaseContext& c);

}  // namespace tessera::cli

// Shared by the files of area "inference".
#pragma once

#include <vector>

#include "conformance/quantization.h"
#include "tessera/quantization.h"

namespace tessera::cli {

// given.tables as a float collection with the case's weights, quantized as the case says.
std::vector<QuantizedTable> quantized_tables(const CaseContext& c, int64_t alignment);
// Compares pooled output with expect.keys, length_per_key and values, key by key.
void check_keyed(CaseContext& c, const KeyedTensor& got);

void sharded_inference_op(CaseContext& c);

}  // namespace tessera::cli

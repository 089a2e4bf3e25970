// Shared by the areas "quantization" and "inference".
#pragma once

#include <string>
#include <vector>

#include "conformance/runner.h"
#include "tessera/jagged_tensor.h"
#include "tessera/quantization.h"

namespace tessera::cli {

// A quantized table of the lookup ops; its rows are stored with this alignment.
QuantizedTable table_from(const std::string& name, const Tensor& weights, RowFormat format, int64_t alignment);

// A batch from given.indices, offsets and per_sample_weights (optional): one feature per table with the table's name;
// bags lie table by table.
KeyedJaggedTensor batch_of(const std::vector<QuantizedTable>& tables, const json& given);

// Tables one after the other in one block, each rounded up to `rounding` bytes (FBGEMM's weights_host).
struct TableImage {
  std::vector<uint8_t> bytes;
  std::vector<int64_t> offsets;
};
TableImage image_of(const std::vector<Tensor>& tables, int64_t rounding);

// Compares only the uint8 data, because recorded shapes count packed codes differently.
void check_bytes(Checker& check, const std::string& field, const json& want, const uint8_t* bytes, int64_t size);

// Runs a call. A kernel that was asked for by name and cannot serve the case is not a failure.
template <class Call>
auto served(const CaseContext& c, const Call& call) {
  try {
    return call();
  } catch (const Error& e) {
    if (e.code() == Code::kUnimplemented && c.kernel != "auto") throw SkipCase{e.what()};
    throw;
  }
}

}  // namespace tessera::cli

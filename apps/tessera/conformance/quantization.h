// The common part of the areas "quantization" and "inference".
#pragma once

#include <string>
#include <vector>

#include "conformance/runner.h"
#include "tessera/jagged_tensor.h"
#include "tessera/quantized_table.h"

namespace tessera::cli {

// A table of the lookup ops, quantized: rows stored with this alignment.
QuantizedTable table_from(const std::string& name, const Tensor& weights, RowFormat format, int64_t alignment);

// given.indices, offsets and per_sample_weights (may be missing): one feature per table, named like it, over bags that
// lie table by table.
KeyedJaggedTensor batch_of(const std::vector<QuantizedTable>& tables, const json& given);

// Tables one after the other in one block, each rounded up to `rounding` bytes (FBGEMM's weights_host).
struct TableImage {
  std::vector<uint8_t> bytes;
  std::vector<int64_t> offsets;
};
TableImage image_of(const std::vector<Tensor>& tables, int64_t rounding);

// uint8 data alone: recorded shapes of packed codes count otherwise.
void check_bytes(Checker& check, const std::string& field, const json& want, const uint8_t* bytes, int64_t size);

// A kernel that was asked for by name and cannot serve the case is no failure.
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

#include "retrieval/item_vectors.h"

#include <algorithm>
#include <filesystem>

#include "checkpoint/safetensors.h"
#include "tessera/error.h"

namespace tessera::retrieval {

Tensor item_vectors(const InferenceModel& model, const std::string& items) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(items, ignored)) {
    const checkpoint::SafetensorsReader file{checkpoint::InputFile(items)};
    const checkpoint::StoredTensor* vectors = file.find(kVectors);
    if (vectors == nullptr || vectors->dtype != DType::kFloat32 || vectors->shape.size() != 2)
      fail(Code::kInvalidArgument, items, " has no float32 tensor \"", kVectors,
           "\" [items, values]: tessera predict --vectors writes such files");
    return file.read(kVectors);
  }
  const auto& tables = model.description.tables;
  const auto at = std::find_if(tables.begin(), tables.end(), [&](const ModelTable& t) { return t.name == items; });
  if (at == tables.end()) {
    std::string known;
    for (const ModelTable& t : tables) known += (known.empty() ? "" : ", ") + t.name;
    fail(Code::kNotFound, "--items: \"", items, "\" is no file, and no table of the model, which has ", known);
  }
  const QuantizedTable& table = model.tables[static_cast<size_t>(at - tables.begin())];
  if (table.config.remapping)
    fail(Code::kInvalidArgument, "--items: the rows of table \"", items, "\" have ids of their own: name a file");
  return dequantize_rows(table.rows, at->format, at->dim);
}

void write_vectors(const std::string& path, const Tensor& vectors) {
  checkpoint::SafetensorsWriter file(path, {{kVectors, {DType::kFloat32, vectors.shape()}}});
  file.write(kVectors, vectors);
  file.file().sync();
}

}  // namespace tessera::retrieval

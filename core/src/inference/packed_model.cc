// Opens and checks packed models.
#include "inference/packed_model.h"

#include <algorithm>
#include <filesystem>

#include "checkpoint/files.h"
#include "checkpoint/safetensors.h"
#include "inference/int8_dense.h"
#include "inference/manifest.h"
#include "inference/table_file.h"

namespace tessera {
namespace inference {
namespace {

namespace fs = std::filesystem;

// Finds the newest packed model in a folder with several, such as one that a job publishes to; "": none.
std::string packed_model_in(const std::string& directory) {
  std::error_code ignored;
  std::pair newest{fs::file_time_type::min(), std::string()};
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored)) {
    const fs::file_time_type written = fs::last_write_time(entry.path() / kManifestFile, ignored);
    if (!ignored) newest = std::max(newest, {written, entry.path().string()});
  }
  return newest.second;
}

Manifest read_manifest(const std::string& directory) {
  const std::string path = str_cat(directory, '/', kManifestFile);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    if (!fs::exists(directory, ignored))
      fail(Code::kNotFound, "there is no packed model at ", directory, ", because there is no such directory");
    const std::string inside = packed_model_in(directory);
    fail(Code::kNotFound, "there is no packed model at ", directory, ": it has no file ", kManifestFile, "; ",
         inside.empty() ? "tessera quantize makes one of a checkpoint" : str_cat("did you mean ", inside, '?'));
  }
  return Manifest::from_json(checkpoint::read_text(path), path);
}

// Opens a file that the manifest lists. If it is missing, the model is damaged.
template <class Open>
auto listed(const Open& open) {
  try {
    return open();
  } catch (const Error& e) {
    if (e.code() == Code::kNotFound) fail(Code::kDataLoss, e.what(), "; the model lists it");
    throw;
  }
}

void check_size(const std::string& path, int64_t size, const StoredFile& expected) {
  if (size == expected.bytes) return;
  fail(Code::kDataLoss, path, " is damaged: it has ", size, " bytes, and ", kManifestFile, " says ", expected.bytes);
}

void check_sum(const std::string& path, const checkpoint::InputFile& file, const StoredFile& expected) {
  check_size(path, file.size(), expected);
  if (file.crc32(0, file.size()) == expected.crc) return;
  fail(Code::kDataLoss, path, " is damaged: its checksum is not the one in ", kManifestFile);
}

std::map<std::string, Tensor> read_dense(const std::string& path, const StoredFile& expected) {
  checkpoint::InputFile file = listed([&] { return checkpoint::InputFile(path); });
  check_sum(path, file, expected);
  const checkpoint::SafetensorsReader reader(std::move(file));
  std::map<std::string, Tensor> out;
  for (const auto& [name, tensor] : reader.tensors()) {
    if (tensor.dtype != DType::kFloat32 && tensor.dtype != DType::kInt64 && tensor.dtype != DType::kUInt8)
      fail(Code::kDataLoss, path, ": \"", name, "\" is not a tensor of float32, int64 or uint8");
    out[name] = reader.read(name);
  }
  return out;
}

Tensor map_rows(const std::string& path, const Manifest::Table& table, MappedFile::Access access) {
  const MappedFile file = listed([&] { return MappedFile(path, access); });
  const TableHeader header = header_of(table.config);
  check_header(file.data(), file.size(), header, path);
  return file.view(kHeaderBytes, {header.rows, header.stride}, DType::kUInt8);
}

// The keys are mapped, so that a table of any size opens at once.
std::shared_ptr<const IndexRemapping> map_keys(const std::string& path, const Manifest::Table& table) {
  if (!table.keys) return nullptr;
  checkpoint::InputFile file = listed([&] { return checkpoint::InputFile(path); });
  check_size(path, file.size(), *table.keys);
  const checkpoint::SafetensorsReader reader(std::move(file));
  const MappedFile memory(path);
  const auto view = [&](const char* name, DType dtype) {
    const checkpoint::StoredTensor* found = reader.find(name);
    if (!found || found->dtype != dtype || found->shape.size() != 1 || found->offset % size_of(dtype) != 0)
      fail(Code::kDataLoss, path, " is damaged: it has no list \"", name, "\" of ", to_string(dtype));
    return memory.view(found->offset, found->shape, dtype);
  };
  const Tensor keys = view(kKeysTensor, DType::kInt64), seats = view(kSeatsTensor, DType::kInt32);
  if (keys.numel() != table.config.num_embeddings)
    fail(Code::kDataLoss, path, " is damaged: it has ", keys.numel(), " ids for ", table.config.num_embeddings,
         " rows");
  return IndexRemapping::keyed(table.ids, keys, seats);
}

}  // namespace

InferenceModel open_packed_model(const std::string& directory, MappedFile::Access access) {
  const Manifest manifest = read_manifest(directory);
  InferenceModel model;
  model.description.name = manifest.name;
  model.description.version = manifest.version;
  model.description.is_weighted = manifest.is_weighted;
  model.description.encoding = manifest.encoding;
  model.description.trained_on = manifest.trained_on;
  model.description.bounds_check = manifest.bounds_check;
  model.description.type = manifest.type;
  model.dlrm = manifest.dlrm;
  model.graph = manifest.graph;
  for (const Manifest::Table& t : manifest.tables) {
    model.tables.push_back({t.config, map_rows(str_cat(directory, '/', t.file.name), t, access), t.figures});
    if (t.keys) model.tables.back().config.remapping = map_keys(str_cat(directory, '/', t.keys->name), t);
  }
  model.dense = read_dense(str_cat(directory, '/', manifest.dense.name), manifest.dense);
  try {
    restore_dense(model);
    if (model.int8_weights.empty() == manifest.int8_layers)
      fail(Code::kDataLoss, "its dense layers are not in the precision that it says");
    if (manifest.int8_layers) model.description.dense_precision = kInt8Precision;
    complete(model);
    if (manifest.type == kDlrm) model.graph = dlrm_graph(model.dlrm);
  } catch (const Error& e) {
    fail(Code::kDataLoss, directory, '/', kManifestFile, " is damaged: ", e.what());
  }
  return model;
}

}  // namespace inference

using namespace inference;

InferenceModel open_packed_model(const std::string& directory) {
  return inference::open_packed_model(directory, MappedFile::kShared);
}

void verify_packed_model(const std::string& directory) {
  (void)open_packed_model(directory);  // checks sizes, headers, and the sums of small files
  for (const Manifest::Table& t : read_manifest(directory).tables) {
    const std::string path = str_cat(directory, '/', t.file.name);
    check_sum(path, checkpoint::InputFile(path), t.file);
    if (!t.keys) continue;
    const std::string keys = str_cat(directory, '/', t.keys->name);
    check_sum(keys, checkpoint::InputFile(keys), *t.keys);
  }
}

}  // namespace tessera

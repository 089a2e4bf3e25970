#include "inference/float_tensors.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "checkpoint/directory.h"
#include "config/json.h"

namespace tessera::inference {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTorchFile = "pytorch_model.bin";
constexpr const char* kIndexFile = "model.safetensors.index.json";

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

}  // namespace

FloatTensors::FloatTensors(const std::string& path) : path_(path) {
  std::error_code ignored;
  const std::string index = path + "/" + kIndexFile;
  if (fs::is_regular_file(path, ignored)) {
    add_file(path);
  } else if (checkpoint::has_checkpoint(path)) {
    const checkpoint::HeldCheckpoint held = checkpoint::hold_checkpoint(path);
    open_checkpoint(held.path);
  } else if (exists(index)) {
    open_index(path, index);
  } else if (exists(path + "/" + checkpoint::kModelFile)) {
    add_file(path + "/" + checkpoint::kModelFile);
  } else if (exists(path + "/" + kTorchFile)) {
    add_file(path + "/" + kTorchFile);  // says what to do with it
  } else {
    fail(Code::kNotFound, "there is no checkpoint at ", path, ": it is no safetensors file and has neither ",
         checkpoint::kManifestFile, " nor ", checkpoint::kModelFile, " nor ", kIndexFile);
  }
}

void FloatTensors::add_file(const std::string& path) {
  checkpoint::SafetensorsReader reader{checkpoint::InputFile(path)};
  const Source& source = sources_.emplace_back(Source{std::move(reader), MappedFile(path)});
  for (const auto& [name, tensor] : source.reader.tensors()) {
    if (!tensors_.emplace(name, &tensor).second)
      fail(Code::kInvalidArgument, "tensor \"", name, "\" is in ", path, " and in another file of ", path_);
    sources_by_tensor_[name] = &source;
  }
}

void FloatTensors::open_checkpoint(const std::string& directory) {
  const std::string manifest = cat(directory, '/', checkpoint::kManifestFile),
                    model = cat(directory, '/', checkpoint::kModelFile);
  manifest_ = checkpoint::Manifest::from_json(read_text(manifest), manifest);
  const auto entry = std::find_if(manifest_->files.begin(), manifest_->files.end(),
                                  [&](const auto& f) { return f.name == checkpoint::kModelFile; });
  if (entry == manifest_->files.end()) fail(Code::kDataLoss, manifest, " lists no file ", checkpoint::kModelFile);
  if (!exists(model)) fail(Code::kDataLoss, "there is no file ", model, ", which ", manifest, " lists");
  const checkpoint::InputFile file(model);
  if (file.size() != entry->bytes)
    fail(Code::kDataLoss, model, " has ", file.size(), " bytes, and ", manifest, " says ", entry->bytes);
  if (file.crc32(0, file.size()) != entry->crc)
    fail(Code::kDataLoss, model, " is damaged: its checksum is not the one in ", manifest);
  add_file(model);
}

void FloatTensors::open_index(const std::string& directory, const std::string& index) {
  std::set<std::string> files;
  const auto parsed = config::parse_json<nlohmann::json>(read_text(index), {index, Code::kDataLoss});
  if (!parsed.is_object() || !parsed.contains("weight_map") || !parsed["weight_map"].is_object())
    fail(Code::kDataLoss, index, " has no object \"weight_map\" with the file of each tensor");
  for (const auto& [name, file] : parsed["weight_map"].items()) {
    if (!file.is_string()) fail(Code::kDataLoss, index, " names no file for tensor \"", name, '"');
    files.insert(file.get<std::string>());
  }
  for (const std::string& file : files) {
    if (file.empty() || file.find('/') != std::string::npos)
      fail(Code::kInvalidArgument, index, " names \"", file, "\", which is no file beside it");
    if (!exists(directory + "/" + file))
      fail(Code::kDataLoss, "there is no file ", directory, '/', file, ", which ", index, " lists");
    add_file(directory + "/" + file);
  }
}

Tensor FloatTensors::read_float(const std::string& name) const {
  const Tensor value = source_of(name).reader.read(name);
  if (is_integer(value.dtype())) {
    fail(Code::kInvalidArgument, "tensor \"", name, "\" of ", path_, " is ", to_string(value.dtype()),
         ": parameters are floats");
  }
  return value.to(DType::kFloat32);
}

Tensor FloatTensors::rows(const std::string& name, RowFormat* format) const {
  const checkpoint::StoredTensor& stored = *tensors_.at(name);
  TESSERA_CHECK(stored.shape.size() == 2);
  const int64_t rows = stored.shape[0], bytes = stored.shape[1] * size_of(stored.dtype);
  const bool half = stored.dtype == DType::kFloat16;
  *format = half ? RowFormat::kFloat16 : RowFormat::kFloat32;
  if ((half || stored.dtype == DType::kFloat32) && stored.offset % size_of(stored.dtype) == 0)
    return source_of(name).memory.view(stored.offset, {rows, bytes}, DType::kUInt8);
  *format = RowFormat::kFloat32;
  const auto copy = std::make_shared<Tensor>(read_float(name));
  return Tensor::borrow(copy->raw(), {rows, stored.shape[1] * size_of(DType::kFloat32)}, DType::kUInt8, copy);
}

}  // namespace tessera::inference

#include "inference/float_tensors.h"

#include <filesystem>
#include <set>
#include <utility>

#include "checkpoint/directory.h"
#include "config/json.h"

namespace tessera::inference {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTorchFile = "pytorch_model.bin";

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

}  // namespace

FloatTensors::FloatTensors(const std::string& path) : path_(path) {
  std::error_code ignored;
  const std::string index = path + "/" + checkpoint::index_name(checkpoint::kModel);
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
         checkpoint::kManifestFile, " nor ", checkpoint::kModelFile, " nor ",
         checkpoint::index_name(checkpoint::kModel));
  }
}

void FloatTensors::add_file(checkpoint::InputFile file) {
  files_.add(checkpoint::SafetensorsReader(std::move(file)));
  const checkpoint::SafetensorsReader& added = files_.files().back();
  memory_.emplace(&added, MappedFile(added.file().path()));
}

void FloatTensors::open_checkpoint(const std::string& directory) {
  const std::string manifest = cat(directory, '/', checkpoint::kManifestFile);
  manifest_ = checkpoint::Manifest::from_json(checkpoint::read_text(manifest), manifest);
  if (manifest_->base) {
    fail(Code::kInvalidArgument, directory, " holds only the rows that changed since ", manifest_->base->name,
         ", and a model needs all: take ", manifest_->base->name,
         " beside it, or go on with tessera train --load, which saves all rows at its end");
  }
  for (const checkpoint::Manifest::File& listed : manifest_->files_of(checkpoint::kModel, manifest)) {
    checkpoint::InputFile file = checkpoint::open_listed(directory, listed);
    if (file.crc32(0, file.size()) != listed.crc) checkpoint::fail_wrong_sum(directory, listed);
    add_file(std::move(file));
  }
}

void FloatTensors::open_index(const std::string& directory, const std::string& index) {
  std::set<std::string> files;
  const auto parsed = config::parse_json<nlohmann::json>(checkpoint::read_text(index), {index, Code::kDataLoss});
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
  const Tensor value = read(name);
  if (is_integer(value.dtype())) {
    fail(Code::kInvalidArgument, "tensor \"", name, "\" of ", path_, " is ", to_string(value.dtype()),
         ": parameters are floats");
  }
  return value.to(DType::kFloat32);
}

Tensor FloatTensors::rows(const std::string& name, RowFormat* format) const {
  const auto& [file, tensor] = files_.at(name);
  const checkpoint::StoredTensor& stored = *tensor;
  TESSERA_CHECK(stored.shape.size() == 2);
  const int64_t rows = stored.shape[0], bytes = stored.shape[1] * size_of(stored.dtype);
  const bool half = stored.dtype == DType::kFloat16;
  *format = half ? RowFormat::kFloat16 : RowFormat::kFloat32;
  if ((half || stored.dtype == DType::kFloat32) && stored.offset % size_of(stored.dtype) == 0)
    return memory_.at(file).view(stored.offset, {rows, bytes}, DType::kUInt8);
  *format = RowFormat::kFloat32;
  const auto copy = std::make_shared<Tensor>(read_float(name));
  return Tensor::borrow(copy->raw(), {rows, stored.shape[1] * size_of(DType::kFloat32)}, DType::kUInt8, copy);
}

}  // namespace tessera::inference

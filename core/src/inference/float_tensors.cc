#include "inference/float_tensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "checkpoint/directory.h"
#include "config/json.h"
#include "inference/manifest.h"

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
    source_ = checkpoint::open_with_base(path, [&](const auto& hold) { return open_held(hold()); });
    is_checkpoint_ = true;
  } else if (exists(index)) {
    open_index(path, index);
  } else if (exists(path + "/" + checkpoint::kModelFile)) {
    add_file(path + "/" + checkpoint::kModelFile);
  } else if (exists(path + "/" + kTorchFile)) {
    add_file(path + "/" + kTorchFile);  // throws an error that says what to do
  } else if (exists(path + "/" + kManifestFile)) {
    fail(Code::kInvalidArgument, path, " is a packed model: give the checkpoint that it was packed from");
  } else {
    fail(Code::kNotFound, "there is no checkpoint at ", path, ": it is not a safetensors file and has neither ",
         checkpoint::kManifestFile, " nor ", checkpoint::kModelFile, " nor ",
         checkpoint::index_name(checkpoint::kModel));
  }
  for (const auto& [name, place] : source_.model.tensors()) all_.emplace(name, *place.tensor);
  for (const checkpoint::TableEntry& t : source_.manifest.tables) {
    if (t.changes) merge_changes(t);
  }
}

// Replaces the table's tensors by those of a full checkpoint.
void FloatTensors::merge_changes(const checkpoint::TableEntry& table) {
  const auto& parts = parts_.emplace(table.parameter, checkpoint::parts_of(source_, table.parameter)).first->second;
  all_.at(table.parameter) = parts[0].entry->weight();
  all_.erase(table.keys_name());
  if (!table.on_demand()) return;
  all_.erase(table.removed_name());
  std::vector<int64_t> keys;
  for (const checkpoint::TablePart& part : parts) {
    for (const int64_t id : part.ids(0, part.entry->stored_rows())) {
      if (part.counts(id)) keys.push_back(id);
    }
  }
  all_.at(table.parameter).shape[0] = std::ssize(keys);
  all_[table.keys_name()] = {DType::kInt64, {std::ssize(keys)}, 0};
  keys_[table.keys_name()] = Tensor::from(keys);
}

void FloatTensors::add_file(checkpoint::OpenCheckpoint& to, checkpoint::InputFile file) {
  to.model.add(checkpoint::SafetensorsReader(std::move(file)));
  const checkpoint::SafetensorsReader& added = to.model.files().back();
  memory_.emplace(&added, MappedFile(added.file().path()));
}

checkpoint::OpenCheckpoint FloatTensors::open_held(checkpoint::HeldCheckpoint held) {
  checkpoint::OpenCheckpoint out;
  out.directory = held.path;
  out.held = std::move(held);
  out.manifest = checkpoint::manifest_in(out.directory);
  const std::string manifest = str_cat(out.directory, '/', checkpoint::kManifestFile);
  for (const checkpoint::Manifest::File& listed : out.manifest.files_of(checkpoint::kModel, manifest)) {
    checkpoint::InputFile file = checkpoint::open_listed(out.directory, listed);
    if (file.crc32(0, file.size()) != listed.crc) checkpoint::fail_wrong_sum(out.directory, listed);
    add_file(out, std::move(file));
  }
  return out;
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
      fail(Code::kInvalidArgument, index, " names \"", file, "\", which is not a file next to it");
    if (!exists(directory + "/" + file))
      fail(Code::kDataLoss, "there is no file ", directory, '/', file, ", which ", index, " lists");
    add_file(directory + "/" + file);
  }
}

Tensor FloatTensors::read(const std::string& name) const {
  if (keys_.contains(name)) return keys_.at(name).clone();
  if (!parts_.contains(name)) return source_.model.read(name);
  const Tensor rows = put_together(parts_.at(name));
  const checkpoint::StoredTensor& stored = all_.at(name);
  Tensor out = Tensor::empty(stored.shape, stored.dtype);
  std::memcpy(out.raw(), rows.raw(), static_cast<size_t>(rows.bytes()));
  return out;
}

Tensor FloatTensors::read_float(const std::string& name) const {
  const Tensor value = read(name);
  if (is_integer(value.dtype())) {
    fail(Code::kInvalidArgument, "tensor \"", name, "\" of ", path_, " is ", to_string(value.dtype()),
         ": parameters are floats");
  }
  return value.to(DType::kFloat32);
}

// Merges a table's rows to [rows, bytes of a row]. On-demand rows get new memory. Other tables use the first part's
// memory, and only changed pages are copied.
Tensor FloatTensors::put_together(const std::vector<checkpoint::TablePart>& parts) const {
  const checkpoint::TableEntry& table = *parts[0].entry;
  const bool on_demand = table.on_demand();
  const int64_t rows = all_.at(table.parameter).shape[0], stride = table.dim * size_of(table.dtype);
  const checkpoint::TensorFiles::Place& place = parts[0].in->model.at(table.parameter);
  Tensor out = on_demand ? Tensor::empty({rows, stride}, DType::kUInt8)
                         : MappedFile(place.file->file().path(), MappedFile::kPrivate)
                               .view(place.tensor->offset, {rows, stride}, DType::kUInt8);
  int64_t next = 0;
  for (size_t p = on_demand ? 0 : 1; p < parts.size(); ++p) {
    const auto* from = in_memory(parts[p].in->model.at(table.parameter));
    for (const int64_t id : parts[p].ids(0, parts[p].entry->stored_rows())) {
      if (!on_demand && (id < 0 || id >= rows))
        fail(Code::kDataLoss, parts[p].in->directory, " has row ", id, " of table \"", table.name, "\", which has ",
             rows);
      if (parts[p].counts(id)) std::copy_n(from, stride, out.data<uint8_t>() + (on_demand ? next++ : id) * stride);
      from += stride;
    }
  }
  return out;
}

const uint8_t* FloatTensors::in_memory(const checkpoint::TensorFiles::Place& place) const {
  return static_cast<const uint8_t*>(memory_.at(place.file).data()) + place.tensor->offset;
}

// Returns the rows in the file, or merged.
Tensor FloatTensors::bytes_of_rows(const std::string& name) const {
  if (parts_.contains(name)) return put_together(parts_.at(name));
  const auto& [file, tensor] = source_.model.at(name);
  const std::vector<int64_t>& shape = tensor->shape;
  return memory_.at(file).view(tensor->offset, {shape[0], shape[1] * size_of(tensor->dtype)}, DType::kUInt8);
}

Tensor FloatTensors::rows(const std::string& name, RowFormat* format) const {
  const checkpoint::StoredTensor& stored = all_.at(name);
  TESSERA_CHECK(stored.shape.size() == 2);
  const bool half = stored.dtype == DType::kFloat16;
  *format = half ? RowFormat::kFloat16 : RowFormat::kFloat32;
  if (half || stored.dtype == DType::kFloat32) {
    Tensor in_place = bytes_of_rows(name);
    if (reinterpret_cast<uintptr_t>(in_place.raw()) % static_cast<size_t>(size_of(stored.dtype)) == 0) return in_place;
  }
  *format = RowFormat::kFloat32;
  const auto copy = std::make_shared<Tensor>(read_float(name));
  return Tensor::borrow(copy->raw(), {stored.shape[0], stored.shape[1] * size_of(DType::kFloat32)}, DType::kUInt8,
                        copy);
}

}  // namespace tessera::inference

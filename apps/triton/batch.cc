#include "batch.h"

#include <algorithm>
#include <cstring>

#include "tessera/sdk/sized.h"

namespace tessera_triton {
namespace {

// An input of a request, in host memory.
struct Given {
  std::string name;
  TRITONSERVER_DataType type{};
  std::vector<int64_t> shape;
  std::vector<char> bytes;

  template <class T>
  std::vector<T> values() const {
    std::vector<T> out(bytes.size() / sizeof(T));
    std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
    return out;
  }
  std::vector<int64_t> integers() const {
    if (type == TRITONSERVER_TYPE_INT64) return values<int64_t>();
    if (type != TRITONSERVER_TYPE_INT32)
      refuse("the input \"", name, "\" has the type ", TRITONSERVER_DataTypeString(type),
             ", but must be INT64 or INT32");
    const std::vector<int32_t> narrow = values<int32_t>();
    return {narrow.begin(), narrow.end()};
  }
  std::vector<float> floats() const {
    if (type != TRITONSERVER_TYPE_FP32)
      refuse("the input \"", name, "\" has the type ", TRITONSERVER_DataTypeString(type), ", but must be FP32");
    return values<float>();
  }
  int64_t elements() const {
    int64_t out = 1;
    for (const int64_t size : shape) out *= size;
    return out;
  }
};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out;
  for (const int64_t size : shape) out += (out.empty() ? "[" : ", ") + std::to_string(size);
  return (out.empty() ? "[" : out) + "]";
}

// Reads an input. Returns false if the request has none of this name.
bool read(TRITONBACKEND_Request* request, const std::string& name, Given& out) {
  TRITONBACKEND_Input* input = nullptr;
  uint32_t count = 0;
  check(TRITONBACKEND_RequestInputCount(request, &count));
  const char* found = nullptr;
  for (uint32_t i = 0; i < count && input == nullptr; ++i) {
    check(TRITONBACKEND_RequestInputName(request, i, &found));
    if (name == found) check(TRITONBACKEND_RequestInputByIndex(request, i, &input));
  }
  if (input == nullptr) return false;
  const int64_t* shape = nullptr;
  uint32_t dims = 0, buffers = 0;
  uint64_t size = 0;
  check(TRITONBACKEND_InputProperties(input, &found, &out.type, &shape, &dims, &size, &buffers));
  out.name = name;
  out.shape.assign(shape, shape + dims);
  for (uint32_t b = 0; b < buffers; ++b) {
    const void* bytes = nullptr;
    uint64_t part = 0;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t device = 0;
    check(TRITONBACKEND_InputBuffer(input, b, &bytes, &part, &memory, &device));
    if (memory == TRITONSERVER_MEMORY_GPU)
      refuse("the input \"", name,
             "\" is in the memory of a GPU, and the backend tessera reads host memory: send it there");
    const char* begin = static_cast<const char*>(bytes);
    out.bytes.insert(out.bytes.end(), begin, begin + part);
  }
  const uint64_t expected = static_cast<uint64_t>(out.elements()) * TRITONSERVER_DataTypeByteSize(out.type);
  if (out.bytes.size() != expected)
    refuse("the input \"", name, "\" of the shape ", shape_text(out.shape), " has ", out.bytes.size(),
           " bytes, but needs ", expected);
  return true;
}

Given need(TRITONBACKEND_Request* request, const std::string& name) {
  Given out;
  if (!read(request, name, out)) refuse("the input \"", name, "\" is missing");
  return out;
}

DLTensor tensor(const void* data, DLDataType dtype, int64_t* shape, int32_t ndim) {
  return {const_cast<void*>(data), {kDLCPU, 0}, ndim, dtype, shape, nullptr, 0};
}

constexpr DLDataType kFloats = {kDLFloat, 32, 1}, kIds = {kDLInt, 64, 1}, kLengths = {kDLInt, 32, 1};

}  // namespace

Samples::Samples(const Model& model) : model_(&model), features_(model.features().size()) {}

Samples Samples::of(const Model& model, TRITONBACKEND_Request* request) {
  Samples out(model);
  if (model.dense() > 0) {
    const Given dense = need(request, "dense");
    if (dense.shape.size() != 2 || dense.shape[1] != model.dense())
      refuse("the input \"dense\" has the shape ", shape_text(dense.shape), ", but must be [batch, ", model.dense(),
             "]");
    out.dense_ = dense.floats();
    out.count_samples(dense.shape[0], dense.name);
  }
  for (size_t f = 0; f < model.features().size(); ++f) out.take(request, f);
  out.count_ = std::max<int64_t>(out.count_, 0);
  return out;
}

void Samples::count_samples(int64_t samples, const std::string& input) {
  if (count_ >= 0 && samples != count_)
    refuse("the input \"", input, "\" has ", samples, " samples, but the inputs before it have ", count_);
  count_ = samples;
}

void Samples::take(TRITONBACKEND_Request* request, size_t feature) {
  const FeatureInput& f = model_->features()[feature];
  Ids& out = features_[feature];
  const Given ids = need(request, f.rows ? f.name : f.name + ".values");
  if (ids.shape.size() != (f.rows ? 2u : 1u))
    refuse("the input \"", ids.name, "\" has the shape ", shape_text(ids.shape), ", but must be ",
           f.rows ? "[batch, k]" : "[ids of all samples]");
  const std::vector<int64_t> values = ids.integers();
  Given lengths, weights;
  const bool counted = f.lengths && read(request, f.name + ".lengths", lengths);
  if (!counted && !f.rows) refuse("the input \"", f.name, ".lengths\" is missing");
  std::vector<int64_t> each;
  if (counted) {
    const bool column = lengths.shape.size() == 2 && lengths.shape[1] == 1;
    if (lengths.shape.size() != 1 && !column)
      refuse("the input \"", lengths.name, "\" has the shape ", shape_text(lengths.shape), ", but must be [batch, 1]");
    each = lengths.integers();
  } else {
    each.assign(static_cast<size_t>(ids.shape[0]), ids.shape[1]);
  }
  if (f.rows) count_samples(ids.shape[0], ids.name);
  count_samples(std::ssize(each), counted ? lengths.name : ids.name);
  const bool weighted = f.weights && read(request, f.name + ".weights", weights);
  if (weighted && weights.shape != ids.shape)
    refuse("the input \"", weights.name, "\" has the shape ", shape_text(weights.shape), ", but that of \"", ids.name,
           "\" is ", shape_text(ids.shape));
  const std::vector<float> factors = weighted ? weights.floats() : std::vector<float>(values.size(), 1.0f);
  int64_t at = 0;  // the sample's first id
  for (size_t s = 0; s < each.size(); ++s) {
    const int64_t most = f.rows ? ids.shape[1] : std::ssize(values) - at;
    if (each[s] < 0 || each[s] > most)
      refuse("the input \"", lengths.name, "\" has ", each[s], " for sample ", s, ", which must be from 0 to ", most);
    out.lengths.push_back(static_cast<int32_t>(each[s]));
    out.values.insert(out.values.end(), values.begin() + at, values.begin() + at + each[s]);
    out.weights.insert(out.weights.end(), factors.begin() + at, factors.begin() + at + each[s]);
    at += f.rows ? ids.shape[1] : each[s];
  }
  if (at != std::ssize(values))
    refuse("the input \"", ids.name, "\" has ", values.size(), " ids, but its lengths are ", at, " together");
}

void Samples::append(const Samples& other) {
  const auto add = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  count_ = std::max<int64_t>(count_, 0) + other.count_;
  add(dense_, other.dense_);
  for (size_t f = 0; f < features_.size(); ++f) {
    add(features_[f].values, other.features_[f].values);
    add(features_[f].lengths, other.features_[f].lengths);
    add(features_[f].weights, other.features_[f].weights);
  }
}

std::vector<std::vector<float>> Samples::predict() const {
  std::vector<std::vector<float>> out;
  for (const Output& o : model_->outputs()) out.emplace_back(static_cast<size_t>(count_ * o.width));
  if (count_ <= 0) return out;
  const size_t n = features_.size();
  std::vector<DLTensor> tensors(3 * n + out.size());
  std::vector<std::vector<int64_t>> shapes(tensors.size());
  std::vector<const DLTensor*> pointers;
  for (const DLTensor& t : tensors) pointers.push_back(&t);
  bool weighted = false;
  for (size_t f = 0; f < n; ++f) {
    const Ids& ids = features_[f];
    weighted = weighted || model_->features()[f].weights;
    shapes[f] = {std::ssize(ids.values)};
    tensors[f] = tensor(ids.values.data(), kIds, shapes[f].data(), 1);
    shapes[n + f] = {count_};
    tensors[n + f] = tensor(ids.lengths.data(), kLengths, shapes[n + f].data(), 1);
    tensors[2 * n + f] = tensor(ids.weights.data(), kFloats, shapes[f].data(), 1);
  }
  for (size_t o = 0; o < out.size(); ++o) {
    shapes[3 * n + o] = {count_, model_->outputs()[o].width};
    tensors[3 * n + o] = tensor(out[o].data(), kFloats, shapes[3 * n + o].data(), 2);
  }
  int64_t dense_shape[] = {count_, model_->dense()};
  const DLTensor dense = tensor(dense_.data(), kFloats, dense_shape, 2);
  auto input = tessera::sdk::sized<tsr_model_input>();
  input.num_features = static_cast<uint32_t>(n);
  input.dense = model_->dense() > 0 ? &dense : nullptr;
  input.values = pointers.data();
  input.lengths = pointers.data() + n;
  input.weights = weighted ? pointers.data() + 2 * n : nullptr;
  auto err = tessera::sdk::sized<tsr_error>();
  check(tsr_model_predict(model_->get(), &input, pointers.data() + 3 * n, static_cast<uint32_t>(out.size()), &err),
        err);
  return out;
}

}  // namespace tessera_triton

#include <algorithm>
#include <cstring>
#include <numeric>

#include "sparse/arrays.h"
#include "sparse/text.h"
#include "tessera/device.h"
#include "tessera/jagged_tensor.h"

namespace tessera {
namespace {

using Strides = std::vector<std::vector<int64_t>>;

int64_t total(const std::vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

void check_variable_strides(const Strides& strides, size_t keys) {
  if (strides.size() != keys) {
    fail(Code::kInvalidArgument, "stride_per_key_per_rank has ", strides.size(), " rows for ", keys, " keys");
  }
  for (const auto& of_key : strides) {
    if (of_key.size() != strides[0].size()) {
      fail(Code::kInvalidArgument, "stride_per_key_per_rank has rows of ", strides[0].size(), " and ", of_key.size(),
           " ranks: give one number per rank for every key");
    }
    for (int64_t n : of_key) {
      if (n < 0 || n > INT64_MAX / 2 / static_cast<int64_t>(of_key.size())) {
        fail(Code::kInvalidArgument, "a stride of ", n, " in stride_per_key_per_rank is not possible");
      }
    }
  }
}

void check_inverse(const KeyedJaggedTensor::InverseIndices& inverse) {
  if (inverse.indices.numel() == 0) return;
  if (inverse.indices.dtype() != DType::kInt64 || inverse.indices.dim() != 2 ||
      inverse.indices.size(0) != static_cast<int64_t>(inverse.keys.size())) {
    fail(Code::kInvalidArgument, "inverse indices are int64 of shape [", inverse.keys.size(),
         ", batch]: one row for each of their keys");
  }
}

// The number of samples in the whole batch, if the caller did not give it.
int64_t stride_of(const KeyedJaggedTensor::Options& o, int64_t lengths) {
  if (o.keys.empty()) return 0;
  if (o.stride_per_key_per_rank.empty()) return lengths / static_cast<int64_t>(o.keys.size());
  if (o.inverse_indices && o.inverse_indices->indices.numel() > 0) return o.inverse_indices->indices.size(-1);
  int64_t largest = 0;
  for (const auto& of_key : o.stride_per_key_per_rank) largest = std::max(largest, total(of_key));
  return largest;
}

// Takes the blocks [starts[i], starts[i + 1]) of `tensor` in the order of `indices`.
Tensor gathered(const Tensor& tensor, const std::vector<int64_t>& starts, const std::vector<int64_t>& indices,
                const char* what) {
  if (!tensor.defined()) return tensor;
  std::vector<Tensor> blocks;
  std::vector<int64_t> shape = tensor.shape();
  shape[0] = 0;
  for (int64_t i : indices) {
    blocks.push_back(sparse::rows_of(tensor, starts[i], starts[i + 1], what));
    shape[0] += blocks.back().size(0);
  }
  if (DeviceStream* stream = tensor.stream()) {
    Tensor out = stream->empty(shape, tensor.dtype());
    int64_t first = 0;
    for (const Tensor& block : blocks) {
      stream->copy(block, out.narrow(first, block.size(0)));
      first += block.size(0);
    }
    return out;
  }
  Tensor out = Tensor::empty(shape, tensor.dtype());
  char* to = static_cast<char*>(out.raw());
  for (const Tensor& block : blocks) {
    if (block.bytes() > 0) std::memcpy(to, block.raw(), block.bytes());
    to += block.bytes();
  }
  return out;
}

Tensor optional_rows(const Tensor& tensor, int64_t first, int64_t last, const char* what) {
  return tensor.defined() ? sparse::rows_of(tensor, first, last, what) : tensor;
}

// Refuses tensors that concat() cannot join.
void check_alike(const KeyedJaggedTensor& first, const KeyedJaggedTensor& other) {
  if (first.variable_stride_per_key() != other.variable_stride_per_key()) {
    fail(Code::kInvalidArgument, "cannot concatenate KeyedJaggedTensors of variable and of uniform stride");
  }
  if (first.weights_or_null().defined() != other.weights_or_null().defined()) {
    fail(Code::kInvalidArgument, "cannot concatenate a weighted and an unweighted KeyedJaggedTensor");
  }
  if (!first.variable_stride_per_key() && first.stride() != other.stride()) {
    fail(Code::kInvalidArgument, "cannot concatenate KeyedJaggedTensors of strides ", first.stride(), " and ",
         other.stride());
  }
  if (!first.inverse_indices_or_null() != !other.inverse_indices_or_null()) {
    fail(Code::kInvalidArgument, "cannot concatenate KeyedJaggedTensors with and without inverse indices");
  }
}

}  // namespace

KeyedJaggedTensor::KeyedJaggedTensor(Options options)
    : lengths_(sparse::checked_integers(std::move(options.lengths), "lengths")),
      offsets_(sparse::checked_integers(std::move(options.offsets), "offsets")) {
  const auto keys = static_cast<int64_t>(options.keys.size());
  if (keys > 0 && !lengths_.defined() && !offsets_.defined()) {
    fail(Code::kInvalidArgument, "a KeyedJaggedTensor needs lengths or offsets");
  }
  if (options.values.dim() < 1) fail(Code::kInvalidArgument, "values have at least one dimension");
  variable_stride_ = options.variable_stride || !options.stride_per_key_per_rank.empty();
  if (variable_stride_) check_variable_strides(options.stride_per_key_per_rank, options.keys.size());
  if (options.inverse_indices) check_inverse(*options.inverse_indices);
  const int64_t rows = lengths_.defined() ? lengths_.numel() : std::max<int64_t>(offsets_.numel() - 1, 0);
  if (lengths_.defined() && offsets_.defined() && offsets_.numel() != rows + 1 && offsets_.numel() + rows > 0) {
    fail(Code::kInvalidArgument, rows, " lengths and ", offsets_.numel(), " offsets do not fit: offsets are one more");
  }
  stride_ = options.stride ? *options.stride : stride_of(options, rows);
  if (stride_ < 0) fail(Code::kInvalidArgument, "a stride of ", stride_, " is not possible");
  keys_ = std::move(options.keys);
  values_ = std::move(options.values);
  weights_ = std::move(options.weights);
  stride_per_key_per_rank_ = std::move(options.stride_per_key_per_rank);
  inverse_ = std::move(options.inverse_indices);
  const bool fits = variable_stride_ ? lengths_offset_per_key().back() == rows
                                     : keys == 0 || (rows % keys == 0 && rows / keys == stride_);
  if (!fits) {
    fail(Code::kInvalidArgument, rows, " lengths do not fit ", keys, " keys",
         variable_stride_ ? " with these strides" : str_cat(" of stride ", stride_),
         ": give one length per sample of each key");
  }
}

KeyedJaggedTensor KeyedJaggedTensor::from_lengths_sync(std::vector<std::string> keys, Tensor values, Tensor lengths,
                                                       Tensor weights) {
  KeyedJaggedTensor kjt(Options{.keys = std::move(keys),
                                .values = std::move(values),
                                .weights = std::move(weights),
                                .lengths = std::move(lengths)});
  kjt.length_per_key();
  return kjt;
}

KeyedJaggedTensor KeyedJaggedTensor::from_offsets_sync(std::vector<std::string> keys, Tensor values, Tensor offsets,
                                                       Tensor weights) {
  KeyedJaggedTensor kjt(Options{.keys = std::move(keys),
                                .values = std::move(values),
                                .weights = std::move(weights),
                                .offsets = std::move(offsets)});
  kjt.length_per_key();
  return kjt;
}

KeyedJaggedTensor KeyedJaggedTensor::from_jt_dict(const JaggedTensorDict& dict, bool force_variable_stride) {
  if (dict.empty()) fail(Code::kInvalidArgument, "from_jt_dict needs at least one JaggedTensor");
  Options options;
  std::vector<Tensor> values, weights, lengths;
  bool variable = force_variable_stride;
  for (const auto& [key, jt] : dict) {
    options.keys.push_back(key);
    values.push_back(jt.values());
    lengths.push_back(jt.lengths());
    if (jt.weights_or_null().defined()) weights.push_back(jt.weights());
    options.stride_per_key_per_rank.push_back({jt.size()});
    variable |= jt.size() != dict[0].second.size();
  }
  if (!weights.empty() && weights.size() != dict.size()) {
    fail(Code::kInvalidArgument, "from_jt_dict got weighted and unweighted JaggedTensors: give all of them weights");
  }
  options.values = sparse::concat(values, 0);
  options.lengths = sparse::concat(lengths, 0);
  if (!weights.empty()) options.weights = sparse::concat(weights, 0);
  if (!variable) {
    options.stride_per_key_per_rank.clear();
    options.stride = dict[0].second.size();
  }
  return KeyedJaggedTensor(std::move(options));
}

KeyedJaggedTensor KeyedJaggedTensor::concat(const std::vector<KeyedJaggedTensor>& parts) {
  if (parts.empty()) fail(Code::kInvalidArgument, "there are no KeyedJaggedTensors to concatenate");
  Options options;
  InverseIndices inverse;
  std::vector<Tensor> values, weights, lengths, indices;
  for (const KeyedJaggedTensor& part : parts) {
    check_alike(parts[0], part);
    options.keys.insert(options.keys.end(), part.keys_.begin(), part.keys_.end());
    options.stride_per_key_per_rank.insert(options.stride_per_key_per_rank.end(), part.stride_per_key_per_rank_.begin(),
                                           part.stride_per_key_per_rank_.end());
    values.push_back(part.values_);
    lengths.push_back(part.lengths());
    if (part.weights_.defined()) weights.push_back(part.weights_);
    if (!part.inverse_) continue;
    inverse.keys.insert(inverse.keys.end(), part.inverse_->keys.begin(), part.inverse_->keys.end());
    indices.push_back(part.inverse_->indices);
  }
  options.values = sparse::concat(values, 0);
  options.lengths = sparse::concat(lengths, 0);
  if (!weights.empty()) options.weights = sparse::concat(weights, 0);
  options.variable_stride = parts[0].variable_stride_;
  if (!options.variable_stride) options.stride = parts[0].stride_;
  if (!indices.empty()) {
    inverse.indices = sparse::concat(indices, 0);
    options.inverse_indices = std::move(inverse);
  }
  return KeyedJaggedTensor(std::move(options));
}

const Tensor& KeyedJaggedTensor::weights() const {
  if (!weights_.defined()) fail(Code::kInvalidArgument, "this KeyedJaggedTensor has no weights");
  return weights_;
}

const Tensor& KeyedJaggedTensor::lengths() const {
  if (!lengths_.defined()) {
    lengths_ = offsets_.defined() ? sparse::lengths_of(offsets_) : Tensor::empty({0}, DType::kInt32);
  }
  return lengths_;
}

const Tensor& KeyedJaggedTensor::offsets() const {
  if (!offsets_.defined()) offsets_ = sparse::offsets_of(lengths());
  return offsets_;
}

std::vector<int64_t> KeyedJaggedTensor::stride_per_key() const {
  if (!variable_stride_per_key()) return std::vector<int64_t>(keys_.size(), stride_);
  std::vector<int64_t> strides;
  for (const auto& of_key : stride_per_key_per_rank_) strides.push_back(total(of_key));
  return strides;
}

const std::vector<int64_t>& KeyedJaggedTensor::length_per_key() const {
  if (!offset_per_key_.empty()) return length_per_key_;
  const bool by_offsets = offsets_.defined() && offsets_.numel() > 0;
  if (values_.stream()) {  // the host reads them only once
    const Tensor& known = by_offsets ? offsets_ : lengths();
    Options host{.keys = keys_,
                 .values = Tensor::empty({0}),
                 .stride = stride_,
                 .stride_per_key_per_rank = stride_per_key_per_rank_,
                 .variable_stride = variable_stride_};
    (by_offsets ? host.offsets : host.lengths) = values_.stream()->to_host(known);
    length_per_key_ = KeyedJaggedTensor(std::move(host)).length_per_key();
    offset_per_key_ = sparse::cumulative(length_per_key_);
    return length_per_key_;
  }
  length_per_key_.clear();
  int64_t first = 0;
  for (int64_t count : stride_per_key()) {
    length_per_key_.push_back(by_offsets ? sparse::span_of(offsets_, first, count)
                                         : sparse::sum_of(lengths(), first, count));
    first += count;
  }
  offset_per_key_ = sparse::cumulative(length_per_key_);
  return length_per_key_;
}

const std::vector<int64_t>& KeyedJaggedTensor::offset_per_key() const {
  length_per_key();
  return offset_per_key_;
}

std::vector<int64_t> KeyedJaggedTensor::lengths_offset_per_key() const { return sparse::cumulative(stride_per_key()); }

const KeyedJaggedTensor::InverseIndices& KeyedJaggedTensor::inverse_indices() const {
  if (!inverse_) fail(Code::kInvalidArgument, "this KeyedJaggedTensor has no inverse indices");
  return *inverse_;
}

int64_t KeyedJaggedTensor::key_index(std::string_view key) const { return sparse::position_of(key, keys_); }

std::vector<KeyedJaggedTensor> KeyedJaggedTensor::split(const std::vector<int64_t>& segments) const {
  const auto count = static_cast<int64_t>(keys_.size());
  const auto row_starts = lengths_offset_per_key();
  const auto& starts = offset_per_key();
  std::vector<KeyedJaggedTensor> parts;
  int64_t start = 0;
  for (int64_t segment : segments) {
    if (segment < 0 || segment > count - start) {
      fail(Code::kOutOfRange, "cannot split ", segment, " keys off at key ", start, ": there are ", count, " keys");
    }
    const int64_t end = start + segment;
    if (segment == count) {
      parts.push_back(*this);
      start = end;
      continue;
    }
    Options o{.keys = {keys_.begin() + start, keys_.begin() + end},
              .values = sparse::rows_of(values_, starts[start], starts[end], "values"),
              .weights = optional_rows(weights_, starts[start], starts[end], "weights"),
              .stride = stride_,
              .variable_stride = variable_stride_};
    if (variable_stride_per_key()) {
      o.stride_per_key_per_rank = {stride_per_key_per_rank_.begin() + start, stride_per_key_per_rank_.begin() + end};
    }
    if (segment == 0) {  // as in TorchRec, without even the offset 0
      o.lengths = o.offsets = Tensor::empty({0}, DType::kInt32);
    } else {
      o.lengths = lengths().narrow(row_starts[start], row_starts[end] - row_starts[start]);
    }
    parts.emplace_back(std::move(o));
    start = end;
  }
  return parts;
}

KeyedJaggedTensor KeyedJaggedTensor::permute(const std::vector<int64_t>& indices) const {
  Options options;
  for (int64_t i : indices) {
    if (i < 0 || i >= static_cast<int64_t>(keys_.size())) {
      fail(Code::kOutOfRange, "cannot permute to key ", i, ": there are ", keys_.size(), " keys");
    }
    options.keys.push_back(keys_[i]);
    if (variable_stride_per_key()) options.stride_per_key_per_rank.push_back(stride_per_key_per_rank_[i]);
  }
  options.stride = stride_;
  options.variable_stride = variable_stride_;
  if (permutes_by_kernel()) {
    permute_by_kernel(indices, options);
  } else {
    options.values = gathered(values_, offset_per_key(), indices, "values");
    options.weights = gathered(weights_, offset_per_key(), indices, "weights");
    options.lengths = gathered(lengths(), lengths_offset_per_key(), indices, "lengths");
  }
  KeyedJaggedTensor out(std::move(options));
  for (int64_t i : indices) out.length_per_key_.push_back(length_per_key()[i]);
  out.offset_per_key_ = sparse::cumulative(out.length_per_key_);
  return out;
}

JaggedTensor KeyedJaggedTensor::operator[](std::string_view key) const {
  const int64_t k = key_index(key);
  const auto row_starts = lengths_offset_per_key();
  const auto& starts = offset_per_key();
  return JaggedTensor({.values = sparse::rows_of(values_, starts[k], starts[k + 1], "values"),
                       .weights = optional_rows(weights_, starts[k], starts[k + 1], "weights"),
                       .lengths = lengths().narrow(row_starts[k], row_starts[k + 1] - row_starts[k])});
}

JaggedTensorDict KeyedJaggedTensor::to_dict() const {
  const auto row_starts = lengths_offset_per_key();
  const auto& starts = offset_per_key();
  JaggedTensorDict dict;
  for (size_t k = 0; k < keys_.size(); ++k) {
    dict.emplace_back(keys_[k],
                      JaggedTensor({.values = sparse::rows_of(values_, starts[k], starts[k + 1], "values"),
                                    .weights = optional_rows(weights_, starts[k], starts[k + 1], "weights"),
                                    .lengths = lengths().narrow(row_starts[k], row_starts[k + 1] - row_starts[k])}));
  }
  return dict;
}

std::string KeyedJaggedTensor::str() const {
  if (values_.stream()) return to_host().str();
  if (keys_.empty()) return "KeyedJaggedTensor()\n";
  const auto row_starts = lengths_offset_per_key();
  std::string out = "KeyedJaggedTensor({\n";
  for (size_t k = 0; k < keys_.size(); ++k) {
    if (k > 0) out += ",\n";
    out += "    \"" + keys_[k] + "\": ";
    if (weights_.defined()) out += "{\n        \"values\": ";
    sparse::append_rows(out, values_, offsets(), row_starts[k], row_starts[k + 1]);
    if (!weights_.defined()) continue;
    out += ",\n        \"weights\": ";
    sparse::append_rows(out, weights_, offsets(), row_starts[k], row_starts[k + 1]);
    out += "\n    }";
  }
  return out + "\n})\n";
}

}  // namespace tessera

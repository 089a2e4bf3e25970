#include <cstring>
#include <unordered_map>

#include "sparse/arrays.h"
#include "sparse/text.h"
#include "tessera/jagged_tensor.h"

namespace tessera {
namespace {

// A tensor seen as [outer, along, inner] around one dimension; sizes are in bytes.
struct Slab {
  int64_t outer = 1;
  int64_t entry = 1;   // bytes of one position of the dimension
  int64_t stride = 1;  // bytes between outer positions
};

Slab slab_of(const Tensor& tensor, int64_t axis) {
  Slab s;
  for (int64_t d = 0; d < axis; ++d) s.outer *= tensor.size(d);
  s.entry = size_of(tensor.dtype());
  for (int64_t d = axis + 1; d < tensor.dim(); ++d) s.entry *= tensor.size(d);
  s.stride = s.entry * tensor.size(axis);
  return s;
}

// to[.., to_at : to_at + length, ..] = from[.., from_at : from_at + length, ..]
void copy_along(const Tensor& to, int64_t to_at, const Tensor& from, int64_t from_at, int64_t length, int64_t axis) {
  const Slab out = slab_of(to, axis), in = slab_of(from, axis);
  if (length * in.entry == 0) return;
  char* target = static_cast<char*>(to.raw()) + to_at * out.entry;
  const char* source = static_cast<const char*>(from.raw()) + from_at * in.entry;
  for (int64_t i = 0; i < in.outer; ++i) {
    std::memcpy(target + i * out.stride, source + i * in.stride, length * in.entry);
  }
}

Tensor narrowed(const Tensor& tensor, int64_t axis, int64_t start, int64_t length) {
  if (start < 0 || length < 0 || start > tensor.size(axis) - length) {
    fail(Code::kOutOfRange, "a key takes [", start, ", ", start + length, ") of dimension ", axis, ", which has ",
         tensor.size(axis));
  }
  std::vector<int64_t> shape = tensor.shape();
  shape[axis] = length;
  Tensor out = Tensor::empty(shape, tensor.dtype());
  copy_along(out, 0, tensor, start, length, axis);
  return out;
}

// The place of one key's values in the input tensors.
struct Piece {
  size_t tensor;
  int64_t start, length;
};

std::vector<std::vector<Piece>> pieces_of(const std::vector<KeyedTensor>& tensors,
                                          const std::vector<std::vector<std::string>>& groups) {
  if (tensors.empty()) fail(Code::kInvalidArgument, "regroup needs at least one KeyedTensor");
  std::unordered_map<std::string_view, Piece> places;
  for (size_t t = 0; t < tensors.size(); ++t) {
    int64_t start = 0;
    for (size_t k = 0; k < tensors[t].keys().size(); ++k) {
      const int64_t length = tensors[t].length_per_key()[k];
      places[tensors[t].keys()[k]] = {t, start, length};
      start += length;
    }
    if (tensors[t].key_dim() != tensors[0].key_dim() || start != tensors[t].values().size(tensors[t].key_dim())) {
      fail(Code::kInvalidArgument, "KeyedTensor ", t, " cannot be regrouped: its keys do not cover dimension ",
           tensors[0].key_dim(), " of its values");
    }
  }
  std::vector<std::vector<Piece>> pieces(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const std::string& key : groups[g]) {
      const auto found = places.find(key);
      if (found == places.end()) fail(Code::kNotFound, "group ", g, " names \"", key, "\", a key that no input has");
      pieces[g].push_back(found->second);
    }
  }
  return pieces;
}

std::vector<int64_t> group_shape(const std::vector<KeyedTensor>& tensors, const std::vector<Piece>& pieces) {
  const auto axis = static_cast<size_t>(tensors[0].key_dim());
  std::vector<int64_t> shape = tensors[pieces.empty() ? 0 : pieces[0].tensor].values().shape();
  shape[axis] = 0;
  for (const Piece& p : pieces) {
    std::vector<int64_t> other = tensors[p.tensor].values().shape();
    if (other.size() == shape.size()) other[axis] = shape[axis];
    if (other != shape) {
      fail(Code::kInvalidArgument, "KeyedTensors of a group differ in size outside dimension ", axis);
    }
    shape[axis] += p.length;
  }
  return shape;
}

// to[.., at : at + length, ..] += from[.., from_at : from_at + length, ..] for float32.
void add_along(const Tensor& to, int64_t at, const Tensor& from, int64_t from_at, int64_t length, int64_t axis) {
  const Slab out = slab_of(to, axis), in = slab_of(from, axis);
  constexpr int64_t kFloat = sizeof(float);
  for (int64_t i = 0; i < in.outer; ++i) {
    float* target = to.data<float>() + (i * out.stride + at * out.entry) / kFloat;
    const float* source = from.data<float>() + (i * in.stride + from_at * in.entry) / kFloat;
    for (int64_t j = 0; j < length * in.entry / kFloat; ++j) target[j] += source[j];
  }
}

}  // namespace

KeyedTensor::KeyedTensor(std::vector<std::string> keys, std::vector<int64_t> length_per_key, Tensor values,
                         int64_t key_dim)
    : KeyedTensor(std::make_shared<const KeyLayout>(KeyLayout{std::move(keys), std::move(length_per_key), key_dim}),
                  std::move(values)) {}

KeyedTensor::KeyedTensor(std::shared_ptr<const KeyLayout> layout, Tensor values)
    : layout_(std::move(layout)), values_(std::move(values)) {
  const KeyLayout& l = *layout_;
  if (l.keys.size() != l.length_per_key.size()) {
    fail(Code::kInvalidArgument, "a KeyedTensor of ", l.keys.size(), " keys has ", l.length_per_key.size(), " lengths");
  }
  if (l.key_dim < 0 || (!l.keys.empty() && l.key_dim >= values_.dim())) {
    fail(Code::kInvalidArgument, "key dimension ", l.key_dim, " is none of the ", values_.dim(), " of the values");
  }
}

const KeyedTensor::KeyLayout& KeyedTensor::layout() const {
  static const KeyLayout none;
  return layout_ ? *layout_ : none;
}

KeyedTensor KeyedTensor::from_tensor_list(std::vector<std::string> keys, const std::vector<Tensor>& tensors,
                                          int64_t key_dim, int64_t cat_dim) {
  std::vector<int64_t> lengths;
  for (const Tensor& t : tensors) {
    if (key_dim < 0 || key_dim >= t.dim()) {
      fail(Code::kInvalidArgument, "key dimension ", key_dim, " is none of the ", t.dim(), " of a tensor");
    }
    lengths.push_back(t.size(key_dim));
  }
  return KeyedTensor(std::move(keys), std::move(lengths), sparse::concat(tensors, cat_dim), key_dim);
}

std::vector<int64_t> KeyedTensor::offset_per_key() const { return sparse::cumulative(length_per_key()); }

Tensor KeyedTensor::operator[](std::string_view key) const {
  const int64_t k = sparse::position_of(key, keys());
  return narrowed(values_, key_dim(), offset_per_key()[k], length_per_key()[k]);
}

std::vector<std::pair<std::string, Tensor>> KeyedTensor::to_dict() const {
  std::vector<std::pair<std::string, Tensor>> dict;
  int64_t start = 0;
  for (size_t k = 0; k < keys().size(); ++k) {
    dict.emplace_back(keys()[k], narrowed(values_, key_dim(), start, length_per_key()[k]));
    start += length_per_key()[k];
  }
  return dict;
}

std::string KeyedTensor::str() const {
  if (keys().empty()) return "KeyedTensor()\n";
  std::string out = "KeyedTensor({\n";
  const char* separator = "";
  for (const auto& [key, part] : to_dict()) {
    out += separator;
    out += "    \"" + key + "\": ";
    sparse::append_list(out, part, 0, part.size(0));
    separator = ",\n";
  }
  return out + "\n})\n";
}

std::vector<Tensor> KeyedTensor::regroup(const std::vector<KeyedTensor>& tensors,
                                         const std::vector<std::vector<std::string>>& groups) {
  std::vector<Tensor> out;
  for (const auto& pieces : pieces_of(tensors, groups)) {
    const int64_t axis = tensors[0].key_dim();
    const DType dtype = tensors[pieces.empty() ? 0 : pieces[0].tensor].values().dtype();
    const Tensor group = Tensor::empty(group_shape(tensors, pieces), dtype);
    int64_t at = 0;
    for (const Piece& p : pieces) {
      const Tensor& values = tensors[p.tensor].values();
      if (values.dtype() != dtype) fail(Code::kInvalidArgument, "KeyedTensors of a group differ in type");
      copy_along(group, at, values, p.start, p.length, axis);
      at += p.length;
    }
    out.push_back(group);
  }
  return out;
}

std::vector<std::pair<std::string, Tensor>> KeyedTensor::regroup_as_dict(
    const std::vector<KeyedTensor>& tensors, const std::vector<std::vector<std::string>>& groups,
    const std::vector<std::string>& names) {
  if (names.size() != groups.size()) {
    fail(Code::kInvalidArgument, "regroup_as_dict got ", names.size(), " names for ", groups.size(), " groups");
  }
  std::vector<Tensor> parts = regroup(tensors, groups);
  std::vector<std::pair<std::string, Tensor>> dict;
  for (size_t i = 0; i < names.size(); ++i) dict.emplace_back(names[i], std::move(parts[i]));
  return dict;
}

std::vector<Tensor> KeyedTensor::regroup_backward(const std::vector<KeyedTensor>& tensors,
                                                  const std::vector<std::vector<std::string>>& groups,
                                                  const std::vector<Tensor>& grad_outputs) {
  const auto pieces = pieces_of(tensors, groups);
  if (grad_outputs.size() != groups.size()) {
    fail(Code::kInvalidArgument, "regroup_backward got ", grad_outputs.size(), " gradients for ", groups.size(),
         " groups");
  }
  std::vector<Tensor> grads;
  for (const KeyedTensor& t : tensors) grads.push_back(Tensor::zeros(t.values().shape()));
  for (size_t g = 0; g < groups.size(); ++g) {
    const Tensor& grad = grad_outputs[g];
    if (grad.dtype() != DType::kFloat32 || grad.shape() != group_shape(tensors, pieces[g])) {
      fail(Code::kInvalidArgument, "the gradient of group ", g, " is not a float32 tensor of that group's shape");
    }
    int64_t at = 0;
    for (const Piece& p : pieces[g]) {
      add_along(grads[p.tensor], p.start, grad, at, p.length, tensors[0].key_dim());
      at += p.length;
    }
  }
  return grads;
}

}  // namespace tessera

#include "sparse/arrays.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "tessera/device.h"

namespace tessera::sparse {
namespace {

template <class T>
Tensor sums(const Tensor& lengths) {
  const int64_t n = lengths.numel();
  Tensor offsets = Tensor::empty({n + 1}, lengths.dtype());
  const T* in = lengths.data<T>();
  T* out = offsets.data<T>();
  T total = 0;
  bool overflow = false;
  out[0] = 0;
  for (int64_t i = 0; i < n; ++i) {
    overflow |= __builtin_add_overflow(total, in[i], &total);
    out[i + 1] = total;
  }
  if (overflow) {
    fail(Code::kOutOfRange, "the sum of the lengths does not fit ", to_string(lengths.dtype()), ": use int64 lengths");
  }
  return offsets;
}

template <class T>
Tensor differences(const Tensor& offsets) {
  using Unsigned = std::make_unsigned_t<T>;  // damaged offsets may wrap around; that is noticed when rows are taken
  const int64_t n = std::max<int64_t>(offsets.numel() - 1, 0);
  Tensor lengths = Tensor::empty({n}, offsets.dtype());
  const T* in = offsets.data<T>();
  T* out = lengths.data<T>();
  for (int64_t i = 0; i < n; ++i)
    out[i] = static_cast<T>(static_cast<Unsigned>(in[i + 1]) - static_cast<Unsigned>(in[i]));
  return lengths;
}

int rank_of(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return 0;
    case DType::kInt32:
      return 1;
    case DType::kInt64:
      return 2;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 3;
    case DType::kFloat32:
      return 4;
    case DType::kFloat64:
      return 5;
  }
  return 5;
}

DType promoted(DType a, DType b) {
  if (a == b) return a;
  if (rank_of(a) == rank_of(b)) return DType::kFloat32;  // float16 and bfloat16
  return rank_of(a) > rank_of(b) ? a : b;
}

bool fits_everything(const Tensor& t) { return t.dim() == 1 && t.numel() == 0; }

int64_t product(const std::vector<int64_t>& shape, int64_t first, int64_t last) {
  return std::accumulate(shape.begin() + first, shape.begin() + last, int64_t{1}, std::multiplies<>());
}

}  // namespace

Tensor checked_integers(Tensor tensor, const char* what) {
  if (!tensor.defined()) return tensor;
  if (tensor.dim() != 1) fail(Code::kInvalidArgument, what, " have ", tensor.dim(), " dimensions: give one");
  if (tensor.dtype() == DType::kInt32 || tensor.dtype() == DType::kInt64) return tensor;
  if (!is_integer(tensor.dtype()) && tensor.numel() > 0) {
    fail(Code::kInvalidArgument, what, " are ", to_string(tensor.dtype()), ": give int32 or int64");
  }
  return tensor.to(DType::kInt32);
}

Tensor offsets_of(const Tensor& lengths) {
  if (DeviceStream* stream = lengths.stream()) {
    if (!stream->handles_jagged()) return stream->to_device(offsets_of(stream->to_host(lengths)));
    Tensor offsets = stream->empty({lengths.numel() + 1}, lengths.dtype());
    stream->sum_lengths(lengths, offsets);
    return offsets;
  }
  return lengths.dtype() == DType::kInt32 ? sums<int32_t>(lengths) : sums<int64_t>(lengths);
}

Tensor lengths_of(const Tensor& offsets) {
  if (DeviceStream* stream = offsets.stream()) return stream->to_device(lengths_of(stream->to_host(offsets)));
  return offsets.dtype() == DType::kInt32 ? differences<int32_t>(offsets) : differences<int64_t>(offsets);
}

int64_t sum_of(const Tensor& tensor, int64_t first, int64_t count) {
  int64_t total = 0;
  for (int64_t i = first; i < first + count; ++i) {
    if (__builtin_add_overflow(total, integer_at(tensor, i), &total)) {
      fail(Code::kOutOfRange, "the sum of the lengths does not fit int64");
    }
  }
  return total;
}

int64_t span_of(const Tensor& offsets, int64_t first, int64_t count) {
  const int64_t begin = integer_at(offsets, first), end = integer_at(offsets, first + count);
  if (begin < 0 || end < begin) fail(Code::kOutOfRange, "offsets descend from ", begin, " to ", end);
  return end - begin;
}

Tensor rows_of(const Tensor& tensor, int64_t first, int64_t last, const char* what) {
  const int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 0;
  if (first < 0 || last < first || last > rows) {
    fail(Code::kOutOfRange, "the lengths ask for ", what, " [", first, ", ", last, "), but there are ", rows);
  }
  return tensor.narrow(first, last - first);
}

int64_t row_width(const Tensor& tensor) {
  return product(tensor.shape(), std::min<int64_t>(1, tensor.dim()), tensor.dim());
}

Tensor concat(std::span<const Tensor> tensors, int64_t axis) {
  if (tensors.empty()) fail(Code::kInvalidArgument, "there are no tensors to concatenate");
  const Tensor* like = &tensors[0];
  DType dtype = like->dtype();
  for (const Tensor& t : tensors) {
    if (t.stream()) fail(Code::kUnimplemented, "tensors on a device are not concatenated there: copy them to the host");
    if (fits_everything(*like)) like = &t;
    dtype = promoted(dtype, t.dtype());
  }
  if (axis < 0 || axis >= like->dim()) {
    fail(Code::kInvalidArgument, "cannot concatenate along dimension ", axis, " of ", like->dim(), "-D tensors");
  }
  std::vector<int64_t> shape = like->shape();
  shape[axis] = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (fits_everything(tensors[i])) continue;
    const std::vector<int64_t>& other = tensors[i].shape();
    bool fits = other.size() == shape.size();
    for (size_t d = 0; fits && d < shape.size(); ++d) fits = static_cast<int64_t>(d) == axis || other[d] == shape[d];
    if (!fits) {
      fail(Code::kInvalidArgument, "tensor ", i, " differs from the first outside dimension ", axis,
           ", along which they are concatenated");
    }
    shape[axis] += other[axis];
  }
  Tensor out = Tensor::empty(shape, dtype);
  const int64_t outer = product(shape, 0, axis);
  const int64_t stride = product(shape, axis, out.dim()) * size_of(dtype);
  int64_t at = 0;
  for (const Tensor& t : tensors) {
    if (t.numel() == 0) continue;
    const Tensor part = t.to(dtype);
    const int64_t block = part.bytes() / outer;
    for (int64_t i = 0; i < outer; ++i) {
      std::memcpy(static_cast<char*>(out.raw()) + i * stride + at, static_cast<const char*>(part.raw()) + i * block,
                  block);
    }
    at += block;
  }
  return out;
}

std::vector<int64_t> cumulative(const std::vector<int64_t>& counts) {
  std::vector<int64_t> sums(counts.size() + 1, 0);
  for (size_t i = 0; i < counts.size(); ++i) {
    if (__builtin_add_overflow(sums[i], counts[i], &sums[i + 1])) {
      fail(Code::kOutOfRange, "the sum of the lengths does not fit int64");
    }
  }
  return sums;
}

int64_t position_of(std::string_view key, const std::vector<std::string>& keys) {
  constexpr size_t kShown = 12;
  const auto found = std::find(keys.begin(), keys.end(), key);
  if (found != keys.end()) return found - keys.begin();
  std::string known;
  for (size_t i = 0; i < std::min(keys.size(), kShown); ++i) known += (i ? ", \"" : "\"") + keys[i] + "\"";
  if (keys.size() > kShown) known += str_cat(" and ", keys.size() - kShown, " more");
  fail(Code::kNotFound, "no key \"", key, "\": ", known.empty() ? "there are no keys" : "the keys are " + known);
}

}  // namespace tessera::sparse

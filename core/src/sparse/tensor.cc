#include "tessera/tensor.h"

#include <sys/mman.h>

#include <bit>
#include <cmath>
#include <cstring>

namespace tessera {
namespace {

struct TypeInfo {
  DType type;
  DLDataType dl;
  const char* name;
  const char* short_name;
};
constexpr TypeInfo kTypes[] = {
    {DType::kFloat32, {kDLFloat, 32, 1}, "float32", "fp32"}, {DType::kFloat64, {kDLFloat, 64, 1}, "float64", "fp64"},
    {DType::kFloat16, {kDLFloat, 16, 1}, "float16", "fp16"}, {DType::kBFloat16, {kDLBfloat, 16, 1}, "bfloat16", "bf16"},
    {DType::kInt32, {kDLInt, 32, 1}, "int32", "i32"},        {DType::kInt64, {kDLInt, 64, 1}, "int64", "i64"},
    {DType::kUInt8, {kDLUInt, 8, 1}, "uint8", "u8"},
};

const TypeInfo& info(DType dtype) { return kTypes[static_cast<int>(dtype)]; }

int64_t product(const Shape& shape) {
  int64_t n = 1;
  for (int64_t s : shape) {
    if (s < 0 || (s > 0 && n > INT64_MAX / 16 / s))
      fail(Code::kInvalidArgument, "a tensor dimension of ", s, " is not possible");
    n *= s;
  }
  return n;
}

double load(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kFloat32:
      return static_cast<const float*>(data)[i];
    case DType::kFloat64:
      return static_cast<const double*>(data)[i];
    case DType::kFloat16:
      return half_to_float(static_cast<const uint16_t*>(data)[i]);
    case DType::kBFloat16:
      return bfloat16_to_float(static_cast<const uint16_t*>(data)[i]);
    case DType::kInt32:
      return static_cast<const int32_t*>(data)[i];
    case DType::kInt64:
      return static_cast<double>(static_cast<const int64_t*>(data)[i]);
    case DType::kUInt8:
      return static_cast<const uint8_t*>(data)[i];
  }
  return 0;
}

void store(void* data, DType dtype, int64_t i, double value) {
  switch (dtype) {
    case DType::kFloat32:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      break;
    case DType::kFloat64:
      static_cast<double*>(data)[i] = value;
      break;
    case DType::kFloat16:
      static_cast<uint16_t*>(data)[i] = float_to_half(static_cast<float>(value));
      break;
    case DType::kBFloat16:
      static_cast<uint16_t*>(data)[i] = float_to_bfloat16(static_cast<float>(value));
      break;
    case DType::kInt32:
      static_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
      break;
    case DType::kInt64:
      static_cast<int64_t*>(data)[i] = static_cast<int64_t>(value);
      break;
    case DType::kUInt8:
      static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(value);
      break;
  }
}

}  // namespace

void Shape::refuse(size_t dims) {
  fail(Code::kInvalidArgument, "a tensor of ", dims, " dimensions: there can be at most ", kMostDimensions);
}

void Shape::refuse_axis(size_t axis) const {
  fail(Code::kOutOfRange, "dimension ", static_cast<int64_t>(axis), " of a tensor that has ", dims_);
}

int64_t size_of(DType dtype) { return info(dtype).dl.bits / 8; }
DLDataType to_dl(DType dtype) { return info(dtype).dl; }
const char* to_string(DType dtype) { return info(dtype).name; }

DType from_dl(DLDataType dtype) {
  for (const TypeInfo& t : kTypes) {
    if (t.dl.code == dtype.code && t.dl.bits == dtype.bits && dtype.lanes == 1) return t.type;
  }
  fail(Code::kUnimplemented, "no tensor type for DLPack code ", int{dtype.code}, " with ", int{dtype.bits}, " bits");
}

DType dtype_from(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const TypeInfo& t : kTypes) {
    if (lower == t.name || lower == t.short_name) return t.type;
  }
  fail(Code::kInvalidArgument, "unknown data type \"", name,
       "\": one of float32, float16, bfloat16, float64, int32, int64, uint8");
}

std::shared_ptr<void> allocate_cpu(int64_t bytes) {
  if (bytes <= 0) return nullptr;
  constexpr int64_t kHuge = int64_t{2} << 20;
  const int64_t alignment = bytes >= kHuge ? kHuge : 64;
  constexpr int64_t kAddressSpace = int64_t{1} << 47;
  const int64_t rounded = bytes < kAddressSpace ? (bytes + alignment - 1) / alignment * alignment : 0;
  void* p = rounded ? std::aligned_alloc(alignment, rounded) : nullptr;
  if (!p) fail(Code::kResourceExhausted, "cannot allocate ", bytes, " bytes of memory");
  if (alignment == kHuge) (void)madvise(p, rounded, MADV_HUGEPAGE);  // only a hint, which may be refused
  return {p, [](void* q) { std::free(q); }};
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  Tensor t;
  t.numel_ = product(shape);
  t.shape_ = shape;
  t.dtype_ = dtype;
  t.device_ = device;
  t.defined_ = true;
  if (device.type == DeviceType::kCpu) {
    t.storage_ = allocate_cpu(t.bytes());
    t.data_ = t.storage_.get();
  } else if (device.type != DeviceType::kMeta) {
    fail(Code::kUnimplemented, "a tensor on a device is made by its DeviceStream: see tessera/device.h");
  }
  return t;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype) {
  Tensor t = empty(shape, dtype);
  if (t.bytes()) std::memset(t.data_, 0, t.bytes());
  return t;
}

Tensor Tensor::borrow(void* data, const Shape& shape, DType dtype, std::shared_ptr<void> owner) {
  Tensor t;
  t.numel_ = product(shape);
  t.shape_ = shape;
  t.dtype_ = dtype;
  t.data_ = data;
  t.storage_ = std::move(owner);
  t.defined_ = true;
  return t;
}

Tensor Tensor::clone() const {
  if (!defined_) return {};
  TESSERA_CHECK(!stream_, "a tensor on a device is copied by its DeviceStream");
  Tensor t = empty(shape_, dtype_, device_);
  if (t.data_ && bytes()) std::memcpy(t.data_, data_, bytes());
  return t;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  TESSERA_CHECK(!stream_, "a tensor on a device is not converted");
  Tensor t = empty(shape_, dtype, device_);
  if (is_integer(dtype) && is_integer(dtype_)) {  // not through double, because int64 has more digits
    for (int64_t i = 0; i < numel_; ++i) {
      const int64_t v = dtype_ == DType::kInt64   ? static_cast<int64_t*>(data_)[i]
                        : dtype_ == DType::kInt32 ? static_cast<int32_t*>(data_)[i]
                                                  : static_cast<uint8_t*>(data_)[i];
      if (dtype == DType::kInt64)
        static_cast<int64_t*>(t.data_)[i] = v;
      else if (dtype == DType::kInt32)
        static_cast<int32_t*>(t.data_)[i] = static_cast<int32_t>(v);
      else
        static_cast<uint8_t*>(t.data_)[i] = static_cast<uint8_t>(v);
    }
    return t;
  }
  for (int64_t i = 0; i < numel_; ++i) store(t.data_, dtype, i, load(data_, dtype_, i));
  return t;
}

Tensor Tensor::reshape(Shape shape) const {
  int64_t known = 1, missing = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1)
      missing = static_cast<int64_t>(i);
    else
      known *= shape[i];
  }
  if (missing >= 0) shape[missing] = known ? numel_ / known : 0;
  TESSERA_CHECK(product(shape) == numel_, "reshape keeps the number of elements");
  Tensor t = *this;
  t.shape_ = shape;
  return t;
}

Tensor Tensor::narrow(int64_t start, int64_t length) const {
  TESSERA_CHECK(dim() >= 1 && start >= 0 && length >= 0 && start + length <= shape_[0]);
  const int64_t row = shape_[0] ? numel_ / shape_[0] : 0;
  Tensor t = *this;
  t.shape_[0] = length;
  t.numel_ = length * row;
  if (t.data_) t.data_ = static_cast<char*>(data_) + start * row * size_of(dtype_);
  return t;
}

Tensor Tensor::first(const Shape& shape) const {
  Tensor t = *this;
  t.numel_ = product(shape);
  TESSERA_CHECK(t.numel_ <= numel_, "the buffer is too small");
  t.shape_ = shape;
  return t;
}

void Tensor::fill(double value) {
  TESSERA_CHECK(!stream_, "a tensor on a device is filled by its DeviceStream");
  if (numel_ == 0) return;
  store(data_, dtype_, 0, value);
  auto* bytes = static_cast<uint8_t*>(data_);
  const auto all = static_cast<size_t>(this->bytes());
  for (auto done = static_cast<size_t>(size_of(dtype_)); done < all;) {
    constexpr size_t kBlock = 4096;  // the copied block stays in the L1 cache
    const size_t n = std::min({done, all - done, kBlock});
    std::memcpy(bytes + done, bytes, n);
    done += n;
  }
}

double Tensor::item(int64_t i) const {
  TESSERA_CHECK(i >= 0 && i < numel_ && !stream_);
  return load(data_, dtype_, i);
}

DLTensor Tensor::dl() const {
  DLTensor t{};
  t.data = data_;
  t.device = device_.dl();
  t.ndim = static_cast<int32_t>(shape_.size());
  t.dtype = to_dl(dtype_);
  t.shape = const_cast<int64_t*>(shape_.data());
  return t;
}

float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 31u, mantissa = h & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float tiny = std::ldexp(static_cast<float>(mantissa), -24);
  return sign ? -tiny : tiny;
}

uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));  // NaN
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {  // subnormal: let the FPU round to a multiple of 2^-24
    const float scaled = std::nearbyint(std::ldexp(std::bit_cast<float>(magnitude), 24));
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(scaled));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

float bfloat16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace tessera

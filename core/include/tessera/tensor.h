// tessera/tensor.h - a compact row-major array with shared storage. Copies of a Tensor share it; clone() copies the
// data.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/abi/tensor.h"
#include "tessera/error.h"

namespace tessera {

// The sizes of a tensor's dimensions, stored inside the object, so that making and copying one allocates nothing.
// Behaves like a std::vector<int64_t> of fixed length, and converts from and to one.
class Shape {
 public:
  using value_type = int64_t;
  using iterator = int64_t*;
  using const_iterator = const int64_t*;
  static constexpr size_t kMostDimensions = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) : Shape(sizes.begin(), sizes.end()) {}
  // kInvalidArgument: there are more than kMostDimensions dimensions.
  Shape(const std::vector<int64_t>& sizes) : Shape(sizes.data(), sizes.data() + sizes.size()) {}
  template <class Iterator>
  Shape(Iterator first, Iterator last) {
    const auto dims = static_cast<size_t>(last - first);
    if (dims > kMostDimensions) refuse(dims);
    std::copy(first, last, sizes_.begin());
    dims_ = static_cast<uint32_t>(dims);
  }
  operator std::vector<int64_t>() const { return {begin(), end()}; }

  size_t size() const { return dims_; }
  bool empty() const { return dims_ == 0; }
  const int64_t* data() const { return sizes_.data(); }
  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + dims_; }
  int64_t* begin() { return sizes_.data(); }
  int64_t* end() { return sizes_.data() + dims_; }
  int64_t operator[](size_t axis) const { return sizes_[axis]; }
  int64_t& operator[](size_t axis) { return sizes_[axis]; }
  int64_t at(size_t axis) const {  // kOutOfRange: after the last one
    if (axis >= dims_) refuse_axis(axis);
    return sizes_[axis];
  }

  friend bool operator==(const Shape& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }
  friend bool operator==(const Shape& a, const std::vector<int64_t>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  [[noreturn]] static void refuse(size_t dims);
  [[noreturn]] void refuse_axis(size_t axis) const;

  std::array<int64_t, kMostDimensions> sizes_{};
  uint32_t dims_ = 0;
};

enum class DType : uint8_t { kFloat32, kFloat64, kFloat16, kBFloat16, kInt32, kInt64, kUInt8 };
int64_t size_of(DType dtype);  // bytes of an element
DLDataType to_dl(DType dtype);
DType from_dl(DLDataType dtype);          // kUnimplemented: other types
const char* to_string(DType dtype);       // "float32", ...: PyTorch's names
DType dtype_from(std::string_view name);  // "float32", "FP32", "fp32", ...; kInvalidArgument: others
inline bool is_integer(DType d) { return d == DType::kInt32 || d == DType::kInt64 || d == DType::kUInt8; }

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kFloat64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kInt32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kInt64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kUInt8;
};

// The location of data. "meta" describes without allocating.
enum class DeviceType : int32_t { kMeta = 0, kCpu = kDLCPU, kCuda = kDLCUDA, kHip = kDLROCM, kExtension = kDLExtDev };
struct Device {
  DeviceType type = DeviceType::kCpu;
  int32_t index = 0;
  DLDevice dl() const { return {static_cast<DLDeviceType>(type), index}; }
  bool operator==(const Device&) const = default;
};
inline constexpr Device kCpu{};
inline constexpr Device kMeta{DeviceType::kMeta, 0};

class DeviceStream;

// Elements are read and written here only in host memory. tessera/device.h copies tensors to and from a device.
class Tensor {
 public:
  Tensor() = default;  // undefined: no data, shape [0], float32

  static Tensor empty(const Shape& shape, DType dtype = DType::kFloat32, Device device = kCpu);
  static Tensor zeros(const Shape& shape, DType dtype = DType::kFloat32);
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape);
  template <class T>
  static Tensor from(const std::vector<T>& values);  // 1-D
  template <class T>
  static Tensor from(std::initializer_list<T> values) {
    return from(std::vector<T>(values));
  }
  template <class T>
  static Tensor scalar(T value) {
    return from<T>(std::span<const T>(&value, 1), {});
  }
  // Borrows memory, which must outlive the tensor and its copies unless `owner` keeps it alive.
  static Tensor borrow(void* data, const Shape& shape, DType dtype, std::shared_ptr<void> owner = nullptr);

  bool defined() const { return defined_; }
  const Shape& shape() const { return shape_; }
  int64_t dim() const { return static_cast<int64_t>(shape_.size()); }
  int64_t size(int64_t axis) const { return shape_.at(axis < 0 ? axis + dim() : axis); }
  int64_t numel() const { return numel_; }
  int64_t bytes() const { return numel_ * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  // The stream in whose order the memory is used; null: host memory.
  DeviceStream* stream() const { return stream_; }

  // True if no other Tensor shares the storage, so its owner may write to it again.
  bool unique() const { return storage_.use_count() == 1; }

  void* raw() const { return data_; }
  // Checks the type, and that the tensor is in host memory.
  template <class T>
  T* data() const {
    TESSERA_CHECK(DTypeOf<T>::value == dtype_ && !stream_, "tensor is ", to_string(dtype_),
                  stream_ ? " on a device" : "");
    return static_cast<T*>(data_);
  }
  template <class T>
  std::span<T> span() const {
    return {data<T>(), static_cast<size_t>(numel_)};
  }
  uint16_t* half_bits() const {
    TESSERA_CHECK(dtype_ == DType::kFloat16 || dtype_ == DType::kBFloat16);
    return static_cast<uint16_t*>(data_);
  }
  template <class T>
  std::vector<T> to_vector() const {
    auto s = span<T>();
    return {s.begin(), s.end()};
  }

  Tensor clone() const;
  Tensor to(DType dtype) const;                        // converts; shares if the type is the same
  Tensor reshape(Shape shape) const;                   // shares; one -1 is allowed
  Tensor narrow(int64_t start, int64_t length) const;  // shares: [start, start + length) of the first dimension
  // Shares the first `numel` elements of the storage as `shape`. For buffers that are reused between steps.
  Tensor first(const Shape& shape) const;
  void fill(double value);
  double item(int64_t i = 0) const;  // element i, converted

  // A view for ABI calls. Its shape points into this object, so the view is valid only while the object stays in place
  // and unchanged. It is invalid after a move and for temporaries, even if copies keep the storage alive.
  DLTensor dl() const;

 private:
  Shape shape_{0};
  std::shared_ptr<void> storage_;
  void* data_ = nullptr;
  int64_t numel_ = 0;
  DType dtype_ = DType::kFloat32;
  Device device_;
  bool defined_ = false;
  DeviceStream* stream_ = nullptr;  // the storage keeps it alive
  friend class DeviceStream;
};

// float32 <-> IEEE half and bfloat16: rounds to nearest, ties to even.
float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);
float bfloat16_to_float(uint16_t bits);
uint16_t float_to_bfloat16(float value);

// Allocates CPU memory, 64-byte aligned, from huge pages (2 MiB, madvise) if it is large. nullptr for 0 bytes.
// kResourceExhausted names the size.
std::shared_ptr<void> allocate_cpu(int64_t bytes);

template <class T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape) {
  Tensor t = empty(shape, DTypeOf<T>::value);
  TESSERA_CHECK(t.numel() == static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), t.data<T>());
  return t;
}
template <class T>
Tensor Tensor::from(const std::vector<T>& values) {
  return from<T>(std::span<const T>(values), {static_cast<int64_t>(values.size())});
}

}  // namespace tessera

// tessera/shape.h - the sizes of a tensor's dimensions, stored inside the object, so that making and copying one
// allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace tessera {

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

}  // namespace tessera

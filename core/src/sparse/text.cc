#include "sparse/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "sparse/arrays.h"

namespace tessera::sparse {
namespace {

void append_element(std::string& out, const Tensor& tensor, int64_t i) {
  switch (tensor.dtype()) {
    case DType::kInt32:
    case DType::kInt64:
      out += std::to_string(integer_at(tensor, i));
      break;
    case DType::kUInt8:
      out += std::to_string(static_cast<const uint8_t*>(tensor.raw())[i]);
      break;
    default:
      append_repr(out, tensor.item(i));
  }
}

// Appends entries [first, last) of dimension `axis`. `at` is the element of entry 0.
void append_nested(std::string& out, const Tensor& tensor, int64_t axis, int64_t at, int64_t first, int64_t last) {
  int64_t width = 1;
  for (int64_t d = axis + 1; d < tensor.dim(); ++d) width *= tensor.size(d);
  out += '[';
  for (int64_t i = first; i < last; ++i) {
    if (i > first) out += ", ";
    if (axis + 1 == tensor.dim())
      append_element(out, tensor, at + i);
    else
      append_nested(out, tensor, axis + 1, at + i * width, 0, tensor.size(axis + 1));
  }
  out += ']';
}

}  // namespace

void append_repr(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "nan";
    return;
  }
  if (std::isinf(value)) {
    out += value < 0 ? "-inf" : "inf";
    return;
  }
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string text(buffer, end);  // d.ddde[+-]dd
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) {
    out += text;
    return;
  }
  const bool negative = text[0] == '-';
  std::string digits;
  for (char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  if (negative) out += '-';
  if (exponent < 0) {
    out += "0." + std::string(-exponent - 1, '0') + digits;
    return;
  }
  const size_t whole = exponent + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  out.append(digits, 0, whole);
  out += '.';
  out += digits.size() > whole ? digits.substr(whole) : "0";
}

void append_list(std::string& out, const Tensor& tensor, int64_t first, int64_t last) {
  const int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 0;
  first = std::clamp<int64_t>(first, 0, rows);
  last = std::clamp<int64_t>(last, first, rows);
  append_nested(out, tensor, 0, 0, first, last);
}

void append_rows(std::string& out, const Tensor& tensor, const Tensor& offsets, int64_t first, int64_t last) {
  out += '[';
  for (int64_t row = first; row < last; ++row) {
    if (row > first) out += ", ";
    append_list(out, tensor, integer_at(offsets, row), integer_at(offsets, row + 1));
  }
  out += ']';
}

}  // namespace tessera::sparse

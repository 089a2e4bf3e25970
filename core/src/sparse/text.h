// Text forms as Python prints them: repr of floats, nested lists of rows.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/tensor.h"

namespace tessera::sparse {

// Python's repr of a double: the shortest digits that parse to it, "1.0", "1e-05", "1e+16", "nan", "-inf".
void append_repr(std::string& out, double value);

// Rows [first, last) as a list, each row of a tensor with more dimensions a list again. Positions are clamped to the
// tensor, as Python clamps slices: printing damaged data shows what is there.
void append_list(std::string& out, const Tensor& tensor, int64_t first, int64_t last);

// ROWS of tests/conformance/README.md: the rows [first, last) that `offsets` cuts out of `tensor`.
void append_rows(std::string& out, const Tensor& tensor, const Tensor& offsets, int64_t first, int64_t last);

}  // namespace tessera::sparse

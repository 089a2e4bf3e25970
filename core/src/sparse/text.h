// Texts as Python prints them: repr of floats, nested lists of rows.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/tensor.h"

namespace tessera::sparse {

// Appends Python's repr of a double, which has the shortest digits that parse to it: "1.0", "1e-05", "1e+16", "nan",
// "-inf".
void append_repr(std::string& out, double value);

// Appends rows [first, last) as a list. A row of a tensor with more dimensions is a list itself. Positions are clamped
// to the tensor, like Python's slices, so that damaged data can be printed.
void append_list(std::string& out, const Tensor& tensor, int64_t first, int64_t last);

// Appends the rows [first, last) that `offsets` cuts out of `tensor`: ROWS of tests/conformance/README.md.
void append_rows(std::string& out, const Tensor& tensor, const Tensor& offsets, int64_t first, int64_t last);

}  // namespace tessera::sparse

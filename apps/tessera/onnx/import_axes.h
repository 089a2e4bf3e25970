// The axes of a sequence while the nodes of an ONNX file are read: programs split its width into heads, turn it, and
// join the batch with others.
#pragma once

#include <vector>

#include "onnx/layer_builder.h"

namespace tessera::cli {

inline constexpr int kBatchAxis = -1;
inline constexpr int kLengthAxis = -2;

using Axes = std::vector<int>;

// [batch, length, width] of a sequence, in whatever order it was before.
void begin_axes(ImportValue& x);
// The parts of the width in the order of the columns.
Axes all_parts(const ImportValue& x);
// True if the last dimension has all columns in order, so that a layer may compute each row by itself.
bool ends_in_columns(const ImportValue& x);
// True if the shape is [batch, length, width].
bool is_in_order(const ImportValue& x);
// The size of a dimension, as a constant has it: a product of kBatchSize, kLengthSize and a number.
double size_of(const ImportValue& x, const Axes& dimension);
// Another shape of the same elements in the same order; false: the sizes do not divide it so.
bool reshape_axes(ImportValue& x, const std::vector<double>& sizes);
// The number of heads of [batch, heads, length, width / heads], or with `turned` of [batch, heads, width / heads,
// length]; the batch and the heads may be one dimension, or there may be no heads. 0: it has another shape.
int64_t heads_of(const ImportValue& x, bool turned);

}  // namespace tessera::cli

// Tracks the axes of a sequence while the nodes of an ONNX file are read. Programs split its width into heads,
// transpose it, and join the batch with other axes.
#pragma once

#include <vector>

#include "onnx/layer_builder.h"

namespace tessera::cli {

inline constexpr int kBatchAxis = -1;
inline constexpr int kLengthAxis = -2;

using Axes = std::vector<int>;

// Makes the shape [batch, length, width] of a sequence, whatever its order was before.
void begin_axes(ImportValue& x);
// Returns the parts of the width in the order of the columns.
Axes all_parts(const ImportValue& x);
// True if the last dimension has all columns in order, so that a layer may compute each row by itself.
bool ends_in_columns(const ImportValue& x);
// True if the shape is [batch, length, width].
bool is_in_order(const ImportValue& x);
// Returns the size of a dimension in the form of a constant: a product of kBatchSize, kLengthSize and a number.
double size_of(const ImportValue& x, const Axes& dimension);
// Gives the same elements another shape, in the same order. False: the sizes do not divide the axes.
bool reshape_axes(ImportValue& x, const std::vector<double>& sizes);
// Returns the number of heads if the shape is [batch, heads, length, width / heads] or, with `turned`, [batch, heads,
// width / heads, length]. The batch and the heads may be one dimension, or there may be no heads. 0: it has another
// shape.
int64_t heads_of(const ImportValue& x, bool turned);

}  // namespace tessera::cli

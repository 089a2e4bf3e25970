// Operators between jagged and dense tensors, with FBGEMM's names and semantics.
//
// Tensors are in host memory. Lengths, offsets, permutations and indices are int32 or int64 and are checked.
// kOutOfRange: something leads beyond the data. kInvalidArgument: a shape or type does not fit. Results are new tensors
// of their input's type. `offsets` of a jagged tensor start with 0 and have one more entry than it has rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/tensor.h"

namespace tessera {

// Running sums of [n], or of every row of [m, n]. Complete: n + 1 sums from 0 to the total. Exclusive: the first n of
// them, which begin with 0. Inclusive: the last n, which end with the total.
Tensor asynchronous_complete_cumsum(const Tensor& counts);
Tensor asynchronous_exclusive_cumsum(const Tensor& counts);
Tensor asynchronous_inclusive_cumsum(const Tensor& counts);

// Returns the position of each of `range_size` elements in its row. The offsets may lack the last one, the total.
Tensor offsets_range(const Tensor& offsets, int64_t range_size);

// Turns values [n] or [n, d] into [rows, max_lengths[0], max_lengths[1], ..., d]. Longer rows are truncated, shorter
// ones get `padding`. Several offsets nest: those of level k count rows of level k + 1. The gradient of the values is
// dense_to_jagged of the output's gradient.
Tensor jagged_to_padded_dense(const Tensor& values, std::span<const Tensor> offsets,
                              std::span<const int64_t> max_lengths, double padding = 0);
// The inverse; rows longer than the dense ones end with zeros. Its gradient is jagged_to_padded_dense, padded with 0.
Tensor dense_to_jagged(const Tensor& dense, std::span<const Tensor> offsets);
// For float32. add: dense + values at their positions, dense. mul: values * dense, jagged.
Tensor jagged_dense_elementwise_add(const Tensor& values, std::span<const Tensor> offsets, const Tensor& dense);
Tensor jagged_dense_elementwise_mul(const Tensor& values, std::span<const Tensor> offsets, const Tensor& dense);

// out[i] = sum of values[segments[i] * batch_size .. segments[i + 1] * batch_size). Values are float32 or int64.
Tensor segment_sum_csr(int64_t batch_size, const Tensor& segments, const Tensor& values);

// Bags with their lengths. Weights may be undefined.
struct SparseData {
  Tensor lengths, values, weights;
};
// Permutes rows of lengths [keys, bags], or bags of [n], in the order of `permute`, which may repeat and omit.
SparseData permute_2D_sparse_data(const Tensor& permute, const SparseData& data);
SparseData permute_1D_sparse_data(const Tensor& permute, const SparseData& data);
// Selects the bags of `indices` from each key's `batch_size` bags, like a permutation of bags.
SparseData keyed_jagged_index_select_dim1(const SparseData& data, const Tensor& indices, int64_t batch_size);
// Selects bags of [n] or [n, d] values by index. Backward adds up gradients of bags that were taken several times.
SparseData jagged_index_select(const Tensor& values, const Tensor& lengths, const Tensor& indices);
Tensor jagged_index_select_backward(const Tensor& grad_values, const Tensor& lengths, const Tensor& indices);

// out[permute[i]] = i, for a permutation of 0 to n - 1.
Tensor invert_permute(const Tensor& permute);
// Expands a permutation of rows to the permutation of their elements.
Tensor expand_into_jagged_permute(const Tensor& permute, const Tensor& in_offsets, const Tensor& out_offsets,
                                  int64_t output_size);

// Sorts ids by the rank that has their rows. Rank r has the block [r * size, (r + 1) * size) of a feature. An id beyond
// all blocks, taken as unsigned, goes to rank id % ranks as row id / ranks. `boundaries` (ranks + 1 for each feature;
// empty: none) replaces sizes: rank r has [b[r], b[r + 1]).
struct BlockBucketizeOptions {
  Tensor block_sizes;          // one for each feature
  int64_t my_size = 1;         // number of ranks
  bool bucketize_pos = false;  // compute new_pos
  bool sequence = false;       // compute unbucketize_permute
  bool keep_orig_idx = false;  // ids keep their number in the whole table
  std::vector<Tensor> boundaries;
};
struct BlockBucketized {
  SparseData data;             // lengths [ranks * bags], rank by rank
  Tensor new_pos;              // for each element its old position in its bag
  Tensor unbucketize_permute;  // the new place of each element
};
// data.lengths is [features * bags].
BlockBucketized block_bucketize_sparse_features(const SparseData& data, const BlockBucketizeOptions& options);

}  // namespace tessera

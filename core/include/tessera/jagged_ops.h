// tessera/jagged_ops.h - operators between jagged and dense tensors, with FBGEMM's names and semantics.
//
// Tensors are in host memory. Lengths, offsets, permutations and indices are int32 or int64 and checked: kOutOfRange
// names what leads beyond the data, kInvalidArgument a shape or type that does not fit. Results are new tensors, of the
// type of their input. `offsets` of a jagged tensor have one entry more than it has rows, the first being 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/tensor.h"

namespace tessera {

// Running sums of [n], or of every row of [m, n]: n + 1 of them from 0 to the total (complete), n that begin with 0
// (exclusive), n that end with the total (inclusive).
Tensor asynchronous_complete_cumsum(const Tensor& counts);
Tensor asynchronous_exclusive_cumsum(const Tensor& counts);
Tensor asynchronous_inclusive_cumsum(const Tensor& counts);

// The position of each of `range_size` elements in its row. The offsets may lack the last one, the total.
Tensor offsets_range(const Tensor& offsets, int64_t range_size);

// values [n] or [n, d] as [rows, max_lengths[0], max_lengths[1], ..., d]: longer rows lose their end, shorter ones get
// `padding`. With several offsets they nest: those of level k count rows of level k + 1. Its gradient for the values is
// dense_to_jagged of the output's gradient.
Tensor jagged_to_padded_dense(const Tensor& values, std::span<const Tensor> offsets,
                              std::span<const int64_t> max_lengths, double padding = 0);
// The way back; rows longer than the dense ones end with zeros. Its gradient is jagged_to_padded_dense, padded with 0.
Tensor dense_to_jagged(const Tensor& dense, std::span<const Tensor> offsets);
// float32. dense + values where those are, as dense; and values * dense, as values.
Tensor jagged_dense_elementwise_add(const Tensor& values, std::span<const Tensor> offsets, const Tensor& dense);
Tensor jagged_dense_elementwise_mul(const Tensor& values, std::span<const Tensor> offsets, const Tensor& dense);

// out[i] = sum of values[segments[i] * batch_size .. segments[i + 1] * batch_size). Values are float32 or int64.
Tensor segment_sum_csr(int64_t batch_size, const Tensor& segments, const Tensor& values);

// Bags with their lengths; weights undefined where there are none.
struct SparseData {
  Tensor lengths, values, weights;
};
// The rows of lengths [keys, bags], and the bags of [n], in the order of `permute`, which may repeat and omit.
SparseData permute_2D_sparse_data(const Tensor& permute, const SparseData& data);
SparseData permute_1D_sparse_data(const Tensor& permute, const SparseData& data);
// Selects the bags of `indices` out of `batch_size` bags of each key. The same as a permutation of bags.
SparseData keyed_jagged_index_select_dim1(const SparseData& data, const Tensor& indices, int64_t batch_size);
// Bags of [n] or [n, d] values by index: values and lengths. Backward adds up what was taken several times.
SparseData jagged_index_select(const Tensor& values, const Tensor& lengths, const Tensor& indices);
Tensor jagged_index_select_backward(const Tensor& grad_values, const Tensor& lengths, const Tensor& indices);

// out[permute[i]] = i, for a permutation of 0 to n - 1.
Tensor invert_permute(const Tensor& permute);
// Elements of the rows that `permute` names, one after the other: the permutation of single elements that permutes
// rows.
Tensor expand_into_jagged_permute(const Tensor& permute, const Tensor& in_offsets, const Tensor& out_offsets,
                                  int64_t output_size);

// Ids by the rank that has their rows. Rank r has the block [r * size, (r + 1) * size) of a feature; an id beyond all
// blocks, seen as unsigned, goes to rank id % ranks, as row id / ranks. `boundaries` (of each feature, ranks + 1;
// empty: none) replaces sizes: rank r has [b[r], b[r + 1]).
struct BlockBucketizeOptions {
  Tensor block_sizes;          // of each feature
  int64_t my_size = 1;         // ranks
  bool bucketize_pos = false;  // new_pos wanted
  bool sequence = false;       // unbucketize_permute wanted
  bool keep_orig_idx = false;  // ids stay those of the whole table
  std::vector<Tensor> boundaries;
};
struct BlockBucketized {
  SparseData data;             // lengths [ranks * bags], rank by rank
  Tensor new_pos;              // of each element, its position in its bag before
  Tensor unbucketize_permute;  // where each element went
};
// data.lengths [features * bags].
BlockBucketized block_bucketize_sparse_features(const SparseData& data, const BlockBucketizeOptions& options);

}  // namespace tessera

// tessera/jagged_tensor.h - JaggedTensor, KeyedJaggedTensor, KeyedTensor: names and semantics of TorchRec.
//
// Objects are cheap to copy (they share tensors) and immutable once built. Lengths and offsets are computed from each
// other on first use, with the same dtype (int32 or int64). Values are not checked against lengths except where a
// method says so. Several threads may use a const object after one call of lengths(), offsets() and length_per_key()
// (the *_sync constructors call the last).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/tensor.h"

namespace tessera {

// A batch of rows of different lengths. values: [n] or [n, d]; lengths: [rows]; offsets: [rows + 1].
class JaggedTensor {
 public:
  struct Options {
    Tensor values;
    Tensor weights;  // float32, shaped like values; undefined: none
    Tensor lengths;  // int32 or int64; at least one of lengths and offsets
    Tensor offsets;
  };
  JaggedTensor() = default;
  explicit JaggedTensor(Options options);
  static JaggedTensor empty(bool is_weighted = false);
  // Makes one row per tensor. Lengths are int32.
  static JaggedTensor from_dense(const std::vector<Tensor>& values, const std::vector<Tensor>& weights = {});
  // From values [rows, width]: row i keeps its first lengths[i] entries.
  static JaggedTensor from_dense_lengths(const Tensor& values, const Tensor& lengths, const Tensor& weights = {});

  const Tensor& values() const { return values_; }
  const Tensor& weights() const;  // kInvalidArgument: there are no weights
  const Tensor& weights_or_null() const { return weights_; }
  const Tensor& lengths() const;
  const Tensor& offsets() const;
  int64_t size() const;  // number of rows

  std::vector<Tensor> to_dense() const;
  std::vector<Tensor> to_dense_weights() const;
  // Returns [rows, desired_length(, d)]. Longer rows are truncated. The default is the longest row's length.
  Tensor to_padded_dense(std::optional<int64_t> desired_length = std::nullopt, double padding_value = 0) const;
  Tensor to_padded_dense_weights(std::optional<int64_t> desired_length = std::nullopt, double padding_value = 0) const;
  std::string str() const;

 private:
  Tensor values_, weights_;
  mutable Tensor lengths_, offsets_;
};

using JaggedTensorDict = std::vector<std::pair<std::string, JaggedTensor>>;  // in insertion order

// Several features of one batch, key-major: all samples of key 0, then all of key 1, ...
class KeyedJaggedTensor {
 public:
  struct InverseIndices {
    std::vector<std::string> keys;
    Tensor indices;  // int64 [keys, batch]
  };
  struct Options {
    std::vector<std::string> keys;
    Tensor values;
    Tensor weights;  // undefined: none
    Tensor lengths;  // int32 or int64; at least one of lengths and offsets
    Tensor offsets;
    std::optional<int64_t> stride;                              // samples per key; unset: from the lengths
    std::vector<std::vector<int64_t>> stride_per_key_per_rank;  // variable batch: [key][rank]
    bool variable_stride = false;  // implied by stride_per_key_per_rank unless there are no keys
    std::optional<InverseIndices> inverse_indices;
  };
  KeyedJaggedTensor() = default;
  explicit KeyedJaggedTensor(Options options);
  static KeyedJaggedTensor from_lengths_sync(std::vector<std::string> keys, Tensor values, Tensor lengths,
                                             Tensor weights = {});
  static KeyedJaggedTensor from_offsets_sync(std::vector<std::string> keys, Tensor values, Tensor offsets,
                                             Tensor weights = {});
  static KeyedJaggedTensor from_jt_dict(const JaggedTensorDict& dict, bool force_variable_stride = false);
  static KeyedJaggedTensor concat(const std::vector<KeyedJaggedTensor>& parts);

  const std::vector<std::string>& keys() const { return keys_; }
  const Tensor& values() const { return values_; }
  const Tensor& weights() const;  // kInvalidArgument: there are no weights
  const Tensor& weights_or_null() const { return weights_; }
  const Tensor& lengths() const;
  const Tensor& offsets() const;
  int64_t stride() const { return stride_; }
  std::vector<int64_t> stride_per_key() const;
  bool variable_stride_per_key() const { return variable_stride_; }
  const std::vector<std::vector<int64_t>>& stride_per_key_per_rank() const { return stride_per_key_per_rank_; }
  const std::vector<int64_t>& length_per_key() const;
  const std::vector<int64_t>& offset_per_key() const;   // keys + 1 entries
  std::vector<int64_t> lengths_offset_per_key() const;  // keys + 1 entries: cumulative strides
  const InverseIndices& inverse_indices() const;        // kInvalidArgument: there are none
  const InverseIndices* inverse_indices_or_null() const { return inverse_ ? &*inverse_ : nullptr; }
  int64_t key_index(std::string_view key) const;  // kNotFound names the key and the existing ones

  std::vector<KeyedJaggedTensor> split(const std::vector<int64_t>& segments) const;
  KeyedJaggedTensor permute(const std::vector<int64_t>& indices) const;
  JaggedTensor operator[](std::string_view key) const;
  JaggedTensorDict to_dict() const;
  std::string str() const;

  // Returns a copy on the stream's device. lengths(), offsets(), permute, split, operator[] and to_dict also work
  // there, in stream order. Everything else that reads elements needs to_host(). The host keeps lengths per key. Waits.
  KeyedJaggedTensor to(DeviceStream& stream) const;
  KeyedJaggedTensor to_host() const;  // shares tensors that are in host memory

 private:
  KeyedJaggedTensor copied(DeviceStream& stream, bool to_device) const;
  bool permutes_by_kernel() const;
  void permute_by_kernel(const std::vector<int64_t>& indices, Options& options) const;

  std::vector<std::string> keys_;
  Tensor values_, weights_;
  mutable Tensor lengths_, offsets_;
  int64_t stride_ = 0;
  bool variable_stride_ = false;
  std::vector<std::vector<int64_t>> stride_per_key_per_rank_;
  std::optional<InverseIndices> inverse_;
  mutable std::vector<int64_t> length_per_key_, offset_per_key_;
};

// Sorts ids by the block that holds their rows: block k has the rows [k * block_rows[f], (k + 1) * block_rows[f]) of
// feature f. This is TorchRec's bucketize_kjt_before_all2all. The keys are repeated for each block. In each bag ids
// keep their order and count from the block's first row. It works where `input` is. On a device ids are not checked and
// nothing waits; in host memory an id beyond the blocks is kOutOfRange. Ids are int32 or int64, strides uniform.
struct Bucketized {
  KeyedJaggedTensor features;
  Tensor positions;  // int64 [n]: the new place of each id of the input
};
Bucketized bucketize_by_blocks(const KeyedJaggedTensor& input, std::span<const int64_t> block_rows, int64_t blocks);

// Dense rows of several keys side by side: values [batch, sum of length_per_key] for key_dim 1.
class KeyedTensor {
 public:
  // The part that all batches of a model share.
  struct KeyLayout {
    std::vector<std::string> keys;
    std::vector<int64_t> length_per_key;
    int64_t key_dim = 1;
  };
  KeyedTensor() = default;
  KeyedTensor(std::vector<std::string> keys, std::vector<int64_t> length_per_key, Tensor values, int64_t key_dim = 1);
  // Shares the layout, which must not be null. Allocates nothing.
  KeyedTensor(std::shared_ptr<const KeyLayout> layout, Tensor values);
  static KeyedTensor from_tensor_list(std::vector<std::string> keys, const std::vector<Tensor>& tensors,
                                      int64_t key_dim = 1, int64_t cat_dim = 1);
  const std::vector<std::string>& keys() const { return layout().keys; }
  const Tensor& values() const { return values_; }
  int64_t key_dim() const { return layout().key_dim; }
  const std::vector<int64_t>& length_per_key() const { return layout().length_per_key; }
  std::vector<int64_t> offset_per_key() const;  // keys + 1 entries
  Tensor operator[](std::string_view key) const;
  std::vector<std::pair<std::string, Tensor>> to_dict() const;
  std::string str() const;

  // Regroups parts of several KeyedTensors, one tensor per group. A key may be in several groups. If several inputs
  // have a key, the last one's part is taken.
  static std::vector<Tensor> regroup(const std::vector<KeyedTensor>& tensors,
                                     const std::vector<std::vector<std::string>>& groups);
  static std::vector<std::pair<std::string, Tensor>> regroup_as_dict(
      const std::vector<KeyedTensor>& tensors, const std::vector<std::vector<std::string>>& groups,
      const std::vector<std::string>& names);
  // Backward of regroup: the gradients of each input's values, laid out like the input.
  static std::vector<Tensor> regroup_backward(const std::vector<KeyedTensor>& tensors,
                                              const std::vector<std::vector<std::string>>& groups,
                                              const std::vector<Tensor>& grad_outputs);

 private:
  const KeyLayout& layout() const;

  std::shared_ptr<const KeyLayout> layout_;  // null: no keys
  Tensor values_;
};

}  // namespace tessera

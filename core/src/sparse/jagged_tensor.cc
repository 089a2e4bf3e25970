#include "tessera/jagged_tensor.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "sparse/arrays.h"
#include "sparse/text.h"

namespace tessera {
namespace {

using sparse::integer_at;

std::vector<Tensor> dense_rows(const Tensor& tensor, const Tensor& offsets, const char* what) {
  std::vector<Tensor> rows;
  for (int64_t i = 0; i + 1 < offsets.numel(); ++i) {
    const int64_t first = integer_at(offsets, i);
    rows.push_back(sparse::rows_of(tensor, first, integer_at(offsets, i + 1), what));
  }
  return rows;
}

int64_t longest_row(const Tensor& lengths) {
  int64_t longest = 0;
  for (int64_t i = 0; i < lengths.numel(); ++i) longest = std::max(longest, integer_at(lengths, i));
  return longest;
}

Tensor padded(const Tensor& tensor, const Tensor& offsets, int64_t width, double padding, const char* what) {
  if (width < 0) fail(Code::kInvalidArgument, "a desired length of ", width, " is not possible: give 0 or more");
  const int64_t rows = std::max<int64_t>(offsets.numel() - 1, 0);
  std::vector<int64_t> shape = tensor.shape();
  shape[0] = width;
  shape.insert(shape.begin(), rows);
  Tensor out = Tensor::empty(shape, tensor.dtype());
  out.fill(padding);
  const int64_t row_bytes = sparse::row_width(tensor) * size_of(tensor.dtype());
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t first = integer_at(offsets, i);
    const Tensor row = sparse::rows_of(tensor, first, integer_at(offsets, i + 1), what);
    const int64_t bytes = std::min(row.size(0), width) * row_bytes;
    if (bytes > 0) std::memcpy(static_cast<char*>(out.raw()) + i * width * row_bytes, row.raw(), bytes);
  }
  return out;
}

// Takes the first lengths[i] entries of each row i of a [rows, width(, d)] tensor.
Tensor packed(const Tensor& tensor, const Tensor& lengths, const char* what) {
  if (tensor.dim() < 2 || tensor.size(0) != lengths.numel()) {
    fail(Code::kInvalidArgument, "dense ", what, " need the shape [", lengths.numel(), ", width]: one row per length");
  }
  const int64_t width = tensor.size(1);
  int64_t total = 0;
  for (int64_t i = 0; i < lengths.numel(); ++i) {
    const int64_t n = integer_at(lengths, i);
    if (n < 0 || n > width)
      fail(Code::kOutOfRange, "row ", i, " has length ", n, ", but the rows are ", width, " wide");
    total += n;
  }
  std::vector<int64_t> shape(tensor.shape().begin() + 1, tensor.shape().end());
  shape[0] = total;
  Tensor out = Tensor::empty(shape, tensor.dtype());
  const int64_t entry_bytes = sparse::row_width(out) * size_of(tensor.dtype());
  if (out.bytes() == 0) return out;
  char* to = static_cast<char*>(out.raw());
  for (int64_t i = 0; i < lengths.numel(); ++i) {
    const int64_t bytes = integer_at(lengths, i) * entry_bytes;
    std::memcpy(to, static_cast<const char*>(tensor.raw()) + i * width * entry_bytes, bytes);
    to += bytes;
  }
  return out;
}

}  // namespace

JaggedTensor::JaggedTensor(Options options)
    : values_(std::move(options.values)),
      weights_(std::move(options.weights)),
      lengths_(sparse::checked_integers(std::move(options.lengths), "lengths")),
      offsets_(sparse::checked_integers(std::move(options.offsets), "offsets")) {
  if (!lengths_.defined() && !offsets_.defined()) {
    fail(Code::kInvalidArgument, "a JaggedTensor needs lengths or offsets");
  }
  if (values_.dim() < 1) fail(Code::kInvalidArgument, "the values of a JaggedTensor have at least one dimension");
}

JaggedTensor JaggedTensor::empty(bool is_weighted) {
  const Tensor none = Tensor::empty({0});
  const Tensor no_rows = Tensor::empty({0}, DType::kInt32);
  return JaggedTensor({none, is_weighted ? none : Tensor(), no_rows, no_rows});
}

JaggedTensor JaggedTensor::from_dense(const std::vector<Tensor>& values, const std::vector<Tensor>& weights) {
  if (values.empty()) fail(Code::kInvalidArgument, "from_dense needs at least one row");
  Tensor lengths = Tensor::empty({static_cast<int64_t>(values.size())}, DType::kInt32);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].dim() < 1) fail(Code::kInvalidArgument, "row ", i, " of from_dense is a scalar: give 1-D rows");
    const int64_t length = values[i].size(0);
    if (length > std::numeric_limits<int32_t>::max()) {
      fail(Code::kOutOfRange, "row ", i, " of from_dense has ", length, " values, which its int32 lengths cannot say");
    }
    lengths.data<int32_t>()[i] = static_cast<int32_t>(length);
  }
  return JaggedTensor(
      {sparse::concat(values, 0), weights.empty() ? Tensor() : sparse::concat(weights, 0), lengths, {}});
}

JaggedTensor JaggedTensor::from_dense_lengths(const Tensor& values, const Tensor& lengths, const Tensor& weights) {
  const Tensor counts = sparse::checked_integers(lengths, "lengths");
  if (!counts.defined()) fail(Code::kInvalidArgument, "from_dense_lengths needs lengths");
  return JaggedTensor({packed(values, counts, "values"),
                       weights.defined() ? packed(weights, counts, "weights") : Tensor(),
                       counts,
                       {}});
}

const Tensor& JaggedTensor::weights() const {
  if (!weights_.defined()) fail(Code::kInvalidArgument, "this JaggedTensor has no weights");
  return weights_;
}

const Tensor& JaggedTensor::lengths() const {
  if (!lengths_.defined()) {
    lengths_ = offsets_.defined() ? sparse::lengths_of(offsets_) : Tensor::empty({0}, DType::kInt32);
  }
  return lengths_;
}

const Tensor& JaggedTensor::offsets() const {
  if (!offsets_.defined()) offsets_ = sparse::offsets_of(lengths());
  return offsets_;
}

int64_t JaggedTensor::size() const {
  return lengths_.defined() ? lengths_.numel() : std::max<int64_t>(offsets_.numel() - 1, 0);
}

std::vector<Tensor> JaggedTensor::to_dense() const { return dense_rows(values_, offsets(), "values"); }

std::vector<Tensor> JaggedTensor::to_dense_weights() const { return dense_rows(weights(), offsets(), "weights"); }

Tensor JaggedTensor::to_padded_dense(std::optional<int64_t> desired_length, double padding_value) const {
  const int64_t width = desired_length ? *desired_length : longest_row(lengths());
  return padded(values_, offsets(), width, padding_value, "values");
}

Tensor JaggedTensor::to_padded_dense_weights(std::optional<int64_t> desired_length, double padding_value) const {
  const int64_t width = desired_length ? *desired_length : longest_row(lengths());
  return padded(weights(), offsets(), width, padding_value, "weights");
}

std::string JaggedTensor::str() const {
  const int64_t rows = std::max<int64_t>(offsets().numel() - 1, 0);
  std::string out = "JaggedTensor({\n    ";
  if (weights_.defined()) out += "\"values\": ";
  sparse::append_rows(out, values_, offsets(), 0, rows);
  if (weights_.defined()) {
    out += ",\n    \"weights\": ";
    sparse::append_rows(out, weights_, offsets(), 0, rows);
  }
  return out + "\n})\n";
}

}  // namespace tessera

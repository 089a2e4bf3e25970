#include "conformance/parity/jagged_ops.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "sparse/arrays.h"

namespace tessera {
namespace {

using sparse::integer_at;

std::vector<int64_t> integers(const Tensor& tensor, const char* what) {
  const Tensor checked = sparse::checked_integers(tensor, what);
  std::vector<int64_t> out(static_cast<size_t>(checked.numel()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = integer_at(checked, static_cast<int64_t>(i));
  return out;
}

// Converts the values to the type of `like`.
Tensor as_type(const std::vector<int64_t>& values, const Tensor& like) { return Tensor::from(values).to(like.dtype()); }

std::vector<int64_t> offsets_of_lengths(const std::vector<int64_t>& lengths) {
  for (const int64_t n : lengths) {
    if (n < 0) fail(Code::kOutOfRange, "a length is ", n, ", but none may be below 0");
  }
  return sparse::cumulative(lengths);
}

enum class Ends { kBoth, kFirst, kLast };

Tensor running_sums(const Tensor& counts, Ends ends) {
  if (counts.dim() < 1 || counts.dim() > 2)
    fail(Code::kInvalidArgument, "running sums are of [n] or [m, n], not of ", counts.dim(), " dimensions");
  const int64_t n = counts.size(-1), rows = counts.dim() == 2 ? counts.size(0) : 1;
  const int64_t skipped = ends == Ends::kLast ? 1 : 0, kept = ends == Ends::kBoth ? n + 1 : n;
  const std::vector<int64_t> all = integers(counts.reshape({-1}), "counts");
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(rows * kept));
  for (int64_t r = 0; r < rows; ++r) {
    const std::vector<int64_t> sums = sparse::cumulative({all.begin() + r * n, all.begin() + (r + 1) * n});
    out.insert(out.end(), sums.begin() + skipped, sums.begin() + skipped + kept);
  }
  Shape shape = counts.shape();
  shape[shape.size() - 1] = kept;
  return as_type(out, counts).reshape(shape);
}

// The offsets of nested levels, and the width of each level in a dense tensor.
struct Levels {
  std::vector<std::vector<int64_t>> offsets;
  std::vector<int64_t> widths;

  Levels(std::span<const Tensor> given, std::span<const int64_t> max_lengths)
      : widths(max_lengths.begin(), max_lengths.end()) {
    if (given.empty() || given.size() != max_lengths.size())
      fail(Code::kInvalidArgument, "there are ", given.size(), " offsets for ", max_lengths.size(), " lengths of rows");
    for (const Tensor& t : given) {
      offsets.push_back(integers(t, "offsets"));
      const std::vector<int64_t>& o = offsets.back();
      if (o.empty() || o[0] != 0 || !std::is_sorted(o.begin(), o.end()))
        fail(Code::kOutOfRange, "offsets must begin with 0 and not descend");
      if (offsets.size() > 1 && offsets[offsets.size() - 2].back() > static_cast<int64_t>(o.size()) - 1)
        fail(Code::kOutOfRange, "offsets lead beyond the rows of the next level");
    }
    for (const int64_t w : widths) {
      if (w < 0) fail(Code::kInvalidArgument, "a row's length of ", w, " is not possible: give 0 or more");
    }
  }
  int64_t rows() const { return static_cast<int64_t>(offsets[0].size()) - 1; }
  int64_t elements() const { return offsets.back().back(); }

  // Calls body(element of the jagged tensor, its cell in the dense tensor).
  template <class Body>
  void each(const Body& body) const {
    for (int64_t r = 0; r < rows(); ++r) visit(0, r, r, body);
  }

 private:
  template <class Body>
  void visit(size_t level, int64_t row, int64_t cell, const Body& body) const {
    const int64_t first = offsets[level][static_cast<size_t>(row)];
    const int64_t count = std::min(offsets[level][static_cast<size_t>(row) + 1] - first, widths[level]);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t to = cell * widths[level] + i;
      if (level + 1 == offsets.size())
        body(first + i, to);
      else
        visit(level + 1, first + i, to, body);
    }
  }
};

std::vector<int64_t> inner_widths(const Tensor& dense, size_t levels) {
  if (dense.dim() < static_cast<int64_t>(levels) + 1)
    fail(Code::kInvalidArgument, "the dense tensor needs a dimension for the rows and one for each of ", levels,
         " offsets");
  return {dense.shape().begin() + 1, dense.shape().begin() + 1 + static_cast<int64_t>(levels)};
}

void check_fits(const Levels& levels, const Tensor& values) {
  if (values.dim() < 1 || values.size(0) < levels.elements())
    fail(Code::kOutOfRange, "offsets lead to element ", levels.elements(), ", but there are ",
         values.dim() < 1 ? 0 : values.size(0));
}
void check_dense(const Levels& levels, const Tensor& dense) {
  if (dense.size(0) != levels.rows())
    fail(Code::kInvalidArgument, "the dense tensor has ", dense.size(0), " rows, but the offsets ", levels.rows());
}

// Calls body for the values that are in the same cell of a jagged and a dense tensor, both float32.
template <class Body>
void zip(const Tensor& values, std::span<const Tensor> offsets, const Tensor& dense, const Body& body) {
  const Levels levels(offsets, inner_widths(dense, offsets.size()));
  check_fits(levels, values);
  check_dense(levels, dense);
  const int64_t width = sparse::row_width(values);
  const float* v = values.data<float>();
  const float* d = dense.data<float>();
  if (dense.numel() != levels.rows() * width *
                           std::accumulate(levels.widths.begin(), levels.widths.end(), int64_t{1}, std::multiplies<>()))
    fail(Code::kInvalidArgument, "rows of the dense tensor must have ", width, " values, as those of the jagged one");
  levels.each([&](int64_t row, int64_t cell) {
    for (int64_t i = 0; i < width; ++i)
      body(row * width + i, cell * width + i, v[row * width + i], d[cell * width + i]);
  });
}

template <class T>
Tensor sum_segments(int64_t batch_size, const std::vector<int64_t>& segments, const Tensor& values) {
  std::vector<T> out(segments.size() - 1);
  for (size_t i = 0; i + 1 < segments.size(); ++i) {
    T sum{};
    for (int64_t k = segments[i] * batch_size; k < segments[i + 1] * batch_size; ++k) sum += values.data<T>()[k];
    out[i] = sum;
  }
  return Tensor::from(out);
}

void copy_rows(const Tensor& from, int64_t first, int64_t count, const Tensor& to, int64_t at) {
  const int64_t bytes = sparse::row_width(from) * size_of(from.dtype());
  if (count > 0)
    std::memcpy(static_cast<char*>(to.raw()) + at * bytes, static_cast<const char*>(from.raw()) + first * bytes,
                static_cast<size_t>(count * bytes));
}

// Takes the bags that `order` names. `lengths` has the lengths of all bags.
SparseData take_bags(const SparseData& data, const std::vector<int64_t>& lengths, const std::vector<int64_t>& order) {
  const std::vector<int64_t> offsets = offsets_of_lengths(lengths);
  if (data.values.size(0) < offsets.back())
    fail(Code::kOutOfRange, "lengths add up to ", offsets.back(), ", but there are ", data.values.size(0), " values");
  if (data.weights.defined() && data.weights.size(0) < offsets.back())
    fail(Code::kOutOfRange, "lengths add up to ", offsets.back(), ", but there are ", data.weights.size(0), " weights");
  std::vector<int64_t> taken;
  for (const int64_t bag : order) {
    if (bag < 0 || bag >= static_cast<int64_t>(lengths.size()))
      fail(Code::kOutOfRange, "bag ", bag, " is asked for, but there are ", lengths.size());
    taken.push_back(lengths[static_cast<size_t>(bag)]);
  }
  const std::vector<int64_t> to = sparse::cumulative(taken);
  const auto gather = [&](const Tensor& from) {
    Shape shape = from.shape();
    shape[0] = to.back();
    Tensor out = Tensor::empty(shape, from.dtype());
    for (size_t i = 0; i < order.size(); ++i)
      copy_rows(from, offsets[static_cast<size_t>(order[i])], taken[i], out, to[i]);
    return out;
  };
  SparseData out{as_type(taken, data.lengths), gather(data.values), {}};
  if (data.weights.defined()) out.weights = gather(data.weights);
  return out;
}

}  // namespace

Tensor asynchronous_complete_cumsum(const Tensor& counts) { return running_sums(counts, Ends::kBoth); }
Tensor asynchronous_exclusive_cumsum(const Tensor& counts) { return running_sums(counts, Ends::kFirst); }
Tensor asynchronous_inclusive_cumsum(const Tensor& counts) { return running_sums(counts, Ends::kLast); }

Tensor offsets_range(const Tensor& offsets, int64_t range_size) {
  const std::vector<int64_t> starts = integers(offsets, "offsets");
  std::vector<int64_t> out(static_cast<size_t>(std::max<int64_t>(range_size, 0)));
  for (size_t row = 0; row < starts.size(); ++row) {
    const int64_t end = row + 1 < starts.size() ? starts[row + 1] : range_size;
    if (starts[row] < 0 || end < starts[row] || end > range_size)
      fail(Code::kOutOfRange, "row ", row, " is [", starts[row], ", ", end, "), but there are ", range_size,
           " elements");
    std::iota(out.begin() + starts[row], out.begin() + end, int64_t{0});
  }
  return as_type(out, offsets);
}

Tensor jagged_to_padded_dense(const Tensor& values, std::span<const Tensor> offsets,
                              std::span<const int64_t> max_lengths, double padding) {
  const Levels levels(offsets, max_lengths);
  check_fits(levels, values);
  std::vector<int64_t> shape{levels.rows()};
  for (const int64_t w : levels.widths) shape.push_back(w);
  for (int64_t i = 1; i < values.dim(); ++i) shape.push_back(values.size(i));
  Tensor out = Tensor::empty(shape, values.dtype());
  out.fill(padding);
  levels.each([&](int64_t row, int64_t cell) { copy_rows(values, row, 1, out, cell); });
  return out;
}

Tensor dense_to_jagged(const Tensor& dense, std::span<const Tensor> offsets) {
  const Levels levels(offsets, inner_widths(dense, offsets.size()));
  check_dense(levels, dense);
  std::vector<int64_t> shape{levels.elements()};
  for (int64_t i = 1 + static_cast<int64_t>(offsets.size()); i < dense.dim(); ++i) shape.push_back(dense.size(i));
  Tensor out = Tensor::zeros(shape, dense.dtype());
  std::vector<int64_t> rows = shape;
  rows[0] = -1;
  const Tensor cells = dense.numel() > 0 ? dense.reshape(rows) : dense;
  levels.each([&](int64_t row, int64_t cell) { copy_rows(cells, cell, 1, out, row); });
  return out;
}

Tensor jagged_dense_elementwise_add(const Tensor& values, std::span<const Tensor> offsets, const Tensor& dense) {
  Tensor out = dense.clone();
  zip(values, offsets, dense, [&](int64_t, int64_t at, float v, float d) { out.data<float>()[at] = v + d; });
  return out;
}

Tensor jagged_dense_elementwise_mul(const Tensor& values, std::span<const Tensor> offsets, const Tensor& dense) {
  Tensor out = Tensor::zeros(values.shape());
  zip(values, offsets, dense, [&](int64_t at, int64_t, float v, float d) { out.data<float>()[at] = v * d; });
  return out;
}

Tensor segment_sum_csr(int64_t batch_size, const Tensor& segments, const Tensor& values) {
  const std::vector<int64_t> bounds = integers(segments, "segments");
  if (batch_size < 1) fail(Code::kInvalidArgument, "the batch size must be above 0, not ", batch_size);
  if (bounds.empty() || bounds[0] < 0 || !std::is_sorted(bounds.begin(), bounds.end()) ||
      bounds.back() * batch_size > values.numel())
    fail(Code::kOutOfRange, "segments must not descend, and lead to no more than ", values.numel(), " values");
  if (values.dtype() == DType::kInt64) return sum_segments<int64_t>(batch_size, bounds, values);
  if (values.dtype() == DType::kFloat32) return sum_segments<float>(batch_size, bounds, values);
  fail(Code::kInvalidArgument, "values are ", to_string(values.dtype()), ": give float32 or int64");
}

SparseData permute_2D_sparse_data(const Tensor& permute, const SparseData& data) {
  if (data.lengths.dim() != 2) fail(Code::kInvalidArgument, "lengths must be [keys, bags]");
  const int64_t keys = data.lengths.size(0), bags = data.lengths.size(1);
  std::vector<int64_t> order;
  for (const int64_t key : integers(permute, "permute")) {
    if (key < 0 || key >= keys) fail(Code::kOutOfRange, "key ", key, " is asked for, but there are ", keys);
    for (int64_t b = 0; b < bags; ++b) order.push_back(key * bags + b);
  }
  SparseData out = take_bags(data, integers(data.lengths.reshape({-1}), "lengths"), order);
  out.lengths = out.lengths.reshape({permute.numel(), bags});
  return out;
}

SparseData permute_1D_sparse_data(const Tensor& permute, const SparseData& data) {
  return take_bags(data, integers(data.lengths, "lengths"), integers(permute, "permute"));
}

SparseData keyed_jagged_index_select_dim1(const SparseData& data, const Tensor& indices, int64_t batch_size) {
  if (batch_size < 1 || data.lengths.numel() % batch_size != 0)
    fail(Code::kInvalidArgument, data.lengths.numel(), " lengths are not whole batches of ", batch_size);
  std::vector<int64_t> order;
  for (int64_t key = 0; key < data.lengths.numel() / batch_size; ++key) {
    for (const int64_t i : integers(indices, "indices")) {
      if (i < 0 || i >= batch_size) fail(Code::kOutOfRange, "sample ", i, " is asked for, but there are ", batch_size);
      order.push_back(key * batch_size + i);
    }
  }
  return take_bags(data, integers(data.lengths, "lengths"), order);
}

SparseData jagged_index_select(const Tensor& values, const Tensor& lengths, const Tensor& indices) {
  return take_bags({lengths, values, {}}, integers(lengths, "lengths"), integers(indices, "indices"));
}

Tensor jagged_index_select_backward(const Tensor& grad_values, const Tensor& lengths, const Tensor& indices) {
  const std::vector<int64_t> all = integers(lengths, "lengths"), offsets = offsets_of_lengths(all);
  const int64_t width = sparse::row_width(grad_values);
  Shape shape = grad_values.shape();
  shape[0] = offsets.back();
  Tensor out = Tensor::zeros(shape);
  const std::span<const float> from = grad_values.span<float>();
  size_t at = 0;
  for (const int64_t bag : integers(indices, "indices")) {
    if (bag < 0 || bag >= static_cast<int64_t>(all.size()))
      fail(Code::kOutOfRange, "bag ", bag, " is asked for, but there are ", all.size());
    const int64_t first = offsets[static_cast<size_t>(bag)] * width;
    const int64_t count = all[static_cast<size_t>(bag)] * width;
    if (at + static_cast<size_t>(count) > from.size())
      fail(Code::kInvalidArgument, "the gradient has ", from.size(), " values, which are too few for the indices");
    for (int64_t i = 0; i < count; ++i) out.data<float>()[first + i] += from[at++];
  }
  return out;
}

Tensor invert_permute(const Tensor& permute) {
  const std::vector<int64_t> order = integers(permute, "permute");
  std::vector<int64_t> out(order.size(), -1);
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t to = order[i];
    if (to < 0 || to >= static_cast<int64_t>(out.size()) || out[static_cast<size_t>(to)] != -1)
      fail(Code::kInvalidArgument, "element ", i, ", ", to, ", makes it no permutation of 0 to ", out.size() - 1);
    out[static_cast<size_t>(to)] = static_cast<int64_t>(i);
  }
  return as_type(out, permute);
}

Tensor expand_into_jagged_permute(const Tensor& permute, const Tensor& in_offsets, const Tensor& out_offsets,
                                  int64_t output_size) {
  const std::vector<int64_t> order = integers(permute, "permute"), from = integers(in_offsets, "offsets");
  const std::vector<int64_t> to = integers(out_offsets, "offsets");
  if (to.size() != order.size() + 1)
    fail(Code::kInvalidArgument, "there are ", to.size(), " output offsets for ", order.size(), " rows");
  std::vector<int64_t> out(static_cast<size_t>(std::max<int64_t>(output_size, 0)));
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] < 0 || order[i] + 1 >= static_cast<int64_t>(from.size()))
      fail(Code::kOutOfRange, "row ", order[i], " is asked for, but there are ", std::max<size_t>(from.size(), 1) - 1);
    if (to[i] < 0 || to[i + 1] < to[i] || to[i + 1] > output_size)
      fail(Code::kOutOfRange, "output row ", i, " is [", to[i], ", ", to[i + 1], ") of ", output_size, " elements");
    std::iota(out.begin() + to[i], out.begin() + to[i + 1], from[static_cast<size_t>(order[i])]);
  }
  return as_type(out, permute);
}

}  // namespace tessera

#include <algorithm>

#include "conformance/parity/jagged_ops.h"
#include "sparse/arrays.h"

namespace tessera {
namespace {

struct Home {
  int64_t rank, row;
};

// Finds the rank that has an id of one feature.
class Blocks {
 public:
  Blocks(const BlockBucketizeOptions& options, int64_t feature) : ranks_(static_cast<uint64_t>(options.my_size)) {
    size_ = static_cast<uint64_t>(sparse::integer_at(options.block_sizes, feature));
    if (size_ == 0 || options.my_size < 1)
      fail(Code::kInvalidArgument, "feature ", feature, " needs blocks of at least one row, on at least one rank");
    if (options.boundaries.empty()) return;
    const Tensor& given = options.boundaries.at(static_cast<size_t>(feature));
    if (given.numel() != options.my_size + 1)
      fail(Code::kInvalidArgument, "feature ", feature, " has ", given.numel(), " boundaries, but needs one more than ",
           options.my_size, " ranks");
    for (int64_t i = 0; i < given.numel(); ++i) boundaries_.push_back(sparse::integer_at(given, i));
  }

  Home of(int64_t id) const {
    const auto u = static_cast<uint64_t>(id);
    if (boundaries_.empty()) {
      if (u < size_ * ranks_) return {static_cast<int64_t>(u / size_), static_cast<int64_t>(u % size_)};
    } else {
      const auto next = std::upper_bound(boundaries_.begin(), boundaries_.end(), id);
      if (next != boundaries_.begin() && next != boundaries_.end())
        return {next - boundaries_.begin() - 1, id - *(next - 1)};
    }
    return {static_cast<int64_t>(u % ranks_), static_cast<int64_t>(u / ranks_)};
  }

 private:
  uint64_t ranks_, size_;
  std::vector<int64_t> boundaries_;
};

}  // namespace

BlockBucketized block_bucketize_sparse_features(const SparseData& data, const BlockBucketizeOptions& options) {
  const Tensor lengths = sparse::checked_integers(data.lengths, "lengths");
  const Tensor ids = sparse::checked_integers(data.values, "ids");
  const int64_t features = options.block_sizes.numel(), all = lengths.numel(), n = ids.numel();
  if (features < 1 || all % features != 0)
    fail(Code::kInvalidArgument, all, " lengths are not whole batches of ", features, " features");
  if (!options.boundaries.empty() && static_cast<int64_t>(options.boundaries.size()) != features)
    fail(Code::kInvalidArgument, "there are boundaries of ", options.boundaries.size(), " features, not of ", features);
  if (sparse::sum_of(lengths, 0, all) != n || (data.weights.defined() && data.weights.numel() != n))
    fail(Code::kOutOfRange, "lengths add up to ", sparse::sum_of(lengths, 0, all), ", but there are ", n, " ids");
  std::vector<Blocks> blocks;
  for (int64_t f = 0; f < features; ++f) blocks.emplace_back(options, f);
  // Calls body(element, its bag, its position in the bag).
  const auto each = [&](const auto& body) {
    int64_t at = 0;
    for (int64_t bag = 0; bag < all; ++bag) {
      for (int64_t i = 0; i < sparse::integer_at(lengths, bag); ++i, ++at) body(at, bag, i);
    }
  };
  const auto home = [&](int64_t at, int64_t bag) {
    return blocks[static_cast<size_t>(bag / (all / features))].of(sparse::integer_at(ids, at));
  };
  std::vector<int64_t> counts(static_cast<size_t>(options.my_size * all)), where(static_cast<size_t>(n));
  each([&](int64_t at, int64_t bag, int64_t) { ++counts[static_cast<size_t>(home(at, bag).rank * all + bag)]; });
  std::vector<int64_t> next = sparse::cumulative(counts), rows(static_cast<size_t>(n)), positions(rows);
  const Tensor weights = data.weights.defined() ? Tensor::empty({n}) : Tensor();
  each([&](int64_t at, int64_t bag, int64_t i) {
    const Home to = home(at, bag);
    const int64_t slot = where[static_cast<size_t>(at)] = next[static_cast<size_t>(to.rank * all + bag)]++;
    rows[static_cast<size_t>(slot)] = options.keep_orig_idx ? sparse::integer_at(ids, at) : to.row;
    positions[static_cast<size_t>(slot)] = i;
    if (weights.defined()) weights.data<float>()[slot] = data.weights.data<float>()[at];
  });
  BlockBucketized out;
  out.data = {Tensor::from(counts).to(data.lengths.dtype()), Tensor::from(rows).to(ids.dtype()), weights};
  if (options.bucketize_pos) out.new_pos = Tensor::from(positions).to(ids.dtype());
  if (options.sequence) out.unbucketize_permute = Tensor::from(where).to(ids.dtype());
  return out;
}

}  // namespace tessera

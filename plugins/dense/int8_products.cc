#include "int8_products.h"

#include <numeric>

#include "tessera/sdk/int8_rows.h"

namespace tessera_dense {
namespace {

constexpr int64_t kGroup = 4, kVector = 16, kPanel = 64;

int64_t groups_of(int64_t in) { return (in + kGroup - 1) / kGroup; }
int64_t padded(int64_t out) { return (out + kVector - 1) / kVector * kVector; }

}  // namespace

// Takes memory that no call uses, or makes some, and gives it back when the call ends.
class Int8Products::Borrowed {
 public:
  explicit Borrowed(Int8Products& from) : from_(from) {
    const std::lock_guard held(from.lock_);
    if (from.free_.empty()) {
      rows_ = std::make_unique<Rows>();
    } else {
      rows_ = std::move(from.free_.back());
      from.free_.pop_back();
    }
  }
  ~Borrowed() {
    const std::lock_guard held(from_.lock_);
    from_.free_.push_back(std::move(rows_));
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  Rows* operator->() const { return rows_.get(); }

 private:
  Int8Products& from_;
  std::unique_ptr<Rows> rows_;
};

// Panels of up to 64 outputs follow each other. In a panel, the 4 weights of a group of inputs are side by side, output
// by output, and groups follow each other. Missing inputs and outputs are zeros.
void Int8Products::pack(size_t i, int64_t in, int64_t out, const float* w) {
  if (matrices_.size() <= i) matrices_.resize(i + 1);
  Matrix& m = matrices_[i];
  const int64_t groups = groups_of(in), columns = padded(out);
  const auto bytes = static_cast<uint64_t>(columns * groups * kGroup);
  m.in = in, m.out = out;
  if (m.w.bytes() < bytes) m.w = tessera::sdk::Buffer(host_, bytes);
  m.scales.assign(static_cast<size_t>(columns), 0);
  m.sums.assign(static_cast<size_t>(columns), 0);
  auto* const to = m.w.data<int8_t>();
  std::fill_n(to, bytes, int8_t{0});
  std::vector<int8_t> row(static_cast<size_t>(in));
  for (int64_t c = 0; c < out; ++c) {
    const auto column = static_cast<size_t>(c);
    m.scales[column] = tessera::sdk::round_to_int8(w + c * in, in, row.data());
    m.sums[column] = std::accumulate(row.begin(), row.end(), int32_t{0});
    const int64_t first = c / kPanel * kPanel, width = std::min(kPanel, columns - first);
    int8_t* const panel = to + first * groups * kGroup + (c - first) * kGroup;
    for (int64_t k = 0; k < in; ++k) panel[k / kGroup * width * kGroup + k % kGroup] = row[static_cast<size_t>(k)];
  }
}

void Int8Products::multiply(size_t i, int64_t rows, const float* x, int64_t x_stride, float* y, int64_t stride) {
  constexpr int64_t kMost = 96;  // rows that fit into the caches together with a panel
  const Matrix& m = matrices_[i];
  const int64_t groups = groups_of(m.in), bytes = groups * kGroup;
  const Borrowed own(*this);
  const int64_t most = std::min(rows, kMost);
  if (own->x.bytes() < static_cast<uint64_t>(most * bytes))
    own->x = tessera::sdk::Buffer(host_, static_cast<uint64_t>(most * bytes));
  if (std::ssize(own->of_rows) < most) own->of_rows.resize(static_cast<size_t>(most));
  for (; rows > 0; rows -= kMost, x += kMost * x_stride, y += kMost * stride) {
    const int64_t now = std::min(rows, kMost);
    auto* const rounded = own->x.data<uint8_t>();
    const int64_t together = x_stride == m.in ? now : 1;
    for (int64_t r = 0; r < now; r += together)
      kernels_.round_rows(together, m.in, x + r * x_stride, bytes, rounded + r * bytes, own->of_rows.data() + r);
    kernels_.multiply({now, groups, m.out, rounded, own->of_rows.data(), m.w.data<int8_t>(), m.scales.data(),
                       m.sums.data(), y, stride});
  }
}

}  // namespace tessera_dense

#include "onnx/import_axes.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "onnx/constants.h"

namespace tessera::cli {
namespace {

// A size in a constant: a number times the number of samples, of rows, or of both.
struct OpenSize {
  bool batch = false, length = false;
  int64_t number = 1;
};

OpenSize open_size(double value) {
  const double size = std::abs(value), batch = -kBatchSize, length = -kLengthSize;
  OpenSize out;
  out.length = size >= length / 2;
  out.batch = out.length ? size >= batch * length / 2 : size >= batch / 2;
  out.number = whole_number(size / (out.batch ? batch : 1) / (out.length ? length : 1));
  return out;
}

Axes flattened(const std::vector<Axes>& dims) {
  Axes out;
  for (const Axes& d : dims) out.insert(out.end(), d.begin(), d.end());
  return out;
}

// Takes the axes of one dimension from the front or the back of the remaining axes.
class Taker {
 public:
  Taker(ImportValue& x, bool front) : x_(x), front_(front) {}

  bool take(std::deque<int>& left, double size, Axes& out) {
    OpenSize wanted = open_size(size);
    if (x_.rows > 0 && wanted.length) return false;
    while (wanted.batch || wanted.length || wanted.number > 1) {
      if (left.empty()) return false;
      const int axis = front_ ? left.front() : left.back();
      if (axis == kBatchAxis || (axis == kLengthAxis && x_.rows == 0)) {
        bool& asked = axis == kBatchAxis ? wanted.batch : wanted.length;
        if (!asked) return false;
        asked = false;
      } else {
        const int64_t own = axis == kLengthAxis ? x_.rows : x_.factors[static_cast<size_t>(axis)];
        if (wanted.number % own == 0) {
          wanted.number /= own;
        } else if (axis >= 0 && wanted.number > 1 && own % wanted.number == 0) {
          split(left, static_cast<size_t>(axis), front_ ? wanted.number : own / wanted.number);
          wanted.number = 1;
        } else {
          return false;
        }
      }
      out.insert(front_ ? out.end() : out.begin(), front_ ? left.front() : left.back());
      front_ ? left.pop_front() : left.pop_back();
    }
    return true;
  }

 private:
  // Splits a part of the width in two. The first one has `outer` places.
  void split(std::deque<int>& left, size_t part, int64_t outer) {
    const int inner = static_cast<int>(part) + 1;
    x_.factors.insert(x_.factors.begin() + inner, x_.factors[part] / outer);
    x_.factors[part] = outer;
    for (Axes& d : x_.dims) {
      for (int& axis : d) axis += axis >= inner ? 1 : 0;
    }
    for (int& axis : left) axis += axis >= inner ? 1 : 0;
    const auto at = std::find(left.begin(), left.end(), inner - 1);
    left.insert(at + 1, inner);
  }

  ImportValue& x_;
  bool front_;
};

}  // namespace

void begin_axes(ImportValue& x) {
  x.sequence = true;
  x.dims = {{kBatchAxis}, {kLengthAxis}};
  x.factors = {x.width()};
  if (!x.flat) x.dims.push_back({0});
}

Axes all_parts(const ImportValue& x) {
  Axes out(x.factors.size());
  std::iota(out.begin(), out.end(), 0);
  return out;
}

bool ends_in_columns(const ImportValue& x) {
  if (x.flat) return x.dims == std::vector<Axes>{{kBatchAxis}, {kLengthAxis}};
  return x.form == ValueForm::kRow && !x.dims.empty() && x.dims.back() == all_parts(x);
}

bool is_in_order(const ImportValue& x) {
  return x.form == ValueForm::kRow && x.dims == std::vector<Axes>{{kBatchAxis}, {kLengthAxis}, all_parts(x)};
}

double size_of(const ImportValue& x, const Axes& dimension) {
  double out = 1;
  for (const int axis : dimension) {
    const double rows = x.rows > 0 ? static_cast<double>(x.rows) : kLengthSize;
    out *= axis == kBatchAxis    ? kBatchSize
           : axis == kLengthAxis ? rows
                                 : static_cast<double>(x.factors[static_cast<size_t>(axis)]);
  }
  return out;
}

bool reshape_axes(ImportValue& x, const std::vector<double>& sizes) {
  std::vector<double> wanted = sizes;
  for (size_t d = 0; d < wanted.size(); ++d) {
    const bool negative = wanted[d] < -1 && wanted[d] > kBatchSize;
    if (negative || (wanted[d] == 0 && d >= x.dims.size())) return false;
    if (wanted[d] == 0) wanted[d] = size_of(x, x.dims[d]);
  }
  const auto rest = std::find(wanted.begin(), wanted.end(), -1) - wanted.begin();
  const Axes all = flattened(x.dims);
  std::deque<int> left(all.begin(), all.end());
  std::vector<Axes> dims(wanted.size());
  ImportValue out = x;
  out.dims.clear();
  const auto size = static_cast<std::ptrdiff_t>(wanted.size());
  const auto take = [&](std::ptrdiff_t d, bool front) {
    // Parts of the width that are split move those behind them, in dimensions that are ready too.
    out.dims = dims;
    const bool taken = Taker(out, front).take(left, wanted[static_cast<size_t>(d)], out.dims[static_cast<size_t>(d)]);
    dims = out.dims;
    return taken;
  };
  for (std::ptrdiff_t d = 0; d < std::min(rest, size); ++d) {
    if (!take(d, true)) return false;
  }
  for (std::ptrdiff_t d = size - 1; d > rest; --d) {
    if (!take(d, false)) return false;
  }
  if (rest < size) dims[static_cast<size_t>(rest)] = Axes(left.begin(), left.end());
  if (rest == size && !left.empty()) return false;
  out.dims = dims;
  x = out;
  return true;
}

int64_t heads_of(const ImportValue& x, bool turned) {
  if (x.form != ValueForm::kRow || x.flat || x.dims.size() < 3) return 0;
  const size_t last = x.dims.size() - 1;
  if (x.dims[turned ? last : last - 1] != Axes{kLengthAxis}) return 0;
  Axes front = flattened({x.dims.begin(), x.dims.end() - 2}), columns = x.dims[turned ? last - 1 : last];
  if (front.empty() || front.front() != kBatchAxis) return 0;
  int64_t heads = 1;
  for (size_t k = 1; k < front.size(); ++k) {
    if (front[k] < 0) return 0;
    heads *= x.factors[static_cast<size_t>(front[k])];
  }
  Axes order(front.begin() + 1, front.end());
  order.insert(order.end(), columns.begin(), columns.end());
  return order == all_parts(x) ? heads : 0;
}

}  // namespace tessera::cli

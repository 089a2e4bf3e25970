#include "distributed/host_row_moves.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

namespace tessera {
namespace {

void copy_row(const float* from, int64_t n, float* to) { std::memcpy(to, from, n * sizeof(float)); }
void scale_row(const float* from, float scale, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = scale * from[i];
}
void add_row(const float* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}
void add_scaled_row(const float* from, float scale, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] += scale * from[i];
}

// Calls body(cols). Usual widths are passed as constants, because copies of a known length are only a few instructions.
template <class Body>
void with_width(int64_t cols, const Body& body) {
  switch (cols) {
    case 8:
      return body(std::integral_constant<int64_t, 8>{});
    case 16:
      return body(std::integral_constant<int64_t, 16>{});
    case 32:
      return body(std::integral_constant<int64_t, 32>{});
    case 64:
      return body(std::integral_constant<int64_t, 64>{});
    case 128:
      return body(std::integral_constant<int64_t, 128>{});
    default:
      return body(cols);
  }
}

// A target is combined in parts that stay in the cache from run to run. The flags of rows that were written are on the
// stack.
constexpr int64_t kMostRows = 1024, kFewestRows = 64;
constexpr int64_t kPartElements = 16384;

int64_t rows_of_part(int64_t rows, int64_t cols) {
  if (rows <= kFewestRows) return kFewestRows;
  return std::clamp(kPartElements / std::max<int64_t>(cols, 1), kFewestRows, kMostRows);
}

struct TargetPart {
  const RowTarget& target;
  int64_t first, last;  // rows
  int64_t rows() const { return last - first; }
};

// The rows of a run that are in one part of its target.
struct RunPart {
  RunPart(const RowRun& of, const TargetPart& part)
      : run(of), first(0), last(of.rows), all(of.rows == part.target.rows && !part.target.repeats) {
    if (part.rows() == part.target.rows) return;
    if (all) {
      first = part.first;
      last = part.last;
      return;
    }
    first = std::lower_bound(run.bags, run.bags + run.rows, part.first) - run.bags;
    last = std::lower_bound(run.bags + first, run.bags + run.rows, part.last) - run.bags;
  }
  RunPart(const RowRun& of, int64_t begin, int64_t end) : run(of), first(begin), last(end), all(false) {}
  const RowRun& run;
  int64_t first, last;
  bool all;  // the run has a row for each row of the target, in the same order
};

// Rows of a target are far apart, so hardware cannot prefetch them. They are prefetched this many bags ahead.
constexpr int64_t kBagsAhead = 8;
constexpr int64_t kCacheLine = 64 / sizeof(float);
constexpr int64_t kSumCols = 32;  // summed by one thread

// A target's rows at a run's first column.
template <class Width, class T>
struct SpreadRows {
  T* begin;  // of bag 0
  int64_t stride;
  Width cols;

  T* of(int64_t bag) const { return begin + bag * stride; }
  void ask_for(int32_t bag) const {
    for (int64_t i = 0; i < cols; i += kCacheLine) __builtin_prefetch(of(bag) + i, !std::is_const_v<T>);
  }
};

// Calls body(bag, packed row, spread row) for all rows of a part of a run. Arguments are passed by value: otherwise the
// compiler would have to assume that writing a row changes them.
template <class Width, class Packed, class Spread, class Body>
void each_row(const RunPart& part, Packed* packed, const SpreadRows<Width, Spread> spread, const Body body) {
  const int32_t* const bags = part.run.bags;
  const int64_t stride = part.run.stride, last = part.last;
  const int64_t ahead = std::max(std::min(last, part.run.rows - kBagsAhead), part.first);
  Packed* const begin = packed + part.run.begin;
  const int32_t* const index = part.run.index;
  const auto row = [=](int64_t k) { return begin + (index ? index[k] : k) * stride; };
  int64_t k = part.first;
  for (; k < ahead; ++k) {
    spread.ask_for(bags[k + kBagsAhead]);
    body(bags[k], row(k), spread.of(bags[k]));
  }
  for (; k < last; ++k) body(bags[k], row(k), spread.of(bags[k]));
}

// Writes the rows of a run, if no other run has rows for these elements.
template <class Width>
void write_run(const RunPart& part, const float* scale, const float* packed, const SpreadRows<Width, float>& spread) {
  const Width cols = spread.cols;
  if (part.all && !scale && !part.run.index && part.run.stride == cols && spread.stride == cols) {
    copy_row(packed + part.run.begin + part.first * cols, (part.last - part.first) * cols, spread.of(part.first));
    return;
  }
  if (scale) {
    each_row(part, packed, spread,
             [=](int32_t bag, const float* row, float* to) { scale_row(row, scale[bag], cols, to); });
  } else {
    each_row(part, packed, spread, [=](int32_t, const float* row, float* to) { copy_row(row, cols, to); });
  }
}

template <class Width>
void add_run(const RunPart& part, const float* scale, const float* packed, const SpreadRows<Width, float>& spread) {
  const Width cols = spread.cols;
  if (scale) {
    each_row(part, packed, spread,
             [=](int32_t bag, const float* row, float* to) { add_scaled_row(row, scale[bag], cols, to); });
  } else {
    each_row(part, packed, spread, [=](int32_t, const float* row, float* to) { add_row(row, cols, to); });
  }
}

// Tells which rows of a part of a target were written.
struct Written {
  explicit Written(const TargetPart& p) : part(p) { std::memset(rows.data(), 0, static_cast<size_t>(p.rows())); }
  uint8_t& of(int32_t bag) { return rows[static_cast<size_t>(bag - part.first)]; }
  void mark(const RunPart& run) {
    for (int64_t k = run.first; k < run.last; ++k) of(run.run.bags[k]) = 1;
  }
  // Sets the rows that were not written to 0.
  template <class Width>
  void fill_others(const SpreadRows<Width, float>& spread) const {
    const auto n = static_cast<size_t>(part.rows());
    if (n == 0 || std::memchr(rows.data(), 0, n) == nullptr) return;
    std::array<int32_t, kMostRows> others;
    int64_t count = 0;
    for (size_t b = 0; b < n; ++b) {
      others[static_cast<size_t>(count)] = static_cast<int32_t>(part.first) + static_cast<int32_t>(b);
      count += rows[b] == 0;
    }
    for (int64_t k = 0; k < count; ++k) {
      if (k + kBagsAhead < count) spread.ask_for(others[static_cast<size_t>(k + kBagsAhead)]);
      std::fill_n(spread.of(others[static_cast<size_t>(k)]), spread.cols, 0.0f);
    }
  }

  const TargetPart& part;
  std::array<uint8_t, kMostRows> rows;
};

// Combines one of several runs of the same columns: the first run with a row for a bag writes it, later ones add to it.
template <class Width>
void write_or_add_run(const RunPart& part, const float* scale, const float* packed,
                      const SpreadRows<Width, float>& spread, Written& written) {
  const Width cols = spread.cols;
  uint8_t* const marks = written.rows.data();
  const int64_t first = written.part.first;
  each_row(part, packed, spread, [=](int32_t bag, const float* row, float* to) {
    const bool again = std::exchange(marks[bag - first], uint8_t{1}) != 0;
    if (scale && again)
      add_scaled_row(row, scale[bag], cols, to);
    else if (scale)
      scale_row(row, scale[bag], cols, to);
    else if (again)
      add_row(row, cols, to);
    else
      copy_row(row, cols, to);
  });
}

// Combines the runs of the same columns of a target with kFirstWrites.
template <class Width>
void combine_columns(std::span<const RowRun> runs, const TargetPart& part, const float* scale, const float* packed,
                     const SpreadRows<Width, float>& spread) {
  if (runs.size() == 1) {
    const RunPart only(runs[0], part);
    if (!only.run.is_local) write_run(only, scale, packed, spread);
    if (only.last - only.first == part.rows()) return;
    Written written(part);
    written.mark(only);
    written.fill_others(spread);
    return;
  }
  Written written(part);
  for (const RowRun& run : runs) {
    if (run.is_local) written.mark(RunPart(run, part));
  }
  for (const RowRun& run : runs) {
    if (!run.is_local) write_or_add_run(RunPart(run, part), scale, packed, spread, written);
  }
  written.fill_others(spread);
}

// Counts the runs, from the first one on, that have its columns.
size_t of_same_columns(std::span<const RowRun> runs) {
  size_t n = 1;
  while (n < runs.size() && runs[n].col == runs[0].col && runs[n].cols == runs[0].cols) ++n;
  return n;
}

void fill_zeros(const TargetPart& part, float* spread) {
  const RowTarget& target = part.target;
  for (int64_t b = part.first; b < part.last; ++b)
    std::fill_n(spread + target.begin + b * target.stride, target.cols, 0.0f);
}

const float* scale_of(const RowMoves& moves, const RowTarget& target) {
  return target.scale < 0 ? nullptr : moves.scales.data() + target.scale;
}

bool covers(std::span<const RowRun> runs, const RowTarget& target) {
  int64_t elements = 0;
  for (const RowRun& run : runs) elements += run.rows * run.cols;
  return elements == target.rows * target.cols;
}

// Calls body(first, last) for each part of `rows`.
template <class Body>
void each_part(int64_t rows, int64_t cols, const Body& body) {
  const int64_t step = rows_of_part(rows, cols);
  for (int64_t first = 0; first < rows; first += step) body(first, std::min(first + step, rows));
}

// Does the same for a target. If its runs repeat bags, it is one part.
template <class Body>
void each_part(const RowTarget& target, const Body& body) {
  if (!target.repeats)
    each_part(target.rows, target.cols, body);
  else if (target.rows > 0)
    body(0, target.rows);
}

// Counts the bytes that are read and written.
int64_t bytes_of(std::span<const RowRun> runs) {
  int64_t elements = 0;
  for (const RowRun& run : runs) elements += run.rows * run.cols;
  return elements * 2 * static_cast<int64_t>(sizeof(float));
}

void combine_part(const RowMoves& moves, const TargetPart& part, std::span<const RowRun> runs, const float* packed,
                  float* spread) {
  const RowTarget& target = part.target;
  const float* scale = scale_of(moves, target);
  const bool columns_together = target.meet == RowsMeet::kFirstWrites;
  if (target.meet == RowsMeet::kAllAdd || (target.meet == RowsMeet::kNever && !covers(runs, target)))
    fill_zeros(part, spread);
  for (size_t n = 0; !runs.empty(); runs = runs.subspan(n)) {
    n = columns_together ? of_same_columns(runs) : 1;
    with_width(runs[0].cols, [&](auto cols) {
      const SpreadRows<decltype(cols), float> to{spread + target.begin + runs[0].col, target.stride, cols};
      if (columns_together)
        combine_columns(runs.first(n), part, scale, packed, to);
      else if (target.meet == RowsMeet::kAllAdd)
        add_run(RunPart(runs[0], part), scale, packed, to);
      else
        write_run(RunPart(runs[0], part), scale, packed, to);
    });
  }
}

void split_run(const RowMoves& moves, const RowTarget& target, const RunPart& part, float* packed,
               const float* spread) {
  const float* scale = scale_of(moves, target);
  with_width(part.run.cols, [&](auto cols) {
    const SpreadRows<decltype(cols), const float> from{spread + target.begin + part.run.col, target.stride, cols};
    if (scale) {
      each_row(part, packed, from,
               [=](int32_t bag, float* row, const float* of_bag) { scale_row(of_bag, scale[bag], cols, row); });
    } else {
      each_row(part, packed, from, [=](int32_t, float* row, const float* of_bag) { copy_row(of_bag, cols, row); });
    }
  });
}

// Sums packed rows that several places share, in columns [first, last). `head` is the run with the first places; other
// runs with its `begin` have more.
void sum_places(const RowMoves& moves, const RowRun& head, int64_t first, int64_t last, float* packed,
                const float* spread) {
  for (const RowTarget& target : moves.targets) {
    const float* scale = scale_of(moves, target);
    for (const RowRun& run : moves.of(target)) {
      if (!run.index || run.begin != head.begin) continue;
      const SpreadRows<int64_t, const float> from{spread + target.begin + run.col + first, target.stride, last - first};
      float* const rows = packed + run.begin + first;
      int32_t fresh = run.fresh;
      for (int64_t k = 0; k < run.rows; ++k) {
        if (k + kBagsAhead < run.rows) from.ask_for(run.bags[k + kBagsAhead]);
        const float* const row = from.of(run.bags[k]);
        float* const to = rows + run.index[k] * run.stride;
        const float factor = scale ? scale[run.bags[k]] : 1;
        if (run.index[k] == fresh)
          scale_row(row, factor, from.cols, to), ++fresh;
        else
          add_scaled_row(row, factor, from.cols, to);
      }
    }
  }
}

}  // namespace

void HostRowMoves::combine(const RowMoves& moves, const float* packed, float* spread) {
  const auto one = [&](const RowTarget& target, int64_t first, int64_t last) {
    combine_part(moves, {target, first, last}, moves.of(target), packed, spread);
  };
  const int64_t bytes = bytes_of(moves.runs);
  if (!workers_.worth(bytes)) {
    for (const RowTarget& target : moves.targets)
      each_part(target, [&](int64_t first, int64_t last) { one(target, first, last); });
    return;
  }
  parts_.clear();
  for (const RowTarget& target : moves.targets)
    each_part(target, [&](int64_t first, int64_t last) { parts_.push_back({&target, nullptr, first, last}); });
  workers_.run(std::ssize(parts_), bytes, [&](int64_t i) {
    const Part& part = parts_[static_cast<size_t>(i)];
    one(*part.target, part.first, part.last);
  });
}

void HostRowMoves::combine_target(const RowMoves& moves, const RowTarget& target, const float* rows,
                                  float* spread) const {
  RowRun run = moves.of(target).front();
  run.begin = 0;
  const int64_t step = target.repeats ? std::max<int64_t>(target.rows, 1) : rows_of_part(target.rows, target.cols);
  workers_.run((target.rows + step - 1) / step, bytes_of(std::span(&run, 1)), [&](int64_t i) {
    const int64_t first = i * step;
    combine_part(moves, {target, first, std::min(first + step, target.rows)}, std::span(&run, 1), rows, spread);
  });
}

void HostRowMoves::split(const RowMoves& moves, float* packed, const float* spread) {
  const int64_t bytes = bytes_of(moves.runs);
  const bool together = workers_.worth(bytes);
  parts_.clear();
  for (const RowTarget& target : moves.targets) {
    for (const RowRun& run : moves.of(target)) {
      if (run.is_local) continue;
      if (run.index) {  // one thread sums all places of a row, for some of the columns
        const int64_t cols = together ? kSumCols : run.cols;
        for (int64_t col = 0; run.fresh == 0 && col < run.cols; col += cols)
          parts_.push_back({&target, &run, col, std::min(col + cols, run.cols)});
      } else if (together)
        each_part(run.rows, run.cols, [&](int64_t first, int64_t last) {
          parts_.push_back({&target, &run, first, last});
        });
      else
        split_run(moves, target, RunPart(run, 0, run.rows), packed, spread);
    }
  }
  workers_.run(std::ssize(parts_), bytes, [&](int64_t i) {
    const Part& part = parts_[static_cast<size_t>(i)];
    if (part.run->index) return sum_places(moves, *part.run, part.first, part.last, packed, spread);
    split_run(moves, *part.target, RunPart(*part.run, part.first, part.last), packed, spread);
  });
}

}  // namespace tessera

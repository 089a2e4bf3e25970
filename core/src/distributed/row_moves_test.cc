// The host's loops beside what row_moves.h says, element by element.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "distributed/host_row_moves.h"
#include "tessera/runtime.h"

namespace tessera {
namespace {

Workers threads() {
  static const Runtime runtime({.default_path = false, .threads = 3});
  return Workers(runtime.host());
}

// A target with runs, and the tensors that they move between.
class Case {
 public:
  Case(RowsMeet meet, int64_t rows, bool scaled) : random_(static_cast<uint32_t>(rows)) {
    target_.rows = rows;
    target_.begin = 3;
    packed_ = {1, 2};
    target_.meet = meet;
    if (!scaled) return;
    target_.scale = 2;
    for (int64_t b = 0; b < rows + 2; ++b) scales_.push_back(value());
  }

  // For the bags of which `has` says so.
  template <class Has>
  Case& run(int64_t col, int64_t cols, const Has& has, bool is_local = false) {
    std::vector<int32_t>& bags = lists_.emplace_back();
    for (int64_t b = 0; b < target_.rows; ++b) {
      if (has(b)) bags.push_back(static_cast<int32_t>(b));
    }
    return add(col, cols, is_local);
  }
  // A run that names them in this order, each packed row wider than it needs to be.
  Case& repeating(int64_t cols, std::vector<int32_t> bags) {
    target_.repeats = true;
    lists_.push_back(std::move(bags));
    return add(0, cols, false, 5);
  }

  void check() {
    finish();
    std::vector<float> spread(static_cast<size_t>(target_.begin + target_.rows * target_.stride));
    std::generate(spread.begin(), spread.end(), [&] { return value(); });
    std::vector<float> want = spread;
    combine_simply(want);
    std::vector<float> packed = packed_;
    const std::vector<float> before = spread;
    HostRowMoves().combine(moves_, packed.data(), spread.data());
    EXPECT_EQ(packed, packed_);
    ASSERT_EQ(spread, want);
    spread = before;
    HostRowMoves with_threads(threads());
    with_threads.combine(moves_, packed.data(), spread.data());
    ASSERT_EQ(spread, want);
    if (runs_.size() == 1 && !runs_[0].is_local) {
      std::generate(spread.begin() + target_.begin, spread.end(), [&] { return value(); });
      const std::vector<float> others = spread;
      with_threads.combine_target(moves_, moves_.targets[0], packed.data() + runs_[0].begin, spread.data());
      want = others;
      combine_simply(want);
      ASSERT_EQ(spread, want);
    }
    std::vector<float> back = packed_;
    split_simply(spread, back);
    HostRowMoves().split(moves_, packed.data(), spread.data());
    EXPECT_EQ(spread, want);
    ASSERT_EQ(packed, back);
    packed = packed_;
    with_threads.split(moves_, packed.data(), spread.data());
    ASSERT_EQ(packed, back);
  }

 private:
  // Whole numbers: sums of a few products are exact.
  float value() { return static_cast<float>(static_cast<int>(random_() % 2001) - 1000); }

  Case& add(int64_t col, int64_t cols, bool is_local, int64_t gap = 0) {
    RowRun run;
    run.begin = static_cast<int64_t>(packed_.size());
    run.stride = cols + gap;
    run.rows = std::ssize(lists_.back());
    run.col = col;
    run.cols = cols;
    run.is_local = is_local;
    runs_.push_back(run);
    for (int64_t i = 0; i < run.rows * run.stride; ++i) packed_.push_back(value());
    target_.cols = std::max(target_.cols, col + cols);
    target_.stride = target_.cols + 1;
    return *this;
  }

  void finish() {
    moves_.scales = scales_;
    moves_.add(target_);
    for (size_t i = 0; i < runs_.size(); ++i) {
      runs_[i].bags = lists_[i].data();
      moves_.add(runs_[i]);
    }
  }

  // body(packed element, spread element, bag, run) over all runs, row by row.
  template <class Body>
  void each_element(const Body& body) const {
    for (const RowRun& run : runs_) {
      for (int64_t k = 0; k < run.rows; ++k) {
        for (int64_t c = 0; c < run.cols; ++c) {
          body(run.begin + k * run.stride + c, target_.begin + run.bags[k] * target_.stride + run.col + c, run.bags[k],
               run);
        }
      }
    }
  }
  float scale(int32_t bag) const { return target_.scale < 0 ? 1 : scales_[static_cast<size_t>(target_.scale + bag)]; }

  void combine_simply(std::vector<float>& spread) const {
    const std::vector<float> before = spread;
    std::map<int64_t, bool> written;
    for (int64_t b = 0; b < target_.rows; ++b) {
      for (int64_t c = 0; c < target_.cols; ++c)
        spread[static_cast<size_t>(target_.begin + b * target_.stride + c)] = 0;
    }
    each_element([&](int64_t, int64_t to, int32_t, const RowRun& run) {
      if (!run.is_local) return;
      spread[static_cast<size_t>(to)] = before[static_cast<size_t>(to)];
      written[to] = true;
    });
    each_element([&](int64_t from, int64_t at, int32_t bag, const RowRun& run) {
      if (run.is_local) return;
      float& to = spread[static_cast<size_t>(at)];
      const float term = scale(bag) * packed_[static_cast<size_t>(from)];
      to = written[at] ? to + term : term;
      written[at] = true;
    });
  }
  void split_simply(const std::vector<float>& spread, std::vector<float>& packed) const {
    each_element([&](int64_t to, int64_t from, int32_t bag, const RowRun& run) {
      if (!run.is_local) packed[static_cast<size_t>(to)] = scale(bag) * spread[static_cast<size_t>(from)];
    });
  }

  std::mt19937 random_;
  RowTarget target_;
  std::vector<RowRun> runs_;
  std::vector<std::vector<int32_t>> lists_;
  std::vector<float> scales_, packed_;
  RowMoves moves_;
};

const auto kAll = [](int64_t) { return true; };
const auto kNone = [](int64_t) { return false; };
// Some of few rows; of many, parts with all, none and some of them.
const auto kSome = [](int64_t b) { return b % 3 != 1 && b / 1500 % 2 == 0; };
const auto kOthers = [](int64_t b) { return b % 5 < 3 || b > 2000; };

// Fewer rows than are looked ahead, some, and more than one part of a target.
class Rows : public testing::TestWithParam<std::tuple<int64_t, bool>> {
 protected:
  static Case of(RowsMeet meet) { return {meet, std::get<0>(GetParam()), std::get<1>(GetParam())}; }
};

TEST_P(Rows, OneRun) {
  for (const int64_t cols : {8, 12, 64}) {
    of(RowsMeet::kFirstWrites).run(0, cols, kAll).check();
    of(RowsMeet::kFirstWrites).run(0, cols, kSome).check();
    of(RowsMeet::kFirstWrites).run(0, cols, kNone).check();
  }
  of(RowsMeet::kFirstWrites).run(0, 4, kSome).run(4, 16, kOthers).check();
}

TEST_P(Rows, RunsOfTheSameColumns) {
  of(RowsMeet::kFirstWrites).run(0, 16, kSome).run(0, 16, kOthers).check();
  of(RowsMeet::kFirstWrites).run(0, 16, kAll).run(0, 16, kAll).run(0, 16, kSome).check();
  of(RowsMeet::kFirstWrites).run(0, 3, kSome).run(0, 3, kNone).run(3, 8, kOthers).run(3, 8, kSome).check();
}

TEST_P(Rows, AllAdd) { of(RowsMeet::kAllAdd).run(0, 16, kSome).run(0, 8, kOthers).run(8, 8, kSome).check(); }

TEST_P(Rows, NeverMeet) {
  const auto rest = [](int64_t b) { return !kSome(b); };
  of(RowsMeet::kNever).run(0, 16, kSome).run(0, 16, rest).check();
  of(RowsMeet::kNever).run(0, 16, kSome).check();
}

INSTANTIATE_TEST_SUITE_P(Targets, Rows, testing::Combine(testing::Values(1, 7, 200, 5000), testing::Bool()));

TEST(RowMoves, RowsThatStayCountAsWritten) {
  for (const int64_t rows : {7, 3000}) {
    Case(RowsMeet::kFirstWrites, rows, false).run(0, 16, kSome, true).check();
    Case(RowsMeet::kFirstWrites, rows, false).run(0, 16, kSome).run(0, 16, kOthers, true).check();
  }
}

TEST(RowMoves, BagsMayRepeat) {
  std::vector<int32_t> bags;
  for (int32_t i = 0; i < 4000; ++i) bags.push_back(i * 7919 % 1999);
  Case(RowsMeet::kAllAdd, 2000, false).repeating(8, bags).check();
  Case(RowsMeet::kAllAdd, 2, false).repeating(5, {1, 1, 0, 1}).check();
}

TEST(RowMoves, TargetsWithoutRows) {
  Case(RowsMeet::kFirstWrites, 0, false).run(0, 16, kAll).check();
  Case(RowsMeet::kAllAdd, 0, false).repeating(8, {}).check();
}

// Places of two targets share packed rows. The sums of a row's places are in their order on any number of threads.
TEST(RowMoves, PlacesShareRows) {
  constexpr int64_t kCols = 64, kPlaces = 6000;
  constexpr int32_t kDistinct = 700;
  std::vector<float> spread(2 * kPlaces * kCols), packed(kDistinct * kCols, -1), want = packed, back = spread;
  std::mt19937 random(5);
  for (float& x : spread) x = static_cast<float>(random() % 1000) / 7;
  std::vector<int32_t> bags(kPlaces), index;  // rows are numbered by their first place
  std::iota(bags.begin(), bags.end(), 0);
  int32_t fresh = 0, of_second = 0;
  for (int64_t k = 0; k < 2 * kPlaces; ++k) {
    if (k == kPlaces) of_second = fresh;
    const bool next = fresh == 0 || (fresh < kDistinct && random() % 4 == 0);
    index.push_back(next ? fresh++ : static_cast<int32_t>(random() % static_cast<uint32_t>(fresh)));
  }
  ASSERT_EQ(fresh, kDistinct);
  std::vector<bool> written(kDistinct);
  for (int64_t k = 0; k < 2 * kPlaces; ++k) {
    const auto row = static_cast<size_t>(index[static_cast<size_t>(k)]);
    for (size_t c = 0; c < kCols; ++c) {
      const float place = spread[static_cast<size_t>(k) * kCols + c];
      want[row * kCols + c] = written[row] ? want[row * kCols + c] + place : place;
    }
    written[row] = true;
  }
  RowMoves moves;
  for (int64_t t = 0; t < 2; ++t) {
    moves.add(RowTarget{kPlaces, kCols, t * kPlaces * kCols, kCols});
    moves.targets.back().meet = RowsMeet::kNever;
    RowRun& run = moves.add_run();
    run.stride = run.cols = kCols;
    run.bags = bags.data();
    run.rows = kPlaces;
    run.index = index.data() + t * kPlaces;
    run.fresh = t == 0 ? 0 : of_second;
  }
  for (const Workers& workers : {Workers(), threads()}) {
    HostRowMoves host(workers);
    host.split(moves, packed.data(), spread.data());
    EXPECT_EQ(packed, want);
    host.combine(moves, packed.data(), back.data());
    for (size_t i = 0; i < back.size(); ++i)
      ASSERT_EQ(back[i], want[static_cast<size_t>(index[i / kCols]) * kCols + i % kCols]) << i;
  }
}

}  // namespace
}  // namespace tessera

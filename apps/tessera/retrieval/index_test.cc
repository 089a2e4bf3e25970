// Searches by indexes: the component hnsw, and components that answer wrongly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "config/test_refusal.h"
#include "retrieval/approximate_index.h"
#include "tessera/error.h"
#include "tessera/sdk/draft/index.h"

namespace tessera::retrieval {
namespace {

Tensor random_vectors(int64_t items, int64_t dim, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor out = Tensor::empty({items, dim});
  for (float& x : out.span<float>()) x = normal(random);
  return out;
}

struct Answer {
  bool found = false;
  std::vector<int32_t> items;
  std::vector<float> scores;
};
Answer index_answer(const ApproximateIndex& index, const ItemIndex& exact, std::span<const float> query, int64_t k) {
  Answer out{false, std::vector<int32_t>(static_cast<size_t>(k)), std::vector<float>(static_cast<size_t>(k))};
  ApproximateIndex::Scratch scratch;
  out.found = index.search(exact, query, k, scratch, out.items, out.scores);
  return out;
}
Answer exact_answer(const ItemIndex& exact, std::span<const float> query, int64_t k) {
  Answer out{true, std::vector<int32_t>(static_cast<size_t>(k)), std::vector<float>(static_cast<size_t>(k))};
  ItemIndex::Scratch scratch;
  exact.search(query, k, scratch, out.items, out.scores);
  return out;
}

TEST(ItemIndex, OrdersSomeItemsWithTheBitsOfASearch) {
  const Tensor vectors = random_vectors(300, 24, 3), query = random_vectors(1, 24, 4);
  const ItemIndex index(vectors, 7);
  const Answer all = exact_answer(index, query.span<float>(), 300);
  std::vector<int32_t> rows(300);
  std::iota(rows.begin(), rows.end(), 0);
  for (const size_t count : {1, 16, 37, 300}) {
    std::vector<int32_t> items(count), want;
    std::vector<float> scores(count), wanted;
    ItemIndex::Scratch scratch;
    index.order(query.span<float>(), std::span(rows).first(count), scratch, items, scores);
    for (size_t i = 0; i < 300; ++i) {
      if (all.items[i] - 7 >= static_cast<int32_t>(count)) continue;
      want.push_back(all.items[i]);
      wanted.push_back(all.scores[i]);
    }
    EXPECT_EQ(items, want) << count;
    EXPECT_EQ(scores, wanted) << count;
  }
}

TEST(IndexFigures, AreOneSentence) {
  EXPECT_EQ(text_of({.recall = 0.98799, .k = 10, .queries = 200, .index_ms = 0.1, .exact_ms = 2.34567}),
            "the index finds 98.7 % of the 10 best items (200 items as queries), in 0.1 ms instead of 2.35 ms");
}

// Answers with the rows of its option, whatever it is asked.
class Fixed : public sdk::Index {
 public:
  explicit Fixed(sdk::Options& options) {
    std::istringstream rows(options.string("rows", ""));
    for (std::string row; std::getline(rows, row, '/');) rows_.push_back(std::stoll(row));
  }
  void build(std::span<const float>, int64_t) override {}
  void find(std::span<const float>, std::span<int64_t> rows) const override {
    std::copy_n(rows_.begin(), std::min(rows.size(), rows_.size()), rows.begin());
  }

 private:
  std::vector<int64_t> rows_;
};
constexpr tsr_component kFixed = sdk::component<Fixed>({.id = "fixed", .version = "1.0.0", .about = "fixed rows"});
const tsr_component* const kComponents[] = {&kFixed};

constexpr tsr_plugin kPlugin{
    sizeof(tsr_plugin), TSR_ABI_MAJOR, TSR_ABI_EPOCH, TSR_ABI_MINOR, 0, 1, "fixed", "1.0.0", "", kComponents};

TEST(ApproximateIndex, GivesItsRowsTheirScores) {
  const Runtime runtime({.default_path = false, .plugins = {&kPlugin}});
  const Tensor vectors = random_vectors(40, 5, 1), query = random_vectors(1, 5, 2);
  const ItemIndex exact(vectors);
  const ApproximateIndex index(runtime, "fixed?rows=3/17/4", vectors);
  const Answer got = index_answer(index, exact, query.span<float>(), 3),
               all = exact_answer(exact, query.span<float>(), 40);
  EXPECT_TRUE(got.found);
  EXPECT_THAT(got.items, testing::UnorderedElementsAre(3, 17, 4));
  EXPECT_TRUE(std::is_sorted(got.scores.rbegin(), got.scores.rend()));
  for (size_t i = 0; i < 3; ++i) {
    const auto at = std::find(all.items.begin(), all.items.end(), got.items[i]);
    EXPECT_EQ(got.scores[i], all.scores[static_cast<size_t>(at - all.items.begin())]);
  }
}

TEST(ApproximateIndex, LeavesTheRestToTheExactSearch) {
  const Runtime runtime({.default_path = false, .plugins = {&kPlugin}});
  const Tensor vectors = random_vectors(40, 5, 1), query = random_vectors(1, 5, 2);
  const ItemIndex exact(vectors);
  const ApproximateIndex index(runtime, "fixed?rows=3/17", vectors);
  EXPECT_TRUE(index_answer(index, exact, query.span<float>(), 2).found);
  EXPECT_FALSE(index_answer(index, exact, query.span<float>(), 3).found) << "it finds only two";
  query.span<float>()[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(index_answer(index, exact, query.span<float>(), 2).found) << "such a query has no order";
}

TEST(ApproximateIndex, RowsThatAreNoItemsAreAnError) {
  const Runtime runtime({.default_path = false, .plugins = {&kPlugin}});
  const Tensor vectors = random_vectors(40, 5, 1);
  const ItemIndex exact(vectors);
  const auto refusal = [&](const char* name) -> std::string {
    return test::refusal(
        [&] {
          const ApproximateIndex index(runtime, name, vectors);
          index_answer(index, exact, vectors.span<float>().first(5), 2);
        },
        "");
  };
  EXPECT_EQ(refusal("fixed?rows=3/40"), "the index \"fixed\" answers with row 40, but there are 40 items");
  EXPECT_EQ(refusal("fixed?rows=-2/3"), "the index \"fixed\" answers with row -2, but there are 40 items");
  EXPECT_EQ(refusal("fixed?rows=3/3"), "the index \"fixed\" answers with row 3 twice");
  EXPECT_THAT(refusal("hnws"), testing::HasSubstr("hnws"));
}

// Items that are all equal: each answer is one of the best.
TEST(ApproximateIndex, AnItemAsGoodAsTheBestIsFound) {
  const Runtime runtime({.default_path = false, .plugins = {&kPlugin}});
  const Tensor vectors = Tensor::empty({40, 2});
  for (float& x : vectors.span<float>()) x = 1;
  const ItemIndex exact(vectors);
  const IndexFigures figures = ApproximateIndex(runtime, "fixed?rows=30/31", vectors).compared(exact, vectors, 2, 200);
  EXPECT_EQ(figures.recall, 1);
  EXPECT_EQ(figures.queries, 40);
  EXPECT_EQ(figures.k, 2);
}

#ifdef TESSERA_HNSW_PLUGINS
class Hnsw : public testing::Test {
 protected:
  const Runtime runtime_{{.plugin_path = {TESSERA_HNSW_PLUGINS}, .default_path = false}};
};

TEST_F(Hnsw, FindsMostOfTheBestItems) {
  const Tensor vectors = random_vectors(5000, 16, 5);
  const ItemIndex exact(vectors);
  const ApproximateIndex index(runtime_, "hnsw?ef_construction=100", vectors);
  const IndexFigures figures = index.compared(exact, vectors, 10, 200);
  EXPECT_GT(figures.recall, 0.9);
  EXPECT_LE(figures.recall, 1);
  EXPECT_EQ(figures.queries, 200);
  const ApproximateIndex hasty(runtime_, "hnsw?m=2&ef_construction=2&ef_search=1", vectors);
  EXPECT_LT(hasty.compared(exact, vectors, 10, 200).recall, 0.5);
}

TEST_F(Hnsw, FindsAllIfItLooksAtAll) {
  const Tensor vectors = random_vectors(700, 12, 6), queries = random_vectors(20, 12, 7);
  const ItemIndex exact(vectors);
  const ApproximateIndex index(runtime_, "hnsw?m=32&ef_search=700", vectors);
  for (size_t q = 0; q < 20; ++q) {
    const std::span<const float> query = queries.span<float>().subspan(q * 12, 12);
    const Answer got = index_answer(index, exact, query, 10), want = exact_answer(exact, query, 10);
    EXPECT_TRUE(got.found);
    EXPECT_EQ(got.items, want.items) << q;
    EXPECT_EQ(got.scores, want.scores) << q;
  }
}

TEST_F(Hnsw, TheSameOptionsMakeTheSameGraph) {
  const Tensor vectors = random_vectors(2000, 16, 8), queries = random_vectors(50, 16, 9);
  const ItemIndex exact(vectors);
  const auto answers = [&](const char* name) {
    const ApproximateIndex index(runtime_, name, vectors);
    std::vector<std::vector<int32_t>> out;
    for (size_t q = 0; q < 50; ++q)
      out.push_back(index_answer(index, exact, queries.span<float>().subspan(q * 16, 16), 10).items);
    return out;
  };
  const char* const kFew = "hnsw?m=3&ef_construction=5&ef_search=5";
  EXPECT_EQ(answers(kFew), answers(kFew));
  EXPECT_NE(answers(kFew), answers("hnsw?m=3&ef_construction=5&ef_search=5&seed=7"));
}

TEST_F(Hnsw, RefusesOptionsOutOfBounds) {
  const Tensor vectors = random_vectors(3, 2, 1);
  const auto refusal = [&](const char* name) -> std::string {
    return test::refusal([&] { const ApproximateIndex index(runtime_, name, vectors); }, "");
  };
  EXPECT_THAT(refusal("hnsw?m=1"), testing::HasSubstr("option \"m\" must be 2 to 512, not 1"));
  EXPECT_THAT(refusal("hnsw?ef=10"), testing::HasSubstr("unknown option \"ef\""));
}
#endif

}  // namespace
}  // namespace tessera::retrieval

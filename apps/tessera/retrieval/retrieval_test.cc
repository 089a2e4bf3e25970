// Compares the search with plain loops, bit for bit; checks which models and items it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "config/test_refusal.h"
#include "retrieval/best_of_parts.h"
#include "retrieval/item_index.h"
#include "retrieval/retriever.h"
#include "tessera/error.h"

namespace tessera::retrieval {
namespace {

// Small whole numbers: sums are exact in any order, and many are equal.
std::vector<float> whole_numbers(std::mt19937& random, size_t count) {
  std::vector<float> out(count);
  for (float& x : out) x = static_cast<float>(random() % 7) - 3;
  return out;
}

struct Best {
  std::vector<int32_t> items;
  std::vector<float> scores;
};

Best by_brute_force(const std::vector<float>& queries, const std::vector<float>& items, size_t dim, size_t k) {
  Best out;
  const size_t n = items.size() / dim;
  for (size_t q = 0; q < queries.size() / dim; ++q) {
    std::vector<float> score(n, 0);
    for (size_t i = 0; i < n; ++i)
      score[i] = std::inner_product(&items[i * dim], &items[i * dim] + dim, &queries[q * dim], 0.0f);
    std::vector<int32_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return score[static_cast<size_t>(a)] > score[static_cast<size_t>(b)];
    });
    for (size_t i = 0; i < k; ++i) {
      out.items.push_back(order[i]);
      out.scores.push_back(score[static_cast<size_t>(order[i])]);
    }
  }
  return out;
}

Best searched(const ItemIndex& index, const std::vector<float>& queries, size_t k) {
  const size_t n = queries.size() / static_cast<size_t>(index.dim());
  Best out{std::vector<int32_t>(n * k), std::vector<float>(n * k)};
  ItemIndex::Scratch scratch;
  index.search(queries, static_cast<int64_t>(k), scratch, out.items, out.scores);
  return out;
}

TEST(ItemIndex, FindsWhatPlainLoopsFind) {
  std::mt19937 random(5);
  for (const size_t dim : {1, 5, 16, 33, 64}) {
    for (const size_t items : {1, 7, 512, 1300}) {
      const std::vector<float> vectors = whole_numbers(random, items * dim);
      const ItemIndex index(Tensor::from<float>(vectors, {static_cast<int64_t>(items), static_cast<int64_t>(dim)}));
      for (const size_t queries : {1, 3, 4, 9}) {
        const std::vector<float> asked = whole_numbers(random, queries * dim);
        const size_t k = std::min<size_t>(items, 20);
        const Best want = by_brute_force(asked, vectors, dim, k), got = searched(index, asked, k);
        EXPECT_EQ(got.items, want.items) << dim << " " << items << " " << queries;
        EXPECT_EQ(got.scores, want.scores);
      }
    }
  }
}

TEST(ItemIndex, AQueryFindsTheSameWhateverIsBesideIt) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  std::vector<float> vectors(size_t{900} * 24), queries(size_t{6} * 24);
  for (float& x : vectors) x = normal(random);
  for (float& x : queries) x = normal(random);
  const ItemIndex index(Tensor::from<float>(vectors, {900, 24}));
  const Best all = searched(index, queries, 10);
  for (size_t q = 0; q < 6; ++q) {
    const auto at = queries.begin() + static_cast<int64_t>(q * 24);
    const Best one = searched(index, std::vector<float>(at, at + 24), 10);
    for (size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(one.items[i], all.items[q * 10 + i]);
      EXPECT_EQ(one.scores[i], all.scores[q * 10 + i]);
    }
  }
}

// Each part's best items as a rank sends them: there is space for k, of which it may fill fewer.
TEST(BestOfParts, IsTheBestOfAllToTheBit) {
  std::mt19937 random(7);
  constexpr size_t kItems = 23, kDim = 5, kAsked = 6;
  const std::vector<float> vectors = whole_numbers(random, kItems * kDim), asked = whole_numbers(random, kAsked * kDim);
  const ItemIndex whole(Tensor::from<float>(vectors, {kItems, kDim}));
  for (const size_t parts : {1, 2, 5, 23}) {
    for (const size_t k : {1, 4, 23}) {
      std::vector<std::vector<std::byte>> bytes;
      std::vector<FoundByPart> found;
      const size_t each = (kItems + parts - 1) / parts;
      for (size_t first = 0; first < kItems; first += each) {
        const size_t count = std::min(each, kItems - first), mine = std::min(k, count);
        const auto begin = vectors.begin() + static_cast<int64_t>(first * kDim);
        const std::vector<float> rows(begin, begin + static_cast<int64_t>(count * kDim));
        const ItemIndex part(Tensor::from<float>(rows, {static_cast<int64_t>(count), kDim}),
                             static_cast<int64_t>(first));
        const Best best = searched(part, asked, mine);
        bytes.emplace_back(kAsked * k * 8);
        found.push_back(FoundByPart::in(bytes.back(), kAsked, static_cast<int64_t>(k)));
        std::fill(found.back().items.begin(), found.back().items.end(), -1);
        for (size_t q = 0; q < kAsked; ++q) {
          std::copy_n(best.items.begin() + static_cast<int64_t>(q * mine), mine, &found.back().items[q * k]);
          std::copy_n(best.scores.begin() + static_cast<int64_t>(q * mine), mine, &found.back().scores[q * k]);
        }
      }
      const Best want = searched(whole, asked, k);
      std::vector<float> scores(kAsked * k), items(kAsked * k);
      best_of_parts(found, static_cast<int64_t>(k), scores, items);
      EXPECT_EQ(scores, want.scores) << parts << " parts, the best " << k;
      EXPECT_EQ(std::vector<int32_t>(items.begin(), items.end()), want.items) << parts << " parts, the best " << k;
    }
  }
}

// Uses more than one chunk of items, and asks for more than a chunk has.
TEST(ItemIndex, FindsThemInManyChunks) {
  std::mt19937 random(8);
  const std::vector<float> vectors = whole_numbers(random, size_t{5000} * 9),
                           asked = whole_numbers(random, size_t{11} * 9);
  const ItemIndex index(Tensor::from<float>(vectors, {5000, 9}));
  for (const size_t k : {1, 700, 3000, 5000}) {
    const Best want = by_brute_force(asked, vectors, 9, k), got = searched(index, asked, k);
    EXPECT_EQ(got.items, want.items) << k;
    EXPECT_EQ(got.scores, want.scores) << k;
  }
}

TEST(ItemIndex, RefusesWhatCannotBeCompared) {
  const auto refusal = [](const Tensor& vectors) -> std::string {
    return test::refusal([&] { const ItemIndex index(vectors); }, "");
  };
  EXPECT_EQ(refusal(Tensor::from<float>(std::vector<float>{1, 2, std::numeric_limits<float>::infinity(), 4}, {2, 2})),
            "the vector of item 1 has NaN or infinity");
  EXPECT_EQ(refusal(Tensor::zeros({0, 3})),
            "a search is among 1 to 16777216 items with at least one value each, not 0 with 3");
}

TEST(Retriever, ASampleAsksAboutSomebody) {
  ModelDescription model;
  for (const bool needed : {true, false}) {
    ModelFeature& feature = model.features.emplace_back();
    feature.name = needed ? "user" : "film";
    feature.needed = needed;
  }
  const std::vector<int64_t> id = {3};
  const std::vector<int32_t> first = {1, 0}, none = {0, 0}, second = {0, 1};
  const std::vector<PredictInput::Feature> user_of_first = {{id, first, {}}, {id, second, {}}};
  EXPECT_EQ(test::refusal([&] {
              check_asked(model, {2, {}, user_of_first});
            }),
            "sample 1 asks about nobody: the query depends on \"user\", of which it has no id");
  EXPECT_NO_THROW(check_asked(model, {1, {}, user_of_first}));
  model.dense_inputs = 1;
  EXPECT_NO_THROW(check_asked(model, {2, {}, user_of_first})) << "numbers say who";
}

TEST(Retriever, ItsOptionsBelongTogether) {
  const auto refusal = [](const RetrieverOptions& options) -> std::string {
    return test::refusal([&] { check(options); }, "");
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({5, "item", ""}), "");
  EXPECT_EQ(refusal({0, "item", ""}), "--items, --query and --exclude need --top-k K");
  EXPECT_EQ(refusal({5, "", ""}), "--top-k needs --items: a table of the model, or a file");
  EXPECT_EQ(refusal({-1, "item", ""}), "--top-k takes 1 to 10000 items");
  EXPECT_EQ(refusal({5, "item", "", "", "hnsw", 1}), "");
  EXPECT_EQ(refusal({0, "", "", "", "hnsw"}), "--index needs --top-k K");
  EXPECT_EQ(refusal({5, "item", "", "", "", 0.9}),
            "--least-recall has no effect without --index NAME: the search is exact");
  EXPECT_EQ(refusal({5, "item", "", "", "hnsw", 95}), "--least-recall takes a share from 0 to 1, not 95");
}

}  // namespace
}  // namespace tessera::retrieval

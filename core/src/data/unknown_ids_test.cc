// Tests the counts of ids that no vocabulary has, and when they are worth a warning.
#include "tessera/data.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

constexpr const char* kEncoding = R"({"reader": "csv", "columns": [
  {"name": "click", "as": "label", "table": "click"},
  {"name": "user", "as": "ids", "table": "user", "ids": "vocabulary"},
  {"name": "film", "as": "ids", "table": "film", "ids": "hash"},
  {"name": "tags", "as": "ids", "table": "tags", "ids": "vocabulary"}],
  "vocabularies": {"user": ["a"], "tags": []}})";

KeyedJaggedTensor ids(const std::vector<int64_t>& values, const std::vector<int32_t>& lengths) {
  return KeyedJaggedTensor::from_lengths_sync({"film", "tags", "user"}, Tensor::from(values), Tensor::from(lengths));
}

TEST(UnknownIds, RowsZeroOfVocabulariesAreCounted) {
  UnknownIdCounter counter(kEncoding);
  counter.add(ids({0, 0, 0, 3, 0, 1}, {1, 1, 1, 1, 1, 1}));
  counter.add(ids({7, 2, 0}, {1, 0, 1, 0, 0, 1}));
  ASSERT_EQ(counter.counts().size(), 2u);
  EXPECT_EQ(counter.counts()[0].column, "user");
  EXPECT_EQ(counter.counts()[0].ids, 3);
  EXPECT_EQ(counter.counts()[0].unknown, 2);
  EXPECT_EQ(counter.counts()[1].column, "tags");
  EXPECT_EQ(counter.counts()[1].ids, 3);
  EXPECT_EQ(counter.counts()[1].unknown, 1);
  EXPECT_TRUE(UnknownIdCounter("").counts().empty());
}

TEST(UnknownIds, ManyAreHalfOfTwentyOrAll) {
  const auto many = [](int64_t all, int64_t unknown) { return UnknownIds{"user", all, unknown}.are_many(); };
  EXPECT_FALSE(many(0, 0));
  EXPECT_TRUE(many(1, 1));
  EXPECT_FALSE(many(19, 18));
  EXPECT_TRUE(many(20, 10));
  EXPECT_FALSE(many(20, 9));
  EXPECT_EQ((UnknownIds{"user", 1200, 1200}.warning()), "user: 100 % of the 1200 ids were not in the vocabulary");
  EXPECT_EQ((UnknownIds{"user", 1000, 999}.warning()), "user: 99 % of the 1000 ids were not in the vocabulary");
  EXPECT_EQ((UnknownIds{"user", 1000, 10}.warning()), "");
}

}  // namespace
}  // namespace tessera

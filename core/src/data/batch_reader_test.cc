// Tests batches, and synthetic data in them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "data/examples.h"
#include "data/index_distribution.h"
#include "data/test_files.h"
#include "tessera/sdk/random.h"

namespace tessera {
namespace {

using testing::HasSubstr;

DataConfig synthetic(int64_t samples) {
  return {.reader = "synthetic",
          .rows = {50, 7, 1000},
          .samples = samples,
          .test_samples = 10,
          .columns = 3,
          .dense = 2,
          .pooling = {2}};
}

// Returns each sample as text: label, dense values, ids of every key.
std::vector<std::string> samples_of(const Batch& batch) {
  std::vector<std::string> out;
  const int64_t n = batch.labels.numel();
  for (int64_t i = 0; i < n; ++i) {
    std::string text = str_cat(batch.labels.item(i), " ", batch.dense.item(2 * i), " ", batch.dense.item(2 * i + 1));
    for (int64_t k = 0; k < 3; ++k) {
      const auto begin = static_cast<int64_t>(batch.sparse.offsets().item(k * n + i));
      const auto end = static_cast<int64_t>(batch.sparse.offsets().item(k * n + i + 1));
      for (int64_t j = begin; j < end; ++j) text += str_cat(j == begin ? " | " : ",", batch.sparse.values().item(j));
    }
    out.push_back(text);
  }
  return out;
}

// Returns the samples of every global batch of one epoch, merged from all ranks.
std::vector<std::vector<std::string>> epoch_of(const Samples& examples, int64_t batch_size, int world, int64_t epoch) {
  std::vector<std::vector<std::string>> global;
  for (int rank = 0; rank < world; ++rank) {
    BatchReader reader(examples, {.batch = batch_size, .rank = rank, .world_size = world, .seed = 5, .shuffle = true});
    reader.start_epoch(epoch);
    size_t step = 0;
    for (Batch batch; reader.next(batch); ++step) {
      if (rank == 0) global.emplace_back();
      for (std::string& s : samples_of(batch)) global.at(step).push_back(std::move(s));
      EXPECT_EQ(batch.sparse.stride(), batch.labels.numel());
      EXPECT_LE(batch.labels.numel(), batch.global_size);
    }
    EXPECT_EQ(step, global.size());
    EXPECT_EQ(reader.batches(), static_cast<int64_t>(step));
  }
  return global;
}

TEST(BatchReader, GlobalBatchesDoNotDependOnTheWorld) {
  const Dataset set = read_dataset(synthetic(103), 1);
  const auto one = epoch_of(set.train, 20, 1, 0);
  for (const int world : {2, 3, 4, 7}) EXPECT_EQ(epoch_of(set.train, 20, world, 0), one) << world;
  const Dataset three = read_dataset(synthetic(3), 1);  // most of the 7 ranks have nothing
  EXPECT_EQ(epoch_of(three.train, 20, 7, 0), epoch_of(three.train, 20, 1, 0));
}

TEST(BatchReader, TheLastTwoBatchesShareTheRest) {
  const auto sizes = [](int64_t samples, int64_t batch) {
    std::vector<size_t> out;
    for (const auto& b : epoch_of(read_dataset(synthetic(samples), 1).train, batch, 2, 0)) out.push_back(b.size());
    return out;
  };
  EXPECT_EQ(sizes(103, 20), (std::vector<size_t>{20, 20, 20, 20, 12, 11}));
  EXPECT_EQ(sizes(100, 20), (std::vector<size_t>{20, 20, 20, 20, 20}));
  EXPECT_EQ(sizes(21, 20), (std::vector<size_t>{11, 10}));
  EXPECT_EQ(sizes(3, 20), (std::vector<size_t>{3}));
  EXPECT_EQ(sizes(3, 1), (std::vector<size_t>{1, 1, 1}));
}

TEST(BatchReader, EveryEpochHasEverySampleInAnOrderOfItsOwn) {
  const Dataset set = read_dataset(synthetic(103), 1);
  const auto flat = [&](int64_t epoch) {
    std::vector<std::string> all;
    for (const auto& batch : epoch_of(set.train, 20, 2, epoch)) all.insert(all.end(), batch.begin(), batch.end());
    return all;
  };
  std::vector<std::string> first = flat(0), again = flat(0), second = flat(1);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, second);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
}

TEST(BatchReader, SeekContinuesWhereAnotherStopped) {
  const Dataset set = read_dataset(synthetic(50), 1);
  BatchReader a(set.train, {.batch = 8, .shuffle = true}), b(set.train, {.batch = 8, .shuffle = true});
  Batch x, y;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(a.next(x));
  b.seek(3);
  ASSERT_TRUE(b.next(y));
  EXPECT_EQ(samples_of(x), samples_of(y));
  EXPECT_EQ(a.position(), b.position());
  EXPECT_THROW(b.seek(8), Error);
}

TEST(BatchReader, ReusesTheMemoryOfABatch) {
  const Dataset set = read_dataset(synthetic(64), 1);
  BatchReader reader(set.train, {.batch = 16});
  Batch batch;
  ASSERT_TRUE(reader.next(batch));
  const void* dense = batch.dense.raw();
  const void* ids = batch.sparse.values().raw();
  while (reader.next(batch)) {
    EXPECT_EQ(batch.dense.raw(), dense);
    EXPECT_EQ(batch.sparse.values().raw(), ids);
  }
}

TEST(BatchReader, RefusesWhatCannotBe) {
  const Dataset set = read_dataset(synthetic(5), 1);
  EXPECT_THROW(BatchReader(set.train, {.batch = 0}), Error);
  EXPECT_THROW(BatchReader(set.train, {.batch = 1, .rank = 2, .world_size = 2}), Error);
  EXPECT_THROW(BatchReader(set.train, {.batch = 1, .rank = -1}), Error);
}

TEST(BatchReader, AnEmptySetHasNoBatch) {
  const Dataset set = read_dataset(synthetic(0), 1);
  BatchReader reader(set.train, {.batch = 4, .shuffle = true});
  Batch batch;
  EXPECT_EQ(reader.batches(), 0);
  EXPECT_FALSE(reader.next(batch));
}

// Makes samples of three columns with one id each. With `two`, the very last bag has two.
Samples single_ids(int64_t samples, int64_t rows, bool weighted, bool two) {
  std::vector<DataColumn> columns;
  for (const char* name : {"a", "b", "c"}) columns.push_back({.name = name, .rows = rows, .weighted = weighted});
  data::Examples out(1, columns);
  for (int64_t i = 0; i < samples; ++i) {
    out.begin_sample(0);
    out.add_dense(static_cast<float>(i));
    for (int64_t k = 0; k < 3; ++k) {
      out.add_id(rows - 1 - 3 * i - k, static_cast<float>(10 * i + k));
      if (two && i == samples - 1 && k == 2) out.add_id(0, 0);
      out.end_bag();
    }
    out.end_sample();
  }
  return Samples(std::make_shared<const data::Examples>(std::move(out)));
}

TEST(BatchReader, BagsOfOneIdAreAsOthers) {
  constexpr int64_t kSamples = 37;
  for (const int64_t rows : {int64_t{1000}, int64_t{1} << 33}) {
    for (const bool weighted : {false, true}) {
      for (const bool two : {false, true}) {
        Batch batch;
        ASSERT_TRUE(BatchReader(single_ids(kSamples, rows, weighted, two), {.batch = kSamples}).next(batch));
        const KeyedJaggedTensor& sparse = batch.sparse;
        ASSERT_EQ(sparse.values().numel(), 3 * kSamples + two);
        for (int64_t bag = 0; bag < 3 * kSamples; ++bag) {
          const int64_t k = bag / kSamples, i = bag % kSamples;
          EXPECT_EQ(sparse.values().item(bag), static_cast<double>(rows - 1 - 3 * i - k)) << "bag " << bag;
          if (weighted) {
            EXPECT_EQ(sparse.weights().item(bag), static_cast<double>(10 * i + k)) << "bag " << bag;
          }
          EXPECT_EQ(sparse.lengths().item(bag), two && bag == 3 * kSamples - 1 ? 2 : 1);
          EXPECT_EQ(sparse.offsets().item(bag), static_cast<double>(bag));
        }
        EXPECT_EQ(sparse.offsets().item(3 * kSamples), static_cast<double>(3 * kSamples + two));
      }
    }
  }
}

TEST(BatchReader, TablesBeyond32BitsHaveWideIds) {
  DataConfig config = synthetic(4);
  config.rows = {int64_t{1} << 33};
  const Dataset set = read_dataset(config, 1);
  Batch batch;
  ASSERT_TRUE(BatchReader(set.train, {.batch = 4}).next(batch));
  EXPECT_EQ(batch.sparse.values().dtype(), DType::kInt64);
  EXPECT_EQ(batch.sparse.values().numel(), 24);
}

TEST(Synthetic, FollowsFromTheSeed) {
  Batch a, b, c;
  ASSERT_TRUE(BatchReader(read_dataset(synthetic(20), 1).train, {.batch = 20}).next(a));
  ASSERT_TRUE(BatchReader(read_dataset(synthetic(20), 1).train, {.batch = 20}).next(b));
  ASSERT_TRUE(BatchReader(read_dataset(synthetic(20), 2).train, {.batch = 20}).next(c));
  EXPECT_EQ(samples_of(a), samples_of(b));
  EXPECT_NE(samples_of(a), samples_of(c));
}

// A logistic regression on the dense inputs must beat a constant guess, because labels follow from the inputs.
TEST(Synthetic, LabelsCanBeLearnt) {
  DataConfig config = synthetic(4000);
  config.test_samples = 2000;
  const Dataset set = read_dataset(config, 1);
  Batch batch;
  double w[3] = {0, 0, 0};
  for (int epoch = 0; epoch < 20; ++epoch) {
    BatchReader reader(set.train, {.batch = 100});
    while (reader.next(batch)) {
      double grad[3] = {0, 0, 0};
      for (int64_t i = 0; i < 100; ++i) {
        const double x[3] = {batch.dense.item(2 * i), batch.dense.item(2 * i + 1), 1};
        const double p = 1 / (1 + std::exp(-(w[0] * x[0] + w[1] * x[1] + w[2])));
        for (int k = 0; k < 3; ++k) grad[k] += (p - batch.labels.item(i)) * x[k] / 100;
      }
      for (int k = 0; k < 3; ++k) w[k] -= 0.2 * grad[k];
    }
  }
  ASSERT_TRUE(BatchReader(set.test, {.batch = 2000}).next(batch));
  double loss = 0, positives = 0;
  for (int64_t i = 0; i < 2000; ++i) {
    const double z = w[0] * batch.dense.item(2 * i) + w[1] * batch.dense.item(2 * i + 1) + w[2];
    loss += std::log1p(std::exp(batch.labels.item(i) > 0 ? -z : z)) / 2000;
    positives += batch.labels.item(i) / 2000;
  }
  const double entropy = -positives * std::log(positives) - (1 - positives) * std::log(1 - positives);
  EXPECT_LT(loss, entropy - 0.02);
}

// Compares observed frequencies with the exact ones, within five standard deviations.
TEST(IndexDistribution, HasTheRightProbabilities) {
  for (const auto& [text, exponent] : std::map<std::string, double>{
           {"uniform", 0}, {"zipf:0", 0}, {"zipf:0.5", 0.5}, {"zipf:1", 1}, {"zipf:1.05", 1.05}, {"zipf:3", 3}}) {
    constexpr int kRows = 6, kDraws = 60000;
    const data::IndexDistribution draw(text, kRows);
    sdk::Random random(7);
    std::vector<double> seen(kRows), weight(kRows);
    for (int i = 0; i < kDraws; ++i) ++seen.at(static_cast<size_t>(draw(random)));
    for (int k = 0; k < kRows; ++k) weight[k] = std::pow(k + 1, -exponent);
    const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
    for (int k = 0; k < kRows; ++k) {
      const double p = weight[k] / total;
      EXPECT_NEAR(seen[k] / kDraws, p, 5 * std::sqrt(p * (1 - p) / kDraws)) << text << " row " << k;
    }
  }
}

TEST(IndexDistribution, BigTablesAndBadNames) {
  sdk::Random random(1);
  const data::IndexDistribution draw("zipf:1.2", int64_t{1} << 40);
  for (int i = 0; i < 10000; ++i) {
    const int64_t row = draw(random);
    ASSERT_TRUE(row >= 0 && row < int64_t{1} << 40);
  }
  for (const char* bad : {"zipf", "zipf:", "zipf:x", "zipf:-1", "normal"}) {
    DataConfig config = synthetic(1);
    config.index_dist = bad;
    EXPECT_THAT(data::reading_error(config), HasSubstr("must be uniform or zipf:A")) << bad;
  }
  const data::IndexDistribution one("zipf:2", 1);
  EXPECT_EQ(one(random), 0);
}

}  // namespace
}  // namespace tessera

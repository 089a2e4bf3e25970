// Compares quantized collections over the quant kernel with float collections that have the decoded weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "config/test_refusal.h"
#include "tessera/embedding_modules.h"
#include "tessera/quantization.h"
#include "tessera/runtime.h"

namespace tessera {
namespace {

using test::refusal;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const Runtime& runtime() {
  static const Runtime made({.plugin_path = {TESSERA_PLUGINS}, .default_path = false});
  return made;
}

EmbeddingBagConfig config(const std::string& name, int64_t rows, int64_t dim, std::vector<std::string> features,
                          PoolingType pooling = PoolingType::kSum) {
  return {.name = name,
          .num_embeddings = rows,
          .embedding_dim = dim,
          .feature_names = std::move(features),
          .pooling = pooling,
          .init_range = 1};
}

CollectionOptions float_options(std::vector<EmbeddingBagConfig> tables) {
  return {.tables = std::move(tables), .kernel = "reference", .train = false};
}

std::vector<EmbeddingBagConfig> three_tables() {
  return {config("user", 11, 16, {"u1", "u2"}), config("item", 7, 8, {"i1"}, PoolingType::kMean),
          config("word", 5, 24, {"w1", "u1"})};
}

KeyedJaggedTensor batch_of(const std::vector<int64_t>& ids) {
  // i1: 2, 0, 1   w1: 1, 1, 0   u1: 0, 2, 1   u2: 1, 0, 1
  return KeyedJaggedTensor::from_lengths_sync({"i1", "w1", "u1", "u2"}, Tensor::from(ids),
                                              Tensor::from<int32_t>({2, 0, 1, 1, 1, 0, 0, 2, 1, 1, 0, 1}));
}
KeyedJaggedTensor good_batch() { return batch_of({6, 3, 0, 4, 1, 4, 0, 3, 10, 2}); }

// Gives the float collection the weights that the quantized one decodes to.
EmbeddingBagCollection& decoded_into(EmbeddingBagCollection& whole, const QuantEmbeddings& quant) {
  for (const QuantizedTable& t : quant.tables()) {
    whole.set_weight(t.config.name, dequantize_rows(t.rows, *t.config.row_format, t.config.embedding_dim));
  }
  return whole;
}

void expect_close(const Tensor& got, const Tensor& want, double bound) {
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t i = 0; i < got.numel(); ++i) ASSERT_NEAR(got.item(i), want.item(i), bound) << i;
}

TEST(QuantEmbeddingBagCollection, EqualsTheFloatCollectionOfDecodedRows) {
  EmbeddingBagCollection whole(runtime(), float_options(three_tables()));
  for (RowFormat format : {RowFormat::kInt8, RowFormat::kInt4, RowFormat::kInt2, RowFormat::kFloat16}) {
    SCOPED_TRACE(sdk::to_string(format));
    QuantEmbeddingBagCollection quant(
        runtime(), {.tables = quantize(whole, {.format = format, .formats = {{"word", RowFormat::kFloat8}}})});
    EmbeddingBagCollection decoded(runtime(), float_options(three_tables()));
    decoded_into(decoded, quant);
    const KeyedTensor got = quant.forward(good_batch()), want = decoded.forward(good_batch());
    EXPECT_EQ(got.keys(), want.keys());
    EXPECT_THAT(got.keys(), ElementsAre("u1@user", "u2", "i1", "w1", "u1@word"));
    EXPECT_EQ(got.length_per_key(), want.length_per_key());
    expect_close(got.values(), want.values(), 1e-5);
  }
}

TEST(QuantEmbeddingBagCollection, QuantizedErrorIsWithinHalfAStep) {
  EmbeddingBagCollection whole(runtime(), float_options(three_tables()));
  const auto tables = quantize(whole, {.format = RowFormat::kInt8});
  for (const QuantizedTable& t : tables) {
    const Tensor weight = whole.weight(t.config.name);
    expect_close(dequantize_rows(t.rows, RowFormat::kInt8, t.config.embedding_dim), weight, 2.0 / 255 / 2 + 1e-3);
  }
}

TEST(QuantEmbeddingBagCollection, HalfOutputAndWeights) {
  EmbeddingBagCollection whole(runtime(), float_options(three_tables()));
  const auto tables = quantize(whole, {});
  QuantEmbeddingBagCollection plain(runtime(), {.tables = tables});
  QuantEmbeddingBagCollection half(runtime(), {.tables = tables, .output_dtype = DType::kFloat16});
  const KeyedTensor want = plain.forward(good_batch()), got = half.forward(good_batch());
  EXPECT_EQ(got.values().dtype(), DType::kFloat16);
  expect_close(got.values(), want.values(), 4e-3);

  QuantEmbeddingBagCollection weighted(runtime(), {.tables = tables, .is_weighted = true});
  EXPECT_THAT(refusal([&] { (void)weighted.forward(good_batch()); }), HasSubstr("the batch has no weights"));
  const KeyedJaggedTensor b = good_batch();
  Tensor twos = Tensor::empty({10});
  twos.fill(2);
  const auto with_weights = KeyedJaggedTensor::from_lengths_sync(b.keys(), b.values(), b.lengths(), twos);
  const KeyedTensor doubled = weighted.forward(with_weights);
  for (int64_t i = 0; i < want.values().numel(); ++i) {
    // This also holds for MEAN, which divides by the bag's length and not by the sum of weights.
    ASSERT_NEAR(doubled.values().item(i), 2 * want.values().item(i), 1e-5);
  }
}

TEST(QuantEmbeddingBagCollection, PrunedIdsCountInMeansAndBadOnesFollowThePolicy) {
  EmbeddingBagCollection whole(runtime(), float_options({config("t", 6, 8, {"f"}, PoolingType::kMean)}));
  const auto tables = quantize(whole, {});
  const Tensor rows = dequantize_rows(tables[0].rows, RowFormat::kInt8, 8);
  const auto forward = [&](QuantCollectionOptions options, const std::vector<int64_t>& ids) {
    options.tables = tables;
    QuantEmbeddingBagCollection quant(runtime(), options);
    const Tensor given = Tensor::from(ids);
    const KeyedTensor out = quant.forward(
        KeyedJaggedTensor::from_lengths_sync({"f"}, given, Tensor::from<int32_t>({static_cast<int32_t>(ids.size())})));
    EXPECT_EQ(given.to_vector<int64_t>(), ids) << "the caller's ids";
    return std::pair(out.values().item(0), quant.bad_ids("t"));
  };
  const double row0 = rows.item(0), row2 = rows.item(16);
  auto [value, bad] = forward({}, {2, -1, -1});
  EXPECT_NEAR(value, row2 / 3, 1e-6);
  EXPECT_EQ(bad, 0);
  EXPECT_THAT(refusal([&] {
                (void)forward({}, {2, 6});
              }),
              HasSubstr("id 6 is not in table \"t\", whose ids are 0 to 5"));
  EXPECT_THAT(refusal([&] { (void)forward({}, {2, -2}); }), HasSubstr("id -2"));
  std::tie(value, bad) = forward({.bounds_check = BoundsCheckMode::kIgnore}, {2, 6, -1, -9});
  EXPECT_NEAR(value, row2 / 4, 1e-6);
  EXPECT_EQ(bad, 2);
  std::tie(value, bad) = forward({.bounds_check = BoundsCheckMode::kIgnore, .bad_ids_become_0 = true}, {2, 6, -1, -9});
  EXPECT_NEAR(value, (row2 + 2 * row0) / 4, 1e-6);
  EXPECT_EQ(bad, 2);
}

TEST(QuantEmbeddingBagCollection, RemappedTablesReadTheirStoredRows) {
  EmbeddingBagCollection whole(runtime(), float_options({config("t", 3, 8, {"f"})}));
  for (bool hash : {false, true}) {
    auto tables = quantize(whole, {});
    tables[0].config.remapping =
        hash ? IndexRemapping::hash(6, Tensor::from<int64_t>({1, 4, 5}), Tensor::from<int64_t>({0, 2, 1}))
             : IndexRemapping::array(Tensor::from<int32_t>({-1, 0, -1, -1, 2, 1}));
    const Tensor rows = dequantize_rows(tables[0].rows, RowFormat::kInt8, 8);
    QuantEmbeddingBagCollection quant(runtime(), {.tables = tables});
    for (DType type : {DType::kInt32, DType::kInt64}) {
      const auto batch = KeyedJaggedTensor::from_lengths_sync({"f"}, Tensor::from<int64_t>({4, 0, 5, 1, -1}).to(type),
                                                              Tensor::from<int32_t>({3, 2}));
      const Tensor out = quant.forward(batch).values();
      EXPECT_NEAR(out.item(0), rows.item(16) + rows.item(8), 1e-6);
      EXPECT_NEAR(out.item(8), rows.item(0), 1e-6);
    }
    EXPECT_THAT(refusal([&] {
                  (void)quant.forward(KeyedJaggedTensor::from_lengths_sync({"f"}, Tensor::from<int64_t>({6}),
                                                                           Tensor::from<int32_t>({1})));
                }),
                HasSubstr("whose ids are 0 to 5"));
  }
}

TEST(QuantEmbeddingBagCollection, FirstRowsAlone) {
  EmbeddingBagCollection whole(runtime(), float_options({config("t", 10, 8, {"f"})}));
  const auto tables = quantize(whole, {.first_rows = {{"t", 6}}});
  EXPECT_EQ(tables[0].rows.size(0), 6);
  EXPECT_EQ(tables[0].config.num_embeddings, 6);
  EXPECT_THAT(refusal([&] { (void)quantize(whole, {.first_rows = {{"t", 11}}}); }), HasSubstr("first 11 rows of 10"));
  EXPECT_THAT(refusal([&] {
                (void)quantize(whole, {.formats = {{"u", RowFormat::kInt4}}});
              }),
              HasSubstr("no table \"u\""));
}

TEST(QuantEmbeddingBagCollection, RowsAreSharedByModulesInThreads) {
  EmbeddingBagCollection whole(runtime(), float_options(three_tables()));
  const QuantEmbeddingBagCollection first(runtime(), {.tables = quantize(whole, {})});
  std::vector<Tensor> results(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      QuantEmbeddingBagCollection mine(runtime(), first.options());
      EXPECT_EQ(mine.table("user").rows.raw(), first.table("user").rows.raw());
      for (int n = 0; n < 50; ++n) results[i] = mine.forward(good_batch()).values();
    });
  }
  for (std::thread& t : threads) t.join();
  for (const Tensor& r : results) EXPECT_EQ(r.to_vector<float>(), results[0].to_vector<float>());
}

TEST(QuantEmbeddingBagCollection, ForwardIntoWritesTheCallersTensor) {
  EmbeddingBagCollection whole(runtime(), float_options(three_tables()));
  QuantEmbeddingBagCollection quant(runtime(), {.tables = quantize(whole, {})});
  Tensor out = Tensor::empty({3, quant.width()});
  out.fill(NAN);
  quant.forward_into(good_batch(), out);
  EXPECT_EQ(out.to_vector<float>(), quant.forward(good_batch()).values().to_vector<float>());
  EXPECT_THAT(refusal([&] {
                quant.forward_into(good_batch(), Tensor::empty({2, quant.width()}));
              }),
              HasSubstr("the output must be float32 [3, 88]"));
}

TEST(QuantEmbeddingBagCollection, RefusalsSayWhatToGive) {
  EmbeddingBagCollection whole(runtime(), float_options(three_tables()));
  const auto tables = quantize(whole, {});
  QuantEmbeddingBagCollection quant(runtime(), {.tables = tables});
  const auto missing =
      KeyedJaggedTensor::from_lengths_sync({"i1"}, Tensor::from<int64_t>({1}), Tensor::from<int32_t>({1}));
  EXPECT_THAT(refusal([&] { (void)quant.forward(missing); }), HasSubstr("u1"));
  auto other = tables;
  other[1].config.pooling = PoolingType::kMax;
  EXPECT_THAT(refusal([&] { QuantEmbeddingBagCollection bad(runtime(), {.tables = other}); }),
              HasSubstr("table \"item\" has pooling MAX"));
  EXPECT_THAT(refusal([&] { QuantEmbeddingBagCollection bad(runtime(), {.tables = tables, .kernel = "reference"}); }),
              AllOf(HasSubstr("kernel \"reference\""),
                    HasSubstr("rows of the format \"fbgemm.int8\" are not known to this kernel")));
  EXPECT_THAT(refusal([&] { (void)quant.table("film"); }), HasSubstr("there is no table \"film\""));
  EXPECT_THAT(refusal([&] { QuantEmbeddingCollection bad(runtime(), {.tables = tables}); }), HasSubstr("equally many"));
}

TEST(QuantEmbeddingCollection, RowsOfSequencesWithZerosForPrunedIds) {
  EmbeddingBagCollection whole(runtime(), float_options({config("a", 9, 8, {"f", "g"}), config("b", 4, 8, {"h"})}));
  auto tables = quantize(whole, {.format = RowFormat::kInt4});
  QuantEmbeddingCollection quant(runtime(), {.tables = tables});
  const auto batch = KeyedJaggedTensor::from_lengths_sync({"h", "g", "f"}, Tensor::from<int64_t>({3, 8, -1, 2, 0}),
                                                          Tensor::from<int32_t>({1, 0, 0, 3, 1, 0}));
  const JaggedTensorDict out = quant.forward(batch);
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0].first, "f");
  EXPECT_EQ(out[1].first, "g");
  EXPECT_THAT(out[1].second.lengths().to_vector<int32_t>(), ElementsAre(0, 3));
  const Tensor rows = dequantize_rows(tables[0].rows, RowFormat::kInt4, 8);
  for (int64_t d = 0; d < 8; ++d) {
    EXPECT_NEAR(out[1].second.values().item(d), rows.item(64 + d), 1e-6);
    EXPECT_EQ(out[1].second.values().item(8 + d), 0);
    EXPECT_NEAR(out[1].second.values().item(16 + d), rows.item(16 + d), 1e-6);
  }
  EXPECT_EQ(out[2].second.values().size(0), 1);
}

TEST(PositionWeights, FollowAnIdsPlaceInItsBag) {
  const auto batch = KeyedJaggedTensor::from_lengths_sync({"f", "g"}, Tensor::from<int64_t>({0, 1, 2, 3, 4}),
                                                          Tensor::from<int32_t>({2, 1, 0, 2}));
  const auto weighted = with_position_weights(batch, {{"f", Tensor::from<float>({5, 6})}});
  EXPECT_THAT(weighted.weights().to_vector<float>(), ElementsAre(5, 6, 5, 1, 1));
  EXPECT_THAT(refusal([&] {
                (void)with_position_weights(batch, {{"g", Tensor::from<float>({5})}});
              }),
              HasSubstr("feature \"g\", sample 1 has 2 ids, but there are position weights for 1"));
}

TEST(StoredRows, AreGatheredAsTheyAre) {
  EmbeddingBagCollection whole(runtime(), float_options({config("t", 4, 8, {"f"})}));
  const auto tables = quantize(whole, {.alignment = 16});
  const Tensor rows = gather_stored_rows(tables[0], Tensor::from<int32_t>({3, 0}));
  EXPECT_THAT(rows.shape(), ElementsAre(2, 12));
  EXPECT_TRUE(std::equal(rows.data<uint8_t>(), rows.data<uint8_t>() + 12, tables[0].rows.data<uint8_t>() + 48));
  EXPECT_THAT(refusal([&] {
                (void)gather_stored_rows(tables[0], Tensor::from<int64_t>({0, 4}));
              }),
              HasSubstr("id 4 at position 1"));
}

}  // namespace
}  // namespace tessera

// Row formats, quantized tables, and the bounds check of pruned ones; lookups are tested beside the kernel.
#include "tessera/quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "config/test_refusal.h"
#include "modules/bounds.h"
#include "modules/lookup_batch.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<uint8_t> encoded(RowFormat format, const std::vector<float>& values) {
  std::vector<uint8_t> row(static_cast<size_t>(sdk::row_bytes(format, static_cast<int64_t>(values.size()))));
  sdk::encode_row(format, values.data(), static_cast<int64_t>(values.size()), row.data());
  return row;
}
std::vector<float> decoded(RowFormat format, const std::vector<uint8_t>& row, int64_t dim) {
  std::vector<float> values(static_cast<size_t>(dim));
  sdk::decode_row(format, row.data(), dim, values.data());
  return values;
}

TEST(RowFormat, FirstElementIsInTheLowBits) {
  // min 0, range 15: scale 1 (0x3c00), bias 0.
  EXPECT_THAT(encoded(RowFormat::kInt4, {0, 15, 3, 8}), ElementsAre(0x00, 0x3c, 0, 0, 0xf0, 0x83));
  EXPECT_THAT(encoded(RowFormat::kInt2, {0, 1, 2, 3, 3, 3, 0, 0}), ElementsAre(0x00, 0x3c, 0, 0, 0xe4, 0x0f));
  EXPECT_THAT(encoded(RowFormat::kInt8, {-1, 254}), ElementsAre(0x00, 0x3c, 0x00, 0xbc, 0, 255));
}

TEST(RowFormat, TiesGoToEven) {
  EXPECT_THAT(encoded(RowFormat::kInt4, {0, 15, 0.5f, 1.5f, 2.5f, 3.5f, 14.5f, 13.5f}),
              ElementsAre(0x00, 0x3c, 0, 0, 0xf0, 0x20, 0x42, 0xee));
}

TEST(RowFormat, ConstantsAndExtremesDoNotRaise) {
  EXPECT_EQ(decoded(RowFormat::kInt8, encoded(RowFormat::kInt8, {0.5f, 0.5f}), 2), (std::vector<float>{0.5f, 0.5f}));
  const std::vector<float> third(4, 1.0f / 3);  // not exact in half
  for (float v : decoded(RowFormat::kInt4, encoded(RowFormat::kInt4, third), 4)) EXPECT_NEAR(v, 1.0f / 3, 1e-6);
  const std::vector<uint8_t> wide = encoded(RowFormat::kInt8, {-3e38f, 3e38f});
  EXPECT_THAT(wide, ElementsAre(0x00, 0x7c, 0x00, 0xfc, 0, 0));
  EXPECT_FALSE(std::isfinite(decoded(RowFormat::kInt8, wide, 2)[0]));
}

TEST(RowFormat, EveryCodeDecodesToScaleTimesCodePlusBias) {
  for (RowFormat format : {RowFormat::kInt8, RowFormat::kInt4, RowFormat::kInt2}) {
    const int bits = sdk::info_of(format).bits, levels = (1 << bits) - 1;
    std::vector<uint8_t> row{0x00, 0x38, 0x00, 0xc0};  // scale 0.5, bias -2
    for (int byte = 0; byte < 256; ++byte) {
      row.resize(4);
      row.push_back(static_cast<uint8_t>(byte));
      const std::vector<float> values = decoded(format, row, 8 / bits);
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(values[i], 0.5f * static_cast<float>((byte >> (bits * static_cast<int>(i))) & levels) - 2);
      }
    }
  }
}

TEST(RowFormat, Float8RoundTripsEveryCode) {
  for (const sdk::Float8 codec : {sdk::Float8{}, sdk::Float8{5, 15}, sdk::Float8{3, 3}}) {
    for (int code = 0; code < 256; ++code) {
      const float value = codec.decode(static_cast<uint8_t>(code));
      if (std::fabs(value) > codec.largest()) continue;  // never written
      EXPECT_EQ(codec.encode(value), code) << codec.exponent_bits << " bits, " << value;
    }
    EXPECT_EQ(codec.decode(codec.encode(1e30f)), codec.largest());
    EXPECT_EQ(codec.decode(codec.encode(-1e30f)), -codec.largest());
  }
}

TEST(RowFormat, NamesAndTypesAreFound) {
  for (const sdk::RowFormatInfo& info : sdk::kRowFormats) {
    EXPECT_EQ(row_format_from(info.name), info.format);
    EXPECT_EQ(sdk::row_format_of(info.dtype, info.layout)->format, info.format);
  }
  EXPECT_THAT(test::refusal([] { (void)row_format_from("int3"); }),
              HasSubstr("unknown row format \"int3\": one of fp32, fp16, int8, int4, int2, fp8"));
}

Tensor ramp(int64_t rows, int64_t dim) {
  Tensor out = Tensor::empty({rows, dim});
  for (int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = static_cast<float>(i % 37) / 8 - 2;
  return out;
}

QuantizedTable table_of(RowFormat format, int64_t rows, int64_t dim) {
  QuantizedTable t;
  t.config.name = "film";
  t.config.num_embeddings = rows;
  t.config.embedding_dim = dim;
  t.config.row_format = format;
  t.rows = quantize_rows(ramp(rows, dim), format, "film");
  return t;
}

TEST(QuantizeRows, RefusesWhatHasNoCodes) {
  Tensor weights = ramp(3, 8);
  weights.data<float>()[17] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(test::refusal([&] { (void)quantize_rows(weights, RowFormat::kInt8, "film"); }),
              HasSubstr("table \"film\", row 2: its value nan in column 1 is not finite"));
  weights.data<float>()[17] = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(test::refusal([&] { (void)quantize_rows(weights, RowFormat::kFloat16, "film"); }), HasSubstr("row 2"));
  EXPECT_THAT(test::refusal([] { (void)quantize_rows(ramp(2, 6), RowFormat::kInt4, "film"); }),
              HasSubstr("table \"film\" has 6 columns, but rows quantize to int4 in multiples of 4 columns"));
  weights.data<float>()[17] = -1000;  // an 8-bit float has nothing beyond 240, and would clip it
  EXPECT_THAT(test::refusal([&] { (void)quantize_rows(weights, RowFormat::kFloat8, "film"); }),
              HasSubstr("table \"film\", row 2: its value -1000 in column 1 is beyond the largest of fp8, 240"));
  weights.data<float>()[17] = 247;  // nearer to 240 than to what would come next
  EXPECT_EQ(
      dequantize_rows(quantize_rows(weights, RowFormat::kFloat8, "film"), RowFormat::kFloat8, 8).data<float>()[17],
      240);
  EXPECT_THAT(test::refusal([] {
                (void)quantize_rows(Tensor::zeros({2, 8}, DType::kInt64), RowFormat::kInt4, "film");
              }),
              HasSubstr("float32 or float16"));
}

TEST(QuantizeRows, PaddingIsZeroAndHalvesAreWidened) {
  const Tensor rows = quantize_rows(ramp(5, 10), RowFormat::kInt8, "film", 16);
  EXPECT_THAT(rows.shape(), ElementsAre(5, 16));
  EXPECT_EQ(rows.data<uint8_t>()[14], 0);
  EXPECT_EQ(rows.data<uint8_t>()[15], 0);
  const Tensor halves = quantize_rows(ramp(5, 10).to(DType::kFloat16), RowFormat::kInt8, "film", 16);
  EXPECT_EQ(halves.to_vector<uint8_t>(), rows.to_vector<uint8_t>());  // these values are exact in half
}

TEST(SliceRows, ColumnsKeepScaleAndBiasOfTheirRow) {
  for (RowFormat format : {RowFormat::kInt8, RowFormat::kInt4, RowFormat::kInt2, RowFormat::kFloat16}) {
    SCOPED_TRACE(sdk::to_string(format));
    const QuantizedTable table = table_of(format, 6, 24);
    const Tensor whole = dequantize_rows(table.rows, format, 24);
    const Tensor part = dequantize_rows(slice_rows(table, {2, 3, 8, 12}), format, 12);
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t d = 0; d < 12; ++d) EXPECT_EQ(part.item(r * 12 + d), whole.item((2 + r) * 24 + 8 + d));
    }
    EXPECT_EQ(slice_rows(table, {1, 2, 0, 24}).raw(), static_cast<uint8_t*>(table.rows.raw()) + table.rows.size(1))
        << "whole rows are shared";
  }
  EXPECT_THAT(test::refusal([] {
                (void)slice_rows(table_of(RowFormat::kInt4, 2, 8), {0, 2, 1, 4});
              }),
              HasSubstr("columns 1 to 4 of a row in int4 are not whole bytes"));
}

TEST(ImportInt8, KeepsCodesAndRoundsScaleAndBias) {
  const Tensor weights = ramp(4, 6);
  Tensor fused = Tensor::empty({4, 14}, DType::kUInt8);
  for (int64_t r = 0; r < 4; ++r) {
    sdk::encode_row_sbfloat(weights.data<float>() + 6 * r, 6, fused.data<uint8_t>() + 14 * r);
  }
  const Tensor rows = import_int8_sbfloat(fused, "film");
  const Tensor back = dequantize_rows(rows, RowFormat::kInt8, 6);
  for (int64_t i = 0; i < weights.numel(); ++i) EXPECT_NEAR(back.item(i), weights.item(i), 0.01);
  EXPECT_TRUE(std::equal(fused.data<uint8_t>(), fused.data<uint8_t>() + 6, rows.data<uint8_t>() + 4));
  EXPECT_THAT(test::refusal([] {
                (void)import_int8_sbfloat(Tensor::zeros({2, 8}, DType::kUInt8), "film");
              }),
              HasSubstr("columns + 8"));
  const float broken = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(fused.data<uint8_t>() + size_t{2} * 14 + 10, &broken, 4);
  EXPECT_THAT(test::refusal([&] { (void)import_int8_sbfloat(fused, "film"); }),
              HasSubstr("table \"film\", row 2: its scale"));
}

TEST(QuantizedTables, AreValidated) {
  const auto problem = [](const auto& change) {
    QuantizedTable t = table_of(RowFormat::kInt4, 4, 8);
    change(t);
    return test::refusal([&] { (void)validated(std::vector<QuantizedTable>{t}); });
  };
  EXPECT_THAT(problem([](auto& t) { t.config.row_format.reset(); }), HasSubstr("names no row format"));
  EXPECT_THAT(problem([](auto& t) { t.config.num_embeddings = 5; }), HasSubstr("the stored rows are [4, 8]"));
  EXPECT_THAT(problem([](auto& t) { t.config.embedding_dim = 10; }), HasSubstr("at least 9 bytes each"));
  EXPECT_THAT(problem([](auto& t) { t.config.embedding_dim = 7; }), HasSubstr("do not fill whole bytes"));
  EXPECT_THAT(problem([](auto& t) { t.rows = Tensor(); }), HasSubstr("must be uint8 [rows, bytes of a row]"));
  EXPECT_THAT(problem([](auto& t) {
                t.config.remapping = IndexRemapping::array(Tensor::from<int32_t>({-1, 4}));
              }),
              HasSubstr("names row 4, but only 4 rows are stored"));
}

TEST(IndexRemapping, ArrayAndHashAgree) {
  const auto array = IndexRemapping::array(Tensor::from<int32_t>({0, -1, 1, -1, 2}));
  const auto hash = IndexRemapping::hash(5, Tensor::from<int64_t>({4, 0, 2}), Tensor::from<int64_t>({2, 0, 1}));
  for (int64_t id = 0; id < 5; ++id) EXPECT_EQ(array->row(id), hash->row(id)) << id;
  EXPECT_EQ(array->ids(), hash->ids());
  EXPECT_EQ(array->rows_needed(), 3);
  EXPECT_EQ(hash->rows_needed(), 3);
  const Tensor twice = Tensor::from<int64_t>({1, 1});
  EXPECT_THAT(test::refusal([&] { (void)IndexRemapping::hash(5, twice, twice); }), HasSubstr("the id 1 twice"));
  EXPECT_THAT(test::refusal([&] { (void)IndexRemapping::hash(1, twice, twice); }), HasSubstr("ids are below 1"));
  EXPECT_THAT(test::refusal([&] { (void)IndexRemapping::hash(9, twice, Tensor::from<int64_t>({1})); }),
              HasSubstr("2 ids for 1 rows"));
  EXPECT_THAT(test::refusal([] { (void)IndexRemapping::array(Tensor::from<int64_t>({-2})); }), HasSubstr("row -2"));
}

// Feature of six bags over a table that stores three rows.
struct Pruned {
  Tensor ids = Tensor::from<int64_t>({0, -1, 2, 1, -1, 2});
  Tensor offsets = Tensor::from<int64_t>({0, 2, 4, 6});
  BoundsFeature feature{"f", "film", 3, 0, 3};
  BoundsInput input() {
    feature.pruned = true;
    return {.ids = ids, .offsets = offsets, .features = {&feature, 1}};
  }
};

TEST(BoundsOfPrunedTables, MinusOneIsDroppedInEveryModeAndCounts) {
  for (BoundsCheckMode mode : {BoundsCheckMode::kFatal, BoundsCheckMode::kIgnore, BoundsCheckMode::kWarning}) {
    Pruned p;
    const CheckedIds checked = check_bounds(mode, p.input());
    EXPECT_FALSE(checked.clean);
    EXPECT_EQ(checked.first, "");
    EXPECT_THAT(checked.bad, ElementsAre(0));
    EXPECT_THAT(checked.dropped, ElementsAre(2));
    EXPECT_THAT(checked.ids.to_vector<int64_t>(), ElementsAre(0, 2, 1, 2));
    EXPECT_THAT(checked.lengths.to_vector<int64_t>(), ElementsAre(2, 2, 2));
  }
  Pruned p;
  p.input();
  p.feature.pruned = false;
  BoundsInput in{.ids = p.ids, .offsets = p.offsets, .features = {&p.feature, 1}};
  EXPECT_THAT(test::refusal([&] { (void)check_bounds(BoundsCheckMode::kFatal, in); }),
              HasSubstr("id -1 is not in table"));
}

TEST(BoundsOfPrunedTables, RemappingComesAfterTheCheckOfTheIdsItKnows) {
  const auto remapping = IndexRemapping::array(Tensor::from<int32_t>({2, -1, 0, 1, -1, -1}));
  Pruned p{.ids = Tensor::from<int64_t>({0, 1, 2, 3, 5, -1})};
  p.feature.remapping = remapping.get();
  const CheckedIds checked = check_bounds(BoundsCheckMode::kFatal, p.input());
  EXPECT_THAT(checked.ids.to_vector<int64_t>(), ElementsAre(2, 0, 1));
  EXPECT_THAT(checked.offsets.to_vector<int64_t>(), ElementsAre(0, 1, 3, 3));
  EXPECT_THAT(checked.positions.to_vector<int64_t>(), ElementsAre(0, 2, 3));
  EXPECT_THAT(p.ids.to_vector<int64_t>(), ElementsAre(0, 1, 2, 3, 5, -1)) << "the caller's ids";
  p.ids.data<int64_t>()[4] = 6;
  EXPECT_THAT(test::refusal([&] { (void)check_bounds(BoundsCheckMode::kFatal, p.input()); }),
              HasSubstr("feature \"f\", sample 2: id 6 is not in table \"film\", whose ids are 0 to 5"));
}

TEST(BoundsOfPrunedTables, FbgemmsRepairLooksBadIdsUpAsIdZero) {
  Pruned p{.ids = Tensor::from<int64_t>({0, 9, -1, 1, -5, 2})};
  BoundsInput in = p.input();
  in.bad_ids_become_0 = true;
  const CheckedIds checked = check_bounds(BoundsCheckMode::kWarning, in);
  EXPECT_THAT(checked.ids.to_vector<int64_t>(), ElementsAre(0, 0, 1, 0, 2));
  EXPECT_THAT(checked.bad, ElementsAre(2));
  EXPECT_THAT(checked.dropped, ElementsAre(1));
  EXPECT_THAT(checked.first, HasSubstr("id 9"));
}

TEST(IndexRemapping, FindsRowsByIdsOfTheirOwn) {
  std::vector<int64_t> ids;
  for (uint64_t i = 0; i < 5000; ++i) ids.push_back(static_cast<int64_t>(i * 0x9e3779b97f4a7c15u >> 1));
  const Tensor keys = Tensor::from(ids);
  const auto remapping = IndexRemapping::keyed(INT64_MAX, keys, IndexRemapping::seats_of(keys));
  EXPECT_FALSE(remapping->is_array());
  EXPECT_EQ(remapping->rows_needed(), 5000);
  for (size_t i = 0; i < ids.size(); ++i) {
    ASSERT_EQ(remapping->row(ids[i]), static_cast<int64_t>(i));
    ASSERT_EQ(remapping->row(ids[i] ^ 1), -1) << i;
  }
  const Tensor shared = Tensor::from<int64_t>({5, INT64_MAX, 7});
  const auto sharing = IndexRemapping::keyed(INT64_MAX, shared, IndexRemapping::seats_of(shared));
  EXPECT_EQ(sharing->row(7), 2);
  EXPECT_EQ(sharing->row(6), 1);
  EXPECT_EQ(sharing->own_row(7), 2);
  EXPECT_EQ(sharing->own_row(6), -1) << "it reads the shared row, and has none";
  EXPECT_EQ(sharing->own_row(INT64_MAX), 1);
  EXPECT_THROW(IndexRemapping::seats_of(Tensor::from<int64_t>({5, 7, 5})), Error);
  EXPECT_THROW(IndexRemapping::seats_of(Tensor::from<int64_t>({5, -7})), Error);
  EXPECT_THROW(IndexRemapping::keyed(10, keys, Tensor::from<int32_t>({0, 1, 2})), Error);
  // Whatever a damaged index says, nothing beside it is read, and the search ends.
  const Tensor damaged = Tensor::from<int32_t>({9, 9, -7, 9});
  EXPECT_EQ(IndexRemapping::keyed(10, Tensor::from<int64_t>({1}), damaged)->row(1), -1);
}

}  // namespace
}  // namespace tessera

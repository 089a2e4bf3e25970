#include "tessera/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "config/test_refusal.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Tensor, UndefinedHasNoElements) {
  const Tensor t;
  EXPECT_FALSE(t.defined());
  EXPECT_EQ(t.numel(), 0);
  EXPECT_THAT(t.shape(), ElementsAre(0));
  EXPECT_FALSE(t.clone().defined());
}

TEST(Tensor, CopiesShareAndClonesDoNot) {
  const Tensor a = Tensor::from<float>({1, 2, 3});
  const Tensor shared = a;  // NOLINT(performance-unnecessary-copy-initialization): the copy is what is tested
  const Tensor copy = a.clone();
  shared.data<float>()[0] = 9;
  EXPECT_EQ(a.item(0), 9);
  EXPECT_EQ(copy.item(0), 1);
}

TEST(Tensor, ViewsShareStorage) {
  const Tensor a = Tensor::from<int64_t>(std::vector<int64_t>{0, 1, 2, 3, 4, 5}).reshape({3, -1});
  EXPECT_THAT(a.shape(), ElementsAre(3, 2));
  EXPECT_EQ(a.size(-1), 2);
  const Tensor rows = a.narrow(1, 2);
  EXPECT_THAT(rows.to_vector<int64_t>(), ElementsAre(2, 3, 4, 5));
  rows.data<int64_t>()[0] = 7;
  EXPECT_EQ(a.item(2), 7);
  EXPECT_THAT(a.first({2, 1}).to_vector<int64_t>(), ElementsAre(0, 1));
  EXPECT_EQ(a.narrow(3, 0).numel(), 0);
}

TEST(Tensor, ScalarsHaveNoDimension) {
  const Tensor s = Tensor::scalar(2.5f);
  EXPECT_EQ(s.dim(), 0);
  EXPECT_EQ(s.numel(), 1);
  EXPECT_EQ(s.item(), 2.5);
}

TEST(Tensor, MetaAllocatesNothing) {
  const Tensor t = Tensor::empty({int64_t{1} << 30, 64}, DType::kFloat32, kMeta);
  EXPECT_EQ(t.bytes(), int64_t{1} << 38);
  EXPECT_EQ(t.raw(), nullptr);
}

TEST(Shape, EqualsAListOfTheSameSizesOnly) {
  const Shape shape{2, 3};
  EXPECT_TRUE(shape == (std::vector<int64_t>{2, 3}));
  EXPECT_FALSE(shape == (std::vector<int64_t>{2, 3, 1}));
  EXPECT_FALSE(shape == std::vector<int64_t>(Shape::kMostDimensions + 1, 2));
  EXPECT_FALSE(Shape(std::vector<int64_t>(Shape::kMostDimensions, 2)) ==
               std::vector<int64_t>(Shape::kMostDimensions + 1, 2));
}

TEST(Tensor, RefusesImpossibleShapes) {
  EXPECT_THROW(Tensor::empty({-1}), Error);
  EXPECT_THROW(Tensor::empty({INT64_MAX / 2, 3}), Error);
  EXPECT_THAT(test::refusal(Code::kResourceExhausted, [&] { (void)Tensor::empty({int64_t{1} << 50}); }),
              HasSubstr("4503599627370496"));
}

TEST(Tensor, ConvertsIntegersWithoutLosingDigits) {
  const int64_t big = (int64_t{1} << 53) + 1;
  const Tensor t = Tensor::from<int64_t>({big});
  EXPECT_EQ(t.to(DType::kInt64).data<int64_t>(), t.data<int64_t>());
  EXPECT_THAT(Tensor::from<int32_t>({-3}).to(DType::kInt64).to_vector<int64_t>(), ElementsAre(-3));
  EXPECT_THAT(Tensor::from<int64_t>({2}).to(DType::kFloat32).to_vector<float>(), ElementsAre(2.0f));
  EXPECT_THAT(Tensor::from<double>({2.75}).to(DType::kFloat16).to(DType::kFloat32).to_vector<float>(),
              ElementsAre(2.75f));
}

TEST(Tensor, FillWritesEveryElement) {
  Tensor t = Tensor::empty({3}, DType::kBFloat16);
  t.fill(1.5);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(t.item(i), 1.5);
}

TEST(Tensor, BorrowsForeignMemory) {
  float memory[2] = {1, 2};
  const Tensor t = Tensor::borrow(memory, {2}, DType::kFloat32);
  memory[1] = 5;
  EXPECT_EQ(t.item(1), 5);
}

TEST(Tensor, DescribesItselfToDlpack) {
  const Tensor t = Tensor::zeros({4, 5}, DType::kInt32);
  const DLTensor d = t.dl();
  EXPECT_EQ(d.ndim, 2);
  EXPECT_EQ(d.shape[1], 5);
  EXPECT_EQ(d.dtype.bits, 32);
  EXPECT_EQ(d.device.device_type, kDLCPU);
  EXPECT_EQ(from_dl(d.dtype), DType::kInt32);
  EXPECT_THROW(from_dl({kDLFloat, 32, 4}), Error);
  EXPECT_THROW(from_dl({kDLFloat, 8, 1}), Error);
}

TEST(Tensor, NamesOfTypes) {
  for (DType d : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt32, DType::kInt64,
                  DType::kUInt8}) {
    EXPECT_EQ(dtype_from(to_string(d)), d);
  }
  EXPECT_EQ(dtype_from("FP16"), DType::kFloat16);
  EXPECT_THROW(dtype_from("float"), Error);
}

TEST(Tensor, LargeMemoryIsAlignedForHugePages) {
  const auto small = allocate_cpu(100), large = allocate_cpu(int64_t{5} << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small.get()) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large.get()) % (2u << 20), 0u);
  EXPECT_EQ(allocate_cpu(0), nullptr);
}

// Every half converts to float32 exactly, and back to the same half.
TEST(Half, RoundTripsAllValues) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto h = static_cast<uint16_t>(bits);
    const float f = half_to_float(h);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(f))));
      continue;
    }
    ASSERT_EQ(float_to_half(f), h) << bits;
    const int exponent = (h >> 10) & 31;
    if (exponent == 31) continue;
    const double exact = std::ldexp(exponent ? 1024.0 + (h & 1023) : double(h & 1023), (exponent ? exponent : 1) - 25);
    ASSERT_EQ(std::fabs(f), exact) << bits;
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(float_to_half(1 + 1.0f / 2048), 0x3c00);  // halfway, down to even
  EXPECT_EQ(float_to_half(1 + 3.0f / 2048), 0x3c02);  // halfway, up to even
  EXPECT_EQ(float_to_half(std::nextafter(1 + 1.0f / 2048, 2.0f)), 0x3c01);
  EXPECT_EQ(float_to_half(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_half(std::ldexp(1.0f, -25)), 0);  // half of the least subnormal
  EXPECT_EQ(float_to_half(std::ldexp(1.5f, -25)), 1);
  EXPECT_EQ(float_to_half(-0.0f), 0x8000);
}

TEST(BFloat16, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float f = bfloat16_to_float(static_cast<uint16_t>(bits));
    if (!std::isnan(f)) {
      ASSERT_EQ(float_to_bfloat16(f), bits);
    }
  }
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(TensorDeath, WrongTypeIsAProgrammersMistake) {
  EXPECT_DEATH((void)Tensor::from<float>({1}).data<int32_t>(), "tensor is float32");
  EXPECT_DEATH((void)Tensor::from<float>({1}).narrow(0, 2), "check failed");
}

}  // namespace
}  // namespace tessera

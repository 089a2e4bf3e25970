// Tests tessera::Lookup over the CPU kernels: the choice of a kernel, steps, export and import of rows.
#include "tessera/lookup.h"

#include <gtest/gtest.h>

#include <cstring>

#include "config/test_refusal.h"

namespace tessera {
namespace {

RuntimeOptions only_built_plugins() { return {.plugin_path = {TESSERA_PLUGINS}, .default_path = false}; }

LookupOptions one_table(const std::string& compute_kernel) {
  LookupOptions options{.compute_kernel = compute_kernel, .tables = {{"film", 4, 2}}};
  options.optimizer = {"exact_adagrad", R"({"learning_rate": 0.5, "eps": 0})"};
  return options;
}

// Two bags of the only table, {1, 3} and {1}, summed.
struct Batch {
  Tensor ids = Tensor::from<int64_t>({1, 3, 1});
  Tensor offsets = Tensor::from<int64_t>({0, 2, 3});
  Tensor output = Tensor::zeros({2, 2});
  Tensor grad = Tensor::from<float>({1, 2, 3, -4}).reshape({2, 2});
  DLTensor raw_ids = ids.dl();
  DLTensor raw_offsets = offsets.dl();
  tsr_lookup_feature feature{0, TSR_POOLING_SUM, 2, 0, 0, 2};
  tsr_lookup lookup{sizeof(tsr_lookup),
                    0,
                    1,
                    sizeof(tsr_lookup_feature),
                    0,
                    0,
                    &feature,
                    &raw_ids,
                    &raw_offsets,
                    nullptr,
                    nullptr,
                    0,
                    0};
};

class LookupTest : public testing::Test {
 protected:
  Runtime runtime{only_built_plugins()};
};

TEST_F(LookupTest, AutoTakesTheHighestPriorityThatSupportsTheTables) {
  EXPECT_EQ(Lookup(runtime, one_table("fused")).kernel_id(), "cpu");
  LookupOptions options = one_table("fused");
  options.kernel = "reference";
  EXPECT_EQ(Lookup(runtime, options).kernel_id(), "reference");
}

TEST_F(LookupTest, NoKernelNamesEveryCandidateWithItsReason) {
  const std::string text =
      test::refusal(Code::kUnimplemented, [&] { const Lookup lookup(runtime, one_table("tensor_train")); });
  EXPECT_NE(text.find("cpu: compute kernel \"tensor_train\""), std::string::npos) << text;
  EXPECT_NE(text.find("reference: compute kernel \"tensor_train\""), std::string::npos) << text;
  LookupOptions options = one_table("fused");
  options.kernel = "nowhere";
  EXPECT_THROW(Lookup(runtime, options), Error);
  options = one_table("fused");
  options.optimizer.options = R"({"learning_rte": 1})";
  EXPECT_THROW(Lookup(runtime, options), Error);
}

TEST_F(LookupTest, AFusedStepUpdatesAndCounts) {
  Lookup lookup(runtime, one_table("fused"));
  EXPECT_TRUE(lookup.updates_in_backward());
  EXPECT_EQ(lookup.learning_rate(), 0.5);
  ASSERT_EQ(lookup.states().size(), 1u);
  EXPECT_EQ(lookup.states()[0].name, "momentum1");
  EXPECT_FALSE(lookup.states()[0].per_row);
  lookup.set_weight(0, Tensor::from<float>({0, 0, 1, 2, 0, 0, 10, 20}).reshape({4, 2}));

  Batch batch;
  Lookup::Context context;
  lookup.forward(batch.lookup, batch.output, &context);
  EXPECT_EQ(batch.output.to_vector<float>(), (std::vector<float>{11, 22, 1, 2}));
  const Tensor grad_weights = Tensor::zeros({3});
  lookup.backward(std::move(context), batch.lookup, batch.grad, 1, grad_weights);
  // Row 1 has the gradient (4, -2), row 3 (1, 2); Adagrad's first step is the rate times the sign.
  EXPECT_EQ(lookup.weight(0).to_vector<float>(), (std::vector<float>{0, 0, 0.5, 2.5, 0, 0, 9.5, 19.5}));
  EXPECT_EQ(lookup.state(0, 0).to_vector<float>(), (std::vector<float>{0, 0, 16, 4, 0, 0, 1, 4}));
  EXPECT_EQ(grad_weights.to_vector<float>(), (std::vector<float>{5, 50, -5}));
  EXPECT_EQ(lookup.step(), 1);
  EXPECT_EQ(lookup.stats(0).lookups, 3u);
}

TEST_F(LookupTest, RowGradientsAndApplyAreTheSameStep) {
  Lookup lookup(runtime, one_table("dense"));
  EXPECT_FALSE(lookup.updates_in_backward());
  Batch batch;
  Lookup::Context context;
  lookup.forward(batch.lookup, batch.output, &context);
  const auto gradients = lookup.backward_rows(std::move(context), batch.lookup, batch.grad, 0.5);
  ASSERT_EQ(gradients.size(), 1u);
  EXPECT_EQ(gradients[0].rows.to_vector<int64_t>(), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(gradients[0].values.to_vector<float>(), (std::vector<float>{2, -1, 0.5, 1}));
  lookup.apply(0, gradients[0]);
  lookup.count_step();
  EXPECT_EQ(lookup.weight(0).to_vector<float>(), (std::vector<float>{0, 0, -0.5, 0.5, 0, 0, -0.5, -0.5}));
  EXPECT_EQ(lookup.step(), 1);
}

TEST_F(LookupTest, RangesOfRowsGoInAndOutWithTheirState) {
  Lookup lookup(runtime, one_table("fused"));
  const std::vector<float> weights{1, 2, 3, 4}, state{5, 6, 7, 8};
  const float* const states[] = {state.data()};
  lookup.write_rows(0, 1, 2, weights.data(), states);
  std::vector<float> got(4), got_state(4);
  float* const into[] = {got_state.data()};
  lookup.read_rows(0, 1, 2, got.data(), into);
  EXPECT_EQ(got, weights);
  EXPECT_EQ(got_state, state);
  EXPECT_EQ(lookup.weight(0).to_vector<float>(), (std::vector<float>{0, 0, 1, 2, 3, 4, 0, 0}));
}

// A view shows the memory that lookups read and updates write, for both kernels and each stored type.
TEST_F(LookupTest, AViewIsTheMemoryThatIsReadAndUpdated) {
  for (const std::string kernel : {"cpu", "reference"}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      LookupOptions options = one_table("fused");
      options.kernel = kernel;
      options.weight_dtype = dtype;
      options.optimizer = {"adam", R"({"learning_rate": 0.5})"};
      Lookup lookup(runtime, options);
      const MatrixView view = lookup.view(0);
      EXPECT_EQ(view.dtype, dtype);
      EXPECT_TRUE(view.device == kCpu);
      ASSERT_EQ(std::vector({view.rows, view.cols, view.stride}), (std::vector<int64_t>{4, 2, 2}));
      const Tensor rows = Tensor::borrow(view.data, {4, 2}, dtype);
      const Tensor values = Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8}).to(dtype);
      std::memcpy(rows.raw(), values.raw(), static_cast<size_t>(rows.bytes()));
      EXPECT_EQ(lookup.weight(0).to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
      Batch batch;
      Lookup::Context context;
      lookup.forward(batch.lookup, batch.output, &context);
      EXPECT_EQ(batch.output.to_vector<float>(), (std::vector<float>{10, 12, 3, 4}));
      lookup.backward(std::move(context), batch.lookup, batch.grad);
      EXPECT_EQ(rows.to(DType::kFloat32).to_vector<float>(), lookup.weight(0).to_vector<float>());
      EXPECT_NE(rows.to(DType::kFloat32).item(2), 3) << "the update is seen";
      for (int k = 0; k < 2; ++k) {  // Adam's two moments of a row are contiguous
        const MatrixView state = lookup.view(0, k);
        EXPECT_EQ(state.dtype, DType::kFloat32);
        ASSERT_EQ(std::vector({state.rows, state.cols, state.stride}), (std::vector<int64_t>{4, 2, 4}));
        const auto* at = static_cast<const float*>(state.data);
        const std::vector<float> copy = lookup.state(0, k).to_vector<float>();
        for (size_t i = 0; i < 8; ++i) EXPECT_EQ(at[i / 2 * 4 + i % 2], copy[i]) << k << ' ' << i;
        EXPECT_NE(copy[2], 0);
      }
      EXPECT_EQ(lookup.view(0).data, view.data);
      EXPECT_THROW((void)lookup.view(0, 2), Error);
    }
  }
}

TEST_F(LookupTest, AContextKeepsTheKernelAlive) {
  Batch batch;
  Lookup::Context context;
  {
    Lookup lookup(runtime, one_table("fused"));
    lookup.forward(batch.lookup, batch.output, &context);
  }
  context = Lookup::Context();
}

}  // namespace
}  // namespace tessera

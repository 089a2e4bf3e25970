// After warm-up, a prediction allocates nothing anywhere in the process: malloc itself is replaced and counts.
#include <gtest/gtest.h>

#include <thread>

#include "c_calls.h"
#include "inference/test_model.h"
#include "replaced_malloc.h"

namespace {

// True in the thread that is watched.
thread_local bool watched = false;
thread_local int64_t allocations = 0;

}  // namespace

void tessera::test::on_allocation() {
  if (watched) ++allocations;
}

namespace tessera {
namespace {

using namespace test;

// Allocations of `call` in this thread.
template <class Call>
int64_t allocations_of(const Call& call) {
  allocations = 0;
  watched = true;
  call();
  watched = false;
  return allocations;
}

TEST(Allocations, AreCounted) {
  EXPECT_GT(allocations_of([] { std::vector<int>(100).swap(*std::make_unique<std::vector<int>>()); }), 1);
}

TEST(Allocations, NoneInAPredictionAfterWarmUp) {
  const ModelFolder folder;
  pack_model(small_model(folder, {.bounds_check = BoundsCheckMode::kIgnore, .is_weighted = true}).model,
             folder.file("model"), {.formats = {{"tag", RowFormat::kInt4}, {"user", RowFormat::kFloat16}}});
  const Runtime runtime;
  const auto predictor = open_predictor(runtime, folder.file("model"));
  OwnInput largest(predictor->model(), 64, 1, true);
  largest.values[3][0] = 999;  // a mean that loses an id also needs weights
  std::vector<float> scores(64);
  const PredictInput warm = largest.view();
  predictor->predict(warm, scores);
  for (const int64_t batch : {64, 1, 17, 63, 2, 64}) {
    OwnInput input(predictor->model(), batch, static_cast<uint32_t>(batch), batch % 2 == 0);
    if (batch == 64) input = largest;
    const PredictInput view = input.view();
    const std::span<float> out(scores.data(), static_cast<size_t>(batch));
    EXPECT_EQ(allocations_of([&] { predictor->predict(view, out); }), 0) << "batch " << batch;
    EXPECT_EQ(allocations_of([&] { EXPECT_TRUE(predictor->why_not(view).empty()); }), 0);
  }
}

TEST(Allocations, NoneByThreadsThatComeLater) {
  const ModelFolder folder;
  pack_model(small_model(folder).model, folder.file("model"), {});
  const Runtime runtime;
  const auto predictor = open_predictor(runtime, folder.file("model"));
  OwnInput input(predictor->model(), 32, 1);
  const PredictInput view = input.view();
  (void)scores_of(*predictor, view);
  int64_t found = -1;
  std::thread([&] {
    std::vector<float> scores(32);
    found = allocations_of([&] { predictor->predict(view, scores); });
  }).join();
  EXPECT_EQ(found, 0) << "workspaces belong to the predictor, not to threads";
}

TEST(Allocations, NoneThroughTheCInterface) {
  const ModelFolder folder;
  pack_model(small_model(folder).model, folder.file("model"), {});
  tsr_error err{};
  err.struct_size = sizeof(err);
  tsr_model* model = nullptr;
  ASSERT_EQ(tsr_model_open(folder.file("model").c_str(), nullptr, &model, &err), TSR_OK) << err.message;
  OwnInput input(small_model(folder).model.description, 16, 1);
  const ModelBatch in(input.values, input.lengths, input.dense, 16);
  std::vector<float> scores(16);
  View<float> out(scores, {16});
  const DLTensor* outputs[] = {&out};
  ASSERT_EQ(tsr_model_predict(model, &in.raw, outputs, 1, &err), TSR_OK) << err.message;
  EXPECT_EQ(allocations_of([&] { tsr_model_predict(model, &in.raw, outputs, 1, &err); }), 0);
  tsr_model_close(model);
}

}  // namespace
}  // namespace tessera

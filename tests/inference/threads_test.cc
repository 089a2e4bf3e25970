// Many threads share one predictor: the answers equal those of a single thread, and counts add up.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "inference/test_model.h"

namespace tessera::test {
namespace {

void predict_from_threads(int threads, int64_t calls) {
  const ModelFolder folder;
  pack_model(small_model(folder).model, folder.file("model"), {});
  const Runtime runtime({.threads = 2});
  const auto predictor = open_predictor(runtime, folder.file("model"));
  constexpr size_t kInputs = 16;
  std::vector<OwnInput> inputs;
  for (size_t i = 0; i < kInputs; ++i)
    inputs.emplace_back(predictor->model(), static_cast<int64_t>(1 + i % 5), static_cast<uint32_t>(i));
  std::vector<std::vector<float>> expected;
  for (OwnInput& input : inputs) expected.push_back(scores_of(*predictor, input.view()));

  std::atomic<int64_t> wrong{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      std::vector<float> scores(8);
      std::vector<OwnInput> mine = inputs;
      for (int64_t call = 0; call < calls; ++call) {
        const size_t i = static_cast<size_t>(call + t) % kInputs;
        const std::span<float> out(scores.data(), static_cast<size_t>(mine[i].batch));
        predictor->predict(mine[i].view(), out);
        if (!std::equal(out.begin(), out.end(), expected[i].begin())) ++wrong;
      }
    });
  }
  for (std::thread& w : workers) w.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(predictor->stats().predictions, static_cast<uint64_t>(threads * calls) + kInputs);
}

TEST(Threads, PredictTheSameAsAlone) { predict_from_threads(8, 1500); }

TEST(Long, AMillionPredictionsFromEightThreads) { predict_from_threads(8, 125000); }

}  // namespace
}  // namespace tessera::test

// Tests batching: which requests are merged, how long they wait, which are refused; and merged inputs.
#include "serve/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "fake_predictor.h"
#include "serve/merged_batch.h"
#include "serve/protocol.h"

namespace tessera::serve {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

struct Got {
  Code code;
  std::string error;
  std::vector<float> scores;
  std::vector<std::vector<float>> further = {};  // of the outputs after the first
};

InferRequest request_of(const std::vector<Sample>& samples, bool weighted = false) {
  FakeOptions options{.is_weighted = weighted};
  return parse_infer(FakePredictor(options).model(), Message(samples).json(), std::nullopt);
}

Sample sample(int i) {
  return {
      {0.01f * static_cast<float>(i), 1}, {i % 1000}, std::vector<int64_t>(static_cast<size_t>(i % 3), i % 100), {}};
}

// Submits a request and returns its future result.
std::future<Got> submit(Batcher& batcher, const std::shared_ptr<Predictor>& model, InferRequest request,
                        std::chrono::milliseconds patience = 20s) {
  auto promise = std::make_shared<std::promise<Got>>();
  auto future = promise->get_future();
  Job job{std::move(request), model, Clock::now() + patience, [promise](const InferRequest&, const Answer& answer) {
            Got got{answer.code, answer.error, {}};
            for (const std::span<const float> values : answer.outputs) {
              const bool first = values.data() == answer.outputs[0].data();
              (first ? got.scores : got.further.emplace_back()).assign(values.begin(), values.end());
            }
            promise->set_value(std::move(got));
          }};
  if (!batcher.submit(std::move(job))) promise->set_value({Code::kResourceExhausted, "full", {}});
  return future;
}

Got got(std::future<Got>& future) {
  if (future.wait_for(20s) != std::future_status::ready) return {Code::kUnknown, "no answer", {}};
  return future.get();
}

class BatcherTest : public testing::Test {
 protected:
  // Keeps the model busy with a first request, so that others gather.
  void hold(Batcher& batcher) {
    model_->hold();
    first_ = submit(batcher, model_, request_of({sample(0)}));
    ASSERT_TRUE(model_->wait_for_calls(1));
  }

  Metrics metrics_;
  std::shared_ptr<FakePredictor> model_ = std::make_shared<FakePredictor>();
  std::future<Got> first_;
};

TEST_F(BatcherTest, WhatGathersWhileAWorkerPredictsIsOneBatch) {
  Batcher batcher({.max_batch = 64, .max_wait = 0us, .max_queue = 100, .workers = 1}, metrics_);
  hold(batcher);
  std::vector<std::future<Got>> rest;
  for (int i = 1; i <= 20; ++i) rest.push_back(submit(batcher, model_, request_of({sample(i), sample(i + 500)})));
  EXPECT_EQ(batcher.waiting(), 20u);
  model_->let_go();
  EXPECT_EQ(got(first_).scores, Message({sample(0)}).scores());
  for (int i = 1; i <= 20; ++i) {
    EXPECT_EQ(got(rest[static_cast<size_t>(i - 1)]).scores, Message({sample(i), sample(i + 500)}).scores()) << i;
  }
  EXPECT_EQ(model_->calls(), 2);
  EXPECT_EQ(model_->largest_batch(), 40);
}

TEST_F(BatcherTest, ABatchHasAtMostSoManySamplesAndALargeRequestIsOneOfItsOwn) {
  Batcher batcher({.max_batch = 4, .max_queue = 100}, metrics_);
  hold(batcher);
  std::vector<std::future<Got>> rest;
  for (int i = 0; i < 6; ++i) rest.push_back(submit(batcher, model_, request_of({sample(i), sample(i)})));
  rest.push_back(submit(batcher, model_, request_of(std::vector<Sample>(9, sample(1)))));
  model_->let_go();
  for (auto& f : rest) EXPECT_EQ(got(f).code, Code::kOk);
  EXPECT_EQ(model_->calls(), 1 + 3 + 1);
  EXPECT_EQ(model_->largest_batch(), 9);
}

TEST_F(BatcherTest, TheOldestRequestWaitsAtMostMaxWaitAndAFullBatchDoesNotWait) {
  {
    Batcher batcher({.max_batch = 64, .max_wait = 300ms, .max_queue = 100}, metrics_);
    auto a = submit(batcher, model_, request_of({sample(1)})), b = submit(batcher, model_, request_of({sample(2)}));
    EXPECT_EQ(got(a).code, Code::kOk);
    EXPECT_EQ(got(b).code, Code::kOk);
    EXPECT_EQ(model_->calls(), 1) << "both fit into the wait";
  }
  Batcher patient({.max_batch = 2, .max_wait = 3600s, .max_queue = 100}, metrics_);
  auto a = submit(patient, model_, request_of({sample(1)}));
  EXPECT_EQ(a.wait_for(20ms), std::future_status::timeout);
  auto b = submit(patient, model_, request_of({sample(2)}));
  EXPECT_EQ(got(a).code, Code::kOk);
  EXPECT_EQ(got(b).code, Code::kOk);
}

TEST_F(BatcherTest, EveryRequestHasItsPartOfEveryOutput) {
  FakeOptions heads{.outputs = {{"click"}, {"kinds", 3, false}, {"like"}}};
  model_ = std::make_shared<FakePredictor>(heads);
  const auto plain = std::make_shared<FakePredictor>();
  Batcher batcher({.max_batch = 64, .max_queue = 100}, metrics_);
  hold(batcher);
  std::vector<std::future<Got>> rest;
  for (int i = 1; i <= 5; ++i) rest.push_back(submit(batcher, model_, request_of({sample(i), sample(i + 50)})));
  auto other = submit(batcher, plain, request_of({sample(9)}));  // has one output, and follows it
  model_->let_go();
  const auto expect_all = [](const Got& said, const Message& message) {
    EXPECT_EQ(said.scores, message.values(0));
    ASSERT_EQ(said.further.size(), 2u);
    EXPECT_EQ(said.further[0], message.values(1, 3));
    EXPECT_EQ(said.further[1], message.values(2));
  };
  expect_all(got(first_), Message({sample(0)}));
  for (int i = 1; i <= 5; ++i) expect_all(got(rest[static_cast<size_t>(i - 1)]), Message({sample(i), sample(i + 50)}));
  EXPECT_EQ(model_->largest_batch(), 10);
  const Got said = got(other);
  EXPECT_EQ(said.scores, Message({sample(9)}).scores());
  EXPECT_TRUE(said.further.empty());
}

TEST_F(BatcherTest, AFullQueueTurnsAway) {
  Batcher batcher({.max_batch = 1, .max_queue = 3}, metrics_);
  hold(batcher);
  std::vector<std::future<Got>> kept;
  for (int i = 0; i < 3; ++i) kept.push_back(submit(batcher, model_, request_of({sample(i)})));
  auto refused = submit(batcher, model_, request_of({sample(9)}));
  EXPECT_EQ(got(refused).code, Code::kResourceExhausted);
  model_->let_go();
  for (auto& f : kept) EXPECT_EQ(got(f).code, Code::kOk);
}

TEST_F(BatcherTest, ADeadlineThatPassesInTheQueueIsSaidAndNotPredicted) {
  Batcher batcher({.max_batch = 8, .max_queue = 10}, metrics_);
  hold(batcher);
  auto late = submit(batcher, model_, request_of({sample(1)}), 1ms);
  auto patient = submit(batcher, model_, request_of({sample(2)}));
  std::this_thread::sleep_for(5ms);
  model_->let_go();
  const Got said = got(late);
  EXPECT_EQ(said.code, Code::kDeadlineExceeded);
  EXPECT_THAT(said.error, HasSubstr("the deadline passed"));
  EXPECT_EQ(got(patient).scores, Message({sample(2)}).scores());
  EXPECT_EQ(model_->largest_batch(), 1);
}

TEST_F(BatcherTest, OneBadRequestDoesNotHarmItsNeighbours) {
  Batcher batcher({.max_batch = 64, .max_queue = 100}, metrics_);
  hold(batcher);
  auto good = submit(batcher, model_, request_of({sample(1)}));
  auto poison = submit(batcher, model_, request_of({{{666, 0}, {}, {}, {}}}));
  auto other = submit(batcher, model_, request_of({sample(2)}));
  model_->let_go();
  EXPECT_EQ(got(good).scores, Message({sample(1)}).scores());
  EXPECT_EQ(got(other).scores, Message({sample(2)}).scores());
  const Got said = got(poison);
  EXPECT_EQ(said.code, Code::kInvalidArgument);
  EXPECT_EQ(said.error, "poisoned");
}

TEST_F(BatcherTest, AFailureOfTheModelReachesEveryRequestOfTheBatch) {
  model_->fail_with(Code::kUnavailable, "rank 1 is lost");
  Batcher batcher({.max_batch = 8, .max_queue = 10}, metrics_);
  auto a = submit(batcher, model_, request_of({sample(1)})), b = submit(batcher, model_, request_of({sample(2)}));
  for (auto* f : {&a, &b}) {
    const Got said = got(*f);
    EXPECT_EQ(said.code, Code::kUnavailable);
    EXPECT_EQ(said.error, "rank 1 is lost");
  }
}

TEST_F(BatcherTest, RequestsOfTwoModelsAreNotMixed) {
  const auto new_model = std::make_shared<FakePredictor>();
  Batcher batcher({.max_batch = 64, .max_queue = 100}, metrics_);
  hold(batcher);
  auto a = submit(batcher, model_, request_of({sample(1)}));
  auto b = submit(batcher, new_model, request_of({sample(2)}));
  auto c = submit(batcher, new_model, request_of({sample(3)}));
  model_->let_go();
  for (auto* f : {&a, &b, &c}) EXPECT_EQ(got(*f).code, Code::kOk);
  EXPECT_EQ(model_->calls(), 2);
  EXPECT_EQ(new_model->calls(), 1);
}

TEST_F(BatcherTest, EndingAnswersWhatWaits) {
  std::vector<std::future<Got>> all;
  {
    Batcher batcher({.max_batch = 1000, .max_wait = 3600s, .max_queue = 100, .workers = 3}, metrics_);
    for (int i = 0; i < 50; ++i) all.push_back(submit(batcher, model_, request_of({sample(i)})));
  }
  for (int i = 0; i < 50; ++i) EXPECT_EQ(got(all[static_cast<size_t>(i)]).scores, Message({sample(i)}).scores());
}

TEST_F(BatcherTest, ManyThreadsGetTheirOwnAnswers) {
  Batcher batcher({.max_batch = 16, .max_wait = 100us, .max_queue = 1000, .workers = 3}, metrics_);
  std::atomic<int> wrong{0};
  std::vector<std::thread> clients;
  for (int t = 0; t < 8; ++t) {
    clients.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const std::vector<Sample> samples(static_cast<size_t>(1 + i % 3), sample(t * 100 + i));
        auto f = submit(batcher, model_, request_of(samples));
        wrong += got(f).scores != Message(samples).scores();
      }
    });
  }
  for (std::thread& c : clients) c.join();
  EXPECT_EQ(wrong, 0);
}

TEST(MergedBatch, KeepsTheOrderOfSamplesAndFillsWeights) {
  const InferRequest a = request_of({{{1, 2}, {1, 2}, {3}, {0.5f}}, {{3, 4}, {}, {4, 5}, {2, 3}}}, true);
  const InferRequest b = request_of({{{5, 6}, {9}, {6, 7}, {}}}, true);
  const InferRequest* both[] = {&a, &b};
  MergedBatch merged;
  for (int round = 0; round < 2; ++round) {  // buffers are reused
    const PredictInput all = merged.merge(both);
    EXPECT_EQ(all.batch, 3);
    EXPECT_THAT(all.dense, ::testing::ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_THAT(all.features[0].values, ::testing::ElementsAre(1, 2, 9));
    EXPECT_THAT(all.features[0].lengths, ::testing::ElementsAre(2, 0, 1));
    EXPECT_TRUE(all.features[0].weights.empty());
    EXPECT_THAT(all.features[1].values, ::testing::ElementsAre(3, 4, 5, 6, 7));
    EXPECT_THAT(all.features[1].lengths, ::testing::ElementsAre(1, 2, 2));
    EXPECT_THAT(all.features[1].weights, ::testing::ElementsAre(0.5f, 2, 3, 1, 1));
  }
}

}  // namespace
}  // namespace tessera::serve

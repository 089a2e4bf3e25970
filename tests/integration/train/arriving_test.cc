// tessera train on arriving files, over ranks: the batches are those of one rank, with each row on one of the ranks.
// Training is saved and continued on another number of ranks.
#include <gmock/gmock.h>

#include "arriving_job.h"

namespace tessera::test::arriving_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<double> losses_of(const json& report) { return report["losses"].get<std::vector<double>>(); }

TEST_F(ArrivingRanks, HaveTheBatchesOfOneRank) {
  arrive("a.csv", arriving_file(0, 130));
  arrive("b.csv", arriving_file(130, 121));
  arrive("DONE", "");
  const json one = train(1, {});
  for (const int ranks : {2, 3}) {
    const json more = train(ranks, {});
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(more["arrived"]["rows"], 251);
    for (const char* key : {"file", "rows"})
      EXPECT_EQ(more["arrived"]["position"][key], one["arrived"]["position"][key]);
    EXPECT_EQ(more["steps"], 6);  // the last batch has one row, so some ranks have none
    EXPECT_THAT(losses_of(more), testing::Pointwise(testing::DoubleNear(1e-5), losses_of(one)));
  }
}

TEST_F(ArrivingRanks, GoOnToTheRowOnAnyNumber) {
  arrive("a.csv", arriving_file(0, 130));
  arrive("b.csv", arriving_file(130, 121));
  arrive("DONE", "");
  const json whole = train(1, {});
  const std::string saved = folder_.file("saved");
  std::vector<double> losses;
  int64_t rows = 0;
  for (const int ranks : {2, 3, 1}) {
    const int most = static_cast<int>(losses.size()) + 2;
    const json part = train(ranks, {}, {"--save", saved, "--resume", "--max-steps", str_cat(most)});
    ASSERT_FALSE(HasFailure());
    for (const double loss : losses_of(part)) losses.push_back(loss);
    EXPECT_EQ(std::ssize(losses), most);
    rows += part["arrived"]["rows"].get<int64_t>();
  }
  EXPECT_EQ(rows, 251);
  EXPECT_THAT(losses, testing::Pointwise(testing::DoubleNear(1e-5), losses_of(whole)));
}

TEST_F(ArrivingRanks, ASignalEndsTheWaitOnAllOfThem) {
  arrive("a.csv", arriving_file(0, 100));
  const std::string saved = folder_.file("saved");
  const std::vector<std::string> saving = {"--save", saved, "--save-every", "1", "--resume"};
  Program training(Arguments{tessera_path()} + arguments(2, {}, saving));
  const auto is_saved = [&] { return std::filesystem::exists(saved + "/save-2"); };  // while the job waits
  for (int i = 0; i < 3000 && !is_saved(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(is_saved());
  kill(training.pid(), SIGTERM);
  EXPECT_NE(training.wait(60), 0);
  EXPECT_THAT(training.output(), HasSubstr("stopped by a signal after 2 steps"));
  const json until = report();
  EXPECT_EQ(until["arrived"]["rows"], 100);
  EXPECT_EQ(until["losses"].size(), 2u);
  EXPECT_FALSE(until["test"].contains("auc")) << until["test"];
  arrive("b.csv", arriving_file(100, 60));
  arrive("DONE", "");
  const json rest = train(2, {}, saving);
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(rest["arrived"]["rows"], 60);
  EXPECT_EQ(rest["first_step"], 2);
}

TEST_F(ArrivingRanks, WhatCannotBeReadEndsAllOfThem) {
  arrive("a.csv", arriving_file(0, 60));
  arrive("b.csv", kArrivingColumns + "\n1,cheap,3,film1:0.5,1\n");
  const Finished done = run_tessera(arguments(2, {}));
  EXPECT_EQ(done.status, 2) << done.output;
  const std::string why = "b.csv, row 1, column \"price\": \"cheap\" is not a number";
  EXPECT_THAT(done.output, HasSubstr(why));
  EXPECT_THAT(done.output, HasSubstr("rank 0 aborted: " + in_ + "/" + why));
}

// Files are read by the reader that the model's reader wraps, with its options.
TEST_F(ArrivingRanks, TheModelReadsFiles) {
  arrive("a.csv", arriving_file(0, 100));
  arrive("DONE", "");
  const std::string saved = folder_.file("saved"), model = folder_.file("model");
  train(1, {"data.reader=\"growing?end=DONE(csv?quotes=false)\""}, {"--save", saved});
  ASSERT_FALSE(HasFailure());
  succeed({"quantize", "--load", saved, "--save", model, "--weights", "fp32"});
  const std::string file = succeed({"predict", "--model", model, "--data", in_ + "/a.csv"});
  EXPECT_THAT(file, HasSubstr("row,label,score\n0,1,"));
  EXPECT_THAT(file, HasSubstr("\n99,"));
  const std::string piped =
      succeed(run_program({"/bin/sh", "-c", "\"$0\" predict --model \"$1\" --data - < \"$2\" 2> /dev/null",
                           tessera_path(), model, in_ + "/a.csv"},
                          60));
  EXPECT_THAT(piped, HasSubstr("\n99,"));
  EXPECT_THAT(file, HasSubstr(piped));
}

}  // namespace
}  // namespace tessera::test::arriving_test

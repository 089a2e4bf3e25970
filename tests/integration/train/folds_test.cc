// `validation.folds` trains and judges a model for each part of the training rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::folds_test {
namespace {

using testing::HasSubstr;

constexpr const char* kFoldsJob = R"(
job = {seed = 3, device = "cpu", threads = 1}
model = {embedding_dim = 4, bottom_mlp = [8, 4], top_mlp = [8, 1]}
data = {samples = 1500, test_samples = 100, columns = 3, rows = [30], dense = 3, batch = 50, epochs = 2}
validation = {folds = 3}
)";

std::vector<double> numbers_after(const std::string& text, const std::string& before) {
  std::vector<double> out;
  for (size_t at = text.find(before); at != std::string::npos; at = text.find(before, at + 1))
    out.push_back(std::stod(text.substr(at + before.size())));
  return out;
}

TEST(Folds, GiveMeanAndSpread) {
  const TestDirectory folder;
  const std::string config = folder.write("job.toml", kFoldsJob);
  const std::string said = succeed({"train", "--config", config});
  EXPECT_THAT(said, HasSubstr("fold 3 of 3: "));
  const std::vector<double> each = numbers_after(said, "AUC ");
  ASSERT_EQ(each.size(), 3U) << said;
  const double mean = (each[0] + each[1] + each[2]) / 3;
  double squares = 0;
  for (const double auc : each) squares += (auc - mean) * (auc - mean);
  ASSERT_EQ(numbers_after(said, "\nauc: ").size(), 1U) << said;
  EXPECT_NEAR(numbers_after(said, "\nauc: ")[0], mean, 2e-4);
  EXPECT_NEAR(numbers_after(said, "standard deviation ")[0], std::sqrt(squares / 2), 2e-4);
  EXPECT_GT(squares, 0) << "the folds are different";
  const std::vector<double> ranks = numbers_after(succeed({"train", "--config", config, "--nproc", "2"}), "AUC ");
  ASSERT_EQ(ranks.size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(ranks[i], each[i], 2e-4);
}

TEST(Folds, EachModelMayEndEarly) {
  const TestDirectory folder;
  const std::string config = folder.write("job.toml", kFoldsJob);
  const std::string said =
      succeed({"train", "--config", config, "--set", "validation.patience=1", "--set", "validation.monitor=logloss"});
  EXPECT_EQ(numbers_after(said, "AUC ").size(), 3U) << said;
}

TEST(Folds, RefuseWhatMakesNoSense) {
  const TestDirectory folder;
  const std::string config = folder.write("job.toml", kFoldsJob);
  expect_refused({"train", "--config", config, "--save", folder.file("saved")},
                 HasSubstr("validation.folds trains a model for each fold, only to judge the job, so --save"));
  expect_refused({"train", "--config", config, "--set", "validation.fraction=0.1"},
                 HasSubstr("each of validation.folds is held out in its turn"));
  expect_refused({"train", "--config", config, "--html", folder.file("x.html")}, HasSubstr("so --html has no meaning"));
  expect_refused({"train", "--config", config, "--set", "validation.folds=1", "--set", "data.reader=csv", "--set",
                  "data.path=nowhere.csv"},
                 HasSubstr("take 2 or more"));
  expect_refused({"train", "--config", config, "--set", "validation.split=last"},
                 HasSubstr("validation.folds are random rows"));
}

}  // namespace
}  // namespace tessera::test::folds_test

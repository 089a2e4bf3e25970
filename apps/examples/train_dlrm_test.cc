// Runs the training example on one rank and on two, with a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "config/test_directory.h"
#include "shell.h"

namespace {

using testing::HasSubstr;

using tessera::test::Ended;

Ended run(const std::string& command) { return tessera::test::run_shell(command + " 2>&1"); }

double number_behind(const std::string& text, const std::string& words) {
  const size_t at = text.rfind(words);
  EXPECT_NE(at, std::string::npos) << text;
  return at == std::string::npos ? 0 : std::stod(text.substr(at + words.size()));
}

TEST(TrainDlrm, LearnsTheSameAloneAndOnTwoRanks) {
  const Ended one = run(TESSERA_EXAMPLE), two = run(TESSERA_PROGRAM " launch -n 2 -- " TESSERA_EXAMPLE);
  for (const Ended* ended : {&one, &two}) {
    EXPECT_EQ(ended->status, 0) << ended->output;
    EXPECT_THAT(ended->output, HasSubstr("step 100, loss 0."));
    EXPECT_LT(number_behind(ended->output, ", loss "), 0.67) << "0.693 is what a coin has";
    EXPECT_GT(number_behind(ended->output, "; test AUC "), 0.6);
  }
  EXPECT_NEAR(number_behind(one.output, ", loss "), number_behind(two.output, ", loss "), 2e-3);
  EXPECT_NEAR(number_behind(one.output, "; test AUC "), number_behind(two.output, "; test AUC "), 2e-3);
}

TEST(TrainDlrm, SavesWhereItIsTold) {
  const tessera::test::TestDirectory folder;
  const Ended ended = run(TESSERA_EXAMPLE " " + folder.path());
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_TRUE(std::filesystem::exists(folder.file("save-1/model.safetensors"))) << ended.output;
}

TEST(TrainDlrm, SaysInASentenceWhereItCannotSave) {
  const Ended ended = run(TESSERA_EXAMPLE " /dev/null/here");
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.output, HasSubstr("train_dlrm: "));
}

}  // namespace

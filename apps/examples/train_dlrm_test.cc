// Runs the training example on one rank and on two, with a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

struct Ended {
  int status = -1;
  std::string text;
};
Ended run(const std::string& command) {
  Ended out;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return out;
  char buffer[4096];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) out.text.append(buffer, n);
  const int status = ::pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return out;
}

double number_behind(const std::string& text, const std::string& words) {
  const size_t at = text.rfind(words);
  EXPECT_NE(at, std::string::npos) << text;
  return at == std::string::npos ? 0 : std::stod(text.substr(at + words.size()));
}

class TrainDlrm : public testing::Test {
 protected:
  TrainDlrm() : folder_(fs::path(testing::TempDir()) / ("train_dlrm_" + std::to_string(::getpid()))) {}
  ~TrainDlrm() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(TrainDlrm, LearnsTheSameAloneAndOnTwoRanks) {
  const Ended one = run(TESSERA_EXAMPLE), two = run(TESSERA_PROGRAM " launch -n 2 -- " TESSERA_EXAMPLE);
  for (const Ended* ended : {&one, &two}) {
    EXPECT_EQ(ended->status, 0) << ended->text;
    EXPECT_THAT(ended->text, HasSubstr("step 100, loss 0."));
    EXPECT_LT(number_behind(ended->text, ", loss "), 0.67) << "0.693 is what a coin has";
    EXPECT_GT(number_behind(ended->text, "; test AUC "), 0.6);
  }
  EXPECT_NEAR(number_behind(one.text, ", loss "), number_behind(two.text, ", loss "), 2e-3);
  EXPECT_NEAR(number_behind(one.text, "; test AUC "), number_behind(two.text, "; test AUC "), 2e-3);
}

TEST_F(TrainDlrm, SavesWhereItIsTold) {
  const Ended ended = run(TESSERA_EXAMPLE " " + folder_.string());
  EXPECT_EQ(ended.status, 0) << ended.text;
  EXPECT_TRUE(fs::exists(folder_ / "save-1" / "model.safetensors")) << ended.text;
}

TEST_F(TrainDlrm, SaysInASentenceWhereItCannotSave) {
  const Ended ended = run(TESSERA_EXAMPLE " /dev/null/here");
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.text, HasSubstr("train_dlrm: "));
}

}  // namespace

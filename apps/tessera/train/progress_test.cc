// Tests progress on a terminal: it stays on one line, whatever the terminal's width.
#include "train/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>

#include "train/reading_line.h"
#include "train/report_text.h"

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

ProgressState half_way() {
  return {.step = 250, .steps = 500, .epoch = 1, .samples_per_s = 98000, .seconds_left = 42.4, .loss = 0.69314};
}

TEST(Progress, SaysHowLongItStillTakes) {
  ProgressState p = half_way();
  EXPECT_EQ(progress_text(p), "step 250/500  0:42 to go  loss 0.6931  98000 samples/s  epoch 1");
  p.dense_rate = 0.25;
  EXPECT_THAT(progress_text(p), HasSubstr("  epoch 1  rates x 1 (tables) x 0.25 (dense)"));
  p.validation = "auc 0.7312";
  EXPECT_THAT(progress_text(p), HasSubstr("loss 0.6931  auc 0.7312  98000"));
  p.seconds_left = 3723;
  EXPECT_THAT(progress_text(p), HasSubstr("  1:02:03 to go  "));
}

TEST(Progress, FitsEveryWidth) {
  const std::string whole = progress_text(half_way());
  for (int columns = 1; columns < 200; ++columns) {
    const std::string line = progress_line(half_way(), columns);
    EXPECT_LT(line.size(), static_cast<size_t>(columns)) << line;
    EXPECT_THAT(whole, HasSubstr(line.substr(line.find(']') == std::string::npos ? 0 : line.find(']') + 2)));
  }
  EXPECT_EQ(progress_line(half_way(), 14), "step 250/500");
  EXPECT_EQ(progress_line(half_way(), 30), "step 250/500  0:42 to go");
  EXPECT_EQ(progress_line(half_way(), 120), "[###############...............] " + whole);
}

// Redirects standard error to a pseudo terminal of this many columns, as long as this object lives.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) : saved_(::dup(STDERR_FILENO)) {
    winsize size{};
    size.ws_row = 24;
    size.ws_col = columns;
    int inner = -1;
    if (::openpty(&outer_, &inner, nullptr, nullptr, &size) != 0) return;
    ::dup2(inner, STDERR_FILENO);
    ::close(inner);
    ::fcntl(outer_, F_SETFL, O_NONBLOCK);
  }
  ~Terminal() {
    ::dup2(saved_, STDERR_FILENO);
    ::close(saved_);
    if (outer_ >= 0) ::close(outer_);
  }
  bool works() const { return outer_ >= 0; }
  std::string seen() const {
    char buffer[4096];
    std::string text;
    for (ssize_t n = 0; (n = ::read(outer_, buffer, sizeof(buffer))) > 0;) text.append(buffer, static_cast<size_t>(n));
    return text;
  }

 private:
  int saved_, outer_ = -1;
};

TEST(Progress, ATerminalGetsNotesInLinesOf80Columns) {
  std::string seen;
  {
    const Terminal terminal(80);
    if (!terminal.works()) GTEST_SKIP() << "this system gives no pseudo-terminal: is /dev/pts mounted?";
    Progress progress({.first = 0, .steps = 100, .terminal = true});
    progress.note(
        "validation at step 315: rank.hit_rate@10 0.0189  rank.ndcg@10 0.0093  rank.mrr 0.0088  (10087 samples)");
    progress.note(
        "tessera: warning: a sentence that is somewhat longer than a terminal is wide is broken between words");
    seen = terminal.seen();
  }
  std::erase(seen, '\r');
  EXPECT_EQ(seen,
            "validation at step 315: rank.hit_rate@10 0.0189  rank.ndcg@10 0.0093\n"
            "  rank.mrr 0.0088  (10087 samples)\n"
            "tessera: warning: a sentence that is somewhat longer than a terminal is wide is\n"
            "  broken between words\n");
}

TEST(Progress, ATerminalSeesOneLineThatIsDrawnAgain) {
  std::string seen;
  {
    const Terminal terminal(40);
    if (!terminal.works()) GTEST_SKIP() << "this system gives no pseudo-terminal: is /dev/pts mounted?";
    ASSERT_TRUE(stderr_is_terminal());
    Progress progress({.first = 90, .steps = 100, .terminal = true});
    for (int64_t step = 91; step <= 100; ++step) progress.report({step, 3, 128 * (step - 90), 0.5});
    progress.finish();
    seen = terminal.seen();
  }
  ASSERT_THAT(seen, StartsWith("\r"));
  size_t lines = 0;
  for (size_t at = 0; at < seen.size();) {
    const size_t end = std::min(seen.find('\r', at + 1), seen.size());
    const std::string line = seen.substr(at + 1, end - at - 1);
    const size_t text = std::min(line.find("\x1b[K"), line.size());
    EXPECT_LT(text, 40u) << line;
    if (text < line.size()) ++lines;
    at = end;
  }
  EXPECT_EQ(lines, 10u);
  EXPECT_THAT(seen, HasSubstr("step 100/100  0:00 to go"));
  EXPECT_EQ(std::count(seen.begin(), seen.end(), '\n'), 1);  // printed by finish()
}

TEST(Reading, SaysHowMuchOfWhat) {
  EXPECT_EQ(reading_text("in/clicks.csv", 334000000, 120500000, 2.7),
            "reading clicks.csv (334 MB): 120 MB so far, 2 s");
  EXPECT_EQ(reading_text("in/*.csv", 0, 0, 1), "reading *.csv: 0 MB so far, 1 s");
  testing::internal::CaptureStderr();
  { const ReadingLine line("clicks.csv", true); }  // destroyed before there is anything to report
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Progress, TheFirstStepsDoNotSayHowLongItTakes) {
  testing::internal::CaptureStderr();
  Progress progress({.first = 0, .steps = 1000000, .log_every = 1});
  progress.report({1, 0, 64, 0.5});
  progress.report({500, 0, 64, 0.5});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("to go"))) << "before a second has gone by";
}

TEST(Progress, ARunThatGoesOnCountsItsOwnSteps) {
  testing::internal::CaptureStderr();
  Progress progress({.first = 1000, .steps = 2000, .log_every = 1});
  progress.report({1000, 0, 0, 0.5});
  progress.report({2000, 0, 64, 0.5});
  const std::string seen = testing::internal::GetCapturedStderr();
  EXPECT_THAT(seen, StartsWith("step 1000/2000  loss 0.5000"));  // no time can be estimated yet
  EXPECT_THAT(seen, HasSubstr("step 2000/2000  0:00 to go"));
  EXPECT_THAT(seen, Not(HasSubstr("\r")));
}

// Values of a test of `samples` rows, of which the share `positives` is positive.
MetricValues tested(int64_t samples, double auc, double positives, const std::string& head = "") {
  const double entropy = -positives * std::log(positives) - (1 - positives) * std::log(1 - positives);
  return {samples, {{head + "auc", auc}, {head + "logloss", 0.9 * entropy}, {head + "normalized_entropy", 0.9}}};
}

TEST(Results, SmallTestsSayHowMuchIsChance) {
  // Hanley and McNeil: 129 rows, 40 % positive, AUC 0.8: 1.96 standard errors are 0.0817; 147 rows as below: 0.125.
  EXPECT_EQ(chance_text(tested(7, 0.8, 0.4)), "These 7 rows are too few to tell an AUC from chance.\n");
  EXPECT_EQ(chance_text(tested(129, 0.8, 0.4)), "By chance alone, the AUC of 129 rows may be 0.08 higher or lower.\n");
  EXPECT_THAT(chance_text(tested(147, 0.7, 0.84, "buys.")), HasSubstr("0.13 higher or"));
  EXPECT_THAT(chance_text(tested(147, 0.7, 0.16)), HasSubstr("0.13 higher or"));
  EXPECT_THAT(chance_text(tested(1000, 0.9, 0.01)), HasSubstr("0.13")) << "few positives";
  EXPECT_THAT(chance_text(tested(33, 1, 0.5)), HasSubstr("0.06")) << "no error so far does not mean none";
  EXPECT_EQ(chance_text(tested(17000, 0.95, 0.5)), "");
  EXPECT_EQ(chance_text({10, {{"gauc", 0.5}}}), "") << "nothing is known of other metrics";
  EXPECT_THAT(chance_text({200, {{"rmse", 3.5}, {"mae", 2.5}}}), HasSubstr("the RMSE of 200 rows may be 10 % higher"));
  EXPECT_EQ(chance_text({2000, {{"rmse", 3.5}}}), "");
  EXPECT_EQ(chance_text({0, {{"rmse", std::nan("")}}}), "");
}

TEST(Results, TooGoodOrTooBadOnesAreDoubted) {
  EXPECT_EQ(doubts_text(tested(500, 0.99, 0.4)), "");
  EXPECT_THAT(doubts_text(tested(500, 0.9999, 0.4)), HasSubstr("So high an AUC often means that a column tells"));
  EXPECT_THAT(doubts_text(tested(500, 1, 0.4, "buys.")), HasSubstr("an AUC of buys often"));
  EXPECT_THAT(doubts_text({500, {{"auc", 0.6}, {"normalized_entropy", 1.2}}}), HasSubstr("A NE above 1 means"));
  EXPECT_THAT(doubts_text({500, {{"kind.multiclass_normalized_entropy", 1.2}}}),
              HasSubstr("A normalized entropy of kind above 1 means that"));
  EXPECT_EQ(doubts_text({500, {{"auc", std::nan("")}, {"normalized_entropy", std::nan("")}}}), "");
}

}  // namespace
}  // namespace tessera::cli

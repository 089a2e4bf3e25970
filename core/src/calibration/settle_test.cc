#include "tessera/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Machine sound(const char* name = "sound") {
  Machine m = Machine::typical("cpu");
  m.name = name;
  return m;
}
Curve without_time(const Curve& curve) {
  auto points = curve.points();
  for (auto& [size, seconds] : points) seconds = 1e-12;  // as written by a calibrate that ran next to a busy program
  return Curve(std::move(points));
}
Machine torn() {
  Machine m = sound("torn");
  m.intra_host->all_to_all = without_time(m.intra_host->all_to_all);
  return m;
}

struct Outcome {
  std::string name, error;
  size_t measured = 0;
  std::vector<std::string> said;
};
Outcome outcome_of(std::vector<Calibration> calibrations) {
  Outcome out;
  try {
    out.name = settled([&] { return calibrations.at(out.measured++); },
                       [&](const std::string& line) { out.said.push_back(line); })
                   .name;
  } catch (const Error& e) {
    out.error = e.what();
  }
  return out;
}

TEST(Settle, FiguresWithoutTimeAreNamed) {
  EXPECT_EQ(impossible_figure(sound()), "");
  EXPECT_EQ(impossible_figure(torn()), "an all-to-all of 1 MiB inside the host that takes no time");
  Machine m = sound();
  m.intra_host->all_reduce = without_time(m.intra_host->all_reduce);
  EXPECT_EQ(impossible_figure(m), "an all-reduce of 1 MiB inside the host that takes no time");
  m = sound();
  m.inter_host = torn().intra_host;
  EXPECT_EQ(impossible_figure(m), "an all-to-all of 1 MiB across hosts that takes no time");
  m = sound();
  m.dense.layer_forward = without_time(m.dense.layer_forward);
  EXPECT_EQ(impossible_figure(m), "dense layers whose forward takes no time");
  m = sound();
  m.dense.layer_backward = without_time(m.dense.layer_backward);
  EXPECT_EQ(impossible_figure(m), "dense layers whose backward takes no time");
  m = sound();
  tsr_row_cost row{};
  row.lookup = row.update = 1e-9;
  m.kernels.push_back({"cpu", {row}});
  EXPECT_EQ(impossible_figure(m), "");
  m.kernels[0].rows[0].update = 0;
  EXPECT_EQ(impossible_figure(m), "updates of kernel cpu that take no time");
  m.kernels[0].rows[0].lookup = 0;
  EXPECT_EQ(impossible_figure(m), "lookups of kernel cpu that take no time");
}

TEST(Settle, QuietAndSoundIsTakenAtOnce) {
  for (const std::optional<double> others : {std::optional<double>(0.02), std::optional<double>()}) {
    const Outcome out = outcome_of({{sound(), others}});
    EXPECT_EQ(out.name, "sound");
    EXPECT_EQ(out.measured, 1u);
    EXPECT_TRUE(out.said.empty());
  }
}

TEST(Settle, MeasuresAgainUntilItIsQuiet) {
  const Outcome out = outcome_of({{torn(), 0.48}, {sound("loud"), 0.3}, {sound(), 0.01}});
  EXPECT_EQ(out.name, "sound");
  EXPECT_THAT(
      out.said,
      ElementsAre("other programs used 48 % of the processors, but the result has an all-to-all of 1 MiB inside the "
                  "host that takes no time: measuring again",
                  "other programs used 30 % of the processors: measuring again"));
}

TEST(Settle, TakesTheQuietestOfLoudOnesAndSaysSo) {
  const Outcome out = outcome_of({{sound("first"), 0.4}, {sound("second"), 0.2}, {torn(), 0.15}});
  EXPECT_EQ(out.name, "second");
  ASSERT_EQ(out.said.size(), 4u);
  EXPECT_EQ(out.said.back(),
            "the figures are noisy: other programs used 20 % of the processors, in the quietest of the 3 times");
}

TEST(Settle, RefusesWhatCannotBe) {
  const Outcome out = outcome_of({{torn(), 0.4}, {torn(), 0.01}, {torn(), std::nullopt}});
  EXPECT_EQ(out.measured, 3u);
  EXPECT_THAT(out.error, HasSubstr("3 attempts gave a result with an all-to-all of 1 MiB inside the host that takes "
                                   "no time"));
  EXPECT_THAT(out.error, HasSubstr("nothing is saved"));
}

}  // namespace
}  // namespace tessera

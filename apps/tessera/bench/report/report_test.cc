// Tests what is made of a bench's lines: comparisons, bars, the page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/report/bars.h"
#include "bench/report/circumstances.h"
#include "bench/report/compare.h"
#include "bench/report/page.h"
#include "bench/report/peers.h"
#include "bench/report/record.h"
#include "bench/report/workload_file.h"
#include "command.h"
#include "config/test_directory.h"
#include "config/test_refusal.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Line lookup_line(const std::string& kernel, const std::string& pass, double median, double gbps, int rows = 1000000) {
  return {{"bench", "lookup"},
          {"kernel", kernel},
          {"pass", pass},
          {"optimizer", "none"},
          {"T", 1},
          {"E", rows},
          {"D", 64},
          {"B", 2048},
          {"L", 20},
          {"dtype", "fp32"},
          {"threads", 1},
          {"alpha", 0.0},
          {"median_us", median},
          {"p10_us", median * 0.97},
          {"p25_us", median * 0.99},
          {"p75_us", median * 1.01},
          {"p90_us", median * 1.05},
          {"gbps", gbps},
          {"verified", true}};
}

Line collective_line(const std::string& backend, int64_t bytes, double median) {
  return {{"bench", "collective"}, {"backend", backend},     {"op", "all_to_all"},     {"bytes", bytes},  {"world", 2},
          {"median_us", median},   {"p10_us", median * 0.9}, {"p90_us", median * 1.1}, {"verified", true}};
}

Line step_line(const std::string& sharding, double median) {
  return {{"bench", "step"},
          {"world", 2},
          {"rows", "criteo:100000"},
          {"D", 16},
          {"B", 16},
          {"L", 1},
          {"sharding", sharding},
          {"median_us", median},
          {"p10_us", median * 0.9},
          {"p90_us", median * 1.1},
          {"kernel_us", 20.25},
          {"exchange_us", 30.5},
          {"overhead_us", median - 50.75}};
}

Line run_line(const std::string& cpu = "A processor") {
  return {{"bench", "run"},  {"name", "lookup"}, {"cpu", cpu},
          {"processors", 2}, {"memory_gib", 24}, {"others_percent", 3.5}};
}

std::vector<Line> all_kinds() {
  std::vector<Line> lines{lookup_line("cpu", "forward", 400.125, 26), lookup_line("limit", "limit", 350, 30)};
  for (const int64_t bytes : {4096, 65536, 2097152}) {
    lines.push_back(collective_line("tcp", bytes, 5 + static_cast<double>(bytes) / 9000));
    lines.push_back(collective_line("raw", bytes, 4 + static_cast<double>(bytes) / 9500));
  }
  lines.push_back(step_line("table_wise", 90));
  lines.push_back(step_line("row_wise & <others>", 130));
  const std::vector<Line> bars = judged(lines);
  lines.insert(lines.end(), bars.begin(), bars.end());
  lines.push_back(run_line());
  return lines;
}

PageParts charts_of(const PageParts& parts, const char* kind) {
  PageParts out = PageParts::array();
  for (const PageParts& part : parts) {
    if (part.contains("chart") && part["chart"]["kind"] == kind) out.push_back(part["chart"]);
  }
  return out;
}

TEST(Lines, RoundsOfOneMeasurementArePutTogether) {
  const auto results = measured({lookup_line("cpu", "forward", 10, 1), lookup_line("cpu", "forward", 30, 1),
                                 lookup_line("cpu", "forward", 20, 1), run_line()});
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].time.median, 20);
  EXPECT_EQ(results[0].time.p25, 15);
  EXPECT_EQ(results[0].lines, 3);
}

TEST(Lines, LabelsNameTheDifferences) {
  const auto results = measured({lookup_line("cpu", "forward", 10, 1), lookup_line("cpu", "forward", 10, 1, 50)});
  EXPECT_THAT(labels(results), ElementsAre("E 1000000", "E 50"));
  EXPECT_THAT(common_label(results), HasSubstr("cpu · forward"));
}

TEST(Compare, ChangesBeyondTheNoise) {
  const std::vector<Line> before{lookup_line("cpu", "forward", 100, 1), lookup_line("a", "forward", 100, 1),
                                 lookup_line("b", "forward", 100, 1), lookup_line("gone", "forward", 1, 1), run_line()};
  const std::vector<Line> after{lookup_line("cpu", "forward", 110, 1), lookup_line("a", "forward", 80, 1),
                                lookup_line("b", "forward", 101, 1), lookup_line("fresh", "forward", 1, 1),
                                run_line("Another processor")};
  const auto lines = compare(before, after);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0]["change"], "slower");
  EXPECT_NEAR(lines[0]["percent"], 10, 1e-9);
  EXPECT_EQ(lines[1]["change"], "faster");
  EXPECT_EQ(lines[2]["change"], "new");
  EXPECT_EQ(lines[3]["change"], "gone");
  EXPECT_EQ(lines[4]["same"], 1);
  EXPECT_EQ(lines[4]["note"], "another machine: cpu was A processor and is Another processor");
  EXPECT_THAT(changes_text(lines), HasSubstr("1 the same within the noise, 1 faster, 1 slower, 1 new, 1 gone"));
}

TEST(Compare, QuartilesThatOverlapAreNoise) {
  Line before = lookup_line("cpu", "forward", 100, 1), after = lookup_line("cpu", "forward", 110, 1);
  before["p75_us"] = 112;
  const auto lines = compare({before}, {after});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["same"], 1);
}

Line with_rounds(const std::vector<double>& rounds) {
  Line line = lookup_line("cpu", "forward", 1, 1);
  for (const char* key : {"median_us", "p10_us", "p25_us", "p75_us", "p90_us", "gbps", "verified"}) line.erase(key);
  add_times(&line, "us", rounds);
  return line;
}

TEST(Compare, RoundsOfTwoRunsAreRankedAndNotPaired) {
  // Each round of the new run is slower than the same round of the old one, but so are the old run's late rounds.
  const std::vector<double> drifting{100, 110, 120, 130, 140, 150, 160, 170, 180};
  std::vector<double> later, other;
  for (const double x : drifting) later.push_back(x + 6), other.push_back(x + 100);
  const auto close = compare({with_rounds(drifting), run_line()}, {with_rounds(later), run_line()});
  ASSERT_EQ(close.size(), 1u);
  EXPECT_EQ(close[0]["same"], 1);
  EXPECT_EQ(close[0]["by_ranks"], 1);
  const auto far = compare({with_rounds(drifting), run_line()}, {with_rounds(other), run_line()});
  ASSERT_EQ(far.size(), 2u);
  EXPECT_EQ(far[0]["change"], "slower");
  EXPECT_THAT(far[0]["test"].get<std::string>(), HasSubstr("ranks, p 0.000"));
  const std::string text = changes_text(far);
  EXPECT_THAT(text, HasSubstr("rank test (Mann-Whitney)"));
  EXPECT_THAT(text, HasSubstr("used 3.5 % of the processors in the old run and 3.5 % in the new one"));
  EXPECT_THAT(text, Not(HasSubstr("quartiles that")));
  EXPECT_THAT(bench_parts(far).dump(), HasSubstr("rank test (Mann-Whitney)"));
}

TEST(Compare, FewRoundsAreJudgedByQuartiles) {
  const auto lines = compare({with_rounds({100, 101, 102})}, {with_rounds({110, 111, 112})});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["test"], "quartiles");
  EXPECT_EQ(lines[1]["by_quartiles"], 1);
  EXPECT_THAT(changes_text(lines), HasSubstr("quartiles that do not overlap: a run has less than 6 rounds"));
  EXPECT_THAT(changes_text(lines), HasSubstr("is not known of both runs"));
}

// The probabilities are exact: 2 / C(18, 9) if the samples lie apart; by symmetry 1 if they are the same.
TEST(Compare, RankTest) {
  const std::vector<double> low{1, 2, 3, 4, 5, 6, 7, 8, 9}, high{11, 12, 13, 14, 15, 16, 17, 18, 19};
  EXPECT_NEAR(rank_test(low, high), 2.0 / 48620, 4e-4);
  EXPECT_GT(rank_test(low, high), 0);
  EXPECT_EQ(rank_test(low, high), rank_test(high, low));
  EXPECT_NEAR(rank_test(low, low), 1, 1e-12);
  EXPECT_EQ(rank_test({5, 5, 5, 5, 5, 5}, {5, 5, 5, 5, 5, 5}), 1);
  // One sample of each is exchanged: U = 1, mean 18, variance 39; erfc(16.5 / sqrt(39) / sqrt(2)).
  EXPECT_NEAR(rank_test({1, 2, 3, 4, 5, 7}, {6, 8, 9, 10, 11, 12}), 0.008239, 1e-6);
}

TEST(Compare, AFileThatIsNoResultIsOneSentence) {
  const test::TestDirectory folder;
  EXPECT_THAT(test::refusal<UsageError>([] { (void)read_result("/no/such/file"); }),
              HasSubstr("cannot read /no/such/file"));
  const std::string damaged =
      folder.write("damaged", lookup_line("cpu", "forward", 1, 1).dump() + "\n{\"bench\": \"loo");
  EXPECT_THAT(test::refusal<UsageError>([&] { (void)read_result(damaged); }),
              HasSubstr("damaged:2 is not a line of a bench"));
  const std::string empty = folder.write("empty", run_line().dump() + "\n");
  EXPECT_THAT(test::refusal<UsageError>([&] { (void)read_result(empty); }), HasSubstr("has no measurement"));
}

TEST(Bars, HoldOrNot) {
  const auto lines = judged(all_kinds());
  const auto found = [&](const std::string& bar) -> Line {
    for (const Line& line : lines) {
      if (line["bar"] == bar) return line;
    }
    return {{"holds", "there is no such bar"}};
  };
  EXPECT_EQ(found("forward, share of the gather limit")["holds"], true);
  EXPECT_NEAR(found("forward, share of the gather limit")["value"], 350 / 400.125, 1e-9);
  EXPECT_EQ(found("4 KiB, times the raw exchange")["holds"], true);
  EXPECT_EQ(found("from 2 MiB, share of the raw bandwidth")["holds"], true);
  const Line step = found("neither kernel nor exchange, times the bare exchanges");
  EXPECT_EQ(step["holds"], true) << step;
  EXPECT_EQ(step["bound"], 5.0);
}

Line bar_of(const std::vector<Line>& lines, const std::string& bar) {
  for (const Line& line : judged(lines)) {
    if (line["bar"] == bar) return line;
  }
  return {{"holds", "there is no such bar"}};
}

TEST(Bars, OfMovesNeedThreadsThatCopyFaster) {
  const auto lines = [](double copy, double combine) {
    std::vector<Line> out;
    for (const auto& [op, threads, us] : {std::tuple("memcpy", 1, 100.0),
                                          {"memcpy", 2, 100 / copy},
                                          {"combine", 1, 300.0},
                                          {"combine", 2, 300 / combine}})
      out.push_back({{"bench", "moves"}, {"op", op}, {"threads", threads}, {"median_us", us}});
    return out;
  };
  const std::string bar = "rows moved, two threads over one";
  EXPECT_EQ(bar_of(lines(1.8, 1.6), bar)["holds"], true);
  EXPECT_EQ(bar_of(lines(1.8, 1.4), bar)["holds"], false);
  EXPECT_EQ(judged(lines(1.5, 1.4)).size(), 0u);
}

TEST(Bars, GrowthIsTheExponentOfTheUpperHalf) {
  const auto curve = [](const char* kernel, double power, double more) {
    std::vector<Line> out;
    for (const double rows : {1e2, 1e3, 1e4, 1e5, 1e6})
      out.push_back({{"bench", "scale"},
                     {"of", "lookup"},
                     {"grows", "rows"},
                     {"exponent", 1.0},
                     {"kernel", kernel},
                     {"rows", rows},
                     {"median_us", more + std::pow(rows, power)}});
    return out;
  };
  std::vector<Line> lines = curve("cpu", 1.1, 500), other = curve("slow", 1.2, 0);
  lines.insert(lines.end(), other.begin(), other.end());
  const std::vector<Line> bars = judged(lines);
  ASSERT_EQ(bars.size(), 2u);
  EXPECT_EQ(bars[0]["of"], "lookup cpu");
  EXPECT_NEAR(bars[0]["value"].get<double>(), 1.1, 0.01) << "what a call costs by itself does not count";
  EXPECT_EQ(bars[0]["holds"], true);
  EXPECT_NEAR(bars[1]["value"].get<double>(), 1.2, 1e-9);
  EXPECT_EQ(bars[1]["holds"], false);
  EXPECT_TRUE(judged({lines[0], lines[1]}).empty()) << "two points";
}

TEST(Bars, AVariantOfATransportIsNotHeldAgainstOpenMpiTwice) {
  const std::vector<Line> both{collective_line("tcp", 4096, 1), collective_line("tcp?shm=false", 4096, 7),
                               collective_line("mpi", 4096, 2)};
  EXPECT_EQ(judged(both).size(), 1u);
  const auto alone = judged({both[1], both[2]});
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_EQ(alone[0]["bar"], "times Open MPI");
  EXPECT_EQ(alone[0]["value"], 3.5);
}

// Bars hold within one run: a machine that is five times slower in everything meets the same bars.
TEST(Bars, OfAStepAreRatios) {
  const std::string small = "neither kernel nor exchange, times the bare exchanges",
                    large = "neither kernel nor exchange, times copying what travels";
  for (const double slower : {1.0, 5.0}) {
    const auto line = [&](int dim, int batch, double overhead) -> Line {
      Line out = step_line("table_wise", slower * (50.75 + overhead));
      out["D"] = dim;
      out["B"] = batch;
      out["exchange_us"] = slower * 30.5;
      out["overhead_us"] = slower * overhead;
      out["copy_us"] = slower * 8;
      return out;
    };
    for (const auto& [dim, batch] : {std::pair{16, 16}, {64, 16}, {16, 128}}) {
      EXPECT_EQ(bar_of({line(dim, batch, 152)}, small)["holds"], true);
      EXPECT_EQ(bar_of({line(dim, batch, 153)}, small)["holds"], false);
    }
    EXPECT_EQ(bar_of({line(64, 128, 31)}, large)["holds"], true);
    EXPECT_EQ(bar_of({line(64, 128, 33)}, large)["holds"], false);
    EXPECT_TRUE(judged({line(64, 64, 500)}).empty());
  }
}

TEST(Bars, TwoThreadsAgainstOneWhereTheMachineHasTwo) {
  const std::string bar = "dense part, two threads over one";
  const auto line = [](int threads, double dense, double sgemm) -> Line {
    return {{"bench", "train"},      {"rows", "criteo:100000"}, {"B", 2048},
            {"threads", threads},    {"median_us", 9.0},        {"dense_gflops", dense},
            {"sgemm_gflops", sgemm}, {"dense_of_sgemm", 0.95}};
  };
  EXPECT_EQ(bar_of({line(1, 100, 100), line(2, 165, 185)}, bar)["holds"], true);
  EXPECT_EQ(bar_of({line(1, 100, 100), line(2, 155, 185)}, bar)["holds"], false);
  EXPECT_FALSE(bar_of({line(1, 100, 100), line(2, 155, 170)}, bar).contains("value"));
  EXPECT_FALSE(bar_of({line(2, 155, 185)}, bar).contains("value"));
}

TEST(Bars, OfTrainingAndOfAStart) {
  const std::string dense = "dense part, share of the matrix products' speed";
  Line train{{"bench", "train"}, {"rows", "criteo:100000"}, {"median_us", 9.0}, {"dense_of_sgemm", 0.91}};
  EXPECT_EQ(bar_of({train}, dense)["holds"], true);
  train["dense_of_sgemm"] = 0.89;
  EXPECT_EQ(bar_of({train}, dense)["holds"], false);
  const std::string first = "process start to the end of the first step, times its floor";
  Line start{{"bench", "start"}, {"T", 26}, {"median_s", 0.25}, {"floor_s", 0.07}};
  EXPECT_EQ(bar_of({start}, first)["holds"], true);
  start["floor_s"] = 0.06;
  EXPECT_EQ(bar_of({start}, first)["holds"], false);
  Line save{{"bench", "save"},         {"world", 1},    {"median_s", 0.125},
            {"copy_s", 0.1},           {"save_s", 1.0}, {"plain_write_s", 0.85},
            {"pace_while_saving", 0.9}};
  EXPECT_EQ(bar_of({save}, "pause for a checkpoint, copies of the rank's rows")["holds"], true);
  EXPECT_EQ(bar_of({save}, "speed of a checkpoint, share of a plain program's")["holds"], true);
  EXPECT_EQ(bar_of({save}, "pace while a checkpoint is written")["holds"], true);
  save["median_s"] = 0.14;
  save["save_s"] = 1.1;
  EXPECT_EQ(bar_of({save}, "pause for a checkpoint, copies of the rank's rows")["holds"], false);
  EXPECT_EQ(bar_of({save}, "speed of a checkpoint, share of a plain program's")["holds"], false);
  Line adam = lookup_line("cpu", "train", 500, 20);
  adam["optimizer"] = "adam";
  adam["moved_gbps"] = 21.0;
  const Line limit = lookup_line("limit", "limit", 350, 30);
  EXPECT_NEAR(bar_of({adam, limit}, "adam, share of the gather limit's bytes a second")["value"], 0.7, 1e-9);
}

TEST(Bars, OfADeviceAreSharesOfItsCopies) {
  const auto line = [](const char* kernel, const char* pass, double gbps) -> Line {
    return {{"bench", "lookup"}, {"kernel", kernel},
            {"pass", pass},      {"T", 2},
            {"E", 4194304},      {"D", 128},
            {"B", 109375},       {"L", 20},
            {"dtype", "fp32"},   {"alpha", 0.0},
            {"device", "cuda"},  {"median_us", 9.0},
            {"gbps", gbps},      {"moved_gbps", 2 * gbps}};
  };
  const std::string forward = "forward, rows read over bytes copied",
                    train = "training, rows and states moved over copied";
  const Line copy = line("copy", "copy", 3000);
  EXPECT_EQ(bar_of({line("cuda", "forward", 2600), copy}, forward)["holds"], true);
  EXPECT_EQ(bar_of({line("cuda", "forward", 2500), copy}, forward)["holds"], false);
  EXPECT_EQ(bar_of({line("cuda", "train", 910), copy}, train)["holds"], true);
  EXPECT_EQ(bar_of({line("cuda", "train", 890), copy}, train)["holds"], false);
  Line small = line("cuda", "forward", 2600), narrow = line("cuda", "forward", 2200), copied = copy;
  small["B"] = 1000;  // its rows fit into caches
  EXPECT_TRUE(judged({small, copy}).empty());
  narrow["D"] = copied["D"] = 64;
  narrow["B"] = copied["B"] = 218750;
  narrow["E"] = copied["E"] = 8388608;
  EXPECT_EQ(bar_of({narrow, copied}, forward)["bound"], 0.7);
}

Line peer_line(const std::string& name, double median, int round) {
  return {{"bench", "lookup"}, {"peer", name},    {"pass", "forward"}, {"T", 1},
          {"E", 1000000},      {"D", 64},         {"B", 2048},         {"threads", 1},
          {"alpha", 0},        {"dtype", "fp32"}, {"round", round},    {"median_us", median}};
}

TEST(Peers, RoundsInTurnArePaired) {
  // The machine was twice as slow in the second round, and the peer met a burst in the third.
  std::vector<Line> lines{lookup_line("cpu", "forward", 100, 1), peer_line("FBGEMM", 300, 0),
                          lookup_line("cpu", "forward", 200, 1), peer_line("FBGEMM", 600, 1),
                          lookup_line("cpu", "forward", 100, 1), peer_line("FBGEMM", 900, 2)};
  for (int round = 0; round < 3; ++round) lines[2 * static_cast<size_t>(round)]["round"] = round;
  const Line bar = bar_of(lines, "FBGEMM's time over this one's");
  EXPECT_EQ(bar["value"], 3.0) << bar;
  EXPECT_EQ(bar["bound"], 1.5);
  EXPECT_EQ(bar["holds"], true);
  const Line once = bar_of({lookup_line("cpu", "forward", 100, 1), peer_line("FBGEMM", 120, 0)},
                           "FBGEMM's time over this one's, not interleaved");
  EXPECT_EQ(once["holds"], false) << once;
  // Nothing reads rows faster than 85 % of the limit allows: 0.85 * 120 / 85 = 1.2.
  const Line limited =
      bar_of({lookup_line("cpu", "forward", 100, 1), lookup_line("limit", "limit", 85, 1), peer_line("FBGEMM", 120, 0)},
             "FBGEMM's time over this one's, not interleaved");
  EXPECT_NEAR(limited["bound"], 1.2, 1e-9) << limited;
  EXPECT_NEAR(limited["value"], 1.2, 1e-9) << limited;
}

TEST(Peers, RoundsOfAnotherRunAreNotPaired) {
  std::vector<Line> own, peers;
  for (int round = 0; round < 3; ++round) {
    own.push_back(lookup_line("cpu", "forward", round == 1 ? 200 : 100, 1));
    own.back()["round"] = round;
    peers.push_back(peer_line("FBGEMM", round == 0 ? 300 : 900, round));
  }
  const auto bar = [&](const std::vector<Line>& theirs, const std::string& more) {
    std::vector<Line> lines = own;
    lines.insert(lines.end(), theirs.begin(), theirs.end());
    return bar_of(lines, "FBGEMM's time over this one's" + more)["value"];
  };
  EXPECT_EQ(bar(peers, ""), 4.5);  // the median of 3, 4.5 and 9
  EXPECT_EQ(bar(peers_of_another_run(peers), ", not interleaved"), 9);
  for (Line& line : peers) line["round"] = line["round"].get<int>() + 1;
  EXPECT_EQ(bar(peers, ", not interleaved"), 9);
}

TEST(Peers, AreOfTheWorkloadThatTheyFit) {
  Line own = lookup_line("cpu", "forward", 100, 1);
  own["workload"] = "s1";
  Line odd = peer_line("Odd", 5, 0);
  odd["D"] = 65;
  std::vector<std::string> strangers;
  const auto peers = completed_peers({peer_line("FBGEMM", 300, 0), odd}, {own}, &strangers);
  ASSERT_EQ(peers.size(), 2u);
  EXPECT_EQ(peers[0]["L"], 20);
  EXPECT_FALSE(peers[0].contains("kernel"));
  EXPECT_THAT(strangers, ElementsAre(HasSubstr("Odd pass=forward T=1 E=1000000 D=65")));
  const PageParts bars = charts_of(bench_parts({own, peers[0]}), "bars");
  ASSERT_EQ(bars.size(), 1u);
  EXPECT_EQ(bars[0]["labels"], Line({"cpu", "FBGEMM"}));
  EXPECT_EQ(bars[0]["values"], Line({100.0, 300.0}));
}

TEST(Peers, AreNoChange) {
  const auto lines = compare({lookup_line("cpu", "forward", 100, 1), peer_line("FBGEMM", 300, 0), run_line()},
                             {lookup_line("cpu", "forward", 100, 1), run_line()});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["gone"], 0);
}

TEST(Peers, WhatCannotBeIsOneSentence) {
  const test::TestDirectory folder;
  Line nameless = peer_line("", 300, 0), timeless = peer_line("FBGEMM", 0, 0);
  EXPECT_THAT(test::refusal<UsageError>([&] { (void)read_result(folder.write("a", nameless.dump() + "\n")); }),
              HasSubstr("a:1: \"peer\" must be the name of a program"));
  EXPECT_THAT(test::refusal<UsageError>([&] { (void)read_result(folder.write("b", timeless.dump() + "\n"), "show"); }),
              HasSubstr("b:1: a peer's line needs \"median_us\""));
}

TEST(Noise, IsAShare) {
  const Noise noise;
  EXPECT_EQ(noise.share(), std::nullopt);  // too little time has passed to tell
  const Line machine = machine_record();
  EXPECT_GE(machine["processors"], 1);
  EXPECT_FALSE(machine["cpu"].get<std::string>().empty());
  EXPECT_THAT(machine["isa"].get<std::string>(), ::testing::AnyOf("avx512", "avx2", "portable"));
  ::setenv("TESSERA_ISA", "portable", 1);
  const Line forced = machine_record();
  ::unsetenv("TESSERA_ISA");
  EXPECT_EQ(forced["isa"], "portable");
  EXPECT_THAT(machine_text(forced), HasSubstr("portable (forced)"));
}

TEST(Workloads, DefaultsNamesAndOverrides) {
  const test::TestDirectory folder;
  const std::string file = folder.write("w.toml",
                                        "bench = \"lookup\"\n[defaults]\npass = [\"forward\", \"limit\"]\nrows = 5\n"
                                        "[zebra]\nrows = 1_000\nfill = 0.5\n[ant]\nquick = true\nslow = false\n");
  const auto all = load_workloads(file, "lookup", "", {"--json", "--dim=3"});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].name, "zebra");  // in the file's order
  EXPECT_THAT(all[0].arguments, ElementsAre("--fill=0.5", "--pass=forward,limit", "--rows=1000"));
  EXPECT_THAT(all[1].arguments, ElementsAre("--pass=forward,limit", "--quick", "--rows=5"));
  const auto one = load_workloads(file, "lookup", "ant", {"--pass", "train", "--rows=7"});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_THAT(one[0].arguments, ElementsAre("--quick"));
}

TEST(Workloads, WhatCannotBeIsOneSentence) {
  const test::TestDirectory folder;
  const std::pair<const char*, const char*> cases[] = {
      {"bench = ", "w.toml:1"},
      {"bench = \"step\"\n[a]\n", "is for tessera bench step, not for lookup"},
      {"[a]\n", "add bench = \"lookup\""},
      {"bench = \"lookup\"\n", "has no workload"},
      {"bench = \"lookup\"\nrows = 5\n[a]\n", "w.toml:2: rows stands outside of all workloads"},
      {"bench = \"lookup\"\n[a]\nrows = []\n", "w.toml:3: rows is an empty array"},
      {"bench = \"lookup\"\n[a]\nrows = {x = 1}\n", "w.toml:3: rows must be"},
  };
  for (const auto& [text, sentence] : cases) {
    const std::string file = folder.write("w.toml", text);
    const std::string message = test::refusal<UsageError>([&] { (void)load_workloads(file, "lookup", "", {}); });
    EXPECT_THAT(message, HasSubstr(sentence)) << text;
    EXPECT_THAT(message, Not(HasSubstr("\n")));
  }
  EXPECT_THAT(test::refusal<UsageError>([] { (void)load_workloads("/no/file", "lookup", "", {}); }),
              HasSubstr("cannot read /no/file"));
  const std::string file = folder.write("w.toml", "bench = \"lookup\"\n[a]\n[b]\n");
  EXPECT_THAT(test::refusal<UsageError>([&] { (void)load_workloads(file, "lookup", "c", {}); }),
              HasSubstr("has no workload \"c\"; it has a, b"));
}

TEST(Page, HasAPlotOfEachKindAndItsSections) {
  const PageParts parts = bench_parts(all_kinds());
  std::vector<std::string> headings;
  for (const PageParts& part : parts) {
    if (part.contains("heading")) headings.push_back(part["heading"]);
  }
  EXPECT_THAT(headings, ElementsAre("Bars on speed", "Times", "As the work grows", "Against the gather limit", "Stages",
                                    "All figures"));
  const PageParts growth = charts_of(parts, "lines");
  ASSERT_EQ(growth.size(), 1u);
  EXPECT_EQ(growth[0]["series"][0]["name"], "tcp");
  EXPECT_EQ(growth[0]["series"][0]["points"][0], Line({4096.0, 5 + 4096.0 / 9000}));
  EXPECT_EQ(growth[0]["series"][0]["low"].size(), 3u);
  EXPECT_EQ(bench_title(all_kinds()), "tessera bench lookup");
}

TEST(Page, HasEveryFigure) {
  const std::vector<Line> lines = all_kinds();
  const PageParts parts = bench_parts(lines);
  PageParts cells;
  for (const PageParts& part : parts) {
    for (const PageParts& row : part.value("table", PageParts::array())) {
      for (const auto& [column, value] : row.items()) cells.push_back(value);
    }
  }
  for (const Line& line : lines) {
    EXPECT_THAT(parts.back()["text"].get<std::string>(), HasSubstr(line.dump()));
    if (line["bench"] == "run") continue;
    for (const auto& [key, value] : line.items())
      EXPECT_TRUE(key == "bench" || std::find(cells.begin(), cells.end(), value) != cells.end()) << key;
  }
}

TEST(Lines, NumbersHaveNoExponent) {
  EXPECT_EQ(value_text(Line(101570.3)), "101570");
  EXPECT_EQ(value_text(Line(99999.7)), "100000");
  EXPECT_EQ(value_text(Line(67108864.0)), "67108864");
  EXPECT_EQ(value_text(Line(-250000.0)), "-250000");
  EXPECT_EQ(value_text(Line(1.23456789)), "1.2346");
  EXPECT_EQ(time_text(999.7), "1 ms");
  EXPECT_EQ(time_text(999.4), "999 us");
  EXPECT_EQ(time_text(999.8e3), "1 s");
  EXPECT_EQ(time_text(4.2e9), "4200 s");
}

TEST(Page, StagesAreStackedAndTheirTableFollowsThatOfTimes) {
  Line one = step_line("table_wise", 90), two = step_line("row_wise", 120);
  one["stages_us"] = {{"route", 1.25}, {"combine", 3.5}};
  two["stages_us"] = {{"combine", 4.5}, {"route", 2.75}};
  const PageParts parts = bench_parts({one, two});
  const PageParts stacks = charts_of(parts, "stacks");
  ASSERT_EQ(stacks.size(), 1u);
  EXPECT_EQ(stacks[0]["series"][0], Line({{"name", "route"}, {"values", {1.25, 2.75}}}));
  const PageParts& table = parts[parts.size() - 2]["table"];
  EXPECT_EQ(table[1], Line({{"stages (µs)", "row_wise"}, {"combine", 4.5}, {"route", 2.75}}));
  EXPECT_TRUE(parts[parts.size() - 3]["table"][0].contains("median (µs)"));
}

TEST(Page, ExplainsItsOneLetterNames) {
  EXPECT_THAT(bench_parts(all_kinds()).dump(),
              HasSubstr("T: tables, E: rows of each table, D: columns of each table, B: samples of a batch"));
  EXPECT_THAT(bench_parts({collective_line("tcp", 4096, 5)}).dump(), Not(HasSubstr("T: tables")));
}

TEST(Page, AFileThatCannotBeWrittenIsOneSentence) {
  EXPECT_THAT(test::refusal<UsageError>([] { check_writable("/no/such/folder/x.html"); }),
              HasSubstr("/no/such/folder/x.html"));
  EXPECT_THAT(test::refusal<UsageError>([] { check_writable("/tmp"); }), HasSubstr("cannot write /tmp"));
}

}  // namespace
}  // namespace tessera::cli

#include "tessera/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "config/test_refusal.h"
#include "config/test_replaced.h"
#include "tessera/sdk/cost.h"
#include "tessera/sdk/sized.h"

namespace tessera {
namespace {

using test::replaced;
using ::testing::HasSubstr;

// A machine with figures of every kind.
Machine complete() {
  Machine m = Machine::typical("cpu");
  m.name = "test";
  m.measured = true;
  m.ranks = 2;
  KernelFigures k{.kernel = "cpu"};
  for (const double row : {64.0, 256.0}) {
    for (const double reuse : {1e5, 1e8}) {
      const double far = reuse > 1e6 ? 4 : 1;
      k.rows.push_back({row, reuse, row * far * 1e-10, row * far * 3e-10, 1e-8, 2e-9, 3e-9});
    }
  }
  k.run_forward = 5e-8;
  k.call_backward = 7e-7;
  m.kernels.push_back(k);
  return m;
}

TEST(Curve, IsStraightInLogarithmsAndProportionalBeyond) {
  const Curve c({{100, 1.0}, {10000, 100.0}});
  EXPECT_DOUBLE_EQ(c.at(1), 1.0);
  EXPECT_DOUBLE_EQ(c.at(100), 1.0);
  EXPECT_NEAR(c.at(1000), 10.0, 1e-9);
  EXPECT_DOUBLE_EQ(c.at(10000), 100.0);
  EXPECT_DOUBLE_EQ(c.at(30000), 300.0);
  EXPECT_EQ(Curve().at(5), 0);
}

TEST(Curve, RefusesWhatIsNoCurve) {
  EXPECT_THROW(Curve({{2, 1}, {1, 1}}), Error);
  EXPECT_THROW(Curve({{1, 0}}), Error);
  EXPECT_THROW(Curve({{-1, 1}}), Error);
}

TEST(Link, ManyRanksSendMoreMessages) {
  const LinkFigures link{"tcp", 2, Curve({{64, 1e-5}, {1e6, 1e-3}}), Curve({{64, 1e-5}, {1e6, 2e-3}})};
  EXPECT_EQ(link.all_to_all_at(1, 1e6), 0);
  EXPECT_DOUBLE_EQ(link.all_to_all_at(2, 1e6), 1e-3);
  EXPECT_DOUBLE_EQ(link.all_to_all_at(5, 1e6), 1e-3 + 3e-5);
  EXPECT_DOUBLE_EQ(link.all_reduce_at(2, 1e6), 2e-3);
  EXPECT_GT(link.all_reduce_at(4, 1e6), 2e-3);
}

TEST(Link, MessagesShareADelay) {
  const LinkFigures link = LinkFigures::of_network(1e9, 1e-3, 1e-6);
  EXPECT_NEAR(link.all_to_all_at(2, 64), 1.001e-3, 2e-7);
  EXPECT_NEAR(link.all_to_all_at(16, 64), 1.015e-3, 2e-6);
  // An all-reduce is two exchanges of each rank with each other one, or rounds if those take less time.
  EXPECT_NEAR(link.all_reduce_at(16, 64), 2 * 1.015e-3, 4e-6);
  EXPECT_NEAR(LinkFigures::of_network(1e9, 1e-6, 1e-6).all_reduce_at(1024, 64), 10 * 4e-6, 1e-6);
}

TEST(RowCost, ReadsTheGridAndBetweenIt) {
  const Machine m = complete();
  const tsr_machine raw = m.kernels[0].raw();
  EXPECT_DOUBLE_EQ(sdk::row_cost_at(raw, 64, 1e5).lookup, 64e-10);
  EXPECT_DOUBLE_EQ(sdk::row_cost_at(raw, 256, 1e8).update, 4 * 256 * 3e-10);
  // Between two points of an axis, the cost is the geometric mean.
  EXPECT_NEAR(sdk::row_cost_at(raw, 128, 1e5).lookup, 128e-10, 1e-15);
  EXPECT_NEAR(sdk::row_cost_at(raw, 64, std::sqrt(1e5 * 1e8)).lookup, 2 * 64e-10, 1e-15);
  // Outside, the nearest point counts; for longer rows, in proportion to their length.
  EXPECT_DOUBLE_EQ(sdk::row_cost_at(raw, 16, 1).lookup, 64e-10);
  EXPECT_DOUBLE_EQ(sdk::row_cost_at(raw, 1024, 1e12).lookup, 4 * 4 * 256e-10);
}

TEST(RowCost, EstimatesCountDistinctRowsOnce) {
  const Machine m = complete();
  const tsr_machine raw = m.kernels[0].raw();
  auto w = sdk::sized<tsr_workload>();
  w.rows = 1000;
  w.dim = 16;
  w.ids = 100;
  w.bags = 10;
  w.runs = 2;
  w.reuse_bytes = 1e5;
  const tsr_estimate all = sdk::estimate_by_figures(raw, w, 64, 4);
  EXPECT_NEAR(all.forward_seconds, 100 * 64e-10 + 10 * 2e-9 + 2 * 5e-8, 1e-15);
  EXPECT_EQ(all.bytes, 68000u);
  w.distinct = 40;
  const tsr_estimate some = sdk::estimate_by_figures(raw, w, 64, 4);
  EXPECT_NEAR(some.backward_seconds, 40 * 3 * 64e-10 + 60 * 1e-8 + 10 * 3e-9, 1e-15);
}

TEST(RowCost, AnUpdateFindsTheRowWhereItsLookupHasLeftIt) {
  const Machine m = complete();
  const tsr_machine raw = m.kernels[0].raw();
  auto w = sdk::sized<tsr_workload>();
  w.rows = 1000000;
  w.dim = 64;
  w.ids = 100;
  w.reuse_bytes = 1e8;
  const tsr_estimate far = sdk::estimate_by_figures(raw, w, 256, 4);
  w.update_bytes = 1e5;
  const tsr_estimate near = sdk::estimate_by_figures(raw, w, 256, 4);
  EXPECT_EQ(near.forward_seconds, far.forward_seconds);
  const double row = 256 * 3e-10;  // in a near cache; four times as much far away, where the state still is
  EXPECT_NEAR(far.backward_seconds, 100 * 4 * row, 1e-12);
  EXPECT_NEAR(near.backward_seconds, 100 * (4 * row + 4.0 / 6 * (row - 4 * row)), 1e-12);
  w.update_bytes = 1e9;  // counts as no further away than reuse_bytes
  EXPECT_EQ(sdk::estimate_by_figures(raw, w, 256, 4).backward_seconds, far.backward_seconds);
}

TEST(Machine, FileFormKeepsEveryFigure) {
  Machine before = complete();
  before.intra_host->wait = 0.125;
  before.intra_host->delay = 1e-8;
  before.dense.backward = {{1e-6, 2e-7, 3e-8, 4e-9, 5e-10}};
  const Machine after = Machine::from_json(before.json(), "test");
  EXPECT_EQ(after.json(), before.json());
  EXPECT_EQ(after.name, "test");
  ASSERT_NE(after.kernel("cpu"), nullptr);
  EXPECT_NEAR(after.kernel("cpu")->rows[3].update, before.kernels[0].rows[3].update, 1e-12);
  EXPECT_NEAR(after.kernel("cpu")->call_backward, 7e-7, 1e-12);
  EXPECT_EQ(after.kernel("other"), nullptr);
  ASSERT_TRUE(after.intra_host);
  EXPECT_NEAR(after.intra_host->all_to_all.at(65536), before.intra_host->all_to_all.at(65536), 1e-9);
  EXPECT_NEAR(after.route.seconds.cut_ids, before.route.seconds.cut_ids, 1e-12);
  EXPECT_NEAR(after.dense.update.seconds.bytes, before.dense.update.seconds.bytes, 1e-15);
  EXPECT_NEAR(after.dense.backward.seconds.samples, 3e-8, 1e-15);
  EXPECT_EQ(after.intra_host->wait, 0.125);
  EXPECT_EQ(after.intra_host->delay, 1e-8);
}

TEST(Machine, WaitingNeedNotBeSaid) {
  const std::string now = complete().json();
  EXPECT_EQ(Machine::from_json(replaced(now, "\"wait\"", "\"unknown\""), "test").intra_host->wait, 0);
  EXPECT_THAT(test::refusal([&] { Machine::from_json(replaced(now, "\"wait\": 0.0", "\"wait\": -1.0"), "m.json"); }),
              HasSubstr("m.json: intra_host.wait is -1; from 0 to 1000 is expected; tessera calibrate --save FILE"));
}

// Checks that every unit of a stage counts, and is in the file under its own name.
template <class Figures>
void expect_all_units(Figures Machine::*stage, const std::string& key) {
  Machine m = complete();
  auto& figures = m.*stage;
  auto work = figures.seconds;
  double want = 0;
  int i = 0;
  for (const auto& unit : decltype(work)::units()) {
    figures.seconds.*unit.count = ++i * 1e-9;
    work.*unit.count = 10 * i;
    want += i * 1e-9 * 10 * i;
    EXPECT_THAT(m.json(), HasSubstr(str_cat("\"", unit.key, "_ns\": "))) << key;
  }
  EXPECT_EQ(static_cast<size_t>(i) * sizeof(double), sizeof(work)) << key;
  EXPECT_NEAR((Machine::from_json(m.json(), key).*stage).of(work), want, 1e-15) << key;
  auto twice = 2.0 * work;
  twice += work;
  EXPECT_NEAR(figures.of(twice), 3 * want, 1e-15) << key;
}

TEST(StageWork, EveryUnitCounts) {
  expect_all_units(&Machine::route, "route");
  expect_all_units(&Machine::unpack, "unpack");
  expect_all_units(&Machine::combine, "combine");
  expect_all_units(&Machine::data_parallel, "replica");
}

TEST(Machine, WrongFilesGetASentence) {
  const std::string good = complete().json();
  const auto wrong = [](const std::string& text) { return test::refusal([&] { Machine::from_json(text, "m.json"); }); };
  EXPECT_THAT(wrong("hello"), HasSubstr("m.json is not JSON: line 1, byte 1: unexpected 'h'"));
  EXPECT_THAT(wrong("[]"), HasSubstr("m.json: it is not an object {...}"));
  EXPECT_THAT(wrong("{}"), HasSubstr("m.json: tessera_machine is missing"));
  EXPECT_THAT(wrong(replaced(good, "\"tessera_machine\": 2", "\"tessera_machine\": 9")),
              HasSubstr("written by a newer one"));
  EXPECT_THAT(wrong(replaced(good, "\"tessera_machine\": 2", "\"tessera_machine\": 1")),
              HasSubstr("its format is 1 and this program reads 2: it was written by an older one; tessera calibrate"));
  EXPECT_THAT(wrong(replaced(good, "\"bag_forward_ns\": 2.0", "\"bag_forward_ns\": -2.0")),
              HasSubstr("m.json: kernels[0].rows[0].bag_forward_ns is -2; from 0 to "));
  EXPECT_THAT(wrong(replaced(good, "\"row_bytes\": 256.0", "\"row_bytes\": 32.0")), HasSubstr("not a full grid"));
  EXPECT_THAT(wrong(replaced(good, "\"all_reduce_us\"", "\"all_reduce\"")),
              HasSubstr("m.json: intra_host.all_reduce_us is missing"));
  EXPECT_THAT(wrong(replaced(good, "\"unpack\"", "\"unpak\"")), HasSubstr("m.json: stages.unpack is missing"));
  EXPECT_THAT(test::refusal([] { load_machine("/no/such/machine.json"); }), HasSubstr("cannot read the topology file"));
}

TEST(Machine, SaysForWhichJobsItIsNot) {
  Machine m = complete();
  m.check_fits(4, 2, "cpu");
  EXPECT_THAT(test::refusal([&] { m.check_fits(2, 2, "cuda"); }), HasSubstr("was measured on cpu"));
  m.inter_host.reset();
  m.check_fits(2, 2, "cpu");
  EXPECT_THAT(test::refusal([&] { m.check_fits(4, 2, "cpu"); }), HasSubstr("no figures of exchanges between hosts"));
  m.intra_host.reset();
  m.check_fits(1, 1, "cpu");
  EXPECT_THAT(test::refusal([&] { m.check_fits(2, 2, "cpu"); }), HasSubstr("tessera calibrate -n 2"));
}

}  // namespace
}  // namespace tessera

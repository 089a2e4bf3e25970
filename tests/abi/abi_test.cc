// Plugins in plain C, on the SDK, and by another compiler are found, loaded and run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/test_refusal.h"
#include "tessera/abi/collective.h"
#include "tessera/abi/kernel.h"
#include "tessera/abi/module.h"
#include "tessera/abi/optimizer.h"
#include "tessera/abi/sharder.h"
#include "tessera/runtime.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RuntimeOptions only(const std::vector<std::string>& names) {
  RuntimeOptions options;
  for (const std::string& name : names) options.plugin_path.push_back(std::string(ABI_PLUGINS_DIR) + "/" + name);
  options.default_path = false;
  return options;
}

std::string message_of(const std::function<void()>& call, Code code) { return test::refusal(code, call); }

// The proposals of a sharder: one line per shard.
std::vector<std::string> proposals(const Component& part, uint32_t world_size, const tsr_table& table) {
  const tsr_topology topology{sizeof(tsr_topology), 0, world_size, world_size, kDLCPU, 0, nullptr};
  const tsr_constraints constraints{sizeof(tsr_constraints), 0, 0, 0};
  std::vector<std::string> out;
  const auto add = [](const tsr_layout_sink* sink, const tsr_layout* layout, tsr_error*) -> tsr_code {
    auto& lines = *static_cast<std::vector<std::string>*>(sink->self);
    for (uint32_t i = 0; i < layout->num_parts; ++i) {
      const tsr_layout_part& p = layout->parts[i];
      std::string line = str_cat("place ", p.placement, " combine ", p.combine, " rows ", p.row_set, ":");
      for (uint32_t k = 0; k < p.num_rectangles; ++k) {
        const tsr_rectangle& r = p.rectangles[k];
        line += str_cat(" ", r.row, "+", r.rows, "x", r.col, "+", r.cols);
      }
      lines.push_back(line);
    }
    return TSR_OK;
  };
  const tsr_layout_sink sink{sizeof(tsr_layout_sink), 0, &out, add};
  AbiError error;
  error.check(part.api<tsr_sharder>().propose(part.self(), &table, &topology, &constraints, &sink, error.out()));
  return out;
}

const tsr_table kTable{sizeof(tsr_table), 0, "t", 10, 4, {kDLFloat, 32, 1}, TSR_POOLING_SUM, 0, 0, nullptr};

TEST(PlainC, LoadsAndRuns) {
  const Runtime runtime(only({"plain_c"}));
  const ComponentPtr whole = runtime.create(TSR_SHARDER_KIND, "c.whole");
  EXPECT_THAT(proposals(*whole, 2, kTable), ElementsAre("place 0 combine 0 rows 0: 0+10x0+4"));
  const ComponentPtr copies = runtime.create(TSR_SHARDER_KIND, "c.whole", R"({"copies":true})");
  EXPECT_THAT(proposals(*copies, 2, kTable), ElementsAre("place 3 combine 3 rows 0: 0+10x0+4 0+10x0+4"));
  EXPECT_EQ(message_of([&] { runtime.create(TSR_SHARDER_KIND, "c.whole", R"({"copy":1})"); }, Code::kInvalidArgument),
            R"(c.whole: whole: the only options are {} and {"copies":true})");
}

// A core of a later minor hands over longer structs: an old plugin must not mind.
TEST(PlainC, TakesLongerStructs) {
  struct LongerTable {
    tsr_table table;
    char added[64];
  } longer{kTable, {}};
  longer.table.struct_size = sizeof(longer);
  const Runtime runtime(only({"plain_c", "template"}));
  for (const char* id : {"c.whole", "acme.stripe"}) {
    const ComponentPtr part = runtime.create(TSR_SHARDER_KIND, id);
    EXPECT_EQ(proposals(*part, 2, longer.table), proposals(*part, 2, kTable)) << id;
  }
}

TEST(Template, DealsRowsOut) {
  const Runtime runtime(only({"template"}));
  const ComponentPtr part = runtime.create(TSR_SHARDER_KIND, "acme.stripe");
  EXPECT_THAT(proposals(*part, 3, kTable), ElementsAre("place 3 combine 1 rows 1: 0+4x0+4 0+3x0+4 0+3x0+4"));
  const tsr_sharder& api = part->api<tsr_sharder>();
  std::vector<int64_t> ids = {0, 1, 2, 3, 9}, rows(ids.size());
  std::vector<int32_t> row_sets(ids.size());
  int64_t n = 5;
  DLTensor dl_ids{ids.data(), {kDLCPU, 0}, 1, {kDLInt, 64, 1}, &n, nullptr, 0};
  const DLTensor dl_row_sets{row_sets.data(), {kDLCPU, 0}, 1, {kDLInt, 32, 1}, &n, nullptr, 0};
  const DLTensor dl_rows{rows.data(), {kDLCPU, 0}, 1, {kDLInt, 64, 1}, &n, nullptr, 0};
  const tsr_topology topology{sizeof(tsr_topology), 0, 3, 3, kDLCPU, 0, nullptr};
  tsr_route route{sizeof(tsr_route), 0, 3, 0, &kTable, &topology, 0, &dl_ids, &dl_row_sets, &dl_rows, nullptr};
  AbiError error;
  error.check(api.route(part->self(), &route, error.out()));
  EXPECT_THAT(row_sets, ElementsAre(0, 1, 2, 0, 0));
  EXPECT_THAT(rows, ElementsAre(0, 0, 0, 1, 3));
  std::fill(ids.begin(), ids.end(), -1);
  error.check(api.unroute(part->self(), &route, error.out()));
  EXPECT_THAT(ids, ElementsAre(0, 1, 2, 3, 9));
  dl_ids.device.device_type = kDLCUDA;
  EXPECT_EQ(api.route(part->self(), &route, error.out()), TSR_UNIMPLEMENTED);
  dl_ids.device.device_type = kDLCPU;
  route.flags = 1u << 16;
  EXPECT_EQ(api.unroute(part->self(), &route, error.out()), TSR_UNIMPLEMENTED);
}

#if defined(ABI_WITH_CLANG)
TEST(OtherCompiler, PluginsLoadAndRun) {
  const Runtime runtime(only({"clang_c", "clang_template"}));
  EXPECT_THAT(proposals(*runtime.create(TSR_SHARDER_KIND, "c.whole"), 2, kTable),
              ElementsAre("place 0 combine 0 rows 0: 0+10x0+4"));
  EXPECT_THAT(proposals(*runtime.create(TSR_SHARDER_KIND, "acme.stripe"), 2, kTable),
              ElementsAre("place 3 combine 1 rows 1: 0+5x0+4 0+5x0+4"));
}
#endif

TEST(ManyKinds, OnePluginOfManyKinds) {
  const Runtime runtime(only({"many_kinds"}));
  for (const LoadEntry& e : runtime.report().entries) EXPECT_EQ(e.state, LoadEntry::State::kAvailable) << e.reason;
  runtime.open_all();
  const LoadReport report = runtime.report();
  EXPECT_EQ(report.entries.size(), 7u);
  for (const LoadEntry& e : report.entries) {
    const bool never = e.id == "many.never";
    EXPECT_EQ(e.state, never ? LoadEntry::State::kUnusable : LoadEntry::State::kAvailable) << e.id;
    EXPECT_EQ(e.reason, never ? "never can run" : "");
  }
  EXPECT_EQ(report.entries[2].version, "2.0-rc1");
  EXPECT_THAT(runtime.ids(TSR_SHARDER_KIND), ElementsAre("many.never", "many.plain"));
}

// An additional interface of a component, asked for by its id.
TEST(ManyKinds, APartMayHaveExtensions) {
  const Runtime runtime(only({"many_kinds", "plain_c"}));
  const ComponentPtr plain = runtime.create(TSR_SHARDER_KIND, "many.plain");
  struct Answer {
    uint32_t struct_size, flags;
    int64_t value;
  };
  ASSERT_NE(plain->extension<Answer>("many.answer/draft-1"), nullptr);
  EXPECT_EQ(plain->extension<Answer>("many.answer/draft-1")->value, 42);
  EXPECT_EQ(plain->extension<Answer>("many.answer/draft-2"), nullptr);
  EXPECT_EQ(runtime.create(TSR_MODULE_KIND, "many.echo")->extension<Answer>("many.answer/draft-1"), nullptr);
  EXPECT_EQ(runtime.create(TSR_SHARDER_KIND, "c.whole")->extension<Answer>("many.answer/draft-1"), nullptr);
  EXPECT_EQ(message_of([&] { (void)plain->extension<Answer>("many.flagged/draft-1"); }, Code::kUnimplemented),
            "many.plain: many.flagged/draft-1 has flags 0x100000, which this core does not know: it needs a newer one");
}

TEST(ManyKinds, AutoTakesTheHighestUsablePriority) {
  const Runtime runtime(only({"many_kinds", "template"}));
  EXPECT_EQ(runtime.create(TSR_SHARDER_KIND, "auto")->id(), "many.plain");
  const Runtime with_c(only({"many_kinds", "plain_c"}));
  EXPECT_EQ(with_c.create(TSR_SHARDER_KIND, "auto")->id(), "c.whole");
  EXPECT_THAT(message_of([&] { with_c.create(TSR_SHARDER_KIND, "many.never"); }, Code::kUnavailable),
              HasSubstr("never can run"));
}

TEST(ManyKinds, OptionsAreStrict) {
  const Runtime runtime(only({"many_kinds"}));
  const ComponentPtr sum = runtime.create(TSR_OPTIMIZER_KIND, "many.sum", R"({"learning_rate": 0.25})");
  EXPECT_EQ(sum->api<tsr_optimizer>().learning_rate(sum->self()), 0.25);
  EXPECT_EQ(sum->options(), R"({"learning_rate": 0.25})");
  EXPECT_EQ(
      message_of([&] { runtime.create(TSR_OPTIMIZER_KIND, "many.sum", R"({"rate": 1})"); }, Code::kInvalidArgument),
      "many.sum: unknown option \"rate\": the nearest known one is \"learning_rate\"");
  message_of([&] { runtime.create(TSR_OPTIMIZER_KIND, "many.sum", R"({"learning_rate": -1})"); },
             Code::kInvalidArgument);
  message_of([&] { runtime.create(TSR_SHARDER_KIND, "many.plain", R"({"x": 1})"); }, Code::kInvalidArgument);
  EXPECT_THAT(message_of([&] { runtime.create(TSR_OPTIMIZER_KIND, "many.plus"); }, Code::kNotFound),
              HasSubstr("there are \"many.sum\""));
}

TEST(ManyKinds, BackendsAreStacked) {
  const Runtime runtime(only({"many_kinds"}));
  ComponentPtr wrapped = runtime.create(TSR_COLLECTIVE_KIND, "many.wrap:int8(many.loop)");
  EXPECT_EQ(wrapped->id(), "many.wrap:int8(many.loop)");
  tsr_group* group = nullptr;
  const tsr_rendezvous where{};
  AbiError error;
  EXPECT_EQ(wrapped->api<tsr_collective>().connect(wrapped->self(), &where, &group, error.out()), TSR_UNAVAILABLE);
  EXPECT_STREQ(error.out()->message, "named int8, wraps many.loop");
  // If the name has no inner component, the host picks one.
  EXPECT_EQ(runtime.create(TSR_COLLECTIVE_KIND, "many.wrap")->id(), "many.wrap(many.loop)");
  EXPECT_EQ(message_of([&] { runtime.create(TSR_COLLECTIVE_KIND, "many.wrap(many.wrap)"); }, Code::kInvalidArgument),
            "many.wrap(many.wrap(many.loop)): needs a transport to wrap: wrap(tcp)");
  message_of([&] { runtime.create(TSR_COLLECTIVE_KIND, "many.wrap(many.lop)"); }, Code::kNotFound);
  EXPECT_EQ(message_of([&] { runtime.create(TSR_COLLECTIVE_KIND, "many.loop(many.wrap)"); }, Code::kInvalidArgument),
            "tessera.collective/1 \"many.loop\" wraps no other, so \"many.wrap\" would never be used: leave the "
            "parentheses out");
}

// Components and the host's services outlive the Runtime.
TEST(ManyKinds, PartsOutliveTheRuntime) {
  ComponentPtr part;
  {
    const Runtime runtime(only({"many_kinds"}));
    part = runtime.create(TSR_OPTIMIZER_KIND, "many.sum");
  }
  EXPECT_EQ(part->api<tsr_optimizer>().learning_rate(part->self()), 0.5);
}

TEST(ManyKinds, TwoRuntimesShareOneLibrary) {
  const Runtime a(only({"many_kinds"})), b(only({"many_kinds"}));
  const ComponentPtr pa = a.create(TSR_SHARDER_KIND, "many.plain"), pb = b.create(TSR_SHARDER_KIND, "many.plain");
  EXPECT_EQ(pa->raw()->component, pb->raw()->component);
  EXPECT_NE(pa->self(), pb->self());
}

}  // namespace
}  // namespace tessera

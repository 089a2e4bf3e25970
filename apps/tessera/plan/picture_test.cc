// Tests the picture of a plan: it is well-formed, all text is escaped, and areas have the right size.
#include "plan/picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <regex>
#include <vector>

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void add_table(PlanResult& r, const std::string& name, const std::string& type, const std::vector<Shard>& shards,
               const std::vector<int>& ranks) {
  ShardingOption o;
  o.path = "sparse";
  o.name = name;
  o.sharding_type = type;
  o.compute_kernel = "fused";
  ParameterSharding sharding{type, "fused", ParameterSharding::Combine::kSum, false, {}};
  for (size_t i = 0; i < shards.size(); ++i) {
    o.shards.push_back(shards[i]);
    sharding.shards.push_back({shards[i].rows, shards[i].cols, shards[i].row, shards[i].col, ranks[i]});
  }
  if (r.plan.modules.empty()) r.plan.modules.emplace_back("sparse", EmbeddingModuleShardingPlan{});
  r.plan.modules[0].second.add(name, sharding);
  r.space.first.push_back(r.space.options.size());
  r.chosen.push_back(r.space.options.size());
  r.space.options.push_back(o);
}

Shard shard(int64_t rows, int64_t row, int64_t ddr, double ms) {
  Shard s;
  s.rows = rows;
  s.cols = 16;
  s.row = row;
  s.storage.ddr = ddr;
  s.perf.fwd_compute = ms;
  return s;
}

PlanResult example() {
  PlanResult r;
  r.topology = Topology::of(4, 2, "cpu");
  r.plan.world_size = 4;
  r.plan.local_world_size = 2;
  r.rank_perf.resize(4);
  r.rank_storage.resize(4);
  add_table(
      r, "films & <\"friends\">\x01", "row_wise",
      {shard(50, 0, 3000, 0.25), shard(50, 50, 3000, 0.25), shard(50, 100, 1000, 0.5), shard(50, 150, 500, 0.125)},
      {0, 1, 2, 3});
  add_table(r, "user", "table_wise", {shard(10, 0, 1000, 0.5)}, {0});
  r.space.first.push_back(r.space.options.size());
  return r;
}

// The elements of an XML document, in order. The parser checks that each is closed in the right place and every
// attribute is quoted.
struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string parent;  // id of the enclosing group
};

std::vector<Element> parsed(const std::string& xml) {
  static const std::regex kTag(R"re(<(/?)([a-zA-Z]+)((?:\s+[a-zA-Z:-]+="[^"<]*")*)\s*(/?)>)re");
  static const std::regex kAttribute(R"re(([a-zA-Z:-]+)="([^"<]*)")re");
  static const std::regex kEntity("&(amp|lt|gt|quot);");
  std::vector<Element> out;
  std::vector<std::string> open, groups{""};
  size_t at = 0;
  for (std::sregex_iterator tag(xml.begin(), xml.end(), kTag), end; tag != end; ++tag) {
    const std::string between = xml.substr(at, static_cast<size_t>(tag->position()) - at);
    EXPECT_EQ(std::regex_replace(between, kEntity, "").find_first_of("<>&"), std::string::npos) << between;
    at = static_cast<size_t>(tag->position() + tag->length());
    const std::string name = (*tag)[2];
    if ((*tag)[1].length()) {
      EXPECT_FALSE(open.empty() || open.back() != name) << name;
      if (!open.empty()) open.pop_back();
      if (name == "g") groups.pop_back();
      continue;
    }
    Element e{name, {}, groups.back()};
    const std::string attributes = (*tag)[3];
    for (std::sregex_iterator a(attributes.begin(), attributes.end(), kAttribute); a != end; ++a) {
      EXPECT_TRUE(e.attributes.emplace((*a)[1], (*a)[2]).second) << attributes;
    }
    if (!(*tag)[4].length()) open.push_back(name);
    if (name == "g") groups.push_back(e.attributes["id"]);
    out.push_back(std::move(e));
  }
  EXPECT_EQ(xml.substr(at).find_first_not_of('\n'), std::string::npos);
  EXPECT_TRUE(open.empty());
  return out;
}

// Areas of a panel's boxes, summed per column.
std::map<double, double> areas(const std::string& svg, const std::string& panel) {
  std::map<double, double> out;
  for (const Element& e : parsed(svg)) {
    if (e.parent != panel || e.name != "rect" || !e.attributes.contains("class")) continue;
    if (e.attributes.at("class") != "shard") continue;
    out[std::stod(e.attributes.at("x"))] += std::stod(e.attributes.at("width")) * std::stod(e.attributes.at("height"));
  }
  return out;
}

TEST(Picture, IsWellFormedAndEscapesNames) {
  const std::string svg = plan_svg(example());
  const auto elements = parsed(svg);
  EXPECT_EQ(elements.front().name, "svg");
  EXPECT_THAT(svg, HasSubstr("sparse.films &amp; &lt;&quot;friends&quot;&gt; : row_wise"));
  EXPECT_THAT(svg, Not(HasSubstr("<\"friends")));
  EXPECT_THAT(svg, HasSubstr("rows 50 to 100, columns 0 to 16, 2.93 KiB, 250 us"));
  EXPECT_THAT(svg, Not(HasSubstr("http://www.w3.org/1999")));  // nothing is fetched or linked
  EXPECT_THAT(svg, HasSubstr("<title>host 1</title>"));
}

TEST(Picture, AreasAreBytesAndTimes) {
  const std::string svg = plan_svg(example());
  const auto bytes = areas(svg, "bytes"), load = areas(svg, "load");
  ASSERT_EQ(bytes.size(), 4u);
  ASSERT_EQ(load.size(), 4u);
  const double per_byte = bytes.begin()->second / 4000, per_ms = load.begin()->second / 0.75;
  const std::vector<double> expected_bytes{4000, 3000, 1000, 500}, expected_ms{0.75, 0.25, 0.5, 0.125};
  size_t i = 0;
  for (const auto& [x, area] : bytes) EXPECT_NEAR(area / per_byte, expected_bytes[i++], 0.1);
  i = 0;
  for (const auto& [x, area] : load) EXPECT_NEAR(area / per_ms, expected_ms[i++], 1e-4);
}

TEST(Picture, LegendNamesEveryTypeOnce) {
  const std::string svg = plan_svg(example());
  const auto count = [&](const std::string& text) {
    size_t n = 0;
    for (size_t at = svg.find(text); at != std::string::npos; at = svg.find(text, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count(">row_wise</text>"), 1u);
  EXPECT_EQ(count(">table_wise</text>"), 1u);
}

// Names are in the boxes that have space for them, hosts are below their ranks, and the legend is below everything.
TEST(Picture, SaysWhatIsWhere) {
  const std::string svg = plan_svg(example());
  EXPECT_THAT(svg, HasSubstr(">user</text>"));
  EXPECT_THAT(svg, HasSubstr("&lt;&quot;friends&quot;&gt; </text>"));
  EXPECT_THAT(svg, HasSubstr(">4 ranks on 2 hosts, cpu, 2 tables</text>"));
  double hosts = 0;
  for (size_t at = svg.find(">host "); at != std::string::npos; at = svg.find(">host ", at + 1)) {
    const size_t element = svg.rfind('<', at);
    if (svg.compare(element, 6, "<text ") == 0)
      hosts = std::max(hosts, std::stod(svg.substr(svg.find("y=", element) + 3)));
  }
  ASSERT_GT(hosts, 0);
  const std::vector<Element> all = parsed(svg);
  for (const Element& e : all) {
    if (e.name == "rect" && e.attributes.contains("width") && e.attributes.at("width") == "16") {
      EXPECT_GT(std::stod(e.attributes.at("y")), hosts + 10);
    }
  }
}

TEST(Picture, IsReadableOnDarkScreens) {
  EXPECT_THAT(plan_svg(example()), HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(plan_svg(example()), Not(HasSubstr("\"white\"")));
}

TEST(Picture, ManyRanksAndNoTablesAreDrawnToo) {
  PlanResult r;
  r.topology = Topology::of(256, 8, "cuda");
  r.rank_perf.resize(256);
  r.rank_storage.resize(256);
  EXPECT_GT(parsed(plan_svg(r)).size(), 32u);
}

}  // namespace
}  // namespace tessera::cli

// Tests pages: their data, that they need nothing else, and, if a browser is installed, that their script draws them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "config/test_directory.h"
#include "page/page_file.h"
#include "shell.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

const PageParts kLoss = {{"kind", "lines"},
                         {"title", "Loss"},
                         {"x", "step"},
                         {"marks", {{2, "best: step 2"}}},
                         {"series", {{{"name", "training"}, {"points", {{1, 0.5}, {2, 0.25}}}}}}};

PageParts run() {
  const PageParts shards = {{{"rank", 0}, {"sizes", {30, 4}}, {"offsets", {0, 0}}},
                            {{"rank", 1}, {"sizes", {20, 4}}, {"offsets", {30, 0}}}};
  const PageParts table = {
      {"name", "film <1>"}, {"sharding_type", "row_wise"}, {"compute_kernel", "fused"}, {"shards", shards}};
  PageParts out = {{"model", "dlrm"},
                   {"data", {{"name", "films"}, {"train_rows", 9000}, {"test_rows", 100}}},
                   {"world_size", 2},
                   {"backend", "tcp"},
                   {"device", "cpu"},
                   {"steps", 4},
                   {"train", {{"seconds", 0.5}, {"samples_per_s", 800.0}}},
                   {"test", {{"samples", 100}, {"click.auc", 0.75}, {"like.auc", 0.625}, {"seconds", 0.1}}},
                   {"losses", {0.75, 0.5, 0.25, 0.125}}};
  out["plan"] = {{"world_size", 2}, {"modules", {{{"path", ""}, {"tables", PageParts::array({table})}}}}};
  out["tables"] = {{"film <1>", {{"bytes", 3 << 20}}}};
  for (const int step : {2, 4})
    out["validations"].push_back({{"step", step}, {"best", step == 2}, {"click.auc", 0.7}, {"like.auc", 0.6}});
  return out;
}

// A part of each kind, and a chart of each kind.
PageParts all_parts() {
  PageParts parts = {{{"facts", PageParts::array({{"model", "dlrm"}})}},
                     {{"text", "</script><b>no element</b>"}},
                     {{"table", {{{"a", 1}, {"b", "x"}}, {{"a", 2}, {"b", "x"}}}}},
                     {{"table", {{{"holds", true}}}}},
                     {{"chart", kLoss}},
                     {{"details", "Settings"}, {"text", "seed = 1"}},
                     {{"run", run()}}};
  const PageParts bars = {
      {"kind", "bars"},        {"title", "Times"},   {"unit", "us"},        {"labels", {"cpu", "other"}},
      {"values", {9.0, 12.0}}, {"low", {8.0, 12.0}}, {"high", {9.5, 12.5}}, {"tips", {"9", "12"}}};
  const PageParts stacks = {{"kind", "stacks"},
                            {"title", "Stages"},
                            {"unit", "us"},
                            {"labels", {"a"}},
                            {"series", {{{"name", "route"}, {"values", {1.5}}}}}};
  const PageParts columns = {
      {"kind", "columns"}, {"title", "Values"}, {"labels", {"0", "1"}}, {"values", {3, 4}}, {"tips", {"0: 3", "1: 4"}}};
  for (const PageParts& chart : {bars, stacks}) parts.push_back({{"chart", chart}});
  const PageParts card = {{"title", "age"}, {"parts", PageParts::array({{{"chart", columns}}})}};
  parts.push_back({{"cards", PageParts::array({card})}});
  PageParts plan = run()["plan"];
  for (PageParts& shard : plan["modules"][0]["tables"][0]["shards"]) shard.update({{"bytes", 4 << 20}, {"us", 7.5}});
  parts.push_back({{"plan", plan}});
  return parts;
}

// Standard output of a command; empty if it fails.
std::string output_of(const std::string& command) {
  const test::Ended ended = test::run_shell(command);
  return ended.status == 0 ? ended.output : "";
}

class PageFolder : public ::testing::Test {
 protected:
  // The page as a browser shows it at this size; empty if there is no browser.
  std::string drawn(const std::string& text, const std::string& size) const {
    const std::string browser =
        output_of("command -v chromium-headless-shell || command -v chromium || command -v google-chrome");
    if (browser.empty()) return "";
    std::ofstream(path_ / "page.html") << text;
    std::string dom = output_of("HOME=" + path_.string() + " timeout 60 " + browser.substr(0, browser.find('\n')) +
                                " --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --window-size=" + size +
                                " --user-data-dir=" + path_.string() + "/profile --dump-dom file://" + path_.string() +
                                "/page.html 2>/dev/null");
    EXPECT_FALSE(dom.empty()) << "the browser failed or took more than a minute";
    return dom;
  }

  const test::TestDirectory directory_;
  const fs::path path_ = directory_.path();
};

TEST_F(PageFolder, HasItsDataAndNeedsNothingElse) {
  const std::string text = page_text("Films & <more>", all_parts());
  const size_t data = text.find("<script type=\"application/json\" id=\"data\">");
  ASSERT_NE(data, std::string::npos);
  const size_t begin = text.find('>', data) + 1, end = text.find("</script>", begin);
  EXPECT_EQ(PageParts::parse(text.substr(begin, end - begin)),
            PageParts({{"title", "Films & <more>"}, {"parts", all_parts()}}));
  for (const char* outside : {"src=\"", "href=\"", "@import", "<link", "<img"})
    EXPECT_THAT(text, Not(HasSubstr(outside)));
  EXPECT_THAT(text, HasSubstr("default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"));
  EXPECT_LT(text.size(), 300000u);
  if (text.find("Chart.js v3") != std::string::npos) {
    EXPECT_THAT(text, HasSubstr("Permission is hereby granted, free of charge"));
  }
}

TEST_F(PageFolder, BytesThatAreNoTextAreReplaced) {
  EXPECT_THAT(page_text("t", PageParts::array({{{"text", "\x01\xff"}}})), HasSubstr("\\u0001\xef\xbf\xbd"));
}

constexpr const char* kInspection = R"(<script>
  const wide = document.documentElement.scrollWidth > innerWidth ||
    [...document.querySelectorAll('canvas')].some(c => c.getBoundingClientRect().right > innerWidth);
  const drawn = charts.filter(({canvas}) =>
    canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(x => x));
  const told = charts.filter(({chart}) => {
    chart.tooltip.setActiveElements([{datasetIndex: 0, index: 0}], {x: 0, y: 0});
    chart.update();
    return chart.tooltip.body.every(({lines}) => lines.join('').length > 0);
  });
  document.title += ` plots ${charts.length} drawn ${drawn.length} told ${told.length} wide ${wide}`;
</script></body>)";

TEST_F(PageFolder, IsDrawnByABrowser) {
  std::string text = page_text("Films", all_parts());
  const bool plots = text.find("Chart.js v3") != std::string::npos;
  text.replace(text.rfind("</body>"), 7, kInspection);
  for (const char* size : {"1300,900", "800,900"}) {
    const std::string dom = drawn(text, size);
    if (dom.empty()) GTEST_SKIP() << "no chromium here: scripts/install_packages brings chromium-headless-shell";
    const size_t title = dom.find("<title>") + 7;
    EXPECT_EQ(dom.substr(title, dom.find("</title>", title) - title),
              plots ? "Films plots 9 drawn 9 told 9 wide false" : "Films plots 0 drawn 0 told 0 wide false");
    EXPECT_EQ(plots, dom.find("<p>This page has no plots") == std::string::npos);
    for (const char* shown :
         {"<h1>Films</h1>", "&lt;/script&gt;&lt;b&gt;no element&lt;/b&gt;", "<p>All: b x</p>", "<td class=\"good\">yes",
          "<b>0.75</b><span>test AUC, click</span>", "<b>films</b><span>9000 rows to train on, 100 to test on</span>",
          "<td class=\"\">film &lt;1&gt;", "<h2>Curves</h2>", "AUC of validations", "best validation, at step 2"})
      EXPECT_THAT(dom, HasSubstr(shown));
    EXPECT_THAT(dom, HasSubstr("<th>rows</th><td class=\"number\">50</td>"));
    for (const char* mib : {"3", "8"})
      EXPECT_THAT(dom, HasSubstr(std::string("<th>MiB</th><td class=\"number\">") + mib + "</td>"));
  }
}

}  // namespace
}  // namespace tessera::cli

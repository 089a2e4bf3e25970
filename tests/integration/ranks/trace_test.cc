// The plugin `trace`, and `tessera trace compare`: runs that are the same, and runs that differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "small_job.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::trace_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class TraceOfAJob : public testing::Test {
 protected:
  // Trains on two ranks and returns the folder of the recorded calls.
  std::string recorded(const std::string& name, const std::string& setting) const {
    std::string file = folder_.file(name);
    succeed({"train", "--config", config_, "--nproc", "2", "--set",
             str_cat("comm.backend=trace?file=", file, "&checksums=true(tcp)"), "--set",
             str_cat("plugins.path=[\"", TESSERA_TEST_PLUGINS, "\"]"), "--set", "job.pipeline=false", "--set",
             "table_defaults.sharding=table_wise", "--set", "job.seed=" + setting});
    return file;
  }
  Finished compared(const std::string& a, const std::string& b) const {
    return run_tessera({"trace", "compare", a, b, "--json", "--label", "step header", "--label", "ids", "--label",
                        "rows", "--label", "gradients", "--label", "dense gradients"});
  }

  TestDirectory folder_;
  const std::string config_ = folder_.write("job.toml", small_job({.samples = 320, .test_samples = 64, .epochs = 1}));
};

TEST_F(TraceOfAJob, IsTheSameForTheSameJobAndPartsWhereJobsDo) {
  const std::string a = recorded("a", "3"), b = recorded("b", "3"), c = recorded("c", "4");
  const std::string same = succeed(compared(a, b));
  const json report = json::parse(same);
  EXPECT_TRUE(report.at("first_difference").is_null());
  const json& rows = report.at("totals").at("rows, all_to_all_v");
  EXPECT_EQ(rows.at(0).at("calls"), rows.at(1).at("calls"));
  EXPECT_GE(rows.at(0).at("calls").get<int>(), 2 * 10);
  EXPECT_GT(rows.at(0).at("bytes").get<int64_t>(), 0);
  EXPECT_GT(rows.at(0).at("seconds").get<double>(), 0);
  EXPECT_EQ(report.at("totals").at("gradients, all_to_all_v").at(0).at("calls"), 20);

  const Finished other = compared(a, c);
  EXPECT_EQ(other.status, 1) << other.output;
  EXPECT_FALSE(json::parse(other.output).at("first_difference").is_null());
}

// Files like those of a run: the first difference is the earliest one, on any rank.
TEST(TraceCompare, NamesTheFirstDifference) {
  const TestDirectory folder;
  const auto line = [](int n, const std::string& group, const std::string& label, int bytes, const std::string& sum) {
    return str_cat(
        R"({"n": )", n, R"(, "group": ")", group, R"(", "op": "all_reduce", "label": ")", label,
        R"(", "dtype": "float32", "bytes": )", bytes,
        R"(, "flags": 4, "site": "00000000000000aa", "row_elements": 0, "start_s": 0.1, "s": 0.5, "result": 0, )",
        R"("sum": ")", sum, "\"}\n");
  };
  const auto run = [&](const std::string& name, const std::string& rank_0, const std::string& rank_1) {
    folder.write(name + ".0", rank_0);
    folder.write(name + ".1", rank_1);
    return folder.file(name);
  };
  const std::string head = line(0, "0", "plan", 8, "1");
  const std::string a = run("a", head + line(1, "0", "loss", 4, "2") + line(2, "0.0:0", "x", 4, "3"), head);
  // Calls of threads with other groups in between are not a difference. A line that was cut off is ignored.
  const std::string b =
      run("b", head + line(1, "0.0:0", "x", 4, "3") + line(2, "0", "loss", 4, "2") + "{\"n\": 3", head);
  const std::string c = run("c", head + line(1, "0", "loss", 8, "2") + line(2, "0.0:0", "x", 4, "3"), head);
  const std::string d = run("d", head + line(1, "0", "loss", 8, "2"), line(0, "0", "plan", 8, "9"));
  const auto compared = [](const std::string& x, const std::string& y) {
    return run_tessera({"trace", "compare", x, y});
  };
  EXPECT_EQ(compared(a, b).status, 0) << compared(a, b).output;
  EXPECT_THAT(compared(a, b).output, testing::StartsWith("no difference\n"));
  EXPECT_THAT(compared(a, b).output, testing::ContainsRegex("plan, all_reduce +2 +2 +16 +16 +1\\.0000 +1\\.0000"));
  EXPECT_EQ(compared(a, c).status, 1);
  EXPECT_THAT(
      compared(a, c).output,
      testing::StartsWith("first difference: rank 0, call 1 of group 0: the first run has all_reduce \"loss\" of "
                          "4 bytes of float32, flags 4, site 00000000000000aa, the second all_reduce \"loss\" of "
                          "8 bytes"));
  EXPECT_THAT(compared(a, d).output,
              testing::StartsWith("first difference: rank 1, call 0 of group 0: all_reduce \"plan\" of 8 bytes of "
                                  "float32, flags 4, site 00000000000000aa leaves other values"));
  expect_refused(compared(a, folder.file("e")), HasSubstr("e.0: a run is the \"file\" of its transport \"trace\""));
  EXPECT_THAT(compared(folder.write("f.0", "{}\n").substr(0, folder.file("f").size()), a).output,
              HasSubstr("line 1 is not a call"));
}

}  // namespace
}  // namespace tessera::test::trace_test

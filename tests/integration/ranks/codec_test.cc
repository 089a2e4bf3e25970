// The plugin `codec` in a job: the job learns as without it, sends what the plan says, and the planner takes it into
// account.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "job_file.h"
#include "small_job.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::codec_test {
namespace {

using nlohmann::json;

class CodecJob : public testing::Test, protected JobFile {
 protected:
  CodecJob() : JobFile(small_job({.samples = 12800, .test_samples = 6000, .epochs = 1})) {}
  // Settings of the job over `backend`, which may lose precision.
  static Arguments over(const std::string& backend) {
    return settings({"comm.backend=" + backend, R"(comm.lossy=["rows","gradients"])",
                     str_cat("plugins.path=[\"", TESSERA_TEST_PLUGINS, "\"]"), "table_defaults.sharding=table_wise"});
  }
};

// Three ids in each bag, and each table on one rank, so that the expected bytes are exact.
TEST_F(CodecJob, LearnsAsWithoutAndSendsWhatThePlanSays) {
  const json exact = trained(2, over("tcp")), half = trained(2, over("codec(tcp)")),
             bytes = trained(2, over("codec:int8(tcp)"));
  const double auc = exact.at("test").at("auc");
  EXPECT_GT(auc, 0.6);
  const auto sent = [](const json& report, const char* what) -> double {
    const json& in_host = report.at("bytes_per_step").at(what).at("in_host");
    EXPECT_DOUBLE_EQ(in_host.at("sent"), in_host.at("planned")) << report.at("backend") << ", " << what;
    return in_host.at("sent");
  };
  for (const char* what : {"rows", "gradients"}) {
    EXPECT_DOUBLE_EQ(sent(half, what), sent(exact, what) / 2);
    EXPECT_DOUBLE_EQ(sent(bytes, what), sent(exact, what) * (16 + 4) / 64);
  }
  EXPECT_EQ(sent(bytes, "ids"), sent(exact, "ids"));
  for (const json& coded : {half, bytes}) {
    EXPECT_NEAR(coded.at("test").at("auc").get<double>(), auc, 0.005) << coded.at("backend");
    EXPECT_NE(coded.at("losses"), exact.at("losses")) << "nothing was lost";
  }
  const auto predicted = [](const json& report) -> double {
    return report.at("plan_versus_actual").at("step_us").at("predicted");
  };
  EXPECT_LT(predicted(half), predicted(exact));
  EXPECT_LT(predicted(bytes), predicted(half));
}

// The same plan for less: the options' costs appear in it.
TEST_F(CodecJob, IsWhatThePlannerCountsOn) {
  const auto rating = [&](const std::string& backend) {
    const std::string said =
        one_line(succeed(Arguments{"plan", "--config", path(), "--world-size", "2"} + over(backend)));
    const std::string before = "busiest rank ";
    const size_t at = said.find(before);
    EXPECT_NE(at, std::string::npos) << said;
    // for example "123.4 us per step"
    return at == std::string::npos ? 0 : std::stod(said.substr(at + before.size()));
  };
  const double exact = rating("tcp"), bytes = rating("codec:int8(tcp)");
  EXPECT_GT(bytes, 0);
  EXPECT_LT(bytes, exact);
}

}  // namespace
}  // namespace tessera::test::codec_test

// A job with tessera-tcp-proxy between its ranks: a slow and narrow network changes no loss, and a broken connection is
// reported with the rank at its other end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "small_job.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::bad_network_test {
namespace {

using nlohmann::json;
using testing::AnyOf;
using testing::HasSubstr;

class BadNetwork : public testing::Test {
 protected:
  // Runs a job of two ranks over sockets, through a proxy with these options, or without one.
  Finished train(const Arguments& proxy_options, int steps, int timeout_s) {
    std::unique_ptr<Program> proxy;
    std::string backend = "tcp?shm=false";
    if (!proxy_options.empty()) {
      proxy = std::make_unique<Program>(Arguments{TESSERA_TCP_PROXY, "--port", "0"} + proxy_options);
      backend += "&proxy=" + address_of(*proxy);
    }
    std::filesystem::remove(folder_.file("metrics"));
    return run_tessera({"train", "--config", config_, "--nproc", "2", "--max-steps", std::to_string(steps), "--set",
                        "comm.backend=\"" + backend + "\"", "--set", str_cat("comm.timeout_s=", timeout_s), "--set",
                        "report.log_every=1", "--set", "report.metrics=" + folder_.file("metrics")});
  }
  std::vector<double> losses() const {
    std::vector<double> out;
    for (const std::string& line : lines_of(contents(folder_.file("metrics")))) {
      const json parsed = json::parse(line);
      if (parsed.contains("loss")) out.push_back(parsed["loss"]);
    }
    return out;
  }

 private:
  static std::string address_of(const Program& proxy) {
    const std::string says = "listens at ";
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < deadline) {
      const std::string output = proxy.output();
      const size_t at = output.find(says), end = output.find('\n');
      if (at != std::string::npos && end != std::string::npos)
        return output.substr(at + says.size(), end - at - says.size());
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << "the proxy does not listen: " << proxy.output();
    return "";
  }

  TestDirectory folder_;
  std::string config_ = folder_.write("job.toml", small_job({.samples = 1615, .test_samples = 32, .epochs = 900}));
};

TEST_F(BadNetwork, ThatIsSlowAndNarrowChangesNoLoss) {
  EXPECT_EQ(train({}, 20, 60).status, 0);
  const std::vector<double> expected = losses();
  succeed(train({"--delay", "1", "--rate", "2000000"}, 20, 60));
  EXPECT_EQ(losses(), expected);
  EXPECT_EQ(expected.size(), 20u);
}

TEST_F(BadNetwork, ThatIsCutNamesTheRankAtTheOtherEnd) {
  expect_refused(train({"--cut", "--after", "1"}, 40000, 3),
                 AnyOf(HasSubstr("rank 1 died"), HasSubstr("rank 0 died"), HasSubstr("did not connect"),
                       HasSubstr("never arrived")),
                 1);
}

TEST_F(BadNetwork, ThatIsHalfOpenNamesTheRankAtTheOtherEnd) {
  expect_refused(train({"--hold", "--after", "1"}, 40000, 3),
                 AnyOf(HasSubstr("rank 1 was late: "), HasSubstr("rank 0 was late: "), HasSubstr("did not connect"),
                       HasSubstr("never arrived")),
                 1);
}

}  // namespace
}  // namespace tessera::test::bad_network_test

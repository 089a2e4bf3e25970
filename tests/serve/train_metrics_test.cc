// tessera train --metrics: the metrics of a running job that Prometheus reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "http_client.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::serve {
namespace {

using test::expect_refused;
using test::Finished;
using test::Program;
using test::run_tessera;
using test::TestDirectory;
using testing::HasSubstr;
using testing::Not;

const std::string kJob = R"(
job = {device = "cpu"}
model = {embedding_dim = 8, bottom_mlp = [8, 8], top_mlp = [8, 1]}
schedule = {dense = ["constant?factor=0.5"]}
validation = {fraction = 0.1, split = "last"}
report = {log_every = 10}
data = {columns = 2, rows = [40, 300], samples = 2000, test_samples = 100, batch = 50, epochs = 100000}
)";

// The value of a line of Prometheus' text; NaN if there is none.
double value_of(const std::string& text, const std::string& name) {
  const size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? std::nan("") : std::atof(text.c_str() + at + name.size() + 2);
}

template <class Condition>
bool comes_true(const Condition& condition) {
  for (int i = 0; i < 6000; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
    if (condition()) return true;
  }
  return false;
}

TEST(TrainMetrics, AreThereWhileItTrains) {
  const TestDirectory folder;
  Program job({test::tessera_path(), "train", "--config", folder.write("job.toml", kJob), "--nproc", "2", "--metrics",
               "0", "--save", folder.file("saved"), "--save-every", "25"});
  const std::string kUrl = "metrics: http://127.0.0.1:";
  ASSERT_TRUE(comes_true([&] { return job.output().find("/metrics\n") != std::string::npos; })) << job.output();
  const int port = std::atoi(job.output().c_str() + job.output().find(kUrl) + kUrl.size());
  Client client(port);
  std::string text;
  ASSERT_TRUE(comes_true([&] {
    text = client.ask(Client::get("/metrics")).body;
    return value_of(text, "tessera_train_step") > 40 && value_of(text, "tessera_train_checkpoint_age_seconds") >= 0 &&
           value_of(text, "tessera_train_validation{metric=\"auc\"}") > 0;
  })) << text;
  EXPECT_EQ(value_of(text, "tessera_train_steps"), 36.0 * 100000);
  EXPECT_GE(value_of(text, "tessera_train_samples_total"), 50 * value_of(text, "tessera_train_step") - 50 * 36);
  EXPECT_GT(value_of(text, "tessera_train_loss"), 0);
  EXPECT_EQ(value_of(text, "tessera_train_learning_rate_factor{of=\"tables\"}"), 1);
  EXPECT_EQ(value_of(text, "tessera_train_learning_rate_factor{of=\"dense\"}"), 0.5);
  EXPECT_GT(value_of(text, "tessera_train_stage_seconds_total{rank=\"0\",stage=\"lookup\"}"), 0);
  EXPECT_GT(value_of(text, "tessera_train_stage_seconds_total{rank=\"1\",stage=\"exchange rows\"}"), 0);
  EXPECT_THAT(text, HasSubstr("\n# TYPE tessera_train_waited_seconds_total counter\n"));
  EXPECT_GT(value_of(text, "tessera_train_waited_seconds_total{peer=\"0\"}"), 0);
  EXPECT_GT(value_of(text, "tessera_train_waited_seconds_total{peer=\"1\"}"), 0);
  EXPECT_LT(value_of(text, "tessera_train_checkpoint_age_seconds"), 60);
  EXPECT_GT(value_of(text, "process_resident_memory_bytes"), 1e6);
  const double step = value_of(text, "tessera_train_step");
  EXPECT_TRUE(
      comes_true([&] { return value_of(client.ask(Client::get("/metrics/")).body, "tessera_train_step") > step; }));
  EXPECT_EQ(client.ask(Client::get("/")).status, 404);
  EXPECT_EQ(client.ask(Client::post("/metrics", "")).status, 405);
  kill(job.pid(), SIGTERM);
  job.wait(60);
  EXPECT_FALSE(Client(port).connected());
}

TEST(TrainMetrics, WhatIsNoPortIsRefused) {
  const TestDirectory folder;
  const std::string config = folder.write("job.toml", kJob);
  for (const std::string wrong : {"x", "70000", "127.0.0.1:", "9:9:x"}) {
    expect_refused({"train", "--config", config, "--metrics", wrong},
                   HasSubstr("--metrics takes PORT or ADDRESS:PORT"));
  }
  expect_refused({"train", "--config", config, "--metrics", "nowhere:0", "--max-steps", "1"},
                 Not(HasSubstr("metrics: http")));
}

}  // namespace
}  // namespace tessera::serve

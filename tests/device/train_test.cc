// `tessera train` with tables on the fake device and on a GPU (gpu_under_test.h): losses equal those of the CPU to
// 1e-5, also with an input pipeline.
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "gpu_under_test.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

const char* const kGpu = gpu_under_test();

constexpr const char* kConfig = R"(
job = {seed = 3, threads = 1}
comm = {backend = "tcp", timeout_s = 60}
model = {embedding_dim = 16, bottom_mlp = [32, 16], top_mlp = [32, 1]}
dense_optimizer = {name = "adagrad", learning_rate = 0.02}
[table_defaults]
optimizer = {name = "exact_rowwise_adagrad", learning_rate = 0.05, eps = 1e-8}
sharding = ["row_wise", "table_wise"]
[data]
columns = 4
rows = [300, 100, 40, 3]
dense = 5
pooling = 3
index_dist = "zipf:1.1"
samples = 240
test_samples = 60
batch = 32
)";

Finished train(const TestDirectory& folder, int ranks, const std::string& device, const std::string& kernel,
               const std::string& pipeline) {
  const std::string config = folder.write("job.toml", kConfig);
  return run_tessera({"train", "--config", config, "--nproc", str_cat(ranks), "--set", "job.device=" + device, "--set",
                      "job.kernel_plugin=" + kernel, "--set", "job.pipeline=" + pipeline, "--set",
                      str_cat("plugins.path=[\"", TESSERA_TEST_PLUGINS, "\", \"", TESSERA_EMULATOR_PLUGINS, "\"]"),
                      "--set", "report.json=" + folder.file("report.json")});
}

json report(int ranks, const std::string& device, const std::string& kernel, const std::string& pipeline = "false") {
  const TestDirectory folder;
  succeed(train(folder, ranks, device, kernel, pipeline));
  return json::parse(contents(folder.file("report.json")));
}

struct Case {
  const char* device;
  const char* kernel;
  const char* dense_device;  // the fake device has no layers
  int ranks;
};
class TrainOnDevice : public testing::TestWithParam<Case> {};

TEST_P(TrainOnDevice, TheLossesAreThoseOfTheCpu) {
  const Case c = GetParam();
  const json cpu = report(c.ranks, "cpu", "reference"), device = report(c.ranks, c.device, c.kernel);
  EXPECT_EQ(device.at("device"), c.device);
  EXPECT_EQ(device.at("dense_device"), c.dense_device);
  EXPECT_EQ(cpu.at("dense_device"), "cpu");
  EXPECT_EQ(device.value("why_in_host_memory", ""),
            c.dense_device == std::string("cpu") ? "the device has no arithmetic for losses and updates" : "");
  const auto want = cpu.at("losses").get<std::vector<double>>(), got = device.at("losses").get<std::vector<double>>();
  ASSERT_EQ(want.size(), 8u);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_LE(std::abs(got[i] - want[i]), 1e-5) << "step " << i;
  EXPECT_NEAR(device.at("test").at("logloss"), cpu.at("test").at("logloss"), 1e-5);

  const json ahead = report(c.ranks, c.device, c.kernel, "true");
  EXPECT_EQ(ahead.at("losses"), device.at("losses"));
  EXPECT_EQ(ahead.at("test").at("logloss"), device.at("test").at("logloss"));
  EXPECT_GT(ahead.at("pipeline").at("work_us_per_step"), 0);
  EXPECT_FALSE(device.contains("pipeline"));
}

INSTANTIATE_TEST_SUITE_P(Fake, TrainOnDevice,
                         testing::Values(Case{"fake", "fake(reference)", "cpu", 1},
                                         Case{"fake", "fake(reference)", "cpu", 2}),
                         [](const auto& info) { return str_cat("ranks_", info.param.ranks); });
INSTANTIATE_TEST_SUITE_P(Gpu, TrainOnDevice, testing::Values(Case{kGpu, kGpu, kGpu, 1}, Case{kGpu, kGpu, kGpu, 2}),
                         [](const auto& info) { return str_cat("ranks_", info.param.ranks); });

// The message at the start about a model whose layers are on the host; "" if there is none.
std::string why_on_the_host(const std::string& layers) {
  const TestDirectory folder;
  const std::string job(kConfig);
  const size_t model = job.find("model ="), after = job.find('\n', model), tables = job.find("[table_defaults]");
  const std::string graph = "model = {embedding_dim = 16, type = \"graph\"}";
  const std::string config = folder.write(
      "job.toml", job.substr(0, model) + graph + job.substr(after, tables - after) + layers + job.substr(tables));
  const Finished done = run_tessera({"train", "--config", config, "--max-steps", "1", "--set",
                                     str_cat("job.device=", kGpu), "--set", str_cat("job.kernel_plugin=", kGpu),
                                     "--set", str_cat("plugins.path=[\"", TESSERA_EMULATOR_PLUGINS, "\"]"), "--set",
                                     "report.json=" + folder.file("report.json")});
  EXPECT_EQ(done.status, 0) << done.output;
  if (done.status != 0) return done.output;
  const std::string begin = "the dense part stays in host memory: ";
  const size_t at = done.output.find(begin);
  const json report = json::parse(contents(folder.file("report.json")));
  if (at == std::string::npos) {
    EXPECT_EQ(report.at("dense_device"), kGpu);
    EXPECT_FALSE(report.contains("why_in_host_memory"));
    return "";
  }
  EXPECT_EQ(report.at("dense_device"), "cpu");
  std::string why = done.output.substr(at + begin.size(), done.output.find('\n', at) - at - begin.size());
  EXPECT_EQ(report.at("why_in_host_memory"), why);
  return why;
}

std::string layer(const std::string& name, const std::string& type, const std::string& rest) {
  return "[[layer]]\nname = \"" + name + "\"\ntype = \"" + type + "\"\n" + rest + "\n";
}

TEST(DenseInHostMemory, IsSaidWithItsReason) {
  const std::string bottom = layer("bottom", "mlp", "inputs = [\"dense\"]\noptions = { widths = [16] }");
  const std::string net = layer("net", "dot_interaction", "inputs = [\"bottom\", \"pooled\"]");
  const std::string top = layer("top", "mlp", "inputs = [\"net\"]\noptions = { widths = [1] }");
  const std::string head = "[[head]]\nname = \"click\"\ninput = \"top\"\n";
  EXPECT_EQ(why_on_the_host(bottom + net + top + head), "");
  EXPECT_EQ(why_on_the_host(bottom + net + layer("top", "linear", "inputs = [\"net\"]") + head),
            "no plugin computes the layer \"top\" (linear) there");
  EXPECT_THAT(why_on_the_host(bottom + layer("net", "cross", "inputs = [\"bottom\", \"pooled\"]") + top + head),
              AllOf(HasSubstr("the layer \"net\" of bottom (16 values), pooled (64 values): "),
                    HasSubstr("cross takes one input of 80 values")));
  EXPECT_EQ(why_on_the_host(bottom + layer("net", "dot_interaction", "inputs = [\"bottom\", \"c1\"]") + top + head),
            "the layer \"net\" takes \"c1\", a part of the pooled rows");
  const std::string both = layer("top", "mlp", "inputs = [\"net\", \"bottom\"]\noptions = { widths = [1] }");
  EXPECT_EQ(why_on_the_host(bottom + net + both + head),
            "the layer \"top\" takes \"bottom\", which the layer \"net\" also takes");
  EXPECT_EQ(why_on_the_host(bottom + net + top + head + "loss = \"mse\"\n"),
            "the head \"click\" has the loss mse, but devices support only binary_cross_entropy");
  const std::string aside = layer("aside", "mlp", "inputs = [\"dense\"]\noptions = { widths = [1] }");
  EXPECT_EQ(why_on_the_host(bottom + net + top + head + aside + "[[head]]\nname = \"buy\"\ninput = \"aside\"\n"),
            "there are the heads \"buy\" and \"click\", but devices train only one");
}

TEST(JobDevice, ThatIsNotThereIsOneSentence) {
  const TestDirectory folder;
  expect_refused(train(folder, 1, "fpga", "auto", "true"),
                 testing::AllOf(HasSubstr("job.device = \"fpga\" cannot be used here: take \"auto\", or \"cpu\""),
                                HasSubstr("no plugin provides tessera.device/draft-1 \"fpga\"")));
}

}  // namespace
}  // namespace tessera::test

// A packed model with two heads of different losses, made by `tessera train` and `tessera quantize`, for tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "served_model.h"

namespace tessera::serve {

inline constexpr const char* kTwoHeads = R"(
job = {device = "cpu", seed = 3, threads = 1}
model = {embedding_dim = 4}
layer = [
  {name = "shared", type = "mlp", inputs = ["dense", "pooled"], options = {widths = [8], final_activation = "relu"}},
  {name = "clicks", type = "linear", inputs = ["shared"]},
  {name = "stars", type = "linear", inputs = ["shared"]}]
head = [
  {name = "click", input = "clicks"},
  {name = "stars", input = "stars", loss = "mse", label = "label1"}]
data = {columns = 2, rows = [30, 20], dense = 3, labels = 2, samples = 320, test_samples = 60, batch = 32}
)";

class HeadsModel {
 public:
  HeadsModel() {
    run({"train", "--config", config_, "--save", file("saved"), "--set", "report.json=" + file("report.json")});
    quantized_ = run({"quantize", "--load", file("saved"), "--save", path(), "--config", config_, "--weights", "fp32"});
    predictor_ = open_predictor(runtime_, path());
  }

  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string path() const { return file("two"); }
  const std::string& config() const { return config_; }
  const std::string& quantized() const { return quantized_; }  // output of tessera quantize
  nlohmann::json report() const { return nlohmann::json::parse(test::contents(file("report.json"))); }
  const ModelDescription& description() const { return predictor_->model(); }

  // The values of each head, predicted in this process.
  std::vector<std::vector<float>> values(test::OwnInput& input) {
    std::vector<std::vector<float>> out(2, std::vector<float>(static_cast<size_t>(input.batch)));
    const std::vector<std::span<float>> outputs(out.begin(), out.end());
    predictor_->predict_outputs(input.view(), outputs);
    return out;
  }

 private:
  static std::string run(const std::vector<std::string>& args) {
    const std::string done = succeed(test::run_tessera(args));
    return done;
  }

  test::TestDirectory folder_;
  const std::string config_ = folder_.write("job.toml", kTwoHeads);
  std::string quantized_;
  Runtime runtime_;
  std::unique_ptr<Predictor> predictor_;
};

}  // namespace tessera::serve

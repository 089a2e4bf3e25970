// `tessera quantize` recalibrates probabilities, on rows that the model was not trained on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::recalibrate_test {
namespace {

using testing::HasSubstr;

constexpr const char* kCalibrationJob = R"(
job = {seed = 3, device = "cpu", threads = 1}
model = {embedding_dim = 4}
data = {reader = "csv", path = "PATH", batch = 50, epochs = 4, test = "last", test_fraction = 0.3}
dense_optimizer = {name = "adam", learning_rate = 0.01}
validation = {fraction = 0.4}
[[column]]
name = "clicked"
as = "label"
[[column]]
name = "user"
ids = "vocabulary"
[[layer]]
name = "top"
type = "mlp"
inputs = ["pooled"]
options = {widths = [8, 1]}
[[head]]
name = "click"
input = "top"
label = "clicked"
)";

class Recalibrate : public testing::Test {
 protected:
  // The larger a user's number, the more often he clicks: one time in ten up to nine times.
  void SetUp() override {
    std::string rows = "clicked,user\n";
    uint32_t noise = 1;
    for (int i = 0; i < 4000; ++i) {
      const auto user = static_cast<uint32_t>(i * 7 % 9);
      noise = noise * 1664525u + 1013904223u;
      rows += str_cat((noise >> 16) % 10 <= user ? 1 : 0, ",u", user, "\n");
    }
    folder_.write("rows.csv", rows);
  }
  std::string job(const std::string& head) const {
    std::string text = kCalibrationJob + head;
    text.replace(text.find("PATH"), 4, file("rows.csv"));
    return folder_.write("job.toml", text);
  }
  std::string file(const std::string& name) const { return folder_.file(name); }
  std::vector<std::string> quantize(const std::string& to, const std::vector<std::string>& more) const {
    return Arguments{"quantize", "--load", file("saved"), "--save", file(to), "--weights", "fp32"} + more;
  }
  // The scores of the first rows, which are u0, u7, u5, u3, u1, u8, u6, u4, u2.
  std::vector<double> scores(const std::string& model) const {
    succeed({"predict", "--model", file(model), "--data", file("rows.csv"), "--output", file("scores.csv")});
    std::istringstream lines(contents(file("scores.csv")));
    std::vector<double> out;
    std::string line;
    std::getline(lines, line);
    while (out.size() < 9 && std::getline(lines, line)) out.push_back(std::stod(line.substr(line.rfind(',') + 1)));
    return out;
  }

  TestDirectory folder_;
};

// The predictions of a head that weighs positives five times are too large.
TEST_F(Recalibrate, ProbabilitiesBecomeShares) {
  const std::string config = job("positive_weight = 5\n");
  succeed({"train", "--config", config, "--save", file("saved")});
  succeed(quantize("plain", {}));
  EXPECT_GT(scores("plain")[0], 0.25) << "u0 clicks one time in ten";
  for (const std::string method : {"platt", "isotonic"}) {
    const std::string said = succeed(quantize(method, {"--calibrate", method, "--config", config}));
    EXPECT_THAT(said, testing::ContainsRegex("calibration: click: .* from [0-9]+ rows"));
    EXPECT_THAT(said, testing::ContainsRegex("calibration 1\\.[2-9][0-9]* before, (0\\.9|1\\.0)"));
    const std::vector<double> now = scores(method);
    EXPECT_NEAR(now[0], 0.1, 0.05) << method;
    EXPECT_NEAR(now[5], 0.9, 0.05) << method;
    EXPECT_NEAR(now[7], 0.5, 0.12) << method;
  }
}

TEST_F(Recalibrate, NegativesThatWereLeftOutCount) {
  succeed({"train", "--config", job(""), "--save", file("saved")});
  succeed(quantize("plain", {}));
  EXPECT_THAT(succeed(quantize("corrected", {"--negatives-kept", "0.25"})), HasSubstr("odds times 0.25"));
  const std::vector<double> before = scores("plain"), after = scores("corrected");
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_NEAR(after[i], before[i] / (before[i] + (1 - before[i]) / 0.25), 1e-6);
}

// A head of clicked rows is not corrected, because these were all kept; a product follows its heads.
TEST_F(Recalibrate, ConditionalHeadsStayAndProductsFollow) {
  std::string rows = "bought,clicked,user\n";
  for (int i = 0; i < 400; ++i) rows += str_cat(i % 4 == 0 ? 1 : 0, ',', i % 2 == 0 ? 1 : 0, ",u", i % 9, '\n');
  std::string text = kCalibrationJob + std::string(R"(
[[column]]
name = "bought"
as = "label"
[[layer]]
name = "bought_if_clicked"
type = "mlp"
inputs = ["pooled"]
options = {widths = [8, 1]}
[[layer]]
name = "both"
type = "logit_product"
inputs = ["top", "bought_if_clicked"]
[[head]]
name = "purchase"
input = "both"
label = "bought"
[[head]]
name = "conversion"
input = "bought_if_clicked"
label = "bought"
where = "clicked"
)");
  text.replace(text.find("PATH"), 4, folder_.write("rows.csv", rows));
  succeed({"train", "--config", folder_.write("job.toml", text), "--save", file("saved")});
  succeed(quantize("plain", {}));
  const std::string said = succeed(quantize("corrected", {"--negatives-kept", "0.25"}));
  EXPECT_THAT(said, HasSubstr("conversion: left as it is, because it is about the rows where clicked is 1"));
  EXPECT_THAT(said, HasSubstr("purchase: the product of the heads above, as they are now"));
  std::vector<std::vector<double>> all;  // click, purchase, conversion
  for (const char* model : {"plain", "corrected"}) {
    for (const char* head : {"click", "purchase", "conversion"}) {
      succeed({"predict", "--model", file(model), "--data", file("rows.csv"), "--head", head, "--output",
               file("scores.csv")});
      const std::string scores = contents(file("scores.csv"));
      all.push_back({std::stod(scores.substr(scores.rfind(',') + 1))});
    }
  }
  EXPECT_NEAR(all[3][0], all[0][0] / (all[0][0] + (1 - all[0][0]) / 0.25), 1e-6);
  EXPECT_NEAR(all[5][0], all[2][0], 1e-6);
  EXPECT_NEAR(all[4][0], all[3][0] * all[5][0], 1e-6);
}

TEST_F(Recalibrate, RefuseWhatMakesNoSense) {
  const std::string config = job("");
  succeed({"train", "--config", config, "--save", file("saved")});
  expect_refused(quantize("x", {"--calibrate", "platt"}), HasSubstr("--calibrate needs rows that the model was not"));
  expect_refused(quantize("x", {"--calibrate", "platt", "--config", config, "--set", "validation.fraction=0"}),
                 HasSubstr("--calibrate needs rows that the model was not trained on"));
  expect_refused(quantize("x", {"--calibrate", "plat", "--config", config}),
                 HasSubstr("--calibrate plat: it takes platt or isotonic"));
  expect_refused(quantize("x", {"--negatives-kept", "0"}), HasSubstr("must be above 0 and at most 1"));
  succeed({"train", "--config", job("loss = \"mse\"\n"), "--save", file("saved"), "--overwrite"});
  expect_refused(quantize("x", {"--negatives-kept", "0.5"}), HasSubstr("the model has no head of probabilities"));
}

}  // namespace
}  // namespace tessera::test::recalibrate_test

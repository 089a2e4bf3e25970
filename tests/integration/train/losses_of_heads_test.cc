// Jobs with the losses that layers compute: classes, pairs of a user, ranks with probabilities, margins; and weights of
// heads that are learnt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "config/test_replaced.h"
#include "job_file.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::losses_of_heads_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kJob = R"(
job = {seed = 3, device = "cpu", threads = 1}
model = {embedding_dim = 8}
data = {reader = "csv", path = "DIR/rows.csv", batch = 128, epochs = 4, test = "last", test_fraction = 0.2}
dense_optimizer = {name = "adam", learning_rate = 0.01}
report = {json = "DIR/report.json"}
column = [
  {name = ["liked", "noise"], as = "label"},
  {name = "kind", as = "label", real = true},
  {name = ["user", "item"], ids = "vocabulary"}]
[[layer]]
name = "top"
type = "mlp"
inputs = ["pooled"]
options = {widths = [16, WIDTH]}
)";

class LossesOfHeads : public testing::Test, protected JobFile {
 protected:
  // Items have one of three kinds. Each user likes one kind; nothing tells the noise.
  void SetUp() override {
    std::string rows = "liked,noise,kind,user,item\n";
    for (int i = 0; i < 3000; ++i) {
      const int user = i * 7 % 20, item = i * 13 % 31, noise = (i * 2654435761u >> 13) % 2;
      rows += str_cat(user % 3 == item % 3 ? 1 : 0, ",", noise, ",", item % 3, ",u", user, ",i", item, "\n");
    }
    write("rows.csv", rows);
  }
  // `width` values of the layer "top", and what follows.
  std::string job(int width, const std::string& rest) const {
    return write_job(replaced(kJob, "WIDTH", std::to_string(width)) + rest);
  }
  double last_loss() const { return report().at("losses").back().get<double>(); }
};

// A parameter of one value in the newest checkpoint.
double saved(const std::string& directory, const std::string& name) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.path().filename() != "model.safetensors") continue;
    const std::string all = contents(entry.path());
    uint64_t size = 0;
    std::memcpy(&size, all.data(), sizeof(size));
    const json header = json::parse(all.substr(sizeof(size), size));
    if (!header.contains(name)) continue;
    float value = 0;
    std::memcpy(&value, all.data() + sizeof(size) + size + header[name]["data_offsets"][0].get<size_t>(),
                sizeof(value));
    return value;
  }
  ADD_FAILURE() << "no " << name << " in " << directory;
  return NAN;
}

constexpr const char* kClasses = R"([[head]]
name = "kind"
input = "top"
loss = "softmax_cross_entropy"
label = "kind"
)";

TEST_F(LossesOfHeads, ClassesAreLearntAndPredicted) {
  const std::string config = job(3, kClasses);
  succeed({"train", "--config", config, "--save", file("saved")});
  EXPECT_LT(last_loss(), 0.1) << "the item tells its kind";
  succeed({"predict", "--model", file("saved"), "--config", config, "--part", "test", "--output", file("scores.csv")});
  EXPECT_TRUE(contents(file("scores.csv")).starts_with("row,label,score_0,score_1,score_2\n"));
  expect_refused({"train", "--config", job(2, kClasses)},
                 HasSubstr("takes the number of a class for a label, from 0 to 1, but sample"));
  expect_refused({"train", "--config", job(3, std::string(kClasses) + "loss_options = {class_weights = [1, 2]}\n")},
                 HasSubstr("\"class_weights\" has 2 numbers, but there are 3 classes"));
}

std::string liked(const std::string& loss) {
  return str_cat("[[head]]\nname = \"like\"\ninput = \"top\"\nlabel = \"liked\"\n", loss);
}

// "NAME 0.1234", as training and predict print a metric of the test.
std::string formatted_value(const std::string& name, const json& report) {
  char text[32];
  std::snprintf(text, sizeof(text), " %.4f", report.at("test").at(name).get<double>());
  return name + text;
}

// Two ranks come to the values of one; validation, progressive evaluation and predict have them too.
TEST_F(LossesOfHeads, ClassesHaveMetrics) {
  const std::string judged = std::string(kClasses) + R"([metrics]
names = ["multiclass_logloss", "multiclass_accuracy", "macro_f1", "macro_auc", "multiclass_recall?k=2"]
training = ["multiclass_accuracy"]
[validation]
fraction = 0.2
monitor = "multiclass_accuracy"
patience = 2
)";
  succeed({"train", "--config", job(3, judged), "--save", file("saved")});
  const json one = report();
  EXPECT_GT(one.at("test").at("multiclass_accuracy").get<double>(), 0.95);
  EXPECT_GT(one.at("test").at("macro_f1").get<double>(), 0.95);
  EXPECT_GT(one.at("test").at("macro_auc").get<double>(), 0.95);
  EXPECT_LT(one.at("test").at("multiclass_logloss").get<double>(), 0.2);
  EXPECT_GE(one.at("test").at("multiclass_recall?k=2"), one.at("test").at("multiclass_accuracy"));
  EXPECT_EQ(one.at("test").at("samples"), 600);
  EXPECT_GT(one.at("train").at("metrics").at("window_multiclass_accuracy").get<double>(), 0.5);
  EXPECT_TRUE(one.at("validations").at(0).contains("macro_f1"));
  const std::string printed = succeed({"predict", "--model", file("saved"), "--config", job(3, judged), "--part",
                                       "test", "--output", file("scores.csv")});
  EXPECT_THAT(printed, HasSubstr(formatted_value("multiclass_accuracy", one)));
  EXPECT_THAT(printed, HasSubstr(formatted_value("multiclass_logloss", one)));

  succeed({"train", "--config", job(3, judged), "--nproc", "2"});
  for (const auto& [name, value] : one.at("test").items())
    EXPECT_NEAR(report().at("test").at(name).get<double>(), value.get<double>(), 0.02) << name;

  const auto with = [&](const std::string& name) {
    return std::vector<std::string>{"train", "--config", job(3, kClasses), "--set", "metrics.names=[\"" + name + "\"]"};
  };
  expect_refused(with("auc"), HasSubstr("the metric \"auc\" judges one value for each sample, but the model predicts "
                                        "classes: take one of classes, such as multiclass_accuracy"));
  expect_refused({"train", "--config", job(3, kClasses), "--set", "metrics.training=[\"macro_auc\"]"},
                 HasSubstr("batches are not kept: multiclass_accuracy is one for these"));
  expect_refused(with("multiclass_accuracy?k=3"), HasSubstr("is always 1 for 3 classes: take a k below 3"));
  expect_refused({"train", "--config", job(1, liked("")), "--set", "metrics.names=[\"macro_f1\"]"},
                 HasSubstr("no head has a loss of classes, such as softmax_cross_entropy"));
}

TEST_F(LossesOfHeads, OneUsersItemsAreRanked) {
  const std::string ranked = "[metrics]\nnames = [\"like.gauc?key=user\"]\n";
  for (const char* loss :
       {"loss = \"bpr\"\ngroups = \"user\"\n",
        "loss = \"pairwise_loss\"\ngroups = \"user\"\nloss_options = {kind = \"hinge\"}\n", "loss = \"hinge\"\n"}) {
    succeed({"train", "--config", job(1, liked(loss) + ranked), "--set", "data.epochs=12"});
    EXPECT_GT(report().at("test").at("like.gauc?key=user").get<double>(), 0.95) << loss;
  }
  expect_refused({"train", "--config", job(1, liked("loss = \"bpr\"\n"))},
                 HasSubstr("bpr compares the items of one user: set groups"));
  expect_refused({"train", "--config", job(1, liked("loss_options = {gamma = 2}\n"))},
                 HasSubstr("has loss_options, but its loss binary_cross_entropy has none"));
}

// The difference of the two values is the logit, which a head without weight predicts.
TEST_F(LossesOfHeads, RanksWithProbabilities) {
  const std::string heads = R"([[layer]]
name = "parts"
type = "split_columns"
inputs = ["top"]
options = {widths = [1, 1]}
[[layer]]
name = "minus"
type = "affine"
inputs = ["parts"]
options = {factor = -1}
[[layer]]
name = "logit"
type = "sum"
inputs = ["minus", "parts:1"]
[[head]]
name = "ranks"
input = "top"
label = "liked"
loss = "jrc"
groups = "user"
[[head]]
name = "like"
input = "logit"
label = "liked"
weight = 0
)";
  succeed({"train", "--config", job(2, heads), "--set", "data.epochs=12"});
  EXPECT_GT(report().at("test").at("auc").get<double>(), 0.95);
  EXPECT_NEAR(report().at("test").at("calibration").get<double>(), 1, 0.15);
}

// exp(-s) L + s / 2 is least at s = ln(2 L): about 0.3 for a task that nothing tells, L = ln 2, and less for others.
TEST_F(LossesOfHeads, WeightsOfTasksMayBeLearnt) {
  const std::string heads = R"([[layer]]
name = "parts"
type = "split_columns"
inputs = ["top"]
options = {widths = [1, 1]}
[[head]]
name = "like"
input = "parts"
label = "liked"
learn_weight = true
[[head]]
name = "guess"
input = "parts:1"
label = "noise"
learn_weight = true
)";
  const std::string config = job(2, heads);
  succeed({"train", "--config", config, "--save", file("saved"), "--set", "data.epochs=20"});
  EXPECT_NEAR(saved(file("saved"), "guess.log_variance"), 0.2, 0.2);
  EXPECT_LT(saved(file("saved"), "like.log_variance"), -0.5);
  EXPECT_GT(report().at("test").at("like.auc").get<double>(), 0.95);
  succeed({"quantize", "--load", file("saved"), "--save", file("packed"), "--weights", "fp32"});
  succeed({"predict", "--model", file("packed"), "--config", config, "--part", "test", "--output", file("scores.csv")});
  succeed({"train", "--config", config, "--save", file("ranks"), "--set", "data.epochs=20", "--nproc", "2"});
  for (const char* name : {"like.log_variance", "guess.log_variance"})
    EXPECT_NEAR(saved(file("ranks"), name), saved(file("saved"), name), 1e-3);
  expect_refused({"train", "--config", job(1, liked("learn_weight = true\n"))},
                 HasSubstr("has learn_weight, which weighs several heads, but it is the only one"));
}

}  // namespace
}  // namespace tessera::test::losses_of_heads_test

// A model of [[layer]]s through the command line: same losses on any number of ranks; saving, continuing, packing and
// predicting; and invalid models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "graph_job.h"
#include "job_file.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::graph_model_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// Tables of two dimensions, a layer that several layers use, and two heads.
const std::string kLayers = R"(
[[layer]]
name = "cross"
type = "cross"
inputs = ["dense", "c0", "c1"]
options = { kind = "low_rank", layers = 2, rank = 4 }
[[layer]]
name = "deep"
type = "mlp"
inputs = ["dense", "c2", "cross"]
options = { widths = [24, 8], final_activation = "relu" }
[[layer]]
name = "top"
type = "mlp"
inputs = ["cross", "deep"]
options = { widths = [1] }
[[layer]]
name = "aside"
type = "linear"
inputs = ["deep"]
[[head]]
name = "click"
input = "top"
[[head]]
name = "helper"
input = "aside"
loss = "mse"
weight = 0.25
)";
class GraphModels : public testing::Test, protected JobFile {
 protected:
  GraphModels() : JobFile(kGraphJob + kGraphTables + kLayers) {}
};

TEST_F(GraphModels, TrainToTheSameLossesOnAnyNumberOfRanksAndLearn) {
  const json one = trained(1, {});
  expect_same_losses(one, trained(2, {"--set", "table_defaults.sharding=row_wise"}));
  EXPECT_EQ(one.at("model"), "graph");
  EXPECT_TRUE(one.at("layers").contains("cross"));
  EXPECT_GT(one.at("test").at("click.auc").get<double>(), 0.6);
  const auto losses = one.at("losses").get<std::vector<double>>();
  EXPECT_LT(losses.back(), losses.front());
}

// A graph with the layers and names of a DLRM is that DLRM, including start values. Its preset differs only in numbers
// that depend on names.
TEST_F(GraphModels, OfADlrmsLayersAreTheDlrm) {
  const std::string report = folder_.file("report.json");
  const auto losses = [&](const std::string& job) {
    succeed({"train", "--config", folder_.write("job.toml", job), "--set", "report.json=" + report});
    return json::parse(contents(report)).at("losses").get<std::vector<double>>();
  };
  std::string sizes = kGraphJob;
  sizes.replace(sizes.find("embedding_dim = 8"), 17,
                "type = \"dlrm\"\nembedding_dim = 8\nbottom_mlp = [16, 8]\ntop_mlp = [12, 1]");
  const size_t inputs = sizes.find("inputs = ");  // missing in a DLRM
  sizes.erase(inputs, sizes.find('\n', inputs) + 1 - inputs);
  const std::vector<double> dlrm = losses(sizes);
  ASSERT_FALSE(dlrm.empty());
  EXPECT_EQ(losses(R"(
layer = [
  {name = "dense_arch", type = "mlp", inputs = ["dense"], options = {widths = [16, 8], final_activation = "relu"}},
  {name = "inter_arch", type = "dot_interaction", inputs = ["dense_arch", "c0", "c1", "c2"]},
  {name = "over_arch", type = "mlp", inputs = ["inter_arch"], options = {widths = [12, 1]}}]
head = [{name = "logit", input = "over_arch"}]
)" + kGraphJob),
            dlrm);
}

TEST_F(GraphModels, GoOnFromACheckpointOfOtherRanks) {
  const std::string checkpoint = folder_.file("checkpoint");
  trained(2, {"--save", checkpoint, "--max-steps", "20"});
  const json rest = trained(1, {"--load", checkpoint});
  EXPECT_EQ(rest.at("first_step"), 20);
  expect_same_losses(trained(1, {}), rest);
}

// The packed model has the AUC that training has found, and predict answers.
TEST_F(GraphModels, ArePackedAndAsked) {
  const std::string checkpoint = folder_.file("checkpoint"), model = folder_.file("model");
  const json report = trained(2, {"--save", checkpoint});
  const std::string packed = succeed(run_tessera(
      {"quantize", "--load", checkpoint, "--save", model, "--weights", "fp32", "--config", folder_.file("job.toml")}));
  const std::string name = "test: click.auc ";
  const size_t auc = packed.find(name);
  ASSERT_NE(auc, std::string::npos) << packed;
  EXPECT_NEAR(std::stod(packed.substr(auc + name.size())), report.at("test").at("click.auc").get<double>(), 1e-5);
  const std::string seen = succeed({"model", "inspect", model, "--verify", "--json"});
  const json described = json::parse(seen);
  EXPECT_EQ(described.at("type"), "graph");
  EXPECT_EQ(described.at("layers").size(), 4u);
  EXPECT_EQ(described.at("heads"),
            json::parse(R"([{"name": "click", "input": "top", "loss": "binary_cross_entropy", "label": "label"},
                            {"name": "helper", "input": "aside", "loss": "mse", "label": "label"}])"));
  EXPECT_THAT(run_tessera({"model", "inspect", model}).output,
              HasSubstr("heads click = binary_cross_entropy(top, label), helper = mse(aside, label)\n"));
  EXPECT_EQ(described.at("dense_inputs"), 5);
  const std::string samples = folder_.write("samples.tsv", "1\t0,1,0,1,0\t3,4\t17\t3\n0\t0,0,1,1,1\t29\t\t1,1\n"),
                    scores = folder_.file("scores.csv");
  succeed({"predict", "--model", model, "--data", samples, "--output", scores});
  EXPECT_THAT(contents(scores), AllOf(testing::StartsWith("row,click_label,click,helper_label,helper\n0,1,0."),
                                      testing::Not(HasSubstr("nan"))));
  succeed({"quantize", "--load", checkpoint, "--save", folder_.file("small")});  // the checkpoint says all
}

// The label is given by the name of its column, and tables by theirs.
TEST_F(GraphModels, TrainOnACsvFile) {
  std::string rows = "clicked,user,film,price\n";
  for (int i = 0; i < 400; ++i)
    rows += str_cat((i * 7 + i / 3) % 5 < 2 ? 1 : 0, ',', i % 13, ',', (i * 5) % 11, ',', i % 9, '\n');
  const std::string job = R"(
[job]
device = "cpu"
threads = 1
[model]
embedding_dim = 4
[[layer]]
name = "top"
type = "mlp"
inputs = ["dense", "user", "film"]
options = { widths = [8, 1] }
[[head]]
name = "click"
input = "top"
label = "clicked"
[[column]]
name = "clicked"
as = "label"
[[column]]
name = "price"
as = "dense"
[[column]]
name = ["user", "film"]
rows = 20
[data]
reader = "csv"
path = ")" + folder_.write("rows.csv", rows) +
                          R"("
test_path = ")" + folder_.write("test.csv", rows) +
                          R"("
batch = 32
)";
  const std::string config = folder_.write("csv.toml", job);
  succeed({"train", "--config", config, "--nproc", "2"});
  expect_refused({"train", "--config",
                  folder_.write("wrong.toml", job.substr(0, job.find("label = ")) + "label = \"click\"" +
                                                  job.substr(job.find("\n[[column]]")))},
                 HasSubstr("wants the label \"click\", but the data's one label is called \"clicked\""));
}

TEST_F(GraphModels, ArePlanned) {
  const std::string config = folder_.write("job.toml", kGraphJob + kGraphTables + kLayers);
  EXPECT_THAT(succeed({"plan", "--config", config, "--world-size", "2"}), HasSubstr("c2"));
  succeed({"plan", "--config", config, "--world-size", "2", "--no-data", "--set", "table.c0.rows=300", "--set",
           "table.c1.rows=50", "--set", "table.c2.rows=20"});
}

TEST_F(GraphModels, ThatAreOfferedTrain) {
  size_t offered = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(TESSERA_SOURCE_DIR) + "/configs/models")) {
    const std::string name = entry.path().stem(), report = folder_.file("report.json");
    SCOPED_TRACE(name);
    const std::string written = succeed({"model", "new", name});
    EXPECT_THAT(written, AllOf(testing::StartsWith("# This "), testing::EndsWith("#\n" + contents(entry.path())),
                               HasSubstr(str_cat("#   tessera model new ", name, " > ", name, ".toml\n"))));
    succeed({"train", "--config", folder_.write("new.toml", written), "--nproc", "2", "--max-steps", "30", "--set",
             "data.samples=8000", "--set", "data.test_samples=500", "--set", "job.threads=1", "--set",
             "report.json=" + report});
    const auto losses = json::parse(contents(report)).at("losses").get<std::vector<double>>();
    ASSERT_EQ(losses.size(), 30u);
    EXPECT_LT(std::accumulate(losses.end() - 10, losses.end(), 0.0),
              std::accumulate(losses.begin(), losses.begin() + 10, 0.0));
    ++offered;
  }
  EXPECT_EQ(offered, 27u);
  expect_refused({"model", "new", "deepmf"},
                 AllOf(HasSubstr("there is no model \"deepmf\""), HasSubstr("the nearest is \"deepfm\"")));
}

// Wrong jobs give one sentence and status 2. The data has no more than is needed to notice.
class WrongGraphs : public GraphModels {
 protected:
  enum Data { kNone, kMetaAlone, kWhole };
  void expect_refused(std::string text, const std::string& from, const std::string& to,
                      const testing::Matcher<std::string>& sentence, Data data = kNone) {
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    std::vector<std::string> args = {"train", "--config", folder_.write("wrong.toml", text)};
    if (data != kWhole)
      args.insert(args.end(), {"--set", "data.reader=prepared", "--set",
                               "data.path=" + folder_.file(data == kNone ? "nowhere" : "")});
    const Finished done = run_tessera(args, 60);
    EXPECT_EQ(done.status, 2) << done.output;
    EXPECT_THAT(done.output, sentence);
    EXPECT_EQ(std::count(done.output.begin(), done.output.end(), '\n'), 1) << done.output;
  }
};

TEST_F(WrongGraphs, AreRefusedBeforeDataIsRead) {
  const std::string all = kGraphJob + kGraphTables + kLayers;
  expect_refused(all, R"(["dense", "c2", "cross"])", R"(["dense", "c2", "top"])",
                 HasSubstr("the layers form a circle: \"deep\" takes \"top\", which takes \"deep\""));
  expect_refused(all, R"(["cross", "deep"])", R"(["croos", "deep"])",
                 AllOf(HasSubstr("the layer \"top\" takes \"croos\""), HasSubstr("the nearest is \"cross\"")));
  expect_refused(all, R"("c2"]
[table)",
                 R"(]
[table)",
                 AllOf(HasSubstr("the layer \"deep\" takes \"c2\""), HasSubstr("neither an input of the model")));
  expect_refused(all, "name = \"deep\"", "name = \"cross\"", HasSubstr("a second [[layer]] is named \"cross\""));
  expect_refused(all, "name = \"deep\"", "name = \"c0\"", HasSubstr("the layer \"c0\" has the name of an input"));
  expect_refused(
      all, "type = \"linear\"", "type = \"linaer\"",
      HasSubstr("the layer \"aside\": no plugin provides tessera.module/1 \"linaer\"; the nearest is \"linear\""));
  expect_refused(all, "loss = \"mse\"", "loss = \"mse_\"",
                 AllOf(HasSubstr("the loss of head \"helper\""), HasSubstr("\"mse_\"; the nearest is \"mse\"")));
  expect_refused(all, "loss = \"mse\"", "loss = \"binary_crossentropy\"",
                 HasSubstr("there is no loss \"binary_crossentropy\"; the nearest is \"binary_cross_entropy\""));
  expect_refused(all, "type = \"linear\"", "typ = \"linear\"", AllOf(HasSubstr("\"typ\""), HasSubstr("\"type\"")));
  expect_refused(all, "input = \"aside\"", "input = \"deep\"", HasSubstr("\"aside\" leads to no head"));
  expect_refused(all, "embedding_dim = 8", "embedding_dim = 8\ntype = \"dlrm\"", HasSubstr("model.type is \"dlrm\""));
  expect_refused(kGraphJob + kGraphTables, "embedding_dim = 8", "type = \"graph\"", HasSubstr("there is no [[layer]]"));
}

// Errors found by widths, from the data's description: there are no samples to read.
TEST_F(WrongGraphs, AreRefusedBeforeSamplesAreRead) {
  const std::string all = kGraphJob + kGraphTables + kLayers;
  folder_.write("meta.json", R"({"dense": ["a", "b", "c", "d", "e"], "columns": [{"name": "c0", "rows": 300},
    {"name": "c1", "rows": 50}, {"name": "c2", "rows": 20}]})");
  expect_refused(all, "type = \"linear\"\ninputs = [\"deep\"]", "type = \"sum\"\ninputs = [\"deep\", \"cross\"]",
                 AllOf(HasSubstr("the layer \"aside\" of deep (8 values), cross (21 values)")), kMetaAlone);
  expect_refused(all, "rank = 4", "rnak = 4", AllOf(HasSubstr("\"rnak\""), HasSubstr("\"rank\"")), kMetaAlone);
  expect_refused(all, R"(["cross", "deep"]
options = { widths = [1] })",
                 R"(["cross", "deep"]
options = { widths = [2] })",
                 HasSubstr("the head \"click\" takes \"top\", which has 2 values per sample"), kMetaAlone);
  expect_refused(all, "widths = [1]", "width = [1]",
                 HasSubstr("): mlp: unknown option \"width\": the nearest known one is \"widths\""), kMetaAlone);
  const std::string cross = "options = { kind = \"low_rank\", layers = 2, rank = 4 }";
  expect_refused(
      all, cross, cross + "\nnames = { \"*.u\" = \"u.*\" }",
      HasSubstr("layer \"cross\": names has \"*.u\", but its parameters are 0.v.weight, 0.weight, 0.bias, 1."),
      kMetaAlone);
  expect_refused(
      all, cross, cross + "\nnames = { \"0.bias\" = \"deep.1.bias\" }",
      HasSubstr("the layer \"deep\" has a parameter \"deep.1.bias\", and so has the layer \"cross\": change"),
      kMetaAlone);
  expect_refused(all, cross, cross + "\nnames = { \"0.bias\" = 3 }",
                 HasSubstr("layer \"cross\": names calls \"0.bias\" 3, but a name is a string"));
  expect_refused(all, "loss = \"mse\"", "loss = \"dropout\"", HasSubstr("\"dropout\" is not a loss"), kMetaAlone);
  expect_refused(kGraphJob, "inputs = [\"dense\", \"c0\", \"c1\", \"c2\"]\n", "",
                 HasSubstr("model.bottom_mlp must end with the embedding dimension "), kMetaAlone);
  expect_refused(all, "name = \"c2\"\n", "name = \"c4\"\nfeatures = [\"film\"]\n[[table]]\nname = \"c2\"\n",
                 HasSubstr("table \"c4\" reads the feature \"film\", but the data has no such column"), kMetaAlone);
  expect_refused(
      all, "weight = 0.25", "weight = 0.25\nlabel = \"like\"",
      HasSubstr("the head \"helper\" wants the label \"like\", but the data's one label is called \"label\""),
      kMetaAlone);
  expect_refused(all, "exact_adagrad", "exact_adagard", AllOf(HasSubstr("table c0"), HasSubstr("exact_adagard")),
                 kMetaAlone);
  std::string dlrm = kGraphJob;
  dlrm.erase(dlrm.find("inputs = "), dlrm.find("[table_defaults]") - dlrm.find("inputs = "));
  expect_refused(dlrm, "dense = 5", "dense = 0", HasSubstr("needs dense inputs, but the data has none"), kWhole);
}

// Wrong settings that are found without samples: there are none to read.
TEST_F(WrongGraphs, WrongSettingsAreRefusedBeforeSamplesAreRead) {
  const std::string all = kGraphJob + kGraphTables + kLayers;
  folder_.write("meta.json", R"({"dense": ["a", "b", "c", "d", "e"], "columns": [{"name": "c0", "rows": 300},
    {"name": "c1", "rows": 50}, {"name": "c2", "rows": 20}]})");
  const auto expect_setting = [&](const std::string& lines, const std::string& sentence) {
    expect_refused(all, "[data]\n", lines + "\n[data]\n", HasSubstr(sentence), kMetaAlone);
  };
  expect_setting("[dense_optimizer]\nname = \"adma\"", "\"adma\"; the nearest is \"adam\"");
  expect_setting("[dense_optimizer]\nname = \"sgd\"\nbeta1 = 0.5", "dense_optimizer.beta1 = 0.5 has no effect");
  expect_setting("[schedule]\ndense = \"cosin\"", "the nearest is \"cosine\"");
  expect_setting("[schedule]\ntables = [\"cosine\", \"linear?steps=5\"]", "only the last stage may leave out steps");
  expect_setting("[validation]\npatience = 2", "validation.patience has no effect: no rows are kept for validation");
  expect_setting("[validation]\nfraction = 0.1\nevery_steps = 5\nevery_epochs = 0.5", "validation.every_epochs = 0.5");
  expect_setting("[validation]\nfraction = 0.1\nmonitor = \"acu\"", "there is no metric \"acu\" here");
  expect_setting("[metrics]\nnames = \"gauc?key=c9\"", "a metric by \"c9\", which is not a column of ids");
  expect_refused(all, "[table_defaults]\n", "[table_defaults]\nsharding = \"row_wies\"\n",
                 AllOf(HasSubstr("table c0"), HasSubstr("\"row_wies\"")), kMetaAlone);
  expect_setting("[[column]]\nname = \"c0\"", "has no effect: the reader \"prepared\" knows the columns");
  expect_refused(all, "[data]\n", "[data]\norder_by = \"at\"\n",
                 HasSubstr("data.order_by has no effect: the data of the reader \"prepared\""), kMetaAlone);
}

// A model that the program offers, on data that lacks its columns.
TEST_F(WrongGraphs, AreRefusedWhereTheDataLacksAColumn) {
  folder_.write("meta.json",
                R"({"dense": ["age"], "columns": [{"name": "person", "rows": 9}, {"name": "film", "rows": 9}]})");
  const auto refusal = [&](const char* preset) {
    const Finished written = run_tessera({"model", "new", preset});
    const Finished done = run_tessera({"train", "--config", folder_.write("new.toml", written.output), "--set",
                                       "data.reader=prepared", "--set", "data.path=" + folder_.file("")},
                                      60);
    EXPECT_EQ(done.status, 2) << done.output;
    EXPECT_EQ(std::count(done.output.begin(), done.output.end(), '\n'), 1) << done.output;
    return done.output;
  };
  EXPECT_THAT(refusal("din"), HasSubstr("reads the feature \"c0\", but the data has no such column"));
  EXPECT_THAT(refusal("two_tower"), HasSubstr("reads the feature \"c0\", but the data has no such column"));
}

}  // namespace
}  // namespace tessera::test::graph_model_test

// From a config to scores using only the program: train, quantize, inspect, predict; also tests its messages when
// something is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "inference/test_model.h"
#include "tessera/predictor.h"
#include "tessera_program.h"

namespace tessera::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr const char* kConfig = R"(
job = {seed = 3, threads = 1}
model = {embedding_dim = 8, bottom_mlp = [16, 8], top_mlp = [16, 1]}
table = [
  {name = "film", rows = 300, features = ["c0"], pooling = "mean"},
  {name = "other", rows = 200, features = ["c1", "c2"]}]
[data]
reader = "synthetic"
columns = 3
rows = [300, 200, 200]
dense = 5
pooling = 3
samples = 3000
test_samples = 800
batch = 64
)";

// The results of one training run, shared by all tests.
class ModelProgram : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TestDirectory;
    config_ = folder_->write("job.toml", kConfig);
    checkpoint_ = folder_->file("checkpoint");
    report_ = folder_->file("report.json");
    succeed(
        run_tessera({"train", "--config", config_, "--save", checkpoint_, "--set", "report.json=\"" + report_ + "\""}));
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  static std::string path(const std::string& name) { return folder_->file(name); }
  static std::string quantize(const std::string& name, std::vector<std::string> more, int status = 0) {
    more.insert(more.begin(), {"quantize", "--load", checkpoint_, "--save", path(name)});
    const Finished f = run_tessera(more);
    EXPECT_EQ(f.status, status) << f.output;
    return f.output;
  }
  static void expect_refused(std::vector<std::string> args, int status, const testing::Matcher<std::string>& sentence) {
    const Finished f = run_tessera(std::move(args));
    EXPECT_EQ(f.status, status) << f.output;
    EXPECT_THAT(f.output, sentence);
    EXPECT_EQ(std::count(f.output.begin(), f.output.end(), '\n'), 1) << f.output;
  }
  struct Scored {
    std::vector<double> scores, labels;
  };
  static Scored read_scores(const std::string& file) {
    Scored out;
    std::istringstream in(contents(file));
    std::string line;
    std::getline(in, line);
    EXPECT_EQ(line, "row,label,score");
    for (int64_t row = 0; std::getline(in, line); ++row) {
      long long at = 0;
      double label = 0, score = 0;
      EXPECT_EQ(std::sscanf(line.c_str(), "%lld,%lf,%lf", &at, &label, &score), 3) << line;
      EXPECT_EQ(at, row);
      out.labels.push_back(label);
      out.scores.push_back(score);
    }
    return out;
  }
  static double logloss(const Scored& s) {
    double sum = 0;
    for (size_t i = 0; i < s.scores.size(); ++i) sum -= std::log(s.labels[i] > 0 ? s.scores[i] : 1 - s.scores[i]);
    return sum / static_cast<double>(s.scores.size());
  }

  static TestDirectory* folder_;
  static std::string config_, checkpoint_, report_;
};
TestDirectory* ModelProgram::folder_ = nullptr;
std::string ModelProgram::config_, ModelProgram::checkpoint_, ModelProgram::report_;

TEST_F(ModelProgram, FloatsPredictWhatTrainingEvaluated) {
  const std::string said = quantize("fp32", {"--weights", "fp32"});
  EXPECT_THAT(said, Not(HasSubstr("do not tell"))) << "the checkpoint says features and pooling";
  const std::string predicted = succeed(run_tessera(
      {"predict", "--model", path("fp32"), "--config", config_, "--part", "test", "--output", path("fp32.csv")}));
  const Scored scored = read_scores(path("fp32.csv"));
  ASSERT_EQ(scored.scores.size(), 800u);
  const json test = json::parse(contents(report_))["test"];
  EXPECT_NEAR(logloss(scored), test["logloss"].get<double>(), 1e-5);
  double auc = 0;
  ASSERT_EQ(std::sscanf(predicted.c_str(), "AUC %lf", &auc), 1) << predicted;
  EXPECT_NEAR(auc, test["auc"].get<double>(), 1e-4);
}

TEST_F(ModelProgram, QuantizesInspectsAndPredicts) {
  const std::string said = quantize("int8", {"--weights", "int8", "--table", "film=int4", "--config", config_});
  EXPECT_THAT(said,
              AllOf(HasSubstr("film  "), HasSubstr("int4"), HasSubstr("times smaller"), HasSubstr("worst error")));
  const size_t at = said.find("test: AUC ");
  ASSERT_NE(at, std::string::npos) << said;
  double before = 0, after = 0;
  ASSERT_EQ(std::sscanf(said.c_str() + at, "test: AUC %lf before, %lf after", &before, &after), 2) << said;
  EXPECT_NEAR(before, json::parse(contents(report_))["test"]["auc"].get<double>(), 1e-4);
  EXPECT_NEAR(after, before, 0.01);

  const std::string shown = succeed({"model", "inspect", path("int8"), "--verify"});
  EXPECT_THAT(shown, AllOf(HasSubstr("5 dense inputs"), HasSubstr("c1, c2"), HasSubstr("MEAN"),
                           HasSubstr("all checksums are right")));
  const auto described = run_tessera({"model", "inspect", path("int8"), "--json"});
  const json model = json::parse(described.output);
  EXPECT_EQ(model["tables"][0]["format"], "int4");
  EXPECT_EQ(model["tables"][1]["bytes"], 200 * 12);
  EXPECT_EQ(model["features"].size(), 3u);

  for (const char* name : {"fp32again", "int8"}) {
    if (std::string(name) == "fp32again") quantize(name, {"--weights", "fp32"});
    succeed(run_tessera(
        {"predict", "--model", path(name), "--config", config_, "--output", path(std::string(name) + ".csv")}));
  }
  const Scored exact = read_scores(path("fp32again.csv")), rounded = read_scores(path("int8.csv"));
  ASSERT_EQ(rounded.scores.size(), 3800u) << "train and test part";
  ASSERT_EQ(exact.scores.size(), 3800u);
  double worst = 0;
  for (size_t i = 0; i < exact.scores.size(); ++i)
    worst = std::max(worst, std::abs(exact.scores[i] - rounded.scores[i]));
  EXPECT_LT(worst, 0.1);
  EXPECT_GT(worst, 0);
}

// Tables and layers of a trained model are those of its checkpoint; an edited config would describe another model.
TEST_F(ModelProgram, EditedConfigsAreRefused) {
  std::string summed = kConfig;
  summed.replace(summed.find(", pooling = \"mean\""), std::string(", pooling = \"mean\"").size(), "");
  const std::string without = folder_->write("without.toml", summed),
                    pooling = R"(the table "film" has pooling = "SUM" instead of "MEAN")";
  const std::pair<const char*, const char*> edits[] = {
      {"model.embedding_dim=16", "model.embedding_dim is 16, but was 8 when the model was trained"},
      {"model.bottom_mlp=[4,8]", "model.bottom_mlp is [4,8], but was [16,8] when the model was trained"},
      {"model.top_mlp=[64,1]", "model.top_mlp is [64,1], but was [16,1] when the model was trained"},
  };
  for (const auto& [edit, sentence] : edits) {
    expect_refused({"quantize", "--load", checkpoint_, "--save", path("edited"), "--config", config_, "--set", edit}, 2,
                   HasSubstr(sentence));
    EXPECT_FALSE(fs::exists(path("edited")));
  }
  expect_refused({"quantize", "--load", checkpoint_, "--save", path("edited"), "--config", without}, 2,
                 HasSubstr(pooling));
  expect_refused({"train", "--config", without, "--load", checkpoint_}, 2, HasSubstr(pooling));
}

// A table of one column, such as the shares of items of two_tower, has no rows of int8.
TEST_F(ModelProgram, NarrowTablesStayInFloats) {
  const std::string narrow = path("narrow");
  succeed({"train", "--config", config_, "--save", narrow, "--set", "model.embedding_dim=6", "--set",
           "model.bottom_mlp=[6]"});
  const auto pack = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> args = {"quantize", "--load", narrow, "--save", path(name)};
    args.insert(args.end(), more.begin(), more.end());
    return run_tessera(args);
  };
  EXPECT_THAT(succeed(pack("narrow4", {"--weights", "int4", "--table", "film=int8"})),
              AllOf(HasSubstr("other stays in fp32: its rows have 6 columns, and int4 takes multiples of 4\n"),
                    Not(HasSubstr("film stays")), HasSubstr("int8")));
  const Finished asked = pack("narrow_asked", {"--table", "film=int4"});
  EXPECT_EQ(asked.status, 2);
  EXPECT_THAT(asked.output, HasSubstr("in multiples of 4 columns: choose int8, or a format of floats"));
  const Finished twice = pack("narrow_twice", {"--table", "film=int8", "--table", "film=fp16"});
  EXPECT_EQ(twice.status, 2);
  EXPECT_THAT(twice.output, HasSubstr("--table film=fp16: the format of \"film\" is there twice"));
}

TEST_F(ModelProgram, RowsForValidationAreNoOtherTestPart) {
  const std::vector<std::string> part = {"--set", "validation.fraction=0.2", "--set", "data.samples=1000"};
  const auto with = [&](std::vector<std::string> args) {
    args.insert(args.end(), part.begin(), part.end());
    return run_tessera(args);
  };
  succeed(with({"train", "--config", config_, "--save", path("held_out")}));
  const std::vector<std::string> predict = {"predict", "--model", path("held_out"), "--config",          config_,
                                            "--part",  "test",    "--output",       path("held_out.csv")};
  EXPECT_THAT(succeed(with(predict)), Not(HasSubstr("another test part")));
  EXPECT_THAT(succeed(run_tessera(predict)), HasSubstr("trained with another test part"));
}

// The policy of the tables decides, in the same way for all data.
TEST_F(ModelProgram, IdsOutOfRangeAreForThePolicy) {
  fs::create_directory(path("prepared"));
  folder_->write("prepared/meta.json", R"({"dense": ["x"], "columns": [{"name": "item", "rows": 10}]})");
  std::string train, test;
  for (int i = 0; i < 64; ++i) train += (i % 3 ? "1\t0.5\t" : "0\t0.5\t") + std::to_string(i % 10) + "\n";
  folder_->write("prepared/train.tsv", train + "1\t0.5\t999999\n0\t0.5\t-1,3\n");
  folder_->write("prepared/test.tsv", "1\t0.5\t10\n0\t0.5\t3\n1\t0.5\t99999999999,4\n0\t0.5\t7\n");
  const std::string job = folder_->write("prepared.toml", R"(
[job]
threads = 1
[model]
embedding_dim = 4
bottom_mlp = [4]
top_mlp = [4, 1]
[data]
reader = "prepared"
path = ")" + path("prepared") + "\"\nbatch = 16\n");
  const std::string report = path("bounds.json"), saved = path("bounds"),
                    told = path("prepared") + "/train.tsv, row 65, ";
  const auto train_with = [&](const std::string& policy, const std::string& save) {
    return run_tessera({"train", "--config", job, "--save", save, "--set", "table_defaults.bounds_check=" + policy,
                        "--set", "report.json=" + report});
  };
  const auto bad = AllOf(HasSubstr(told), HasSubstr("column \"item\" names row 999999, but its table has 10 rows"));
  const Finished fatal = train_with("fatal", saved);
  EXPECT_EQ(fatal.status, 2);
  EXPECT_THAT(fatal.output, bad);
  for (const std::string policy : {"ignore", "warning"}) {
    const std::string checkpoint = saved + policy, model = path("packed-" + policy), scores = path(policy + ".csv");
    succeed(train_with(policy, checkpoint));
    EXPECT_EQ(json::parse(contents(report)).at("dropped_ids"), 4) << "two in training, two in the test part";
    expect_refused({"quantize", "--load", checkpoint, "--save", model, "--config", job}, 2, bad);
    EXPECT_THAT(succeed({"quantize", "--load", checkpoint, "--save", model, "--weights", "fp32", "--config", job,
                         "--set", "table_defaults.bounds_check=" + policy}),
                HasSubstr("test: AUC"));
    succeed({"predict", "--model", model, "--config", job, "--output", scores});
    EXPECT_EQ(read_scores(scores).scores.size(), 70u);
  }
  const std::string strict = path("packed-fatal");
  ASSERT_EQ(run_tessera({"quantize", "--load", saved + "ignore", "--save", strict, "--bounds-check", "fatal"}).status,
            0);
  expect_refused({"predict", "--model", strict, "--config", job}, 2, bad);
}

// Parameters of a plugin's layer, or of another model, in a checkpoint.
TEST_F(ModelProgram, ParametersWithoutAPlaceAreNotDropped) {
  fs::create_directory(path("extended"));
  checkpoint::SafetensorsReader trained{checkpoint::InputFile(checkpoint_ + "/save-1/model.safetensors")};
  NamedTensors tensors;
  for (const auto& [name, stored] : trained.tensors()) tensors.tensors[name] = trained.read(name);
  tensors.add("dense_arch.model._mlp.0._linear.gain", {16}, 1);
  tensors.add("tower.weight", {2, 2}, 2);
  tensors.write(path("extended") + "/model.safetensors");
  expect_refused({"quantize", "--load", path("extended"), "--save", path("reduced")}, 2,
                 AllOf(HasSubstr("no DLRM has "), HasSubstr("\"dense_arch.model._mlp.0._linear.gain\""),
                       HasSubstr("\"tower.weight\"")));
  EXPECT_FALSE(fs::exists(path("reduced")));
}

TEST_F(ModelProgram, FilesOfSamplesNeedNoConfig) {
  quantize("plain", {});
  const std::string data = folder_->write("samples.tsv", "1\t0.5,0,0,0,1\t3,4\t\t7\n0\t0,0,0,0,0\t\t199\t0,1,2\n");
  const std::string f = succeed({"predict", "--model", path("plain"), "--data", data, "--format", "jsonl"});
  std::istringstream in(f);
  std::string line;
  std::getline(in, line);
  const json first = json::parse(line);
  EXPECT_EQ(first["row"], 0);
  EXPECT_EQ(first["label"], 1);
  EXPECT_GT(first["score"].get<double>(), 0);
  EXPECT_LT(first["score"].get<double>(), 1);

  // Reading from a pipe gives the same, batch by batch, and keeps no samples.
  const auto piped = [&](const std::string& file, const std::string& batch) {
    return run_program({"/bin/sh", "-c", "cat \"$2\" | exec \"$0\" predict --model \"$1\" --data - --batch \"$3\" 2>&1",
                        tessera_path(), path("plain"), file, batch},
                       60);
  };
  const auto whole = run_tessera({"predict", "--model", path("plain"), "--data", data});
  const std::string scores = whole.output.substr(0, whole.output.find("AUC"));
  for (const char* batch : {"1", "2", "1024"}) {
    const std::string answered = succeed(piped(data, batch));
    EXPECT_THAT(answered, testing::StartsWith(scores));
    EXPECT_THAT(answered, AllOf(HasSubstr("auc?bins=1048576 "), HasSubstr("(2 samples)")));
  }
  const std::string cut_off = folder_->write("cut_off.tsv", "1\t0.5,0,0,0,1\t3,4\t\t7\n0\t0,0,0,0,0\t\t199\n");
  const auto wrong = piped(cut_off, "1");
  EXPECT_NE(wrong.status, 0);
  EXPECT_THAT(wrong.output, HasSubstr("standard input:2: a line has 5 fields with tabs between; this one has fewer"));

  expect_refused({"predict", "--model", path("plain"), "--data", data, "--part", "test"}, 2,
                 HasSubstr("--part test: there are no such rows in "));
  for (const std::vector<std::string>& output : {std::vector<std::string>{}, {"--output", "-"}}) {
    std::vector<std::string> vectors = {"predict", "--model", path("plain"), "--data", data, "--vectors", "over_arch"};
    vectors.insert(vectors.end(), output.begin(), output.end());
    expect_refused(vectors, 2, HasSubstr("vectors are written to a file, not to standard output"));
  }
  const std::string beyond = folder_->write("beyond.tsv", "1\t0.5,0,0,0,1\t300\t\t7\n");
  expect_refused({"predict", "--model", path("plain"), "--data", beyond}, 2,
                 AllOf(HasSubstr("beyond.tsv, row 1"), HasSubstr("row 300"), HasSubstr("300 rows")));
  EXPECT_THAT(piped(beyond, "1").output, AllOf(HasSubstr("standard input, row 1"), HasSubstr("row 300")));
}

TEST_F(ModelProgram, ACProgramAsks) {
  quantize("asked", {});
  const auto asked = run_program({TESSERA_ASK_MODEL, path("asked")}, 60);
  EXPECT_EQ(asked.status, 0) << asked.output;
  EXPECT_THAT(asked.output, AllOf(HasSubstr("5 dense inputs, 3 features, 2 tables"), HasSubstr("c1: ids 0 to 199"),
                                  HasSubstr("score 0.")));
  test::expect_refused(run_program({TESSERA_ASK_MODEL, path("nowhere")}, 60),
                       AllOf(HasSubstr("ask_model: there is no packed model at"), HasSubstr("no such directory")), 1);
  std::filesystem::create_directory(path("empty"));
  test::expect_refused(run_program({TESSERA_ASK_MODEL, path("empty")}, 60),
                       HasSubstr("it has no file model.json; tessera quantize makes one of a checkpoint"), 1);
  test::expect_refused(run_program({TESSERA_ASK_MODEL, path(".")}, 60),
                       HasSubstr("model.json; did you mean " + path("./asked") + "?"), 1);
}

TEST_F(ModelProgram, WrongUseIsSaidInASentence) {
  quantize("there", {});
  const auto quantizing = [&](std::vector<std::string> more) {
    more.insert(more.begin(), "quantize");
    return more;
  };
  const std::string new_model = path("new");
  expect_refused({"quantize"}, 2, HasSubstr("--load CHECKPOINT and --save MODEL are needed"));
  expect_refused(quantizing({"--load", path("nowhere"), "--save", new_model}), 2, HasSubstr("no checkpoint at"));
  expect_refused(quantizing({"--load", checkpoint_, "--save", path("there")}), 2, HasSubstr("there exists"));
  expect_refused(quantizing({"--load", path("there"), "--save", new_model}), 2,
                 HasSubstr("is a packed model: give the checkpoint that it was packed from"));
  expect_refused(quantizing({"--load", checkpoint_, "--save", new_model, "--weights", "int7"}), 2,
                 AllOf(HasSubstr("int7"), HasSubstr("int8")));
  expect_refused(quantizing({"--load", checkpoint_, "--save", new_model, "--table", "movie=int4"}), 2,
                 AllOf(HasSubstr("\"movie\""), HasSubstr("film, other")));
  expect_refused(quantizing({"--load", checkpoint_, "--save", new_model, "--table", "film"}), 2,
                 HasSubstr("NAME=FORMAT"));
  const std::string bigger = folder_->write("bigger.toml", std::string(kConfig) + "seed_is_unknown = 1\n");
  expect_refused(quantizing({"--load", checkpoint_, "--save", new_model, "--config", bigger}), 2,
                 HasSubstr("seed_is_unknown"));
  expect_refused(quantizing({"--load", checkpoint_, "--save", new_model, "--config", config_, "--set",
                             "table.film.rows=301", "--set", "data.rows=[301,200,200]"}),
                 2, HasSubstr(R"([[table]] "film": rows is 301, but was 300 when the model was trained)"));
  EXPECT_FALSE(fs::exists(new_model));

  expect_refused({"model"}, 2, HasSubstr("tessera model inspect DIR"));
  expect_refused({"model", "exprt", path("there"), "--onnx", path("x.onnx")}, 2, HasSubstr("\"exprt\" is not known"));
  expect_refused({"model", "inspect", path("nowhere")}, 2,
                 HasSubstr("nowhere is not there: tessera model inspect takes"));
  expect_refused({"predict", "--model", path("there")}, 2, HasSubstr("--data FILE"));
  expect_refused({"predict", "--model", path("there"), "--data", path("nowhere")}, 2,
                 HasSubstr("--data: there is no file or directory " + path("nowhere")));
  expect_refused({"predict", "--model", path("there"), "--config", config_, "--set", "data.dense=4"}, 2,
                 HasSubstr("4 dense values a sample, but the model takes 5"));
  expect_refused({"predict", "--model", path("there"), "--config", config_, "--set", "data.columns=2", "--set",
                  "data.rows=[300,200]"},
                 2, HasSubstr("the model takes feature \"c2\""));
  expect_refused({"predict", "--model", path("there"), "--config", config_, "--set", "data.rows=[100000,200,200]",
                  "--output", path("scores.csv")},
                 1,
                 AllOf(HasSubstr("in the batch that begins at row 0: feature \"c0\", sample "), HasSubstr("0 to 299")));
  std::ofstream(path("there") + "/table-0.rows", std::ios::app) << "more";
  expect_refused({"predict", "--model", path("there"), "--config", config_}, 1, HasSubstr("table-0.rows is damaged"));
}

}  // namespace
}  // namespace tessera::test

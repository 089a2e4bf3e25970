// Tests which heads answer, which labels they use, and how their answers are written and judged.
#include "predict/heads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "config/test_refusal.h"
#include "predict/score_writer.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

using test::refusal;
using testing::ElementsAre;
using testing::HasSubstr;

ModelDescription model_of(std::vector<ModelOutput> outputs) {
  ModelDescription out;
  out.outputs = std::move(outputs);
  return out;
}

Dataset data_of(const std::vector<std::string>& labels, bool labelled = true) {
  return {.labels = labels, .labelled = labelled};
}

const ModelDescription kModel =
    model_of({{"click", 1, true, "label"}, {"kinds", 2, false, "kind"}, {"stars", 1, false, "rating"}});

// The label of each head; -1 if it has none.
std::vector<int> labels_of(const ModelDescription& model, const Dataset& data) {
  std::vector<int> out;
  for (const AskedHead& head : asked_heads(model, asked_outputs(model), data))
    out.push_back(head.label ? static_cast<int>(*head.label) : -1);
  return out;
}

TEST(AskedHeads, AreThoseThatAreNamed) {
  EXPECT_THAT(asked_outputs(kModel), ElementsAre(0, 1, 2));
  EXPECT_THAT(asked_outputs(kModel, {"stars", "click", "stars"}), ElementsAre(2, 0));
  EXPECT_EQ(refusal([] { (void)asked_outputs(kModel, {"start"}); }),
            "--head: the model has no head \"start\"; the nearest is \"stars\"");
  EXPECT_EQ(asked_heads(kModel, {2}, data_of({"rating"}))[0].name, "score");
  EXPECT_THAT(widths_of(kModel, asked_heads(kModel, {2, 1}, data_of({"rating"}))), ElementsAre(0, 2, 1));
}

TEST(AskedHeads, HaveTheLabelsThatTheDataHas) {
  EXPECT_THAT(labels_of(kModel, data_of({"rating", "label"})), ElementsAre(1, -1, 0));
  EXPECT_THAT(labels_of(kModel, data_of({"clicked"})), ElementsAre(0, -1, -1)) << "the one label is \"label\"";
  EXPECT_THAT(labels_of(kModel, data_of({"rating"})), ElementsAre(-1, -1, 0)) << "another head's";
  EXPECT_THAT(labels_of(kModel, data_of({"rating", "label"}, false)), ElementsAre(-1, -1, -1));
  const ModelDescription one = model_of({{"buy", 1, true, "bought"}});
  EXPECT_THAT(labels_of(one, data_of({"clicked"})), ElementsAre(0));
  EXPECT_EQ(refusal([&] {
              (void)labels_of(one, data_of({"a", "b"}));
            }),
            "the model predicts the label \"bought\", but the data has none of that name");
}

struct Answered {
  Answered() {
    batch.labels = Tensor::from<float>({1, 0});
    batch.further_labels = Tensor::from<float>({3, 5}).reshape({1, 2});
  }
  std::vector<std::vector<float>> values = {{0.75f, 0.25f}, {1, 2, 3, 4}, {4, 4}};
  Batch batch;  // has the labels "label" and "rating"
};

std::string written(const std::vector<AskedHead>& heads, bool as_json) {
  std::string name = (std::filesystem::temp_directory_path() / "tessera_scores_XXXXXX").string();
  close(mkstemp(name.data()));
  const Answered answered;
  ScoreWriter writer(name, as_json, heads);
  writer.add(answered.values, answered.batch);
  writer.flush();
  std::ostringstream out;
  out << std::ifstream(name).rdbuf();
  std::filesystem::remove(name);
  return out.str();
}

TEST(ScoreWriter, HasColumnsOfEachHead) {
  const std::vector<AskedHead> heads = asked_heads(kModel, {0, 1, 2}, data_of({"label", "rating"}));
  EXPECT_EQ(written(heads, false),
            "row,click_label,click,kinds_0,kinds_1,stars_label,stars\n0,1,0.75,1,2,3,4\n1,0,0.25,3,4,5,4\n");
  EXPECT_EQ(written(heads, true),
            "{\"row\": 0, \"click_label\": 1, \"click\": 0.75, \"kinds\": [1, 2], \"stars_label\": 3, \"stars\": 4}\n"
            "{\"row\": 1, \"click_label\": 0, \"click\": 0.25, \"kinds\": [3, 4], \"stars_label\": 5, \"stars\": 4}\n");
  EXPECT_EQ(written(asked_heads(kModel, {2}, data_of({"label", "rating"})), false), "row,label,score\n0,3,4\n1,5,4\n");
  EXPECT_EQ(written(asked_heads(kModel, {0}, data_of({"label"})), true),
            "{\"row\": 0, \"label\": 1, \"score\": 0.75}\n{\"row\": 1, \"label\": 0, \"score\": 0.25}\n");
  EXPECT_EQ(written(asked_heads(kModel, {1}, data_of({"label"}, false)), false), "row,score_0,score_1\n0,1,2\n1,3,4\n");
  const ModelDescription odd = model_of({{"a,b"}, {"c", 2, false}});
  EXPECT_THAT(written(asked_heads(odd, {0, 1}, data_of({"x"}, false)), false),
              testing::StartsWith("row,\"a,b\",c_0,c_1\n"));
}

TEST(HeadJudge, NamesMetricsAsTrainingDoes) {
  const Answered answered;
  const auto judged = [&](const std::vector<size_t>& outputs, const std::vector<std::string>& labels, bool streamed) {
    HeadJudge judge(kModel, asked_heads(kModel, outputs, data_of(labels)), streamed);
    judge.add(answered.values, answered.batch);
    return judge.values();
  };
  const MetricValues both = judged({0, 1, 2}, {"label", "rating"}, false);
  EXPECT_EQ(both.samples, 2);
  EXPECT_DOUBLE_EQ(both["click.auc"], 1);
  EXPECT_DOUBLE_EQ(both["stars.rmse"], 1);
  EXPECT_EQ(both.values.size(), 6u) << "a head of two values is not judged";
  EXPECT_DOUBLE_EQ(judged({2}, {"label", "rating"}, false)["rmse"], 1);
  EXPECT_NEAR(judged({0, 2}, {"label"}, true)["click.auc?bins=1048576"], 1, 1e-6);
  EXPECT_TRUE(judged({1}, {"other"}, false).values.empty());
  EXPECT_EQ(refusal([&] { (void)judged({1}, {"label"}, false); }),
            "the model predicts the label \"kind\", but the data has none of that name");
}

// A file whose labels are written in another way than in training has only zeros.
TEST(NoAuc, IsSaidWithWhatCountsAsOne) {
  ModelDescription model = model_of({{"click", 1, true, "click"}});
  Dataset data = data_of({"click"});
  data.name = "may.csv";
  const MetricValues fine{3, {{"auc", 0.7}, {"logloss", 0.5}}}, none{3, {{"auc", std::nan("")}, {"logloss", 0.5}}};
  EXPECT_EQ(no_auc_note(fine, data, model), "");
  EXPECT_EQ(no_auc_note(none, data, model), "may.csv: AUC is not defined, because all labels are the same");
  const auto with = [&](const std::string& key) {
    model.encoding =
        R"({"reader":"csv","words":1,"columns":[{"name":"id","as":"ids","table":"id","ids":"row","rows":2},)"
        R"({"name":"click","as":"label","table":"click",)" +
        key + "}]}";
    return no_auc_note(none, data, model);
  };
  EXPECT_THAT(with(R"("positive":"yes")"), HasSubstr("; in \"click\" the word \"yes\" counts as 1, and every other"));
  EXPECT_THAT(with(R"("threshold":2)"), HasSubstr("; in \"click\" a number counts as 1 from 2 on, and below as 0"));
}

}  // namespace
}  // namespace tessera::cli

// `tessera model export` writes files and refuses models. scripts/dev/test_onnx compares scores with onnxruntime's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::model_export_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ModelExport : public testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path program = tessera_path();
    if (!std::filesystem::exists(program.parent_path() / "tessera-onnx"))
      GTEST_SKIP() << "this build has no tessera-onnx, which libonnx-dev is needed for";
  }
  // A checkpoint of one step of a preset.
  std::string trained(const std::string& preset, const Arguments& more = {}) {
    const std::string job = folder_.write(preset + ".toml", succeed({"model", "new", preset}));
    succeed(Arguments{"train", "--config", job, "--save", file(preset), "--set", "data.samples=256", "--set",
                      "data.test_samples=64"} +
            more);
    return file(preset);
  }
  std::string file(const std::string& name) const { return folder_.file(name); }

  TestDirectory folder_;
};

TEST_F(ModelExport, WritesInputsOutputsAndTables) {
  const std::string model = trained("mmoe"), onnx = file("m.onnx");
  const std::string said = succeed({"model", "export", model, "--onnx", onnx});
  EXPECT_THAT(said, AllOf(HasSubstr("inputs: dense, c0, c1, c2, c3, c4, c5"), HasSubstr("outputs: click, like")));
  const std::string whole = contents(onnx);
  EXPECT_THAT(whole, AllOf(HasSubstr("tessera"), HasSubstr("c0.weight"), HasSubstr("experts.0.0.weight")));
  expect_refused({"model", "export", model, "--onnx", onnx}, HasSubstr("--overwrite replaces it"));
  EXPECT_THAT(succeed({"model", "export", model, "--onnx", onnx, "--overwrite", "--head", "like"}),
              AllOf(HasSubstr("outputs: like"), Not(HasSubstr("click"))));

  succeed({"model", "export", model, "--onnx", file("b.onnx"), "--tables", "beside"});
  const size_t tables = size_t{20000 + 5000 + 1000 + 300 + 50 + 10} * 16 * sizeof(float);
  EXPECT_EQ(contents(file("b.onnx.data")).size(), tables);
  EXPECT_GT(whole.size(), tables);
  EXPECT_LT(contents(file("b.onnx")).size(), tables / 10);

  const std::string outside = succeed({"model", "export", model, "--onnx", file("i.onnx"), "--tables", "input"});
  EXPECT_THAT(outside, HasSubstr("inputs: dense, c0, c1, c2, c3, c4, c5"));
  EXPECT_THAT(contents(file("i.onnx")), Not(HasSubstr("c0.weight")));
}

// How products are rounded, and how training starts and drops, is no part of the model.
TEST_F(ModelExport, TakesLayersWithOptionsOfTraining) {
  const std::string model = trained("dcn_v2", {"--set", R"(layer.cross.options={layers = 3, precision = "float32"})"});
  EXPECT_THAT(succeed({"model", "export", model, "--onnx", file("p.onnx")}), HasSubstr("outputs: click"));
  const std::string sequences = trained("sasrec", {"--set", "layer.q1.options={width = 16, init_std = 0.02}", "--set",
                                                   "layer.attention1.options={heads = 2, dropout = 0.1}"});
  EXPECT_THAT(succeed({"model", "export", sequences, "--onnx", file("s.onnx")}), HasSubstr("outputs: click"));
}

// Writes a job with one table, on rows of "click,user".
std::string job_of_users(const TestDirectory& folder, const std::string& rows) {
  return folder.write("job.toml", str_cat(R"(
model = {embedding_dim = 4}
column = [{name = "click", as = "label"}, {name = "user", ids = "vocabulary"}]
layer = [{name = "top", type = "linear", inputs = ["pooled"]}]
head = [{name = "click", input = "top", label = "click"}]
data = {reader = "csv", batch = 8, path = ")",
                                          folder.write("rows.csv", rows), "\"}\n"));
}

// A table is written without ONNX.
TEST(TableExport, WritesVectorsAndTheirIds) {
  const TestDirectory folder;
  std::string rows = "click,user\n";
  for (int i = 0; i < 60; ++i) rows += str_cat(i % 2, ",\"u, ", i % 3, "\"\n");
  const std::string job = job_of_users(folder, rows);
  const std::string saved = folder.file("saved");
  succeed({"train", "--config", job, "--save", saved});
  const auto write = [&](const std::string& name) {
    const std::string file = folder.file(name);
    succeed({"model", "export", saved, "--vectors", "user", "--output", file});
    return contents(file);
  };
  constexpr size_t kRows = 4, kRow = 4 * sizeof(float);
  const std::string npy = write("v.npy"), fvecs = write("v.fvecs"), csv = write("v.csv");
  EXPECT_EQ(npy.size() % 64, kRows * kRow % 64);
  EXPECT_THAT(npy, AllOf(testing::StartsWith("\x93NUMPY"), HasSubstr("'shape': (4, 4), }")));
  EXPECT_EQ(contents(folder.file("v.npy.ids.txt")), "\nu, 0\nu, 1\nu, 2\n");
  ASSERT_EQ(fvecs.size(), kRows * (kRow + 4));
  for (size_t r = 0; r < kRows; ++r) {
    EXPECT_EQ(fvecs.substr(r * (kRow + 4), 4), std::string("\4\0\0\0", 4));
    EXPECT_EQ(fvecs.substr(r * (kRow + 4) + 4, kRow), npy.substr(npy.size() - (kRows - r) * kRow, kRow));
  }
  EXPECT_THAT(csv, AllOf(testing::StartsWith("id,0,1,2,3\n,"), HasSubstr("\n\"u, 1\",")));
  // Rows that no text has are neither written nor found as items.
  const std::string spare = folder.file("spare");
  const std::string spare_job = folder.write("spare.toml", "table = [{name = \"user\", rows = 9}]\n" + contents(job));
  succeed({"train", "--config", spare_job, "--save", spare});
  succeed({"model", "export", spare, "--vectors", "user", "--output", folder.file("s.npy")});
  EXPECT_EQ(contents(folder.file("s.npy.ids.txt")), "\nu, 0\nu, 1\nu, 2\n");
  EXPECT_THAT(contents(folder.file("s.npy")), HasSubstr("'shape': (4, 4), }"));
  succeed({"train", "--config", spare_job, "--set", str_cat("table.user.start=", folder.file("s.npy"))});
  const Arguments best = {"predict", "--model", spare,     "--data", folder.file("rows.csv"),
                          "--items", "user",    "--query", "pooled", "--top-k"};
  Arguments three = best, four = best;
  three.emplace_back("3");
  four.emplace_back("4");
  const std::string found = succeed(three);
  for (const char* item : {",1,", ",2,", ",3,"}) EXPECT_THAT(found, HasSubstr(item));
  expect_refused(four, HasSubstr("--top-k 4 is more than the 3 items of user"));
  const auto refused = [&](const Arguments& more, const char* sentence) {
    expect_refused(Arguments{"model", "export", saved} + more, HasSubstr(sentence));
  };
  refused({"--vectors", "usr", "--output", folder.file("w.npy")}, "there is no table \"usr\"; the nearest is \"user\"");
  refused({"--vectors", "user", "--output", folder.file("w.txt")}, "must end in .npy, .fvecs or .csv");
  refused({"--vectors", "user", "--output", folder.file("v.npy")}, "--overwrite replaces it");
  refused({"--vectors", "user"}, "tessera model export DIR --vectors TABLE --output FILE");
  refused({"--vectors", "user", "--output", "w.npy", "--head", "x"}, "--head is of ONNX files");
}

TEST(TableExport, RefusesIdsOfSeveralLines) {
  const TestDirectory folder;
  for (const char* user : {"line\nbreak", "carriage\rreturn"}) {
    std::string rows = "click,user\n";
    for (int i = 0; i < 60; ++i) rows += str_cat(i % 2, ",\"", i % 3 == 0 ? user : "u", "\"\n");
    const std::string job = job_of_users(folder, rows);
    succeed({"train", "--config", job, "--save", folder.file("saved"), "--overwrite"});
    for (const char* name : {"v.npy", "v.fvecs"}) {
      expect_refused({"model", "export", folder.file("saved"), "--vectors", "user", "--output", folder.file(name)},
                     HasSubstr("an id has a line break"));
      EXPECT_FALSE(std::filesystem::exists(folder.file(name)));
      EXPECT_FALSE(std::filesystem::exists(folder.file(name) + std::string(".ids.txt")));
    }
    succeed({"model", "export", folder.file("saved"), "--vectors", "user", "--output", folder.file("v.csv"),
             "--overwrite"});
  }
}

TEST_F(ModelExport, RefusesWhatItCannotSay) {
  const std::string model = trained("two_tower");
  const auto refused = [&](const Arguments& more, const char* sentence) {
    expect_refused(Arguments{"model", "export", model, "--onnx", file("r.onnx")} + more, HasSubstr(sentence));
    EXPECT_FALSE(std::filesystem::exists(file("r.onnx"))) << sentence;
  };
  refused({}, "layer \"softmax\" (sampled_softmax) cannot be written as ONNX: this type of layer has no translation");
  refused({"--head", "clack"}, "there is no head \"clack\"; the nearest is \"click\"");
  refused({"--layer", "item_towr"}, "there is no layer \"item_towr\"; the nearest is \"item_tower\"");
  refused({"--head", "click", "--layer", "score"}, "--head and --layer exclude each other");
  refused({"--tables", "away"}, "--tables away: must be inside, beside or input");
  refused({"--inputs", "words"}, "--inputs words: must be rows or columns");
  refused({"--inputs", "columns", "--tables", "input"}, "--inputs columns has no effect on --tables input");
  refused({"--inputs", "columns", "--head", "click"}, "this model was not trained on [[column]]s");
  expect_refused({"model", "export", model, "--onnx", file("r.onnx"), "--vectors", "c0"},
                 HasSubstr("--onnx is of ONNX files, and --vectors writes none"));
  expect_refused({"model", "export", model}, HasSubstr("tessera model export DIR --onnx FILE"));
  expect_refused({"model", "export", file("none"), "--onnx", file("r.onnx")}, HasSubstr("there is no packed model"));
  expect_refused({"model", "export", model, "--onnx", file("no/r.onnx"), "--head", "click"},
                 HasSubstr("cannot write " + file("no/r.onnx") + ": No such file or directory"), 1);
  succeed({"model", "export", model, "--onnx", file("tower.onnx"), "--layer", "item_tower"});
}

}  // namespace
}  // namespace tessera::test::model_export_test

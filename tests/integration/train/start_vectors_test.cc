// Tables that begin with a file of vectors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::start_vectors_test {
namespace {

using testing::HasSubstr;

constexpr const char* kStartJob = R"(
job = {seed = 3, device = "cpu", threads = 1}
model = {embedding_dim = 2, bottom_mlp = [2], top_mlp = [4, 1]}
data = {reader = "csv", path = "PATH", batch = 8, test = "last", test_fraction = 0.2}
column = [
  {name = "liked", as = "label"},
  {name = "price", as = "dense"},
  {name = "film", ids = "vocabulary"}]
[[table]]
name = "film"
start = "START"
)";

class StartVectors : public testing::Test {
 protected:
  void SetUp() override {
    std::string rows = "liked,price,film\n";
    for (int i = 0; i < 40; ++i) rows += str_cat(i % 2, ",", i % 3, ",film ", i % 4, "\n");
    folder_.write("rows.csv", rows);
    vectors(3, 2);
    folder_.write("v.npy.ids.txt", "film 2\nother\nfilm 0\n");
  }
  // Vector r has the values r + 0.25 k.
  void vectors(int rows, int width, const std::string& type = "<f4", const char* by_columns = "False") {
    std::string text =
        str_cat("{'descr': '", type, "', 'fortran_order': ", by_columns, ", 'shape': (", rows, ", ", width, "), }");
    text.append(64 - (text.size() + 11) % 64, ' ');
    std::string out = "\x93NUMPY\x01";
    out += '\0';
    out += static_cast<char>(text.size() + 1);
    out += '\0';
    out += text + "\n";
    for (int r = 0; r < rows; ++r) {
      for (int k = 0; k < width; ++k) {
        const float value = static_cast<float>(r) + 0.25f * static_cast<float>(k);
        out.append(reinterpret_cast<const char*>(&value), sizeof(value));
      }
    }
    folder_.write("v.npy", out);
  }
  std::string job(const std::string& more = "trainable = false\n") const {
    std::string text = kStartJob + more;
    text.replace(text.find("PATH"), 4, file("rows.csv"));
    text.replace(text.find("START"), 5, file("v.npy"));
    return folder_.write("job.toml", text);
  }
  std::string file(const std::string& name) const { return folder_.file(name); }

  TestDirectory folder_;
};

TEST_F(StartVectors, AreTheRowsOfTheirIds) {
  for (const char* ranks : {"1", "2"}) {
    const std::string saved = file(str_cat("saved", ranks)), out = file(str_cat("out", ranks, ".csv"));
    const std::string said = succeed({"train", "--config", job(), "--save", saved, "--nproc", ranks});
    EXPECT_THAT(said, HasSubstr("table film begins with 2 of 3 vectors"));
    succeed({"model", "export", saved, "--vectors", "film", "--output", out});
    EXPECT_THAT(contents(out), HasSubstr("\nfilm 0,2,2.25\n"));
    EXPECT_THAT(contents(out), HasSubstr("\nfilm 2,0,0.25\n"));
  }
  succeed({"train", "--config", job(""), "--save", file("trained")});
  succeed({"model", "export", file("trained"), "--vectors", "film", "--output", file("t.csv")});
  EXPECT_THAT(contents(file("t.csv")), testing::Not(HasSubstr("\nfilm 0,2,2.25\n"))) << "they may be trained";
}

TEST_F(StartVectors, PrevailOverTheRowsOfAnotherModel) {
  succeed({"train", "--config", job(), "--save", file("first"), "--set", "table.film.start=\"\""});
  const std::string said = succeed({"train", "--config", job(), "--start", file("first"), "--save", file("second")});
  EXPECT_THAT(said, HasSubstr("table film begins with 2 of 3 vectors"));
  for (const char* saved : {"first", "second"})
    succeed({"model", "export", file(saved), "--vectors", "film", "--output", file(str_cat(saved, ".csv"))});
  const auto row = [&](const char* saved, const std::string& id) {
    const std::string all = contents(file(str_cat(saved, ".csv")));
    const size_t at = all.find("\n" + id + ",");
    return all.substr(at, all.find('\n', at + 1) - at);
  };
  EXPECT_EQ(row("second", "film 0"), "\nfilm 0,2,2.25");
  EXPECT_EQ(row("second", "film 1"), row("first", "film 1")) << "the file has no vector of it";
}

// Rows of a vocabulary are in the order of the texts, so vectors without ids would be those of other texts.
TEST_F(StartVectors, OfAVocabularyNeedTheirIds) {
  std::filesystem::remove(file("v.npy.ids.txt"));
  expect_refused({"train", "--config", job()}, HasSubstr(str_cat("there is no file ", file("v.npy.ids.txt"))));
  std::string text = contents(job());
  folder_.write("rows.csv", "liked,price,film\n1,1,0\n0,1,1\n1,2,2\n0,2,0\n1,0,1\n0,0,2\n");
  const std::string words = "ids = \"vocabulary\"";
  text.replace(text.find(words), words.size(), "rows = 3");
  succeed({"train", "--config", folder_.write("rows.toml", text), "--save", file("saved")});
  succeed({"model", "export", file("saved"), "--vectors", "film", "--output", file("out.csv")});
  EXPECT_THAT(contents(file("out.csv")), HasSubstr("\n2,2,2.25\n"));
}

TEST_F(StartVectors, RefuseWhatDoesNotFit) {
  folder_.write("v.npy.ids.txt", "film 2\nfilm 0\n");
  expect_refused({"train", "--config", job()}, HasSubstr("has 2 lines, but"));
  folder_.write("v.npy.ids.txt", "a\nb\nc\n");
  expect_refused({"train", "--config", job()}, HasSubstr("table film has none of the ids of"));
  folder_.write("v.npy.ids.txt", "film 1\nfilm 2\nfilm 1\n");
  expect_refused({"train", "--config", job()}, HasSubstr("line 3: an earlier line has the same id"));
  vectors(3, 3);
  expect_refused({"train", "--config", job()}, HasSubstr("has vectors of 3 values, but the rows of table film have 2"));
  vectors(3, 2, "<f8");
  expect_refused({"train", "--config", job()}, HasSubstr("is not a matrix of float32 as numpy.save writes it"));
  vectors(3, 2, "<f4", "True");
  expect_refused({"train", "--config", job()}, HasSubstr("column by column: save numpy.ascontiguousarray(array)"));
  vectors(3, 2);
  const std::string all = contents(file("v.npy"));
  folder_.write("v.npy", all.substr(0, all.size() - 2) + "\xc0\x7f");  // the last value is NaN
  expect_refused({"train", "--config", job()}, HasSubstr("vector 2 (the first is 0) has a value that is not finite"));
  folder_.write("v.npy", all.substr(0, all.size() - 1));
  expect_refused({"train", "--config", job()}, HasSubstr("it is truncated or damaged"), 1);
  std::filesystem::remove(file("v.npy"));
  expect_refused({"train", "--config", job()}, HasSubstr("cannot read the vectors of"));
  expect_refused({"train", "--config", job(), "--set", "table.film.start=films.csv"},
                 HasSubstr("vectors are in a .npy file"));
}

}  // namespace
}  // namespace tessera::test::start_vectors_test

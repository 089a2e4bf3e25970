// Columns that are vectors: in training, in predictions of files and requests, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/test_replaced.h"
#include "job_file.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::vector_columns_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kVectorJob = R"(
job = {seed = 3, device = "cpu", threads = 1}
model = {embedding_dim = 8}
data = {reader = "csv", path = "DIR/rows.csv", batch = 100, epochs = 8, test = "last", test_fraction = 0.2}
dense_optimizer = {name = "adam", learning_rate = 0.02}
report = {json = "DIR/report.json"}
layer = [
  {name = "small", type = "projection", inputs = ["photo", "title"], options = {width = 4}},
  {name = "top", type = "mlp", inputs = ["dense", "small", "pooled"], options = {widths = [16, 1]}}]
head = [{name = "like", input = "top", label = "liked"}]
[[column]]
name = "liked"
as = "label"
[[column]]
name = "photo"
as = "vector"
width = 3
KEYS
[[column]]
name = "price"
as = "dense"
[[column]]
name = "title"
as = "vector"
column = "words"
width = 2
separator = ";"
[[column]]
name = "user"
ids = "vocabulary"
)";

class VectorColumns : public testing::Test, protected JobFile {
 protected:
  void SetUp() override {
    write_rows([](int) { return ""; });
  }
  // Rows whose label is the product of signs of the two vectors. `wrong` replaces a row's photo unless it gives "".
  template <class Wrong>
  void write_rows(const Wrong& wrong) {
    std::string rows = "liked,photo,price,words,user\n";
    for (int i = 0; i < 2000; ++i) {
      const int a = i * 7 % 2, b = i / 3 % 2;
      const std::string one = a == 0 ? "0.5" : "-0.5", photo = wrong(i);
      const std::string whole = i % 2 == 0 ? one + " 0.25 1e-1" : "\"[" + one + ", 0.25, 0.1]\"";
      rows += str_cat(a == b ? 1 : 0, ",", photo.empty() ? whole : photo, ",", i % 10, ",", b == 0 ? "1;0" : "0;1",
                      ",u", i % 5, "\n");
    }
    write("rows.csv", rows);
  }
  std::string job(const std::string& keys = "", const std::string& from = "", const std::string& to = "") const {
    return write_job(replaced(replaced(kVectorJob, "KEYS", keys), from, to));
  }
  double auc() const { return report().at("test").at("auc").get<double>(); }
};

// The score of a file's last row, as text.
std::string last_score(const std::string& path) {
  const std::string all = contents(path);
  return all.substr(all.rfind(',') + 1);
}

TEST_F(VectorColumns, AreInputsOfLayers) {
  const std::string config = job();
  succeed({"train", "--config", config, "--save", file("saved")});
  EXPECT_GT(auc(), 0.99) << "only both vectors together tell the label";
  const std::string said =
      succeed({"predict", "--model", file("saved"), "--part", "test", "--config", config, "--output", file("a.csv")});
  EXPECT_THAT(said, testing::ContainsRegex("AUC (0.99|1.0)"));
  succeed({"quantize", "--load", file("saved"), "--save", file("packed"), "--weights", "fp32"});
  succeed({"predict", "--model", file("packed"), "--data", file("rows.csv"), "--output", file("b.csv")});
  EXPECT_EQ(last_score(file("b.csv")), last_score(file("a.csv")));
  succeed({"train", "--config", config, "--nproc", "2"});
  EXPECT_GT(auc(), 0.99);
}

// An error names the row, the width that it has, and what to do.
TEST_F(VectorColumns, HaveTheirWidthInEveryRow) {
  write_rows([](int i) { return i == 41 ? "0.5 0.25" : ""; });
  expect_refused({"train", "--config", job()},
                 HasSubstr("row 42, column \"photo\": the vector has 2 numbers, but the [[column]] says width = 3"));
  write_rows([](int i) { return i == 7 ? "\"\"" : ""; });
  expect_refused({"train", "--config", job()}, HasSubstr("row 8, column \"photo\": the vector has 0 numbers, but the "
                                                         "[[column]] says width = 3; set missing to a number"));
  succeed({"train", "--config", job("missing = 0")});
  write_rows([](int i) { return i == 9 ? "0.5 x 0.1" : ""; });
  expect_refused({"train", "--config", job()}, HasSubstr("row 10, column \"photo\""));
}

TEST_F(VectorColumns, RefuseWhatMakesNoSense) {
  expect_refused({"train", "--config", job("", "width = 3\n", "")},
                 HasSubstr("[[column]] \"photo\" is a vector: set width, the number of its values"));
  expect_refused({"train", "--config", job("missing = \"mean\"")},
                 HasSubstr("is a vector, so its missing must be a number, not mean"));
  expect_refused({"train", "--config", job("transform = [\"log1p\"]")},
                 HasSubstr("is a vector, so its \"transform\" has no effect: leave it out"));
  expect_refused({"train", "--config", job("", "as = \"dense\"", "as = \"dense\"\nwidth = 3")},
                 HasSubstr("is dense, so its \"width\" has no effect"));
  expect_refused({"train", "--config", job("", "[\"photo\", \"title\"]", "[\"photo\"]")},
                 HasSubstr("the column \"title\" is a vector, and no layer takes it"));
  expect_refused({"train", "--config", job("", "[\"photo\", \"title\"]", "[\"foto\", \"title\"]")},
                 HasSubstr("the column \"photo\" is a vector, and no layer takes it"));
  std::string dlrm = contents(job());
  dlrm.erase(dlrm.find("layer = "), dlrm.find("[[column]]") - dlrm.find("layer = "));
  expect_refused({"train", "--config", write("dlrm.toml", dlrm)},
                 HasSubstr("the column \"photo\" is a vector, which a DLRM does not take: write [[layer]]s"));
}

}  // namespace
}  // namespace tessera::test::vector_columns_test

// `tessera data describe` on unknown files: its configs can be trained without changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "tessera/config.h"
#include "tessera_program.h"

namespace tessera::test::describe_test {
namespace {

using testing::HasSubstr;
using testing::Not;

class Describe : public testing::Test {
 protected:
  // The columns of the config that describes a file; the config is then file("job.toml").
  std::map<std::string, ColumnConfig> describe(const std::string& name, const std::string& text,
                                               const Arguments& more = {}) {
    std::filesystem::remove(file("job.toml"));
    const Finished done =
        run_tessera(Arguments{"data", "describe", folder_.write(name, text), "--output", file("job.toml")} + more);
    EXPECT_EQ(done.status, 0) << done.output;
    if (done.status != 0) return {};
    job_ = contents(file("job.toml"));
    std::map<std::string, ColumnConfig> out;
    for (const ColumnConfig& c : load_config(file("job.toml")).columns) out[c.name.at(0)] = c;
    return out;
  }
  // The report of the job in the file.
  nlohmann::json train(const std::string& epochs = "4") {
    succeed({"train", "--config", file("job.toml"), "--set", "job.device=cpu", "--set", "data.batch=64", "--set",
             "data.epochs=" + epochs, "--set", "dense_optimizer.learning_rate=0.01", "--set",
             "table_defaults.optimizer.learning_rate=0.03", "--set", "report.json=" + file("r.json")});
    return nlohmann::json::parse(contents(file("r.json")));
  }
  static double test_metric(const nlohmann::json& report, const char* name) {
    return report.empty() ? std::nan("") : report.at("test").at(name).get<double>();
  }
  std::string file(const std::string& name) const { return folder_.file(name); }

  TestDirectory folder_;
  std::string job_;
};

uint32_t below(uint32_t& random, uint32_t n) { return ((random = random * 1664525u + 1013904223u) >> 16) % n; }

std::string rows(int count, const std::string& header, const std::function<std::string(int row)>& row) {
  std::string out = header + "\n";
  for (int i = 0; i < count; ++i) out += row(i) + "\n";
  return out;
}

// Each row has different weights, which alone determine the label. A list without weights is next to them; no mean is
// used then.
TEST_F(Describe, ListsWithWeights) {
  for (const std::string id : {"t", ""}) {  // texts, numbers
    uint32_t random = 1;
    const auto columns = describe("a.csv", rows(3000, "click,tags,seen", [&](int) {
                                    const uint32_t first = below(random, 100), other = 2 + below(random, 8);
                                    return str_cat(first >= 50 ? 1 : 0, ",", id, "1:0.", first / 10, first % 10, ";",
                                                   id, other, ":0.5,a|", below(random, 2) ? "b" : "c");
                                  }));
    ASSERT_EQ(columns.count("tags"), 1u) << job_;
    EXPECT_EQ(columns.at("tags").separator, ";");
    EXPECT_TRUE(columns.at("tags").weighted);
    EXPECT_EQ(columns.at("tags").ids, "vocabulary");
    EXPECT_EQ(columns.at("seen").separator, "|");
    EXPECT_FALSE(columns.at("seen").weighted);
    EXPECT_EQ(columns.at("seen").pooling, "sum");
    EXPECT_THAT(one_line(job_), HasSubstr(" 9 ids, each with the weight of its row after \":\""));
    EXPECT_GT(test_metric(train("8"), "auc"), 0.9) << job_;
  }
}

TEST_F(Describe, WeightsAreThoseOfAllItems) {
  const auto columns = describe("a.csv", rows(300, "click,at,tags,marks", [](int i) {
                                  return str_cat(i % 2, ",2026-01-0", i % 9 + 1, " 1", i % 10, ":30,a:1;b", i % 3,
                                                 i % 5 ? ":2" : "", ",a:0.5;", i % 7 ? "b:1" : "");
                                }));
  EXPECT_EQ(columns.at("at hour").take, "hour") << "a time is not a weight";
  EXPECT_FALSE(columns.at("tags").weighted);
  EXPECT_EQ(columns.at("tags").separator, ";");
  EXPECT_EQ(columns.at("marks").separator, "") << "the reader refuses a list without an item behind \";\"";
  EXPECT_NE(train("1"), nlohmann::json());
}

// Rows to be scored may lack a number that every row of the described file has.
TEST_F(Describe, ANumberMayBeMissingLater) {
  const auto row = [](int i) { return str_cat(i % 2, ",u", i % 7, ",", i % 2 * 5 + i % 10, ",2026-01-0", i % 9 + 1); };
  const auto columns = describe("a.csv", rows(400, "click,user,age,day", row));
  ASSERT_EQ(columns.count("age"), 1u) << job_;
  ASSERT_TRUE(columns.at("age").missing) << job_;
  EXPECT_EQ(columns.at("age").missing->word, "mean");
  succeed({"train", "--config", file("job.toml"), "--save", file("saved")});
  EXPECT_FALSE(std::filesystem::exists(file("saved.best-so-far")));
  succeed({"quantize", "--load", file("saved"), "--save", file("model"), "--weights", "fp32"});
  const std::string asked = folder_.write("b.csv", "click,user,age,day\n1,u1,,2026-01-02\n0,u2,7,\n");
  succeed({"predict", "--model", file("model"), "--data", asked, "--output", file("scores.csv")});
  const std::string scores = contents(file("scores.csv"));
  EXPECT_EQ(std::count(scores.begin(), scores.end(), '\n'), 3) << scores;
}

TEST_F(Describe, NamesAreNoListsOfWords) {
  const std::vector<std::string> titles = {"\"Dune, part 1\"", "\"Dune, part 2\"", "\"The \"\"Q\"\"\"", "Alien"};
  const std::vector<std::string> words = {"red", "green", "blue", "old", "new", "big", "small", "cheap"};
  uint32_t random = 1;
  const std::string text = rows(4000, "click,title,name,query,kind,tags", [&](int i) {
    const auto word = [&](uint32_t n) { return words[below(random, n)]; };
    const std::string query = str_cat(word(8), " ", word(8), " ", word(8), " ", word(8), " ", word(8), " ", word(8));
    return str_cat(query.find("red") != query.npos ? 1 : 0, ",", titles[below(random, 4)], ",person ", i % 200, ",",
                   query, ",", word(5), " ", word(5), " ", word(5), ",\"", word(8), ", ", word(8), ", ", word(8), "\"");
  });
  const auto columns = describe("a.csv", text);
  EXPECT_EQ(columns.at("title").separator, "");
  EXPECT_EQ(columns.at("title").pooling, "sum");
  EXPECT_EQ(columns.at("name").separator, "") << "201 words in 200 names";
  EXPECT_EQ(columns.at("query").separator, " ") << "8 words in some thousand queries";
  EXPECT_EQ(columns.at("query").pooling, "mean");
  EXPECT_THAT(job_, HasSubstr("# 8 items in "));
  EXPECT_THAT(one_line(job_), HasSubstr("leave separator and pooling out. [[column]] name = \"query\""));
  EXPECT_EQ(columns.at("kind").separator, "") << "125 values, each in some thirty rows";
  EXPECT_THAT(one_line(job_), HasSubstr("separator = \" \" and pooling = \"mean\". [[column]] name = \"kind\""));
  EXPECT_EQ(columns.at("tags").separator, ",");
  EXPECT_GT(test_metric(train(), "auc"), 0.9) << job_;
}

TEST_F(Describe, FindsTheDelimiter) {
  const auto text = [](const char* d) {
    return rows(600, str_cat("click", d, "\"a", d, "b\"", d, "film"),
                [&](int i) { return str_cat(i % 2, d, i * 7 % 300, ",5", d, "film, ", i % 2 * 10 + i % 10); });
  };
  const std::map<std::string, std::string> readers = {
      {";", "csv?delimiter=;"}, {"\t", "tsv"}, {"|", "csv?delimiter=|"}};
  for (const auto& [delimiter, reader] : readers) {
    const auto columns = describe("a.csv", text(delimiter.c_str()));
    EXPECT_EQ(load_config(file("job.toml")).data.reader, reader);
    EXPECT_EQ(columns.at(str_cat("a", delimiter, "b")).decimal, ",");
    EXPECT_EQ(columns.count(str_cat("a", delimiter, "b")), 1u);
    EXPECT_GT(test_metric(train(), "auc"), 0.9) << job_;
  }
  describe("a.tsv", rows(300, "click,film", [](int i) { return str_cat(i % 2, ",film ", i % 20); }));
  EXPECT_EQ(load_config(file("job.toml")).data.reader, "csv");
  describe("b.csv", rows(300, "click,a;b", [](int i) { return str_cat(i % 2, ",x;y", i % 20); }));
  EXPECT_EQ(load_config(file("job.toml")).data.reader, "csv") << "its rows fit their header";
}

TEST_F(Describe, WhatFitsNoDelimiterIsSaid) {
  const std::string broken = folder_.write("a.csv", "click,film\n1,a\n0,b,c\n");
  const Finished none = run_tessera({"data", "describe", broken});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.output, HasSubstr(broken + ", row 2 has 3 fields, but the header has 2"));
  const std::string semicolons = folder_.write("b.csv", "click;film\n1;a\n0;b,c\n");
  expect_refused({"data", "describe", semicolons, "--reader", "csv"},
                 HasSubstr("row 2 has 2 fields, but the header has 1; does the file have another "
                           "delimiter, or lines above its header?"));
  EXPECT_THAT(run_tessera({"data", "describe", file("none.csv")}).output, HasSubstr("there is no file"));
  expect_refused({"data", "describe", folder_.write("a.xlsx", "PK")},
                 HasSubstr("is a spreadsheet, which no reader reads: write it as CSV or Parquet first"));
}

// The comment is true: the label as a number, with another loss, can be trained.
TEST_F(Describe, ANumberAsLabelMayBePredictedItself) {
  const auto replace = [&](const std::string& line, const std::string& other) {
    const size_t at = job_.find("\n" + line);
    ASSERT_NE(at, job_.npos) << line << job_;
    job_.replace(at + 1, line.size(), other);
  };
  for (const std::string price : {"", ",price"}) {  // the model has dense values, or none
    uint32_t random = 1;
    const auto columns = describe("a.csv", rows(4000, "stars,person,film" + price, [&](int) {
                                    const uint32_t person = below(random, 30), film = below(random, 20);
                                    return str_cat(1 + person % 3 + film % 3, ",p", person, ",f", film,
                                                   price.empty() ? "" : str_cat(",", film, ".5"));
                                  }));
    EXPECT_EQ(columns.at("stars").threshold, 3) << "the mean is 2.95";
    EXPECT_GT(test_metric(train(), "auc"), 0.9);
    replace("threshold = 3", "real = true");
    replace("loss = \"binary_cross_entropy\"", "loss = \"mse\"");
    folder_.write("job.toml", job_);
    EXPECT_LT(test_metric(train("10"), "rmse"), 0.4) << "the stars' own deviation is 1.15\n" << job_;
  }
  describe("b.csv", rows(300, "label,film,x", [](int i) { return str_cat(i % 2, ",f", i % 20, ",", i, ".5"); }));
  EXPECT_THAT(job_, Not(HasSubstr("real"))) << "zeros and ones are a label as they are";
}

// A column of zeros and ones is the label, wherever it is; other columns with label names would reveal it.
TEST_F(Describe, OtherLabelsAreNoFeatures) {
  const auto text = [](const std::string& header, bool missing) {
    return rows(600, header, [&](int i) {
      return str_cat(i % 3, ",", missing && i % 9 == 0 ? std::string("NA") : str_cat(i % 2), ",", i % 5 / 4, ",film ",
                     i % 20, ",", i % 60, ".5");
    });
  };
  auto columns = describe("a.csv", text("y,click,seen,film,x", false));
  EXPECT_EQ(columns.at("click").as, "label");
  EXPECT_FALSE(columns.at("click").threshold);
  EXPECT_FALSE(columns.contains("y")) << job_;
  EXPECT_THAT(one_line(job_),
              HasSubstr("left out because it has a name like a label: \"y\". If it is a feature that is "
                        "known before the label, use: [[column]]"));
  EXPECT_THAT(job_, HasSubstr("# [[column]]\n"
                              "# name = \"y\"\n"
                              "# as = \"dense\"\n"));
  EXPECT_THAT(one_line(job_), HasSubstr("To predict it as well, name both with --label"));
  EXPECT_NE(train("1"), nlohmann::json());

  columns = describe("b.csv", text("stars,click,seen,film,x", false), {"--label", "stars"});
  EXPECT_EQ(columns.at("stars").as, "label");
  EXPECT_FALSE(columns.contains("click")) << job_;

  columns = describe("c.csv", text("film_id,click,label,film,x", true));
  EXPECT_EQ(columns.at("label").as, "label") << "click has no number in some rows";
  EXPECT_FALSE(columns.contains("click")) << job_;

  expect_refused(
      {"data", "describe", folder_.write("d.csv", text("film_id,click,seen,film,x", true)), "--label", "click"},
      HasSubstr("column \"click\" has no value in 67 of 600 rows"));
}

// Only the vector tells the label, and the job as it comes learns it.
TEST_F(Describe, ListsOfNumbersAreVectors) {
  for (const bool bracketed : {false, true}) {
    const auto columns =
        describe("a.csv", rows(2000, "click,film,photo", [&](int i) {
                   const std::string between = bracketed ? " " : "|";
                   const std::string list =
                       str_cat(i % 2 == 0 ? "0.5" : "-0.25", between, i % 7, ".25", between, "1e-3", between, i % 5);
                   const bool none = i % 50 == 0;
                   return str_cat(i % 2, ",film ", i / 2 % 20, ",", none ? "" : bracketed ? "[" + list + "]" : list);
                 }));
    ASSERT_EQ(columns.count("photo"), 1u) << job_;
    EXPECT_EQ(columns.at("photo").as, "vector");
    EXPECT_EQ(columns.at("photo").width, 4);
    EXPECT_EQ(columns.at("photo").separator, bracketed ? "" : "|");
    EXPECT_THAT(one_line(job_), HasSubstr("A guess: the 4 numbers of each row are taken for a vector"));
    EXPECT_THAT(one_line(job_), HasSubstr("lists of 4 numbers, -0.25 to 6.25, 40 of 2000 rows without any"));
    EXPECT_GT(test_metric(train("8"), "auc"), 0.9) << job_;
  }
  const auto lists = describe("a.csv", rows(600, "click,film,tags", [](int i) {
                                return str_cat(i % 2, ",film ", i / 2 % 20, ",", i % 5, "|", i % 7, "|", i % 3);
                              }));
  EXPECT_EQ(lists.at("tags").as, "ids") << job_;
}

// The comment, without its marks, is the column as a feature.
TEST_F(Describe, AnotherLabelMayBeTakenAsAFeature) {
  describe("a.csv", rows(600, "click,rating,film",
                         [](int i) { return str_cat(i % 2, ",", i % 2 * 35 + i / 2 % 35, ".5,film ", i / 2 % 20); }));
  for (const std::string line : {"[[column]]\n", "name = \"rating\"\n", "as = \"dense\"\n", "transform = "}) {
    const size_t at = job_.find("\n# " + line);
    ASSERT_NE(at, job_.npos) << line << job_;
    job_.erase(at + 1, 2);
  }
  EXPECT_THAT(one_line(job_), HasSubstr("Then add \"dense\" to the inputs of the layers \"first\" and \"deep\"."));
  for (size_t at = 0; (at = job_.find("inputs = [\"pooled\"]", at)) != job_.npos; at += 1) {
    const std::string layer = job_.substr(job_.rfind("name = ", at), 14);
    if (layer == "name = \"first\"" || layer == "name = \"deep\"\n") job_.insert(at + 10, "\"dense\", ");
  }
  folder_.write("job.toml", job_);
  EXPECT_GT(test_metric(train("20"), "auc"), 0.9) << job_;
}

TEST_F(Describe, LabelsInTextsAreSaid) {
  const auto says = [&](const std::string& text, const Arguments& more = {}) {
    return test::refused(run_tessera(Arguments{"data", "describe", folder_.write("a.csv", text)} + more));
  };
  std::string words = "user,click,grade,price\n";
  for (int i = 0; i < 400; ++i)
    words += str_cat("u", i % 20, ",", i % 20 < 7 ? "yes" : "no", ",", "abc"[i % 3], ",\"", i % 90, ",5\"\n");
  auto columns = describe("words.csv", words);
  EXPECT_THAT(job_, HasSubstr("# a guess: \"click\" is taken as the label; name another one with --label\n"));
  EXPECT_EQ(columns.at("click").positive, "yes");
  EXPECT_GT(test_metric(train("8"), "auc"), 0.9) << job_;
  columns = describe("words.csv", words, {"--label", "grade"});
  EXPECT_EQ(columns.at("grade").positive, "a") << "one of several words against the others";
  columns = describe("words.csv", words, {"--label", "price"});
  EXPECT_TRUE(columns.at("price").real);
  EXPECT_EQ(columns.at("price").decimal, ",");
  columns = describe("one.csv", rows(400, "user,click", [&](int i) { return str_cat("u", i % 20, ",1"); }));
  EXPECT_FALSE(columns.at("click").threshold) << "one class turns no labels";
  EXPECT_THAT(job_, HasSubstr("# Only the value 1 was seen"));
  columns = describe(
      "two.csv", rows(400, "user,a,b", [&](int i) { return str_cat("u", i % 20, ",", i % 20 < 5, ",", i % 10 / 2.0); }),
      {"--label", "a,b"});
  EXPECT_EQ(load_config(file("job.toml")).heads.size(), 2u);
  EXPECT_NE(train("1"), nlohmann::json());
  EXPECT_THAT(says("user,click\na,1\nb,0\na,1\n", {"--label", "clic"}), HasSubstr("did you mean \"click\"?"));
  EXPECT_THAT(says("user,film\na,b\nb,c\n"), HasSubstr("no column has a name like a label, or only zeros and ones"));
}

TEST_F(Describe, AJobWithoutIdsIsRefused) {
  const std::string text =
      rows(300, "review,rating", [](int i) { return str_cat("a text of row ", i, ",", 1 + i % 5); });
  expect_refused({"data", "describe", folder_.write("a.csv", text), "--output", file("none.toml")},
                 HasSubstr("no column except the label \"rating\" seems to hold ids"));
  EXPECT_FALSE(std::filesystem::exists(file("none.toml")));
  const auto columns = describe("b.csv", rows(300, "label,hour", [](int i) { return str_cat(i % 2, ",", i % 24); }));
  EXPECT_EQ(columns.at("hour value").ids, "vocabulary");
  EXPECT_EQ(columns.at("hour").as, "dense");
  EXPECT_NE(train("1"), nlohmann::json());
}

TEST_F(Describe, NumbersAsPeopleWriteThem) {
  const auto columns =
      describe("a.csv", rows(600, "click;price;cost;tags;list", [](int i) {
                 return str_cat(i % 2, ";", i % 7 ? str_cat(i % 2 * 40 + i % 40, ",", i % 8 + 1) : "NA", ";$1,",
                                100 + i % 90, ".99;", i % 9, ",", i % 8, ",", i % 7, ";[", i % 4, ", ", i % 5, "]");
               }));
  EXPECT_EQ(columns.at("price").decimal, ",");
  EXPECT_EQ(columns.at("price").missing->word, "mean");
  EXPECT_EQ(columns.at("price missing").take, "missing");
  EXPECT_EQ(columns.at("cost").strip, "$,");
  EXPECT_EQ(columns.at("tags").separator, ",") << "three numbers are a list";
  EXPECT_EQ(columns.at("list").separator, ",");
  EXPECT_GT(test_metric(train(), "auc"), 0.9) << job_;
}

// A typical table about people: an unnamed index, a counter, a time, a constant, a copy, texts that are all different.
TEST_F(Describe, TrainsOnATableAsItIs) {
  uint32_t random = 1;
  const auto columns =
      describe("a.csv",
               rows(3000, ",row,when,user,copy,country,note,year,bought",
                    [&](int i) {
                      const uint32_t user = below(random, 40), hour = below(random, 24);
                      const bool bought = user % 4 == 0 || hour > 20;
                      return str_cat(i, ",", i + 1, ",2024-0", 1 + i % 9, "-10T", hour < 10 ? "0" : "", hour,
                                     ":00:00,u", user, ",u", user, ",DE,note ", i, ",",
                                     i % 50 ? str_cat(1990 + i % 60) : std::string(), ",", bought ? "yes" : "no");
                    }),
               {"--label", "bought", "--html", file("page.html")});
  EXPECT_EQ(columns.size(), 7u) << job_;
  for (const std::string left : {"it has no name", "it counts the rows", "it is a copy of \"user\"",
                                 "each row has the same", "nearly every row has a different value"})
    EXPECT_THAT(job_, HasSubstr("# left out because " + left));
  EXPECT_EQ(columns.at("when hour").take, "hour");
  EXPECT_EQ(columns.at("year").missing->word, "mean");
  EXPECT_GT(test_metric(train("8"), "auc"), 0.9) << job_;
  EXPECT_THAT(contents(file("page.html")), HasSubstr("{\"kind\":\"columns\""));
}

TEST_F(Describe, OtherEncodingsAreRead) {
  const auto columns =
      describe("a.csv", rows(600, "click,place", [](int i) { return str_cat(i % 2, ",caf\xe9 ", i % 10, " \x96"); }));
  EXPECT_EQ(load_config(file("job.toml")).data.reader, "csv?encoding=windows-1252");
  EXPECT_THAT(contents(file("job.toml")),
              HasSubstr("are not UTF-8, and are read as windows-1252, in which one value is"));
  EXPECT_GT(test_metric(train(), "auc"), 0.9) << job_;
}

// One field in another notation, or a bad date, does not change what the others mean.
TEST_F(Describe, OneOddFieldChangesNoColumn) {
  const auto with_odd = [&](const std::string& odd, const std::function<std::string(int)>& usual) {
    return describe("a.csv", rows(900, "click,user,x", [&](int i) {
                      return str_cat(i % 2, ",u", i % 30, ",\"", i == 7 ? odd : usual(i), "\"");
                    }));
  };
  const auto with_points = [](int i) { return str_cat("-", i, ".53"); };
  const auto with_commas = [](int i) { return str_cat(i, ",53"); };
  for (const auto& [odd, usual] : {std::pair<std::string, std::function<std::string(int)>>{"1.234,50", with_points},
                                   {"12,50", with_points},
                                   {"1,5", with_points},
                                   {"1,234.50", with_commas}}) {
    const auto columns = with_odd(odd, usual);
    if (columns.count("x") == 0) continue;
    EXPECT_NE(columns.at("x").as, "dense") << odd << '\n' << job_;
    EXPECT_EQ(columns.at("x").decimal, "") << odd;
  }
  for (const std::string odd : {"2024-02-30 10:00:00", "unknown", "24:00:00"}) {
    const auto columns = with_odd(odd, [](int i) { return str_cat("2020-01-0", i % 9 + 1, " 05:00:00"); });
    if (columns.count("x") > 0) {
      EXPECT_EQ(columns.at("x").separator, "") << odd << '\n' << job_;
    }
  }
  const auto american =
      with_odd("06/01/2024 07:00 AM", [](int i) { return str_cat("06/0", i % 9 + 1, "/2024 09:30 AM"); });
  if (american.count("x") > 0) {
    EXPECT_EQ(american.at("x").separator, "") << job_;
  }
  EXPECT_THAT(one_line(job_), HasSubstr("look like dates"));
}

TEST_F(Describe, AnIndexOfPandasAndNumbersNamedLikeIds) {
  const auto columns = describe("a.csv", rows(900, "click,user,__index_level_0__,product_price", [](int i) {
                                  return str_cat(i % 2, ",u", i % 30, ",", i % 300, ",", i, ".25");
                                }));
  EXPECT_EQ(columns.count("__index_level_0__"), 0u);
  EXPECT_THAT(one_line(job_), HasSubstr("it is the index that pandas writes beside the columns"));
  ASSERT_EQ(columns.count("product_price"), 1u) << job_;
  EXPECT_EQ(columns.at("product_price").as, "dense");
}

TEST_F(Describe, CodesAreNoLabels) {
  const auto refused = [&](const std::string& code, int every) {
    const std::string path = folder_.write(
        "l.csv", rows(900, "click,user",
                      [&](int i) { return str_cat(i % every == 0 ? code : std::to_string(i % 2), ",u", i % 30); }));
    expect_refused({"data", "describe", path, "--label", "click"}, HasSubstr(str_cat("has 0, 1 and ", code)));
  };
  refused("-1", 5);
  refused("2", 90);
  refused("9", 5);
}

TEST_F(Describe, LabelsThatNoRowHas) {
  describe(
      "a.csv",
      rows(900, "party,user,stars", [](int i) { return str_cat(i % 3 ? "Left" : "Right", ",u", i % 30, ",", i % 5); }),
      {"--label", "party"});
  const size_t at = job_.find("positive = \"Right\"");
  ASSERT_NE(at, std::string::npos) << job_;
  job_.replace(at, 18, "positive = \"Liberal\"");
  expect_refused({"train", "--config", folder_.write("other.toml", job_)},
                 HasSubstr("no training row has the word \"Liberal\" (positive), so every label would be 0"));
}

TEST_F(Describe, EventsWithoutALabelAreAHistory) {
  const std::string path = folder_.write("e.csv", rows(900, "user,item,time", [](int i) {
                                           return str_cat("u", i * 7 % 30, ",i", i % 50, ",", 1700000000 + i);
                                         }));
  expect_refused({"data", "describe", path},
                 testing::ResultOf(one_line, HasSubstr("[history] with user = \"user\", time = \"time\" and columns = "
                                                       "[\"item\"]: see docs/sequences.md")));
}

TEST_F(Describe, TheTestIsNoTrainingFile) {
  describe("a.csv", rows(300, "click,user", [](int i) { return str_cat(i % 2, ",u", i % 30); }));
  expect_refused({"train", "--config", file("job.toml"), "--set", str_cat("data.test=file:", file("a.csv"))},
                 HasSubstr("data.test names the training file itself"));
}

// Every tenth row is there twice; among other rows nothing is said.
TEST_F(Describe, CopiesOfRowsAreSaid) {
  for (const bool twice : {true, false}) {
    describe("a.csv", rows(2000, "click,user,size", [&](int i) {
               const int of = twice && i % 10 == 9 ? i - 1 : i;
               return str_cat(of % 2, ",u", of % 50, ",", of, ".5");
             }));
    EXPECT_EQ(std::regex_search(one_line(job_), std::regex("About (9|10|11) % of the rows are copies of other rows")),
              twice)
        << job_;
  }
}

// The zero of a database stands for "never": without a time, these rows can be trained and scored.
TEST_F(Describe, ZeroAmongTimesIsMissing) {
  const auto columns =
      describe("a.csv", rows(600, "click,user,seen_at", [](int i) {
                 return str_cat(i % 2, ",u", i % 20, ",", i % 7 == 0 ? 0 : 1600000000 + i * 7 % 90 * 3600);
               }));
  ASSERT_EQ(columns.count("seen_at days"), 1u) << job_;
  EXPECT_EQ(columns.at("seen_at days").missing_words, std::vector<std::string>{"0"});
  succeed({"train", "--config", file("job.toml"), "--set", "data.epochs=1", "--save", file("m")});
  const std::string asked = folder_.write("b.csv", "click,user,seen_at\n1,u1,0\n0,u2,1600000000\n");
  succeed({"predict", "--model", file("m"), "--data", asked, "--output", file("scores.csv")});
  job_.replace(job_.find("[\"0\"]"), 5, "[\"1600000000\"]");
  expect_refused({"train", "--config", folder_.write("b.toml", job_)},
                 HasSubstr("missing_words has \"1600000000\", which is a number"));
}

// The parts of a data set: their encodings, and a column that only the second has.
TEST_F(Describe, PartsOfADirectory) {
  const auto part = [&](const std::string& name, const std::string& more, const std::function<std::string(int)>& user) {
    std::filesystem::create_directories(file("d"));
    folder_.write("d/" + name, rows(300, "click,user" + more, [&](int i) {
                    return str_cat(i % 2, ",", user(i), more.empty() ? "" : str_cat(",", i % 7));
                  }));
  };
  const auto latin = [](int i) { return str_cat("caf\xe9 ", i % 20); };
  const auto utf8 = [](int i) { return str_cat("caf\xc3\xa9 ", i % 20); };
  const auto describe_parts = [&] {
    std::filesystem::remove(file("job.toml"));
    succeed({"data", "describe", file("d"), "--output", file("job.toml")});
    return one_line(contents(file("job.toml")));
  };
  part("a.csv", "", [](int i) { return str_cat("u", i % 20); });
  part("b.csv", ",amount", latin);
  const std::string job = describe_parts();
  EXPECT_THAT(job, HasSubstr("reader = \"csv?encoding=latin-1\""));
  EXPECT_THAT(job, HasSubstr("left out because only some of the files have it: write it into all of them to use it: "
                             "\"amount\""));
  EXPECT_NE(train("1"), nlohmann::json());
  part("a.csv", "", utf8);
  expect_refused({"data", "describe", file("d")},
                 testing::AllOf(HasSubstr("b.csv has characters that are not UTF-8"), HasSubstr("a.csv are")));
  part("b.csv", "", utf8);
  EXPECT_THAT(describe_parts(), HasSubstr("reader = \"csv\""));
}

TEST_F(Describe, WordsWhereNumbersAreMissing) {
  const std::vector<std::string> words = {"NA", "n/a", "null", "None", "nan", "?", "-"};
  const auto text = [&](const std::string& header) {
    return rows(2100, header, [&](int i) {
      const std::string x =
          i % 3 == 0 ? words[static_cast<size_t>(i / 3 % 7)] : str_cat(i % 2 * 100 + i * 7 % 50, ".5");
      return str_cat(i % 3 == 0 ? 0 : i % 2, ",", x, ",", i % 4 ? "DE" : "NA", ",", i % 5 ? "" : "-");
    });
  };
  const auto columns = describe("a.csv", text("click,x,land,none"));
  EXPECT_EQ(load_config(file("job.toml")).data.reader, "csv?missing_words=true");
  EXPECT_EQ(columns.at("x").as, "dense");
  EXPECT_EQ(columns.at("x").missing->word, "mean");
  EXPECT_THAT(one_line(job_), HasSubstr("700 of 2100 missing, as \"NA\", \"n/a\""));
  EXPECT_EQ(columns.at("land").ids, "vocabulary");
  EXPECT_THAT(one_line(job_),
              HasSubstr("2 different, most often \"DE\" (75 %) \"NA\" is a category of its own, in 525 of "
                        "2100 rows. pandas reads such a word as a null"))
      << "a text is a text";
  EXPECT_GT(test_metric(train(), "auc"), 0.9) << job_;
  expect_refused({"data", "describe", folder_.write("b.csv", text("w,x,land,none")), "--label", "x"},
                 HasSubstr("column \"x\" has no value in 700 of 2100 rows, but each row needs a label"));
  describe("c.tsv", rows(600, "click\tx\tfilm",
                         [](int i) { return str_cat(i % 2, "\t", i % 9 ? str_cat(i, ".5") : "NA", "\tf", i % 20); }));
  EXPECT_EQ(load_config(file("job.toml")).data.reader, "tsv?missing_words=true");
}

}  // namespace
}  // namespace tessera::test::describe_test

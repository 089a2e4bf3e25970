// `tessera data check`: differences between the files of training and new ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::data_check_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string table(const std::string& header, const std::function<std::string(int row)>& row) {
  std::string out = header + "\n";
  for (int i = 0; i < 400; ++i) out += row(i) + "\n";
  return out;
}

std::string as_trained(int i) { return str_cat("u", i % 40, ",", i % 3 ? "red" : "blue", ",", i % 90 + 10, ".5"); }

TEST(DataCheck, FindsNothingInLikeRows) {
  const TestDirectory folder;
  const std::string train = folder.write(
      "train.csv", table("click,user,color,price", [](int i) { return str_cat(i % 2, ",", as_trained(i)); }));
  const std::string now =
      folder.write("now.csv", table("color,user,price", [](int i) {
                     return str_cat(i % 3 ? "red" : "blue", ",u", i * 7 % 40, ",", i % 90 + 10, ".5");
                   }));
  EXPECT_THAT(succeed({"data", "check", train, now, "--label", "click"}), HasSubstr("has no difference from"));
  expect_refused({"data", "check", train, now}, HasSubstr("click: the column is missing"), 1);
  succeed({"data", "check", train, train});
}

TEST(DataCheck, SaysWhatIsDifferent) {
  const TestDirectory folder;
  const std::string train =
      folder.write("train.csv", table("user,color,price,size,kind,old,day", [](int i) {
                     return str_cat(as_trained(i), ",", i, ".25,", i % 4, ",", i, ",2024-01-0", i % 9 + 1);
                   }));
  const std::string now = folder.write("now.csv", table("user,color,price,size,kind,extra,day", [](int i) {
                                         return str_cat("u", i % 50, ",", i % 9 ? "blue" : "red", ",",
                                                        i % 2 ? str_cat(i % 90 + 300, ".5") : "", ",", i / 2 + 200,
                                                        ".25,", i % 4 ? "x" : "y", ",", i, ",2024-02-0", i % 9 + 1);
                                       }));
  expect_refused(
      run_tessera({"data", "check", train, now, "--html", folder.file("page.html")}),
      AllOf(AllOf(HasSubstr("user: 20 % of the values are not in the training files: \"u40\""),
                  HasSubstr("color: 55 % of the rows have moved to other values than in the training files,\n"
                            "  most to \"blue\", 89 % now, 34 % before"),
                  HasSubstr("price: 50 % of the values are missing, 0 % in the training files"),
                  HasSubstr("price: 100 % of the numbers are outside the 10.5 to 99.5 of the training files"),
                  HasSubstr("size: the numbers have moved: their median is"),
                  HasSubstr("kind: the training files have numbers, these have texts, such as \"x\""),
                  HasSubstr("old: the column is missing"), HasSubstr("extra: the column is new")),
            Not(HasSubstr("day:"))),
      1);
  EXPECT_THAT(contents(folder.file("page.html")),
              AllOf(HasSubstr("{\"kind\":\"columns\""), HasSubstr("\"New files\"")));
}

// A job reads only the form of time and the words that training had.
TEST(DataCheck, OtherFormsOfTimesAndOtherWords) {
  const TestDirectory folder;
  const auto rows = [](const std::string& word, const std::function<std::string(int)>& day) {
    return table("user,price,day", [=](int i) {
      return str_cat("u", i % 40, ",", i % 20 == 7 ? word : str_cat(i % 90 + 10, ".5"), ",", day(i));
    });
  };
  const auto by_points = [](int i) { return str_cat(i % 28 + 1, ".", i % 9 + 1, ".2024"); };
  const std::string train = folder.write("train.csv", rows("unknown", by_points));
  const std::string now =
      folder.write("now.csv", rows("tbd", [](int i) { return str_cat("2024-0", i % 9 + 1, "-1", i % 9); }));
  succeed({"data", "check", train, train});
  expect_refused({"data", "check", train, now},
                 AllOf(HasSubstr("price: the word \"tbd\" is not in the training files, which have numbers"),
                       HasSubstr("day: the training files have times in the form %d.%m.%Y, these in the form ISO")),
                 1);
}

TEST(DataCheck, APageDoesNotReplaceTheData) {
  const TestDirectory folder;
  const std::string text = table("click,user", [](int i) { return str_cat(i % 2, ",u", i % 40); });
  const std::string file = folder.write("a.csv", text);
  expect_refused({"data", "describe", file, "--html", file}, HasSubstr("would replace"));
  expect_refused({"data", "check", file, file, "--html", file}, HasSubstr("would replace"));
  EXPECT_EQ(contents(file), text);
}

// A model looks words up, and reads files as it read those of training.
TEST(DataCheck, ComparesWhatAModelReads) {
  const TestDirectory folder;
  const auto rows = [](const char* end) {
    return table("click,code", [=](int i) { return str_cat(i % 2, ",", i % 20 + 10, end); });
  };
  const std::string train = folder.write("train.csv", rows("")), floats = folder.write("floats.csv", rows(".0"));
  succeed({"data", "check", train, floats, "--label", "click"});
  std::string text = rows("");
  std::replace(text.begin(), text.end(), ',', ';');
  expect_refused({"data", "check", train, folder.write("semicolons.csv", text)},
                 AllOf(HasSubstr("a model of the training files reads \"csv\""), HasSubstr("\"csv?delimiter=;\"")), 1);
  expect_refused({"data", "check", train, train, "--label", "clik"},
                 HasSubstr("--label: the training files have no column \"clik\"; the nearest is \"click\""));
}

// A job reads numbers by the signs that those of training had, and vectors are numbers.
TEST(DataCheck, ComparesSignsAndVectors) {
  const TestDirectory folder;
  const auto rows = [&](const std::string& name, const std::function<std::string(int)>& x) {
    return folder.write(name,
                        table("click,user,x", [=](int i) { return str_cat(i % 2, ",u", i % 40, ",\"", x(i), "\""); }));
  };
  const auto differ = [&](const std::string& a, const std::string& b, const std::string& what) {
    expect_refused({"data", "check", a, b}, HasSubstr(what), 1);
  };
  const std::string points = rows("points.csv", [](int i) { return str_cat(1 + i % 9, ",", 100 + i, ".5"); });
  const std::string commas = rows("commas.csv", [](int i) { return str_cat(1 + i % 9, ".", 100 + i, ",5"); });
  differ(points, commas, "these with the decimal sign \",\" and \".\" left out, such as ");
  const std::string dollars = rows("dollars.csv", [](int i) { return str_cat("$", i % 90, ".5"); });
  differ(dollars, rows("pounds.csv", [](int i) { return str_cat("\xc2\xa3", i % 90, ".5"); }),
         "x: the training files have");
  succeed({"data", "check", points,
           rows("small.csv", [](int i) { return str_cat(1 + i % 9, ",", 100 + i * 7 % 400, ".5"); })});
  const std::string vectors = rows("vectors.csv", [](int i) { return str_cat("[0.", i, ", 0.5]"); });
  succeed({"data", "check", vectors, rows("alike.csv", [](int i) { return str_cat("[0.", i * 7 % 400, ", 0.5]"); })});
  differ(vectors, rows("larger.csv", [](int i) { return str_cat("[", i, ".5, 50.5]"); }),
         "of the numbers are outside the 0");
}

// No difference, but a test on such rows is of no use.
TEST(DataCheck, RowsOfTheTrainingFilesAreCounted) {
  const TestDirectory folder;
  const auto rows = [&](const std::string& name, int from) {
    return folder.write(name, table("click,user,x", [=](int i) {
                          return str_cat((i + from) % 2, ",u", (i + from) % 40, ",", i + from, ".5");
                        }));
  };
  const std::string train = rows("train.csv", 0);
  EXPECT_THAT(succeed({"data", "check", train, rows("same.csv", 0)}),
              HasSubstr("400 of 400 rows are also in the training"));
  EXPECT_THAT(run_tessera({"data", "check", train, rows("half.csv", 200)}).output,
              HasSubstr("200 of 400 rows are also"));
  EXPECT_THAT(run_tessera({"data", "check", train, rows("other.csv", 400)}).output, Not(HasSubstr("are also in")));
}

TEST(DataCheck, WrongUses) {
  const TestDirectory folder;
  const std::string file = folder.write("a.csv", "x,y\n1,2\n");
  expect_refused({"data", "check", file}, HasSubstr("two files are needed: tessera data check TRAIN NEW"));
  expect_refused({"data", "check", file, folder.file("none.csv")}, HasSubstr("none.csv"));
  expect_refused({"data", "check"}, HasSubstr("two files are needed: tessera data check TRAIN NEW"));
  expect_refused({"data", "check", folder.write("job.toml", "[data]"), file},
                 HasSubstr("job.toml is a job: name the files of its data.path instead"));
  expect_refused({"data", "check", file, file, "--output", "x"}, HasSubstr("--output is of describe"));
  expect_refused({"data", "chek", file}, HasSubstr("tessera data check TRAIN NEW"));
}

}  // namespace
}  // namespace tessera::test::data_check_test

// Tests of what `tessera data describe` says about columns that it may read in another way than their owner means.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <regex>

#include "config/test_refusal.h"
#include "data/column_look.h"
#include "data/column_names.h"
#include "data/columns_toml.h"
#include "data/date_texts.h"
#include "data/decisions.h"
#include "data/encoding.h"
#include "data/id_words.h"
#include "data/label_choice.h"
#include "data/odd_texts.h"
#include "data/test_choice.h"
#include "data/toml_text.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Fields = std::function<std::string(int row)>;

constexpr int kNoteRows = 600;

ColumnSeen column_of(const std::string& name, const Fields& field, int rows = kNoteRows) {
  ColumnLook look(name, false, false, {});
  for (int i = 0; i < rows; ++i) look.add(field(i), i >= rows - rows / 10);
  ColumnSeen out = look.seen(true);
  out.points_elsewhere = true;
  return out;
}

// The job's text on a column beside a label of 0 and 1, or beside the label, on one line.
std::string said_of(const ColumnSeen& c, bool is_label = false) {
  std::vector<ColumnSeen> columns = {c, column_of("other", [](int i) { return str_cat(i / 3 % 2); })};
  const Labels labels = choose_labels(columns, columns[is_label ? 0 : 1].name);
  const std::string text = columns_toml(columns, decide(columns, labels), labels).text;
  return std::regex_replace(text, std::regex("\n# "), " ");
}
std::string said_of(const std::string& name, const Fields& field) { return said_of(column_of(name, field)); }

std::string refused_label(const Fields& field) {
  return test::refusal([&] { choose_labels({column_of("y", field)}, "y"); }, "");
}

TEST(Names, OfIdsEndInAWordForOne) {
  for (const char* name : {"id", "userId", "user_id", "userid", "ITEM_ID", "movie", "zip", "zip_code", "user_id2",
                           "ids", "uid", "sessionid", "id_client", "ID_PRODUIT"})
    EXPECT_TRUE(named_as_id(name)) << name;
  for (const char* name :
       {"bid", "amount_paid", "user_age_days", "product_price", "item_count", "humid", "valid", "", "7"})
    EXPECT_FALSE(named_as_id(name)) << name;
}

// Numbers that are ids by their name get no order; the comment says that the name decided.
TEST(Names, ThatDecideAreSaid) {
  const auto number = [](int i) { return str_cat(100 + i * 37 % 401); };
  EXPECT_THAT(said_of("user_id", number), HasSubstr("Because of the name, these numbers are ids."));
  for (const char* name : {"bid", "product_price", "item_count"})
    EXPECT_THAT(said_of(name, number), AllOf(HasSubstr("as = \"dense\""), Not(HasSubstr("Because of the name"))))
        << name;
}

TEST(Epochs, AreOfTheYears1995To2099) {
  const auto unit = [](const char* name, double least, double most) -> std::string {
    const EpochUnit* found = epoch_unit(name, least, most);
    return found == nullptr ? "" : found->name;
  };
  EXPECT_EQ(unit("event_time", 1.6e9, 1.7e9), "seconds");
  EXPECT_EQ(unit("timestamp", 789652004, 1.5e9), "seconds") << "films rated in January 1995";
  EXPECT_EQ(unit("ts_ms", 1.6e12, 1.7e12), "milliseconds");
  EXPECT_EQ(unit("createdAt", 1.6e18, 1.7e18), "nanoseconds");
  EXPECT_EQ(unit("price", 1.6e9, 1.7e9), "");
  EXPECT_EQ(unit("timestamp", 1.335e17, 1.336e17), "") << "100 ns since 1601";
  EXPECT_EQ(unit("timestamp", 6.38e17, 6.39e17), "") << "100 ns since the year 1";
  EXPECT_EQ(unit("response_time_ns", 9e8, 4e9), "") << "a duration of some seconds";
}

TEST(Epochs, SayTheUnitAndTheDates) {
  const auto from = [](int64_t first, int64_t step) {
    return [=](int i) { return str_cat(first + step * (i * 7 % 500)); };
  };
  EXPECT_THAT(said_of("event_time", from(1600000000, 86400)),
              AllOf(HasSubstr("read as seconds since 1970: 2020-09-13 to 2022-01-25"), HasSubstr("take = \"hour\"")));
  const std::string filetime = said_of("timestamp", from(133530493151058756, 864000000000));
  EXPECT_THAT(filetime, AllOf(HasSubstr("not taken for times"), HasSubstr("nanoseconds since 1970: 1974-03-26 to"),
                              Not(HasSubstr("take = "))));
  const std::string hours = said_of("time", [](int i) { return str_cat(20240200 + i % 28 + 1, 10 + i % 14); });
  EXPECT_THAT(hours, AllOf(HasSubstr("look like dates, such as 20240"), Not(HasSubstr("take = "))))
      << "no seconds of 2034";
  EXPECT_THAT(said_of("response_time_ns", from(100000000, 17000000)),
              AllOf(Not(HasSubstr("since 1970")), HasSubstr("as = \"dense\"")));
}

TEST(Epochs, ZeroAmongThemIsNoTime) {
  for (const std::string never : {"0", "-1"}) {
    const ColumnSeen c =
        column_of("event_time", [&](int i) { return i % 7 == 0 ? never : str_cat(1600000000 + i * 50); });
    EXPECT_EQ(c.missing, 86);
    const std::string text = said_of(c);
    EXPECT_THAT(text, AllOf(HasSubstr(str_cat("missing_words = [\"", never, "\"]")), HasSubstr("take = \"days\""),
                            HasSubstr(str_cat('"', never, "\" is taken for a missing value."))));
  }
  EXPECT_EQ(column_of("event_time", [](int i) { return str_cat(i % 7); }).missing, 0);
  // More different times than are kept.
  ColumnLook look("ts", false, false, {100, 10000});
  for (int i = 0; i < 3000; ++i) look.add(i % 3 == 0 ? "0" : str_cat(1600000000 + i), false);
  EXPECT_EQ(look.seen(true).missing, 1000);
}

TEST(Epochs, OfTwoUnitsAreSaidForEachNameOfATime) {
  for (const char* name : {"ts", "created", "updated_at", "timestamp"})
    EXPECT_THAT(said_of(name, [](int i) { return str_cat(1700000000 + i % 90, i % 2 ? "" : "000"); }),
                HasSubstr("seconds since 1970, and others milliseconds"))
        << name;
}

TEST(Splits, OfTheOwnerAreSaid) {
  const auto part = [](int i) { return i % 7 == 3 ? "test" : i % 7 == 5 ? "Val" : "train"; };
  EXPECT_THAT(said_of("split", part), HasSubstr("If it says which rows are the test, leave the column out"));
  EXPECT_THAT(said_of("is_test", [](int i) { return str_cat(i % 7 == 3); }), HasSubstr("which rows are the test"));
  EXPECT_THAT(said_of("vehicle", [](int i) { return i % 3 == 0 ? "train" : "bus"; }), Not(HasSubstr("the test")));
}

TEST(Keys, AreCloseTogetherOrNamedAsSuch) {
  const auto cents = [](int i) { return str_cat(95000 + int64_t{i} * i * 7919 % 499778624); };
  EXPECT_THAT(said_of("revenue_cents", cents),
              AllOf(HasSubstr("Each row has a different whole number. If it is a key"), HasSubstr("as = \"dense\"")));
  EXPECT_THAT(said_of("order_id", cents), HasSubstr("left out because"));
  EXPECT_THAT(said_of("x", [](int i) { return str_cat(i * 7 % kNoteRows); }), HasSubstr("it numbers the rows"));
}

TEST(LabelValues, CodesAndMixedUnitsAreRefused) {
  EXPECT_THAT(refused_label([](int i) { return i % 10 == 0 ? "99" : str_cat(1 + i % 5); }),
              HasSubstr("because 99 is in 60 of 600 rows, far from all other numbers"));
  EXPECT_THAT(refused_label([](int i) { return i % 10 == 0 ? "-999" : str_cat(i % 90, ".5"); }),
              HasSubstr("-999 is in"));
  EXPECT_THAT(refused_label([](int i) { return i % 10 == 0 ? "-1" : str_cat(i % 90); }), HasSubstr("-1 is in"));
  EXPECT_THAT(refused_label([](int i) { return i % 2 == 0 ? str_cat(i % 90, ".5%") : str_cat("0.", i % 90); }),
              HasSubstr("has numbers with a sign out of \"%\", and numbers without it"));
  EXPECT_EQ(refused_label([](int i) { return i % 2 == 0 ? "-1" : "1"; }), "") << "two labels";
  EXPECT_EQ(refused_label([](int i) { return str_cat("$", i % 90, ".5"); }), "");
}

TEST(LabelValues, GetTheNotesOfFeatures) {
  EXPECT_THAT(said_of(column_of("y", [](int i) { return str_cat(1 + i % 9, ",", 100 + i % 700); }), true),
              AllOf(HasSubstr("is taken for one that groups digits"), HasSubstr("real = true")));
  EXPECT_THAT(said_of(column_of("y", [](int i) { return str_cat(1 + i % 9, ".", 100 + i * 7 % 700); }), true),
              Not(HasSubstr("counts the rows")));
  const ColumnSeen money = column_of("y", [](int i) { return str_cat("$", i * 7 % kNoteRows, ".50"); });
  EXPECT_FALSE(money.repeated);
  EXPECT_THAT(said_of(money, true), Not(HasSubstr("It counts the rows"))) << "they are in no order";
}

TEST(WrittenNumbers, CommasAndPointsThatGroupAreTwoNotations) {
  const ColumnSeen c = column_of("amount", [](int i) { return str_cat(10 + i % 80, i % 2 == 0 ? "," : ".", 100 + i); });
  EXPECT_EQ(c.form, Form::kTexts);
  EXPECT_THAT(said_of(c), HasSubstr("not read as numbers"));
  const auto form = [](const char* other) {
    return column_of("a", [&](int i) { return i % 2 == 0 ? str_cat(1 + i % 80, ",", 100 + i) : other; }).form;
  };
  EXPECT_EQ(form("0.125"), Form::kWritten) << "that point groups nothing";
  EXPECT_EQ(form("7.5"), Form::kWritten);
  EXPECT_EQ(form("1,234.567"), Form::kWritten);
}

TEST(WrittenNumbers, PairsOfIdsAreNoDecimals) {
  const ColumnSeen pairs = column_of("viewed", [](int i) { return str_cat(i % 40, ",", i * 7 % 40); });
  EXPECT_THAT(said_of(pairs),
              AllOf(HasSubstr("seems to be two ids, and could be a number"), HasSubstr("separator = \",\" for ids")));
  const auto decimal = [](int i) { return str_cat(i % 90, ",", 1 + i % 9); };
  EXPECT_THAT(said_of("price", decimal), AllOf(HasSubstr("A guess: the comma in "), HasSubstr("decimal = \",\"")));
  ColumnSeen elsewhere = column_of("price", decimal);
  elsewhere.points_elsewhere = false;  // semicolons between fields, and commas in all numbers
  EXPECT_THAT(said_of(elsewhere), Not(HasSubstr("A guess")));
  EXPECT_THAT(said_of("price", [](int i) { return str_cat(i % 90, ",", i % 10, i % 7); }), Not(HasSubstr("A guess")))
      << "no id begins with a zero";
}

TEST(OddTexts, OfColumnsThatAreLeftOutAreSaid) {
  const auto left_out = [](const std::string& begin, const std::string& end) {
    return said_of("x", [&](int i) { return str_cat(begin, i, ".", i % 7 + 1, end); });
  };
  EXPECT_THAT(left_out("", " kg"), AllOf(HasSubstr("numbers with a unit or sign"), HasSubstr("left out because")));
  EXPECT_THAT(left_out("USD 1,", ""), HasSubstr("not read as numbers"));
  EXPECT_THAT(left_out("\xe2\x88\x92", ""), HasSubstr("numbers with a unit or sign"));
  EXPECT_EQ(column_of("x", [](int i) { return str_cat(1 + i % 9, "\xe2\x80\x99", 100 + i, ".5"); }).form,
            Form::kWritten);
  EXPECT_EQ(spellings_note(column_of("x",
                                     [](int i) {
                                       return std::vector{"True", "true", "FALSE", "False"}[static_cast<size_t>(i % 4)];
                                     })),
            "")
      << "two words";
}

TEST(DateTexts, InOtherFormsAreNoLists) {
  for (const char* date : {"2023:03:22 10:00:00", "Wed Mar 22 2023 00:00:00 GMT+0000 (Coordinated Universal Time)",
                           "22. M\xc3\xa4rz 2023", "[22/Mar/2023:00:00:00 +0000]", "22-MAR-23 12.00.00 AM",
                           "2023\u5e7403\u670822\u65e5", "31.05.2022", "Mar-2018"})
    EXPECT_TRUE(like_date(date)) << date;
  for (const char* other : {"6.4\u00b10.1", "Toy Story 2 (1999)", "2019|2020", "[2001, 715]", "INV-2023-0012-77", "1.5",
                            "2012Q1", "192.168.10.11", ""})
    EXPECT_FALSE(like_date(other)) << other;
  EXPECT_THAT(said_of("day", [](int i) { return i % 3 == 0 ? "2023-02-30" : str_cat("2023-01-", 10 + i % 9); }),
              HasSubstr("some are no dates, such as \"2023-02-30\""));
  const ColumnSeen exif =
      column_of("created", [](int i) { return str_cat("2023:0", i % 9 + 1, ":1", i % 9, " 10:00:00"); });
  EXPECT_EQ(exif.form, Form::kTexts);
  EXPECT_THAT(said_of(exif), AllOf(HasSubstr("look like dates"), Not(HasSubstr("weighted"))));
}

TEST(Lists, MissingItemsAreNoItems) {
  for (const std::string nothing : {"\"\"", ""})
    EXPECT_THAT(said_of("x", [&](int i) { return str_cat("[", nothing, ", t", i % 40, "]"); }),
                HasSubstr("there is no item for a missing one"));
  EXPECT_THAT(said_of("x", [&](int i) { return i % 9 == 0 ? "[]" : str_cat("(t", i % 40, ",)"); }),
              Not(HasSubstr("left out")));
  for (const std::string none : {"None", "nan", "null"})
    EXPECT_THAT(said_of("x", [&](int i) { return str_cat("[", none, ", ", i % 40, "]"); }),
                HasSubstr("there is no item for a missing one, as in \"[" + none))
        << none;
  EXPECT_THAT(said_of("x", [](int i) { return str_cat("[", i % 40, " 7 9 ... 3 5]"); }),
              HasSubstr("only a part of its lists was printed"));
  EXPECT_THAT(said_of("x", [](int i) { return str_cat("['None', 'a", i % 40, "']"); }), Not(HasSubstr("left out")));
  EXPECT_THAT(said_of("x", [](int i) { return str_cat(i % 3 == 0 ? "null" : "b", "|a", i % 40); }),
              HasSubstr("\"null\" is an item of its own in these lists."));
}

// A double has one value for both ids of a pair.
TEST(IdWords, LargeIdsDiffer) {
  const ColumnSeen c = column_of("user_id", [](int i) { return str_cat(9007199254740993 + i * 7 % 40); });
  EXPECT_EQ(id_words_note(c), "");
  const ColumnSeen larger = column_of("user_id", [](int i) { return str_cat("184467440737095516", 10 + i * 7 % 5); });
  EXPECT_EQ(id_words_note(larger), "");
  const std::vector<ColumnSeen> columns = {c, column_of(
                                                  "y", [](int i) { return str_cat(i / 3 % 2); }, 6000)};
  const Labels labels = choose_labels(columns, "y");
  EXPECT_THAT(test_split(columns, decide(columns, labels), labels).text, Not(HasSubstr("the files are sorted")));
}

TEST(TestSplit, ATimeColumnWithMissingValuesIsNotOffered) {
  for (const bool missing : {false, true}) {
    const std::vector<ColumnSeen> columns = {
        column_of("day", [&](int i) { return missing && i % 9 == 0 ? "" : str_cat("2024-01-", 10 + i * 7 % 19); }),
        column_of("y", [](int i) { return str_cat(i / 3 % 2); })};
    const Labels labels = choose_labels(columns, "y");
    const std::string text = test_split(columns, decide(columns, labels), labels).text;
    EXPECT_EQ(text.find("time:day") == std::string::npos, missing) << text;
  }
}

TEST(Labels, AColumnWithTheirNameThatIsNoneIsExplained) {
  const auto refusal = [](const Fields& field) {
    return test::refusal(
        [&] {
          choose_labels({column_of("shop", [](int) { return "s"; }), column_of("label", field)}, "");
        },
        "");
  };
  EXPECT_THAT(refusal([](int i) { return str_cat("2024-01-", 10 + i % 19); }), HasSubstr("column \"label\" has times"));
  EXPECT_THAT(refusal([](int i) { return str_cat("class", i % 40); }),
              HasSubstr("column \"label\" has 40 different texts"));
}

TEST(Encoding, IsToldByTheFieldsOfAllFiles) {
  using Files = std::vector<std::vector<std::string>>;
  const auto of = [](const Files& files) {
    std::vector<std::pair<std::string, FieldBytes>> bytes;
    for (const auto& fields : files) {
      bytes.emplace_back(str_cat("part ", bytes.size() + 1), FieldBytes());
      for (const std::string& field : fields) look_at_field(field, bytes.back().second);
    }
    return encoding_of_fields(bytes);
  };
  EXPECT_EQ(of({{"a", "caf\xc3\xa9"}, {"b"}}), "");
  EXPECT_EQ(of({{"a"}, {"caf\xe9", "b"}}), "latin-1");
  EXPECT_EQ(of({{"caf\xe9"}, {"5 \x80"}}), "windows-1252");
  const std::vector<std::string> utf8(3, "caf\xc3\xa9");
  EXPECT_THAT(test::refusal(
                  [&] {
                    of({{"a"}, utf8, {"caf\xe9"}});
                  },
                  ""),
              HasSubstr("part 3 has characters that are not UTF-8, but 3 of part 2 are"));
  EXPECT_THAT(test::refusal([&] { of({{"caf\xe9", utf8[0], utf8[1], utf8[2]}}); }, ""), HasSubstr("but 3 of it are"));
}

}  // namespace
}  // namespace tessera::cli

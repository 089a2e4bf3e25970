// Tests of column profiles: counts, forms, lists, numbers as people write them, encodings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>

#include "config/test_refusal.h"
#include "data/column_look.h"
#include "data/columns_toml.h"
#include "data/decisions.h"
#include "data/encoding.h"
#include "data/history_note.h"
#include "data/id_words.h"
#include "data/label_choice.h"
#include "data/odd_texts.h"
#include "data/test_choice.h"
#include "data/toml_text.h"
#include "data/xxh64.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

template <class Field>
ColumnSeen look(const std::string& name, int rows, const Field& field, ColumnLook::Room room = {}) {
  ColumnLook look(name, false, false, room);
  for (int i = 0; i < rows; ++i) look.add(field(i), i >= rows - rows / 10);
  return look.seen(true);
}

TEST(HyperLogLog, CountsWithinThreePercent) {
  for (const int n : {0, 1, 100, 5000, 40000, 300000}) {
    HyperLogLog counter;
    for (int twice = 0; twice < 2; ++twice) {
      for (int i = 0; i < n; ++i) counter.add(data::xxh64(str_cat("value ", i)));
    }
    EXPECT_NEAR(counter.count(), n, 0.03 * n) << n;
  }
}

TEST(NumberSummary, KnowsTheWholeAndASample) {
  NumberSummary all;
  for (int i = 0; i < 100000; ++i) all.add(i % 2 == 0 ? i : i + 0.5);
  EXPECT_EQ(all.count(), 100000);
  EXPECT_EQ(all.whole(), 50000);
  EXPECT_EQ(all.least(), 0);
  EXPECT_EQ(all.most(), 99999.5);
  EXPECT_NEAR(all.mean(), 49999.75, 1e-6);
  EXPECT_NEAR(all.deviation(), 100000 / std::sqrt(12.0), 1);
  EXPECT_EQ(all.sample().size(), NumberSummary::kSample);
  EXPECT_NEAR(quantile(all.sample(), 0.5), 50000, 2500);
  EXPECT_NEAR(quantile(all.sample(), 0.9), 90000, 2500);
}

TEST(ColumnLook, MemoryIsBounded) {
  const ColumnLook::Room small = {50, 100000};
  const ColumnSeen many = look(
      "id", 20000, [](int i) { return str_cat("user ", i); }, small);
  EXPECT_EQ(many.values.size(), 50u);
  EXPECT_FALSE(many.exact);
  EXPECT_FALSE(many.repeated);
  EXPECT_NEAR(static_cast<double>(many.distinct), 20000, 600);
  const ColumnSeen long_texts =
      look("review", 100, [](int i) { return std::string(10000, 'x') + str_cat(i); }, {1000, 100000});
  EXPECT_LE(long_texts.values.size(), 10u);
  EXPECT_NEAR(static_cast<double>(long_texts.distinct), 100, 5);
}

TEST(ColumnLook, FormsOfColumns) {
  EXPECT_EQ(look("a", 10, [](int) { return ""; }).form, Form::kEmpty);
  const ColumnSeen numbers = look("a", 100, [](int i) { return i % 10 == 0 ? std::string("\\N") : str_cat(i, ".5"); });
  EXPECT_EQ(numbers.form, Form::kNumbers);
  EXPECT_EQ(numbers.missing, 10);
  EXPECT_THAT(numbers.missing_words, ElementsAre("\\N"));
  const ColumnSeen times =
      look("a", 100, [](int i) { return str_cat("2024-01-", i / 10 + 10, "T0", i % 10, ":30:00Z"); });
  EXPECT_EQ(times.form, Form::kTimes);
  EXPECT_TRUE(times.hours);
  EXPECT_TRUE(times.sorted);
  EXPECT_EQ(look("a", 20, [](int i) { return str_cat("2024-01-", i + 10); }).hours, false);
  EXPECT_EQ(look("a", 100, [](int i) { return str_cat("{\"a\": ", i, "}"); }).form, Form::kNested);
  EXPECT_EQ(look("a", 100, [](int i) { return str_cat("[[", i, "], [2]]"); }).form, Form::kNested);
  const ColumnSeen mixed = look("a", 100, [](int i) { return i == 7 ? std::string("7 or 8") : str_cat(i); });
  EXPECT_EQ(mixed.form, Form::kTexts);
  EXPECT_EQ(mixed.numbers_among, 99);
}

TEST(ColumnLook, FewWordsAmongNumbersStandForMissingOnes) {
  const auto numbers = [](const std::string& word, int distinct) {
    return look("a", 400, [&](int i) { return i % 8 == 0 ? word : str_cat(i % distinct, ".5"); });
  };
  for (const char* word : {"unknown", "#DIV/0!", ".", "---", "not available", "\xe2\x80\x94"}) {
    const ColumnSeen c = numbers(word, 90);
    EXPECT_EQ(c.form, Form::kNumbers) << word;
    EXPECT_EQ(c.missing, 50) << word;
    EXPECT_THAT(c.own_words, ElementsAre(word));
  }
  EXPECT_EQ(numbers("unknown", 10).form, Form::kTexts) << "categories";
  EXPECT_EQ(numbers("<5", 90).form, Form::kTexts);
  EXPECT_EQ(look("a", 400, [](int i) { return i % 8 == 0 ? str_cat("w", char('a' + i % 7)) : str_cat(i); }).form,
            Form::kTexts)
      << "many words";
  const ColumnSeen dates =
      look("a", 400, [](int i) { return i % 8 == 0 ? "0000-00-00" : str_cat("2024-0", i % 7 + 1, "-", i % 19 + 10); });
  EXPECT_EQ(dates.form, Form::kTimes);
  EXPECT_THAT(dates.own_words, ElementsAre("0000-00-00"));
  const ColumnSeen money = look("a", 400, [](int i) { return i % 8 == 0 ? "free" : str_cat("$", i % 90, ".99"); });
  EXPECT_EQ(money.form, Form::kWritten);
  EXPECT_THAT(money.own_words, ElementsAre("free"));
}

TEST(ColumnLook, DatesInOtherForms) {
  const auto format = [](const std::function<std::string(int, int)>& date) {
    return look("a", 600, [&](int i) { return i % 50 == 0 ? std::string("NA") : date(i % 28 + 1, i % 12 + 1); })
        .time_format;
  };
  const auto two = [](int number) { return str_cat(number < 10 ? "0" : "", number); };
  EXPECT_EQ(format([&](int d, int m) { return str_cat(two(d), ".", two(m), ".2024"); }), "%d.%m.%Y");
  EXPECT_EQ(format([&](int d, int m) { return str_cat(m, "/", d, "/2024 3:05 PM"); }), "%m/%d/%Y %I:%M %p");
  EXPECT_EQ(format([&](int d, int m) { return str_cat(two(d), "/", two(m), "/24"); }), "%d/%m/%y");
  EXPECT_EQ(format([&](int d, int) { return str_cat(two(d), "-Jan-2024"); }), "%d-%b-%Y");
  EXPECT_EQ(format([&](int d, int m) { return str_cat("2024", two(m), two(d), "T101112Z"); }), "%Y%m%dT%H%M%S%z");
  EXPECT_EQ(format([&](int d, int m) { return str_cat("2024-", m, "-", d); }), "%Y-%m-%d");
  EXPECT_EQ(format([&](int d, int) { return str_cat("Mon, ", d, " March 2024 10:00:00 GMT"); }),
            "%a, %d %b %Y %H:%M:%S GMT");
  EXPECT_EQ(format([&](int, int m) { return str_cat(m, "/2024"); }), "%m/%Y");
  EXPECT_EQ(format([&](int d, int) { return str_cat("v", d); }), "");
  const auto sorted = [&](int rows, const std::function<int(int)>& month) {
    return look("a", rows, [&](int i) { return str_cat("15/", two(month(i)), "/2024"); }).sorted;
  };
  for (const int rows : {200, 40000}) {
    EXPECT_TRUE(sorted(rows, [&](int i) { return i * 12 / rows + 1; })) << rows;
    EXPECT_FALSE(sorted(rows, [&](int i) { return i * 7 % 12 + 1; })) << rows;
  }
  const ColumnSeen either = look("a", 300, [](int i) { return str_cat(i % 12 + 1, "/", i % 11 + 1, "/2024"); });
  EXPECT_EQ(either.form, Form::kTexts);
  EXPECT_THAT(either.time_formats, ElementsAre("%d/%m/%Y", "%m/%d/%Y"));
}

TEST(ColumnLook, ListsInOtherNotations) {
  for (const auto& [begin, end] : std::vector<std::pair<std::string, std::string>>{{"array([", "])"},
                                                                                   {"List(", ")"},
                                                                                   {"c(", ")"},
                                                                                   {"deque([", "], maxlen=9)"},
                                                                                   {"array([", "], dtype=int64)"}}) {
    const ColumnSeen c = look("a", 400, [b = begin, e = end](int i) { return str_cat(b, i % 5, ", ", i % 7, e); });
    EXPECT_EQ(c.form, Form::kLists) << begin;
    EXPECT_EQ(c.distinct, 7) << begin;
  }
  EXPECT_EQ(look("a", 400, [](int i) { return i % 3 == 0   ? "()"
                                              : i % 3 == 1 ? str_cat("(", i % 5, ",)")
                                                           : "(1, 2)"; })
                .distinct,
            5);
  EXPECT_EQ(look("a", 400, [](int i) { return str_cat("Foo(", i % 50, ", ", i % 7, ")"); }).form, Form::kTexts);
  EXPECT_EQ(look("a", 400, [](int i) { return str_cat("a", i % 20, "\x02", "a", i % 19); }).items.separator(), '\x02');
  EXPECT_EQ(look("a", 400, [](int i) { return str_cat("caf&eacute;", i % 20); }).form, Form::kTexts);
  const ColumnSeen ended = look("a", 400, [](int i) { return str_cat("a", i % 20, ";", "a", i % 19, ";"); });
  EXPECT_EQ(ended.form, Form::kTexts);
  EXPECT_EQ(ended.items.parts_separator(), ";");
  EXPECT_TRUE(ended.items.gaps());
}

TEST(ColumnLook, ListsInBrackets) {
  const ColumnSeen numbers =
      look("a", 200, [](int i) { return i % 9 == 0 ? "[]" : str_cat("[", i % 5, ", ", i % 7, "]"); });
  EXPECT_EQ(numbers.form, Form::kLists);
  EXPECT_EQ(numbers.items.separator(), ',');
  EXPECT_EQ(numbers.distinct, 7);
  const ColumnSeen words = look("a", 200, [](int i) { return str_cat("['a", i % 5, "', \"b", i % 7, "\"]"); });
  EXPECT_EQ(words.distinct, 12);
  EXPECT_EQ(look("a", 200, [](int i) { return str_cat("[", i % 5, " ", i % 7, "]"); }).items.separator(), ' ');
}

TEST(ColumnLook, ListsOfNumbersThatAreNotWholeAreVectors) {
  const auto number = [](int i) { return str_cat(i % 2 == 0 ? "" : "-", i % 3, ".", i % 97); };
  const auto row = [&](int i, const std::string& between) {
    return str_cat(number(i), between, number(i + 1), between, i % 4, between, "1e-3");
  };
  using Notation = std::pair<std::string, std::string>;
  for (const auto& [open, between] :
       std::vector<Notation>{{"", "|"}, {"", " "}, {"", ", "}, {"[", " "}, {"[", ", "}, {"array([", ",\n  "}}) {
    const std::string close = open == "[" ? "]" : open.empty() ? "" : "], dtype=float32)";
    const ColumnSeen c = look("photo", 300, [&, o = open, b = between](int i) { return o + row(i, b) + close; });
    EXPECT_EQ(c.form, Form::kVectors) << open << between;
    EXPECT_EQ(c.vector.width(), 4) << open << between;
    EXPECT_EQ(c.vector.bracketed, !open.empty());
    EXPECT_EQ(c.vector.broken, 0);
  }
  EXPECT_EQ(look("a", 300, [&](int i) { return i % 9 == 0 ? "" : row(i, "|"); }).vector.empty, 34);
  // More different texts than are kept.
  const ColumnSeen many = look("a", 3000, [&](int i) { return str_cat(row(i, " "), " 0.", i); }, {100, 1000});
  EXPECT_EQ(many.form, Form::kVectors);
  EXPECT_EQ(look("a", 3000, [&](int i) { return i == 2999 ? "a b" : row(i, " "); }, {100, 1000}).form, Form::kTexts);
}

TEST(ColumnLook, OtherListsAreNoVectors) {
  const auto form = [](const std::function<std::string(int)>& field) { return look("a", 300, field).form; };
  EXPECT_EQ(form([](int i) { return str_cat("[", i % 5, ", ", i % 7, "]"); }), Form::kLists) << "ids";
  EXPECT_EQ(form([](int i) { return str_cat("[", i % 5, ".0, ", i % 7, ".0]"); }), Form::kLists) << "ids as floats";
  EXPECT_EQ(form([](int i) { return str_cat(i % 5, "|", i % 7); }), Form::kLists);
  EXPECT_EQ(form([](int i) { return str_cat("1,", 100 + i, ".5"); }), Form::kWritten) << "one number";
  EXPECT_EQ(form([](int i) { return i % 2 == 0 ? "5.5 6.5" : "7.5 8.5"; }), Form::kTexts) << "two categories";
  EXPECT_EQ(form([](int i) { return str_cat("[", i % 5, ".5]"); }), Form::kLists) << "one item";
  const ColumnSeen differ = look("a", 300, [](int i) { return i % 2 == 0 ? "[0.5, 1.5]" : "[2.5]"; });
  EXPECT_EQ(differ.form, Form::kLists);
  EXPECT_EQ(differ.vector.width(), 0);
}

// Parquet has lists of its own, from which items come one by one.
TEST(ColumnLook, TypedListsOfNumbers) {
  const auto typed = [](const std::vector<std::vector<std::string>>& rows) {
    ColumnLook look("photo", true, false, {});
    for (const auto& row : rows) {
      for (const std::string& item : row) look.add(item, false);
      look.end_list(std::ssize(row));
    }
    return look.seen(true);
  };
  const ColumnSeen vectors = typed({{"0.5", "1"}, {}, {"-2.5", "0"}});
  EXPECT_EQ(vectors.form, Form::kVectors);
  EXPECT_EQ(vectors.vector.width(), 2);
  EXPECT_EQ(summary(vectors), "lists of 2 numbers, -2.5 to 1, 1 of 3 rows without any");
  EXPECT_NE(typed({{"1", "2"}, {"3", "4"}}).form, Form::kVectors) << "ids";
  const ColumnSeen differ = typed({{"0.5", "1"}, {"2.5"}});
  EXPECT_EQ(differ.vector.width(), 0);
  EXPECT_THAT(columns_toml({differ}, {Decision{.ids = true}}, {}).text,
              HasSubstr("The items are numbers, 1 to 2 in a row, and are taken for ids."));
  EXPECT_NE(typed({{"a", "1.5"}, {"2.5", "b"}}).form, Form::kVectors);

  Labels labels;
  labels.columns = {0};
  for (const std::string word : {"nan", "", "inf", "1e300"}) {
    const std::vector<ColumnSeen> columns = {look("click", 4, [](int i) { return str_cat(i % 2); }),
                                             typed({{"0.5", "1"}, {"0.25", word}})};
    EXPECT_EQ(columns[1].form, Form::kVectors) << word;
    const Decision d = decide(columns, labels)[1];
    EXPECT_EQ(d.kind, Decision::Kind::kLeftOut) << word;
    EXPECT_THAT(d.reason,
                HasSubstr("its lists of 2 numbers are a vector, but 1 of their values is missing or infinite"));
  }
}

TEST(ColumnLook, SetsAndTuplesAreLists) {
  EXPECT_EQ(look("a", 200, [](int i) { return str_cat("{'a", i % 5, "', 'b", i % 7, "'}"); }).distinct, 12);
  EXPECT_EQ(look("a", 200, [](int i) { return str_cat("(", i % 5, ", ", i % 7, ")"); }).distinct, 7);
  EXPECT_EQ(look("a", 200, [](int i) { return str_cat("(", i % 5, ",", 100 + i, ")"); }).items.bracketed(), false)
      << "(3,170) is a negative number";
}

// Lengths are those of all rows: also of rows with one item or none.
TEST(ColumnLook, LengthsOfLists) {
  const ColumnSeen texts = look("a", 200, [](int i) { return i % 2 == 0 ? "u|v|w" : "u"; });
  EXPECT_NEAR(texts.lengths.mean(), 2, 1e-9);
  EXPECT_EQ(texts.lengths.most(), 3);
  EXPECT_THAT(summary(texts), HasSubstr("3 different items, 2 a row, half of the rows up to 2, at most 3"));
  EXPECT_NEAR(look("a", 90, [](int i) { return i % 3 == 0 ? "[]" : "['a', 'b', 'c']"; }).lengths.mean(), 2, 1e-9);
  ColumnLook typed("a", true, false, {});
  for (const int64_t length : {0, 1, 8}) {
    for (int64_t i = 0; i < length; ++i) typed.add(str_cat(i), false);
    typed.end_list(length);
  }
  EXPECT_THAT(summary(typed.seen(true)), HasSubstr("3 a row, half of the rows up to 1, at most 8"));
}

TEST(WrittenNumbers, AZeroBeforeACommaIsADecimalComma) {
  const auto written = written_numbers({"0,238", "0,980", "1,250"});
  ASSERT_TRUE(written);
  EXPECT_EQ(written->decimal, ",");
  EXPECT_EQ(written->strip, "");
}

TEST(WrittenNumbers, OfPeople) {
  struct Case {
    std::vector<std::string> texts;
    const char *strip, *decimal;
    double first;
  };
  const std::vector<Case> cases = {{{"$12.99", "$3"}, "$", "", 12.99},
                                   {{"50%", "7 %"}, "% ", "", 50},
                                   {{"1,234", "56"}, ",", "", 1234},
                                   {{"65,5", "4"}, "", ",", 65.5},
                                   {{"1.234,56", "7,1"}, ".", ",", 1234.56},
                                   {{"1,234,567.5", "1,000"}, ",", "", 1234567.5},
                                   {{"€ -5,25", "€ 100,5"}, "€ ", ",", -5.25},
                                   {{"1 234", "12"}, " ", "", 1234},
                                   {{"1.790.435", "790.435", "12"}, ".", ",", 1790435}};
  for (const Case& c : cases) {
    const auto written = written_numbers(c.texts);
    ASSERT_TRUE(written) << c.texts[0];
    EXPECT_EQ(written->strip, c.strip) << c.texts[0];
    EXPECT_EQ(written->decimal, c.decimal) << c.texts[0];
    EXPECT_EQ(written->read(c.texts[0]), c.first);
  }
  const std::vector<std::vector<std::string>> none = {{"12", "13.5"},           {"a1,5", "2"},
                                                      {"555 1234", "555 1235"}, {"2024-01-31"},
                                                      {"3,4,5", "1,2"},         {"10.0.0.1", "10.0.0.2"},
                                                      {"1.790.435", "0.5"},     {}};
  for (const auto& texts : none) EXPECT_FALSE(written_numbers(texts)) << (texts.empty() ? "" : texts[0]);
}

TEST(Decisions, KeysCopiesAndConstantsAreLeftOut) {
  const int rows = 30000;
  std::vector<ColumnSeen> columns;
  columns.push_back(look("", rows, [](int i) { return str_cat(i); }));
  columns.push_back(look("row", rows, [](int i) { return str_cat(i + 1); }));
  columns.push_back(look("licence", rows, [&](int i) { return str_cat((i * 7919) % rows); }));
  columns.push_back(look("note", rows, [](int i) { return str_cat("note ", i); }));
  columns.push_back(look("country", rows, [](int) { return "DE"; }));
  columns.push_back(look("film", rows, [](int i) { return str_cat("film ", i % 50); }));
  columns.push_back(look("movie", rows, [](int i) { return str_cat("film ", i % 50); }));
  columns.push_back(look("price", rows, [](int i) { return str_cat(i % 9000, ".5"); }));
  columns.push_back(look("click", rows, [](int i) { return str_cat(i % 2); }));
  columns.insert(columns.begin(), look("bought", rows, [](int i) { return str_cat(i % 2); }));
  const std::vector<Decision> d = decide(columns, choose_labels(columns, "click"));
  const std::vector<std::string> reasons = {"it has no name", "it counts the rows", "it numbers the rows",
                                            "nearly every row has a different value", "each row has the same value"};
  EXPECT_EQ(d[0].reason, "it is a copy of \"click\"") << "it gives the label away";
  for (size_t i = 0; i < reasons.size(); ++i) {
    EXPECT_EQ(d[i + 1].kind, Decision::Kind::kLeftOut) << columns[i + 1].name;
    EXPECT_THAT(d[i + 1].reason, HasSubstr(reasons[i]));
  }
  EXPECT_TRUE(d[6].ids);
  EXPECT_EQ(d[7].reason, "it is a copy of \"film\"");
  EXPECT_TRUE(d[8].dense && d[8].buckets && !d[8].ids);
  EXPECT_EQ(d[9].kind, Decision::Kind::kLabel);
}

// A column that says the label in other words would be the whole model.
TEST(Decisions, ColumnsThatTellTheLabelAreLeftOut) {
  std::vector<ColumnSeen> columns;
  columns.push_back(look("bought", 500, [](int i) { return i % 7 < 3 ? "yes" : "no"; }));
  columns.push_back(look("nearly", 500, [](int i) { return i % 7 < 3 && i != 400 ? "yes" : "no"; }));
  columns.push_back(look("when", 5000, [](int i) { return str_cat(i % 12 + 1, "/03/2024 10:", 10 + i % 40); }));
  columns.push_back(look("y", 500, [](int i) { return str_cat(i % 7 < 3 ? 1 : 0); }));
  const std::vector<Decision> d = decide(columns, choose_labels(columns, "y"));
  EXPECT_THAT(d[0].reason, HasSubstr("it gives the label away"));
  EXPECT_TRUE(d[1].ids);
  EXPECT_THAT(d[2].reason, HasSubstr("read only as YYYY-MM-DD"));
}

TEST(Decisions, CodesFromZeroOrOneOnAreIdsToo) {
  std::vector<ColumnSeen> columns;
  columns.push_back(look("s", 6000, [](int i) { return str_cat(1 + i * 7 % 500); }));
  columns.push_back(look("price", 6000, [](int i) { return str_cat(5 + i * 7 % 500); }));
  columns.push_back(look("gaps", 6000, [](int i) { return str_cat(i * 7 % 500 * 3); }));
  columns.push_back(look("rare", 6000, [](int i) { return str_cat(1 + i * 7 % 900); }));
  columns.push_back(look("large", 6000, [](int i) { return str_cat("92233720368547758", 10 + i % 40); }));
  columns.push_back(look("y", 6000, [](int i) { return str_cat(i / 3 % 2); }));
  const std::vector<Decision> d = decide(columns, choose_labels(columns, "y"));
  EXPECT_TRUE(d[0].ids && d[0].dense && d[0].buckets) << "500 codes, each of which comes 12 times";
  EXPECT_FALSE(d[1].ids) << "they begin with neither 0 nor 1";
  EXPECT_FALSE(d[2].ids) << "most numbers of the range never come";
  EXPECT_FALSE(d[3].ids) << "each comes too rarely to be learned";
  EXPECT_TRUE(d[4].ids && !d[4].dense) << "as doubles all are one number";
}

// Doubles hold no number of 60 bits, and the first one beyond 2^53 is a neighbour of the one that they hold.
TEST(Decisions, NumbersThatNoDoubleHoldsAreIds) {
  std::vector<ColumnSeen> columns;
  columns.push_back(look("sess", 600, [](int i) { return str_cat((int64_t{1} << 60) + i * 7 % 200); }));
  columns.push_back(look("value", 600, [](int i) { return str_cat((int64_t{1} << 53) + 1 + int64_t{2} * (i % 60)); }));
  columns.push_back(look("even", 600, [](int i) { return str_cat((int64_t{1} << 53) + int64_t{2} * (i % 60)); }));
  columns.push_back(look("y", 600, [](int i) { return str_cat(i / 3 % 2); }));
  const Labels labels = choose_labels(columns, "y");
  const std::vector<Decision> d = decide(columns, labels);
  for (const size_t i : {0, 1}) EXPECT_TRUE(d[i].ids && !d[i].dense && !d[i].buckets) << columns[i].name;
  EXPECT_TRUE(d[2].dense) << "doubles hold all of them";
  EXPECT_THAT(columns_toml(columns, d, labels).text,
              AllOf(HasSubstr("# 200 different\n"), HasSubstr("# 60 different\n"), Not(HasSubstr("far from"))));
}

// The job must be TOML, and no column may have the name of an input of layers.
TEST(Decisions, NamesOfColumnsAreWrittenAsToml) {
  std::vector<ColumnSeen> columns;
  columns.push_back(look("Price\n(USD)", 600, [](int i) { return str_cat(i % 9); }));
  columns.push_back(look("a\x7f", 600, [](int i) { return str_cat("w", i % 7); }));
  columns.push_back(look("pooled", 600, [](int i) { return str_cat("w", i % 11); }));
  columns.push_back(look("y", 600, [](int i) { return str_cat(i / 3 % 2); }));
  const Labels labels = choose_labels(columns, "y");
  const std::string text = columns_toml(columns, decide(columns, labels), labels).text;
  EXPECT_THAT(text, AllOf(HasSubstr("name = \"Price\\n(USD)\""), HasSubstr("name = \"a\\u007F\""),
                          HasSubstr("name = \"pooled column\"\ncolumn = \"pooled\"\n")));
}

// A list is one, whichever format it comes from.
TEST(Decisions, ListsOfTypedFilesHaveTheirMean) {
  ColumnLook tags("tags", true, false, {});
  for (int i = 0; i < 600; ++i) {
    for (int k = 0; k < 3; ++k) tags.add(str_cat("t", (i + k) % 9), false);
    tags.end_list(3);
  }
  const std::vector<ColumnSeen> columns = {tags.seen(true), look("y", 600, [](int i) { return str_cat(i / 3 % 2); })};
  const Labels labels = choose_labels(columns, "y");
  EXPECT_THAT(columns_toml(columns, decide(columns, labels), labels).text, HasSubstr("pooling = \"mean\""));
}

TEST(Decisions, TimesAndFewNumbers) {
  std::vector<ColumnSeen> columns;
  columns.push_back(look("when", 500, [](int i) { return str_cat(1260759144 + int64_t{997} * i * i); }));
  columns.push_back(look("timestamp", 500, [](int i) { return str_cat(1260759000 + int64_t{997} * i * i); }));
  columns.push_back(look("stars", 500, [](int i) { return str_cat(i % 5); }));
  columns.push_back(look("flag", 500, [](int i) { return str_cat(i % 2); }));
  columns.push_back(look("userId", 500, [](int i) { return str_cat(i % 90); }));
  columns.push_back(look("y", 500, [](int i) { return str_cat(i / 3 % 2); }));
  const std::vector<Decision> d = decide(columns, choose_labels(columns, "y"));
  EXPECT_EQ(d[0].kind, Decision::Kind::kLeftOut) << "unique whole numbers without the name of a time";
  EXPECT_TRUE(d[1].times);
  EXPECT_TRUE(d[3].ids && !d[3].dense);
  EXPECT_TRUE(d[4].ids && !d[4].dense && !d[4].buckets);
}

TEST(Labels, FormsAndWords) {
  const auto form = [](const ColumnSeen& c) { return label_form(c); };
  EXPECT_EQ(form(look("a", 100, [](int) { return "1"; })), LabelForm::kBinary) << "one class alone";
  EXPECT_EQ(form(look("a", 100, [](int) { return "5"; })), LabelForm::kNone) << "one value alone";
  const ColumnSeen stars = look("a", 100, [](int i) { return str_cat(i % 5 + 1); });
  EXPECT_EQ(form(stars), LabelForm::kThreshold);
  EXPECT_EQ(threshold_of(stars), 4);
  EXPECT_EQ(threshold_of(look("a", 100, [](int i) { return str_cat(i % 2 + 1); })), 2);
  EXPECT_EQ(form(look("a", 100, [](int i) { return str_cat(i * 37 % 91); })), LabelForm::kReal);
  EXPECT_EQ(positive_of(look("a", 100, [](int i) { return i % 3 ? "Yes" : "No"; })), "Yes");
  EXPECT_EQ(positive_of(look("a", 100, [](int i) { return i % 3 ? "True" : "False"; })), "true");
  EXPECT_EQ(positive_of(look("a", 100, [](int i) { return i % 3 ? "left" : "stayed"; })), "stayed") << "the rarer one";
}

TEST(Labels, AreChosenOrRefusedByName) {
  std::vector<ColumnSeen> columns;
  columns.push_back(look("female", 100, [](int i) { return str_cat(i % 2); }));
  columns.push_back(look("bought", 100, [](int i) { return str_cat(i / 2 % 2); }));
  columns.push_back(look("age", 100, [](int i) { return str_cat(i % 60); }));
  columns.push_back(look("name", 100, [](int i) { return str_cat("n", i); }));
  const Labels guess = choose_labels(columns, "");
  EXPECT_TRUE(guess.guessed);
  EXPECT_THAT(guess.columns, ElementsAre(0u));
  EXPECT_THAT(guess.candidates, ElementsAre(1u));
  EXPECT_THAT(choose_labels(columns, "bought,age").columns, ElementsAre(1u, 2u));
  const auto refusal = [&](const std::string& label) -> std::string {
    return test::refusal([&] { choose_labels(columns, label); }, "");
  };
  EXPECT_THAT(refusal("bougt"), HasSubstr("did you mean \"bought\"? The files have the columns female, bought, age"));
  EXPECT_THAT(refusal("name"), HasSubstr("100 different texts"));
  EXPECT_THAT(refusal("age,age"), HasSubstr("twice"));
}

// The refusal of a label whose fields are these in turn; empty if it is taken.
std::string label_refusal(const std::vector<std::string>& fields) {
  const std::vector<ColumnSeen> columns = {
      look("y", 100, [&](int i) { return fields[static_cast<size_t>(i) % fields.size()]; })};
  return test::refusal([&] { choose_labels(columns, "y"); }, "");
}

TEST(Labels, WordsThatMayMeanSomethingElseAreRefused) {
  EXPECT_EQ(label_refusal({"yes", "no"}), "");
  EXPECT_EQ(label_refusal({"1", "0"}), "");
  EXPECT_THAT(label_refusal({"Yes", "no", "yes", "No"}), HasSubstr("spells one word in several ways, "));
  EXPECT_THAT(label_refusal({"1.0", "0.0", "."}), HasSubstr("has the value \".\" in 33 of 100 rows, which seems"));
  EXPECT_THAT(label_refusal({"yes", "no", "unknown"}), HasSubstr("stand for a missing label"));
  EXPECT_THAT(label_refusal({"yes", "no", "NA"}), HasSubstr("stand for a missing label"));
  EXPECT_THAT(label_refusal({"0", "1", "9"}), HasSubstr("if 9 stands for a missing label"));
  EXPECT_EQ(label_refusal({"0", "1", "2"}), "");
  EXPECT_THAT(label_refusal({"0", "1", "1", "true"}), HasSubstr("has numbers, and \"true\" in 25 of 100 rows"));
  EXPECT_EQ(label_refusal({"1", "2", "3+"}), "");
  EXPECT_THAT(label_refusal({"a|b", "c"}), HasSubstr("has several items in a row, such as \"a|b\""));
  EXPECT_EQ(positive_of(look("y", 10, [](int) { return "False"; })), "true");
  EXPECT_EQ(positive_of(look("y", 10, [](int) { return "no"; })), "yes");
}

TEST(OddTexts, TheHeaderAmongTheRows) {
  const auto rows = [](const char* name, bool again) {
    return look(name, 100, [&](int i) { return again && i == 50 ? std::string(name) : str_cat(i % 7); });
  };
  EXPECT_NO_THROW(refuse_repeated_header({rows("a", true), rows("b", false)})) << "a value may be called so";
  EXPECT_THROW(refuse_repeated_header({rows("a", true), rows("b", true)}), Error);
}

// The comment as one line, because its sentences may be wrapped anywhere.
std::string one_line(const std::string& comment) { return std::regex_replace(comment, std::regex("\n# "), " "); }

TEST(OddTexts, AreSaid) {
  const auto note = [](const std::string& begin, const std::string& end) {
    return odd_texts_note(look("a", 200, [&](int i) { return str_cat(begin, i % 9 + 1, end); }));
  };
  for (const auto& [begin, end] :
       std::vector<std::pair<std::string, std::string>>{{"0", "/03/1980"}, {"0", "-03-80 10:00"}})
    EXPECT_THAT(note(begin, end), HasSubstr("look like dates")) << begin << end;
  EXPECT_THAT(note("3:5", " AM"), HasSubstr("times of the day"));
  EXPECT_THAT(note("0.2", " ct"), HasSubstr("numbers with a unit"));
  EXPECT_THAT(note("USD 2.3", ""), HasSubstr("numbers with a unit"));
  EXPECT_THAT(note("5.3", "-"), HasSubstr("\"5.31-\". Without it"));
  EXPECT_EQ(note("May the ", "th be with you"), "");
  const std::string spelled = spellings_note(look("a", 90, [](int i) {
    return std::vector{"u1", "U1", "u2 "}[i % 3];
  }));
  EXPECT_THAT(spelled, HasSubstr("differ only in case or in blanks"));
  for (const auto& [begin, end] :
       std::vector<std::pair<std::string, std::string>>{{"A1", ""}, {"film ", ""}, {"5.", ""}, {"2024-01-0", ""}})
    EXPECT_EQ(note(begin, end), "") << begin << end;
  const auto numbers = [](const std::string& odd) {
    return odd_texts_note(look("a", 200, [&](int i) { return i % 11 == 0 ? odd : str_cat(i % 60); }));
  };
  EXPECT_THAT(numbers("-999"), HasSubstr("-999 is in 19 of 200 rows"));
  EXPECT_EQ(numbers("61"), "");
  EXPECT_THAT(one_line(numbers("21.416")), HasSubstr("write decimal = \",\" and strip = \".\""));
  EXPECT_EQ(numbers("21.41"), "");
  EXPECT_TRUE(is_accounting(look("a", 100, [](int i) { return i % 3 == 0 ? str_cat("(", i, ".20)") : str_cat(i); })));
  EXPECT_FALSE(is_accounting(look("a", 100, [](int i) { return str_cat("Toy Story (", 1900 + i, ")"); })));
}

TEST(IdWords, ThatOtherProgramsReadInAnotherWayAreSaid) {
  const auto note = [](const std::vector<std::string>& fields) {
    return one_line(
        id_words_note(look("a", 200, [&](int i) { return fields[static_cast<size_t>(i) % fields.size()]; })));
  };
  for (const auto& codes : {std::vector<std::string>{"007", "123", "045"}, {"01", "02", "10"}, {"0007", "012", "9"}})
    EXPECT_THAT(note(codes), HasSubstr("has its zeros")) << codes[0];
  EXPECT_THAT(note({"1e3", "1000", "7"}), HasSubstr("\"1000\" and \"1e3\" are one number and two ids"));
  EXPECT_THAT(note({"+5", "5", "6"}), HasSubstr("are one number and two ids"));
  EXPECT_THAT(note({"red", "NA", "blue"}), HasSubstr("\"NA\" is a category of its own, in 67 of 200 rows"));
  EXPECT_THAT(note({"red", "null"}), HasSubstr("\"null\" is a category"));
  for (const auto& fine :
       {std::vector<std::string>{"0", "7", "12"}, {"4", "4.0", "5.00"}, {"0.5", "0.25"}, {"red", "-"}})
    EXPECT_EQ(note(fine), "") << fine[0];
}

TEST(Decisions, NumbersWithZerosInFrontAreIdsToo) {
  const auto ids = [](const auto& field) { return decide({look("station", 600, field)}, Labels()).at(0).ids; };
  EXPECT_TRUE(ids([](int i) { return str_cat("00", 137 * (i % 73) % 900 + 100); }));
  EXPECT_FALSE(ids([](int i) { return str_cat(137 * (i % 73) % 900 + 100); }));
}

TEST(OddTexts, NotationsWithoutAnOrderAreSaid) {
  const auto note = [](const std::string& begin, const std::string& end) {
    return odd_texts_note(look("a", 200, [&](int i) { return str_cat(begin, i % 9 + 1, end); }));
  };
  using Parts = std::pair<std::string, std::string>;
  for (const auto& [begin, end] : std::vector<Parts>{{"2024-W1", ""},
                                                     {"2012Q", ""},
                                                     {"", "/16"},
                                                     {"3 ", "/4"},
                                                     {"1.", "D-01"},
                                                     {"PT1", "M"},
                                                     {"0x1", "f"},
                                                     {"12", "/80"},
                                                     {"5'", "\""},
                                                     {"80-8", ""},
                                                     {"22\xc2\xb0", "'N"}})
    EXPECT_THAT(one_line(note(begin, end)), HasSubstr("have no order")) << begin << end;
  for (const auto& [begin, end] : std::vector<Parts>{{"user 1-", ""}, {"u", ""}, {"", "th"}, {"PB", ""}})
    EXPECT_EQ(note(begin, end), "") << begin << end;
  const auto days = [&](const char* code) {
    return odd_texts_note(look("a", 300, [&](int i) { return i % 10 == 0 ? code : str_cat("2023-01-", 10 + i % 19); }));
  };
  EXPECT_THAT(days("1900-01-01"), HasSubstr("1900-01-01 is in 30 of 300 rows, far from all other dates"));
  EXPECT_EQ(days("2023-01-01"), "");
  const auto numbers = [](const auto& field) { return one_line(odd_texts_note(look("a", 300, field))); };
  const auto zoned = [&](const char* a, const char* b) {
    return numbers([&](int i) { return str_cat("2023-01-", 10 + i % 19, "T10:00:00", i % 2 == 0 ? a : b); });
  };
  EXPECT_THAT(zoned("", "+02:00"), HasSubstr("others have none, as \"2023-01-"));
  EXPECT_EQ(zoned("Z", "+02:00"), "");
  EXPECT_EQ(zoned("", ".5"), "");
  EXPECT_THAT(numbers([](int i) { return str_cat(20100000 + 100 * (i % 12 + 1) + i % 28 + 1); }),
              HasSubstr("look like dates"));
  EXPECT_THAT(numbers([](int i) { return str_cat(201000 + 100 * (i / 12) + i % 12 + 1); }),
              HasSubstr("look like dates"));
  EXPECT_EQ(numbers([](int i) { return str_cat(201000 + i); }), "") << "no month has the number 99";
  EXPECT_THAT(numbers([](int i) { return str_cat(20240200 + i % 28 + 1, 10 + i % 14, "2130"); }),
              HasSubstr("look like dates"));
  const auto named = [](const char* name, const auto& field) {
    return one_line(odd_texts_note(look(name, 300, field)));
  };
  EXPECT_THAT(named("order_date", [](int i) { return str_cat(45000 + i); }), HasSubstr("days as spreadsheets count"));
  EXPECT_EQ(named("price", [](int i) { return str_cat(45000 + i); }), "");
  EXPECT_THAT(named("timestamp", [](int i) { return str_cat(1700000000 + i, i % 2 ? "" : "000"); }),
              HasSubstr("seconds since 1970, and others milliseconds"));
  EXPECT_THAT(numbers([](int i) { return i % 10 == 0 ? "-1" : str_cat(i % 60); }),
              HasSubstr("-1 is in 30 of 300 rows, and no other number is negative"));
  EXPECT_EQ(numbers([](int i) { return str_cat(i % 3 - 1); }), "");
  EXPECT_THAT(numbers([](int i) { return i % 2 == 0 ? str_cat(i % 90, ".5%") : str_cat("0.", i); }),
              HasSubstr("read as numbers of one unit"));
  EXPECT_EQ(numbers([](int i) { return str_cat("$", i, ".99"); }), "");
}

// The job's text on a column beside the label y, on one line.
std::string job_text(const ColumnSeen& c, const std::function<std::string(int)>& label = {}) {
  const int rows = static_cast<int>(c.fields);
  const std::vector<ColumnSeen> columns = {
      c, look("y", rows, [&](int i) { return label ? label(i) : str_cat(i / 3 % 2); })};
  const Labels labels = choose_labels(columns, "y");
  return one_line(columns_toml(columns, decide(columns, labels), labels).text);
}

TEST(OddTexts, WordsAmongNumbersAndDatesAreSaid) {
  const auto mixed = [](const std::string& word, const std::string& begin) {
    return job_text(look("a", 900, [&](int i) { return i % 4 == 0 ? word : str_cat(begin, 10 + i % 19); }));
  };
  EXPECT_THAT(mixed("TBD", ""),
              HasSubstr("675 of 900 fields are numbers, but 225 are not, as \"TBD\": so all are texts"));
  EXPECT_THAT(mixed("#DIV/0!", ""), HasSubstr("fields are numbers"));
  EXPECT_THAT(mixed("0000-00-00", "2024-03-"), HasSubstr("\"0000-00-00\" is taken for a missing value"));
  EXPECT_THAT(mixed("spring", "2024-03-"), HasSubstr("\"spring\" is taken for a missing value"));
  EXPECT_THAT(mixed("5 or 6", "2024-03-"), HasSubstr("675 of 900 fields are dates, but 225 are not, as \"5 or 6\""));
  EXPECT_THAT(job_text(look("a", 900, [](int i) { return i % 4 == 0 ? str_cat("A", i) : str_cat(i % 19); })),
              testing::Not(HasSubstr("fields are numbers")))
      << "codes with and without letters";
}

TEST(OddTexts, QuantitiesInOtherNotationsAreSaid) {
  for (const auto& [begin, end] : std::vector<std::pair<std::string, std::string>>{
           {"=\"", ".5\""}, {"np.float64(", ".5)"}, {"\xe2\x89\xa5", ""}, {"\xd9\xa1 ", ""}, {"", " days 03:00:00"}}) {
    const ColumnSeen c = look("a", 300, [b = begin, e = end](int i) { return str_cat(b, i % 40, e); });
    EXPECT_THAT(one_line(odd_texts_note(c)), HasSubstr("not read as numbers")) << begin << end;
  }
  const ColumnSeen mixed = look("a", 300, [](int i) { return str_cat(i % 40, i % 2 == 0 ? "," : ".", "5"); });
  EXPECT_THAT(one_line(odd_texts_note(mixed)), HasSubstr("\"0,5\" and others like it are not read"));
  EXPECT_THAT(one_line(odd_texts_note(look("a", 300, [](int i) { return str_cat("Foo(", i % 9, ", 2)"); }))),
              HasSubstr("write it as [3, 17]"));
  EXPECT_THAT(one_line(spellings_note(look("a", 300,
                                           [](int i) {
                                             return i % 2 == 0 ? "a b"
                                                               : "a\xc2\xa0"
                                                                 "b";
                                           }))),
              HasSubstr("differ only in case or in blanks"));
}

TEST(OddTexts, WhatIsTakenForMissingIsWritten) {
  const auto text = [](const std::string& word) {
    return job_text(look("a", 900, [&](int i) { return i % 10 == 0 ? word : str_cat(i % 90, ".5"); }));
  };
  EXPECT_THAT(text("unknown"), HasSubstr("\"unknown\" is taken for a missing value."));
  EXPECT_THAT(text("unknown"), HasSubstr("missing_words = [\"unknown\"]"));
  EXPECT_THAT(text("1e30"), HasSubstr("1e30 is in 90 of 900 rows"));
  EXPECT_EQ(plain_number(1e30), "1e+30") << "TOML has no such whole number";
  EXPECT_EQ(rounded(1e30, 1e28), "1e+30");
  EXPECT_THAT(job_text(look("a", 900, [](int i) { return str_cat(i % 28 + 1, ".", i % 12 + 1, ".2024"); })),
              HasSubstr("take = \"weekday\"\ntime_format = \"%d.%m.%Y\""));
}

TEST(Labels, FilesWithoutRowsOrWithOneColumnAreSaid) {
  const auto refusal = [](const std::vector<ColumnSeen>& columns) {
    return test::refusal([&] { choose_labels(columns, "y"); }, "");
  };
  EXPECT_THAT(refusal({look("x", 0, [](int) { return ""; }), look("y", 0, [](int) { return ""; })}),
              HasSubstr("there are no rows"));
  EXPECT_THAT(refusal({look("x:y", 9, [](int) { return "1:2"; })}), HasSubstr("name the delimiter"));
}

TEST(Labels, FewOrCountedOnesAreSaid) {
  const ColumnSeen a = look("a", 400, [](int i) { return str_cat("w", i % 7); });
  EXPECT_THAT(job_text(a, [](int i) { return i == 3 ? "1" : "0"; }),
              HasSubstr("Only 1 of 400 rows has the label \"1\""));
  EXPECT_THAT(job_text(a, [](int i) { return i % 30 == 3 ? "yes" : "no"; }),
              HasSubstr("Only 14 of 400 rows have the label \"yes\""));
  EXPECT_THAT(job_text(a, [](int i) { return i % 10 == 0 ? "1" : "0"; }), testing::Not(HasSubstr("Only")));
  EXPECT_THAT(job_text(a, [](int i) { return str_cat(1000 + i); }), HasSubstr("It counts the rows"));
  EXPECT_THAT(job_text(a,
                       [](int i) {
                         return std::vector{"a", "b", "c"}[static_cast<size_t>(i % 3)];
                       }),
              HasSubstr("are 0. To predict another word, name it."));
}

TEST(TestSplit, SortedFilesAreSaid) {
  std::vector<ColumnSeen> columns;
  columns.push_back(look("y", 5000, [](int i) { return str_cat(i >= 4600 ? 1 : i % 2); }));
  columns.push_back(look("branch", 5000, [](int i) { return str_cat("branch ", i / 1000); }));
  columns.push_back(look("day", 5000, [](int i) { return str_cat("2024-01-", 10 + (i * 7) % 19); }));
  const Labels labels = choose_labels(columns, "y");
  TestSplit part = test_split(columns, decide(columns, labels), labels);
  EXPECT_FALSE(part.in_time);
  EXPECT_THAT(part.text, HasSubstr("test = \"random\"\n"));
  EXPECT_THAT(part.text, HasSubstr("has other labels than the rest: \"y\" is"));
  EXPECT_THAT(part.text, HasSubstr("\"branch\""));
  columns[2] = look("day", 5000, [](int i) { return str_cat("2024-01-", 10 + i / 400); });
  part = test_split(columns, decide(columns, labels), labels);
  EXPECT_TRUE(part.in_time);
  EXPECT_THAT(part.text, HasSubstr("test = \"last\"\n"));
}

TEST(HistoryNote, ComesForRowsOfAUserATimeAndAnItem) {
  std::vector<ColumnSeen> columns;
  columns.push_back(look("y", 5000, [](int i) { return str_cat(i % 2); }));
  columns.push_back(look("user_id", 5000, [](int i) { return str_cat("u", i % 100); }));
  columns.push_back(look("shop", 5000, [](int i) { return str_cat("s", i % 9); }));
  columns.push_back(look("film", 5000, [](int i) { return str_cat("f", i * 7 % 300); }));
  columns.push_back(look("seen_at", 5000, [](int i) { return str_cat("2024-01-", 10 + (i * 7) % 19, " 10:00"); }));
  const Labels labels = choose_labels(columns, "y");
  std::string note = history_note(columns, decide(columns, labels));
  EXPECT_TRUE(note.starts_with("# ")) << note;
  std::erase(note, '#');
  std::replace(note.begin(), note.end(), '\n', ' ');
  note.erase(std::unique(note.begin(), note.end(), [](char a, char b) { return a == ' ' && b == ' '; }), note.end());
  EXPECT_THAT(note, HasSubstr(R"([history] with user = "user_id", time = "seen_at" and columns = ["film"])"));
  columns[4] = look("seen_at", 5000, [](int i) { return str_cat("place ", i % 4); });
  EXPECT_EQ(history_note(columns, decide(columns, labels)), "");
}

TEST(Encoding, IsToldByTheBytes) {
  const std::string path = std::filesystem::temp_directory_path() / str_cat("tessera_encoding_", getpid(), ".csv");
  const auto of = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return encoding_of(path);
  };
  EXPECT_EQ(of("a,b\n1,caf\xc3\xa9\n"), "");
  EXPECT_EQ(of("a,b\n1,caf\xe9\n"), "latin-1");
  EXPECT_EQ(of("a,b\n1,\x93quoted\x94\n"), "windows-1252");
  EXPECT_EQ(of("a,b\n1,caf\xe9\n2,5 \x80\n"), "windows-1252");
  EXPECT_EQ(of(std::string("\xff\xfe") + std::string("a\0,\0", 4)), "utf-16");
  EXPECT_EQ(of(std::string((size_t{1} << 20) - 1, 'a') + "\xc3\xa9\n"), "") << "a character over two reads";
  EXPECT_THAT(test::refusal([&] { of("a\n\xc3\xa9\xc3\xa9\n\xc3\xbc\ncaf\xe9\n"); }, ""),
              HasSubstr("the byte at offset 13 is not UTF-8, but 3 characters before it are"));
  EXPECT_THAT(test::refusal([&] { of("a\ncaf\xe9\n\xc3\xa9t\xc3\xa9\nZ\xc3\xbcrich\n"); }, ""),
              HasSubstr("the byte at offset 5 is not UTF-8, but 3 characters after it are"));
  EXPECT_EQ(of("a\ncaf\xe9\nCAF\xc9\xbb\nCAF\xc9\xbb\nCAF\xc9\xbb\n"), "latin-1") << "quotes of French";
  std::filesystem::remove(path);
  EXPECT_EQ(encoding_of(path), "");
}

}  // namespace
}  // namespace tessera::cli

// Tests the reader histories over the reader csv.
#include "history/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "test_values.h"

extern "C" const tsr_plugin* tessera_plugin_v1(const tsr_host* host, tsr_error* err);

namespace tessera_readers {
namespace {

using tessera::sdk::ReaderWant;
using testing::ElementsAre;
using testing::HasSubstr;

// Two users in the order of time, with two events at one time.
constexpr const char* kEvents =
    "who,when,what,act\n"
    "a,1,i1,like\n"
    "b,2,i2,skip\n"
    "a,3,i2,skip\n"
    "a,3,i1,like\n"
    "b,4,i3,like\n"
    "a,5,i4,like\n"
    "a,6,i5,hide\n";
// The same with the rows of user b first, and a's out of order.
constexpr const char* kShuffled =
    "who,when,what,act\n"
    "b,2,i2,skip\n"
    "b,4,i3,like\n"
    "a,6,i5,hide\n"
    "a,3,i2,skip\n"
    "a,3,i1,like\n"
    "a,1,i1,like\n"
    "a,5,i4,like\n";
constexpr const char* kBase = R"("user": "who", "time": "when", "columns": "what")";

ReaderWant text(const std::string& name, bool list = false) { return {name, TSR_READER_TEXT, list}; }

class HistoryReaderTest : public testing::Test {
 protected:
  ~HistoryReaderTest() override {
    for (tsr_instance& csv : csv_) csv.component->destroy(csv.self);
  }

  std::unique_ptr<HistoryReader> reader(const std::string& more = "", const std::string& base = kBase) {
    const std::string json = "{" + base + (more.empty() ? "" : ", " + more) + "}";
    tessera::sdk::Options options(json);
    tsr_error err TSR_ERROR_INIT;
    tsr_instance& csv = csv_.emplace_back();
    csv.component = tessera_plugin_v1(nullptr, &err)->components[0];
    csv.component->create(csv.component, nullptr, "{}", nullptr, &csv.self, &err);
    return std::make_unique<HistoryReader>(tessera::sdk::Setup{tessera::sdk::Host(host()), options, &csv});
  }
  static std::vector<std::string>& warnings() {
    static std::vector<std::string> all;
    return all;
  }
  static const tsr_host* host() {
    static const tsr_host table = [] {
      tsr_host h{};
      h.struct_size = sizeof(h);
      h.log = [](const tsr_host*, int32_t, const char* text) { warnings().emplace_back(text); };
      return h;
    }();
    return &table;
  }
  // All rows in the order of blocks: a row's fields with | between, and the values of lists with blanks.
  static std::vector<std::string> rows_of(HistoryReader& reader, const std::vector<ReaderWant>& wants) {
    reader.select(wants);
    std::vector<std::string> out;
    for (size_t block = 0; block < reader.blocks().size(); ++block) {
      for (std::string& row : rows_of_block(reader, wants, static_cast<int64_t>(block))) out.push_back(std::move(row));
    }
    return out;
  }
  static std::vector<std::string> rows_of_block(HistoryReader& reader, const std::vector<ReaderWant>& wants,
                                                int64_t block) {
    const std::span<const tsr_reader_values> values = reader.read(block);
    std::vector<std::string> out;
    for (int64_t row = 0; row < reader.blocks()[static_cast<size_t>(block)].rows; ++row) {
      std::string text;
      for (size_t k = 0; k < wants.size(); ++k) {
        const tsr_reader_values& v = values[k];
        const int64_t begin = v.lists != nullptr ? v.lists[row] : row,
                      end = v.lists != nullptr ? v.lists[row + 1] : row + 1;
        if (k > 0) text += '|';
        for (int64_t i = begin; i < end; ++i) text += (i > begin ? " " : "") + value(v, wants[k].type, i);
      }
      out.push_back(text);
    }
    return out;
  }
  static std::string value(const tsr_reader_values& v, int32_t type, int64_t i) {
    if (type == TSR_READER_TEXT) return std::string(text_at(v, i));
    if (type == TSR_READER_INT64) return std::to_string(static_cast<const int64_t*>(v.values)[i]);
    const double number = type == TSR_READER_FLOAT64 ? static_cast<const double*>(v.values)[i]
                                                     : double{static_cast<const float*>(v.values)[i]};
    return std::to_string(static_cast<int>(number));
  }
  std::vector<std::string> rows(const std::string& more, const std::vector<ReaderWant>& wants,
                                const char* events = kEvents, int64_t block_bytes = 1 << 20) {
    const auto made = reader(more);
    made->open(dir_.write("events.csv", events), block_bytes);
    return rows_of(*made, wants);
  }
  std::string error(const std::string& more, const std::string& base = kBase, const char* events = kEvents) {
    return failure([&] {
      const auto made = reader(more, base);
      made->open(dir_.write("events.csv", events), 1 << 20);
      rows_of(*made, {text("history.what", true)});
    });
  }

  TestDirectory dir_;
  std::deque<tsr_instance> csv_;  // the other readers, which outlive those of the tests
};

const std::vector<ReaderWant> kHistory = {text("who"), text("what"), text("history.what", true)};

TEST_F(HistoryReaderTest, EachEventHasThoseBeforeIt) {
  // The tie at time 3: the event that comes first in the file is before the other one.
  EXPECT_THAT(rows("", kHistory),
              ElementsAre("a|i1|", "b|i2|", "a|i2|i1", "a|i1|i1 i2", "b|i3|i2", "a|i4|i1 i2 i1", "a|i5|i1 i2 i1 i4"));
}

TEST_F(HistoryReaderTest, SortedRowsKeepTheirPlaces) {
  EXPECT_THAT(rows(R"("order": "sort")", kHistory, kShuffled),
              ElementsAre("b|i2|", "b|i3|i2", "a|i5|i1 i2 i1 i4", "a|i2|i1", "a|i1|i1 i2", "a|i1|", "a|i4|i1 i2 i1"));
}

TEST_F(HistoryReaderTest, LongerHistoriesKeepOneEnd) {
  EXPECT_THAT(rows(R"("length": 2)", {text("history.what", true)}),
              ElementsAre("", "", "i1", "i1 i2", "i2", "i2 i1", "i1 i4"));
  EXPECT_THAT(rows(R"("length": 2, "keep": "oldest")", {text("history.what", true)}),
              ElementsAre("", "", "i1", "i1 i2", "i2", "i1 i2", "i1 i2"));
}

TEST_F(HistoryReaderTest, RepeatsAreLeftOut) {
  EXPECT_THAT(rows(R"("repeats": false)", {text("history.what", true)}),
              ElementsAre("", "", "i1", "i1 i2", "i2", "i2 i1", "i2 i1 i4"));
  EXPECT_THAT(rows(R"("repeats": false, "keep": "oldest")", {text("history.what", true)}),
              ElementsAre("", "", "i1", "i1 i2", "i2", "i1 i2", "i1 i2 i4"));
}

TEST_F(HistoryReaderTest, APoolForEachAction) {
  const std::string pools = R"("length": 1, "by": "act", "values": "like,skip")";
  const std::vector<ReaderWant> wants = {text("history.like.what", true), text("history.skip.what", true),
                                         text("history.what", true)};
  EXPECT_THAT(rows(pools, wants),
              ElementsAre("||", "||", "i1||i1", "i1|i2|i1 i2", "|i2|i2", "i1|i2|i2 i1", "i4|i2|i2 i4"));
}

// Users, actions, and items that may repeat are compared by their words, as vocabularies look them up.
TEST_F(HistoryReaderTest, SpellingsOfAValueAreOne) {
  constexpr const char* kSpellings = "who,when,what,act\n1,1,7,1\n1.0,2,7.0,1.0\n1,3,8,2\n1.00,4,9,1\n";
  EXPECT_THAT(rows("", kHistory, kSpellings), ElementsAre("1|7|", "1.0|7.0|7", "1|8|7 7.0", "1.00|9|7 7.0 8"));
  EXPECT_THAT(rows(R"("repeats": false)", {text("history.what", true)}, kSpellings),
              ElementsAre("", "7", "7.0", "7.0 8"));
  EXPECT_THAT(rows(R"("by": "act", "values": "1.0")", {text("history.1.0.what", true)}, kSpellings),
              ElementsAre("", "7", "7 7.0", "7 7.0"));
  EXPECT_THAT(error(R"("by": "act", "values": "1,1.0")"), HasSubstr("history.values names \"1\" twice"));
}

TEST_F(HistoryReaderTest, ActionsThatNoEventHasAreSaid) {
  warnings().clear();
  EXPECT_THAT(rows(R"("by": "act", "values": "lik,skip")", {text("history.lik.what", true)}).back(), "");
  ASSERT_EQ(warnings().size(), 1U);
  EXPECT_THAT(warnings()[0], HasSubstr("has \"lik\" in column \"act\", so these histories are empty"));
}

TEST_F(HistoryReaderTest, ColumnsHaveTheTypeThatIsWanted) {
  const auto made = reader("", R"("user": "who", "time": "when", "columns": "what,when")");
  made->open(dir_.write("events.csv", kEvents), 1 << 20);
  EXPECT_THAT(rows_of(*made, {{"history.when", TSR_READER_INT64, true},
                              {"when", TSR_READER_FLOAT32},
                              {"history.when", TSR_READER_FLOAT64, true},
                              {"history.when", TSR_READER_FLOAT32, true}}),
              ElementsAre("|1||", "|2||", "1|3|1|1", "1 3|3|1 3|1 3", "2|4|2|2", "1 3 3|5|1 3 3|1 3 3",
                          "1 3 3 5|6|1 3 3 5|1 3 3 5"));
}

TEST_F(HistoryReaderTest, LeaveOneOutTakesTheLastTwoEvents) {
  const std::vector<std::string> wanted = {"a|i1|",   "a|i2|i1",         "a|i1|i1 i2",  // training
                                           "b|i2|",   "a|i4|i1 i2 i1",                  // validation
                                           "b|i3|i2", "a|i5|i1 i2 i1 i4"};              // test
  EXPECT_EQ(rows(R"("split": "leave_one_out")", kHistory), wanted);
  const auto made = reader(R"("split": "leave_one_out")");
  EXPECT_THAT(made->describe(""), HasSubstr(R"("test_files": 1, "validation_files": 1)"));
  EXPECT_THAT(rows(R"("split": "leave_one_out", "order": "sort")", kHistory, kShuffled),
              ElementsAre("a|i2|i1", "a|i1|i1 i2", "a|i1|", "b|i2|", "a|i4|i1 i2 i1", "b|i3|i2", "a|i5|i1 i2 i1 i4"));
}

TEST_F(HistoryReaderTest, SplitByTimeAndByUsers) {
  EXPECT_THAT(rows(R"("split": "time", "test_from": "5", "validation_from": "4")", kHistory),
              ElementsAre("a|i1|", "b|i2|", "a|i2|i1", "a|i1|i1 i2", "b|i3|i2", "a|i4|i1 i2 i1", "a|i5|i1 i2 i1 i4"));
  const auto made = reader(R"("split": "time", "test_from": "5")");
  made->open(dir_.write("events.csv", kEvents), 1 << 20);
  ASSERT_EQ(made->blocks().size(), 2u);
  EXPECT_EQ(made->blocks()[0].rows, 5);
  EXPECT_EQ(made->blocks()[1].rows, 2);
  // All events of a user are in one part.
  const auto users = reader(R"("split": "users", "test_share": 0.5)");
  std::string events = "who,when,what,act\n";
  for (int time = 0; time < 3; ++time) {
    for (int user = 0; user < 40; ++user) events += "u" + std::to_string(user) + "," + std::to_string(time) + ",i,x\n";
  }
  users->open(dir_.write("many.csv", events), 1 << 20);
  ASSERT_EQ(users->blocks().size(), 2u);
  EXPECT_EQ(users->blocks()[0].rows % 3, 0);
  EXPECT_GT(users->blocks()[0].rows, 30);
  EXPECT_GT(users->blocks()[1].rows, 30);
}

TEST_F(HistoryReaderTest, OneSampleForEachUser) {
  const std::vector<ReaderWant> wants = {text("who"),
                                         {"history.label", TSR_READER_FLOAT64},
                                         text("history.what", true),
                                         text("next.what", true),
                                         text("seen.what", true)};
  const std::vector<std::string> all = {"a|1|i1 i4|i4 i5|i1 i2 i1 i4", "b|1|i2|i3|i2"};
  EXPECT_EQ(rows(R"("samples": "users", "length": 2)", wants), all);
  const std::vector<std::string> split = {"a|1|i1 i2|i2 i1|", "a|1|i2 i1|i1 i4|i1 i2 i1", "a|1|i1 i4|i4 i5|i1 i2 i1 i4",
                                          "b|1|i2|i3|i2"};
  EXPECT_EQ(rows(R"("samples": "users", "length": 2, "split": "leave_one_out")", wants), split);
  std::vector<std::string> sorted = split;
  std::swap(sorted[2], sorted[3]);  // b comes first
  EXPECT_EQ(rows(R"("samples": "users", "length": 2, "split": "leave_one_out", "order": "sort")", wants, kShuffled),
            sorted);
  EXPECT_THAT(rows(R"("samples": "users", "split": "time", "test_from": "5", "length": 2)", wants),
              ElementsAre("a|1|i1 i2|i2 i1|", "b|1|i2|i3|", "a|1|i1 i4|i4 i5|i1 i2 i1 i4"));
  EXPECT_THAT(rows(R"("samples": "requests", "length": 2)", wants),
              ElementsAre("a|1|i4 i5|i5|i1 i2 i1 i4 i5", "b|1|i2 i3|i3|i2 i3"));
}

// Histories do not depend on blocks, nor on the order in which blocks are read.
TEST_F(HistoryReaderTest, AnyBlockAtAnyTime) {
  std::string events = "who,when,what,act\n";
  for (int i = 0; i < 20000; ++i)
    events += "u" + std::to_string(i * 7 % 31) + "," + std::to_string(i) + ",i" + std::to_string(i % 97) + ",x\n";
  const std::string path = dir_.write("events.csv", events);
  for (const char* how :
       {R"("length": 5)", R"("length": 5, "split": "leave_one_out")", R"("length": 5, "repeats": false)",
        R"("length": 5, "keep": "oldest")", R"("length": 3, "samples": "users")"}) {
    SCOPED_TRACE(how);
    const auto whole = reader(how), cut = reader(how), sorted = reader(std::string(how) + R"(, "order": "sort")");
    const std::vector<ReaderWant> wants = {text("who"), text("history.what", true)};
    whole->open(path, 1 << 24);
    cut->open(path, 1 << 12);
    sorted->open(path, 1 << 12);
    const std::vector<std::string> all = rows_of(*whole, wants);
    EXPECT_EQ(rows_of(*cut, wants), all);
    EXPECT_EQ(rows_of(*sorted, wants), all);
    const auto blocks = static_cast<int64_t>(cut->blocks().size());
    ASSERT_GT(blocks, 3);
    const std::vector<std::string> last = rows_of_block(*cut, wants, blocks - 1);
    const std::vector<std::string> third = rows_of_block(*cut, wants, 2);
    EXPECT_EQ(rows_of_block(*cut, wants, blocks - 1), last);
    EXPECT_TRUE(std::equal(last.rbegin(), last.rend(), all.rbegin()));
    const int64_t before = cut->blocks()[0].rows + cut->blocks()[1].rows;
    EXPECT_TRUE(std::equal(third.begin(), third.end(), all.begin() + before));
  }
}

// A user's events may be in several files, which come in the order of their names.
TEST_F(HistoryReaderTest, HistoriesGoOverFiles) {
  dir_.write("b.csv", "who,when,what\na,3,x\na,4,y\n");
  dir_.write("a.csv", "who,when,what\na,1,u\nb,2,v\na,3,w\n");
  for (const char* order : {"file", "sort"}) {
    const auto made = reader(std::string(R"("order": ")") + order + '"');
    made->open(dir_.path() + "/[ab].csv", 1 << 20);
    EXPECT_THAT(rows_of(*made, kHistory), ElementsAre("a|u|", "b|v|", "a|w|u", "a|x|u w", "a|y|u w x")) << order;
    EXPECT_EQ(made->files().size(), 2U);
    EXPECT_EQ(made->blocks()[1].file, 1);
    EXPECT_EQ(made->blocks()[1].first_row, 0);
  }
}

TEST_F(HistoryReaderTest, TimesAreNumbersOrDates) {
  EXPECT_THAT(rows(R"("order": "sort")", kHistory,
                   "who,when,what,act\na,2024-02-01 10:00:00.000000002,x,\na,2024-02-01,y,\na,2024-02-01 "
                   "10:00:00.000000001,z,\n"),
              ElementsAre("a|x|y z", "a|y|", "a|z|y"));
  // Nanoseconds that a double would not tell apart.
  EXPECT_THAT(
      rows(R"("order": "sort")", kHistory, "who,when,what,act\na,1700000000123456790,x,\na,1700000000123456789,y,\n"),
      ElementsAre("a|x|y", "a|y|"));
}

// Doubles would not tell these numbers apart.
TEST_F(HistoryReaderTest, NumbersAreComparedByAllTheirDigits) {
  const std::vector<std::vector<const char*>> rising = {
      {"1715942025.000000100", "1715942025.0000002", "1715942025.000000300"},
      {"9223372036854775808", "9223372036854775809", "9.22337203685477581e18", "9223372036854775811"},
      {"-1715942025.0000002", "-1715942025.0000001", "-0", "1e-3", "0.001000000000000000001"},
      {"0.9999999999999999999", "1.0", "1.000000000000000001", "1.5", "9007199254740992", "9007199254740993"},
      {"-1.000000000000000001", "-1", "-0.9999999999999999999", "0.09999999999999999999", "10e-2"},
      {"-0.000001234567890123457", "4.9e-324", "99999999999999999.99", "1e17", "1.7976931348623157e308"}};
  for (const std::vector<const char*>& times : rising) {
    std::string falling = "who,when,what,act\n";
    for (size_t k = times.size(); k-- > 0;) falling += "a," + std::string(times[k]) + ",i" + std::to_string(k) + ",\n";
    EXPECT_THAT(error(R"("order": "file")", kBase, falling.c_str()), HasSubstr("row 2, column \"when\": the event is"));
    std::vector<std::string> expected;
    std::string before;
    for (size_t k = 0; k < times.size(); ++k) {
      const std::string item = "i" + std::to_string(k);
      expected.insert(expected.begin(), "a|" + item + "|" + before);
      before += (before.empty() ? "" : " ") + item;
    }
    EXPECT_EQ(rows(R"("order": "sort")", kHistory, falling.c_str()), expected) << times[0];
  }
  EXPECT_THAT(rows(R"("order": "sort")", kHistory, "who,when,what,act\na,5.0,x,\na,0.5e1,y,\na,005,z,\n"),
              ElementsAre("a|x|", "a|y|x", "a|z|x y"));
  EXPECT_THAT(error("", kBase, "who,when,what\na,1.00000000000000000001,i\n"),
              HasSubstr("\"1.00000000000000000001\" has more than 19 significant digits"));
}

TEST_F(HistoryReaderTest, WrongDataAreNamed) {
  EXPECT_THAT(error("", kBase, "who,when,what\n,1,i\n"), HasSubstr("row 1, column \"who\": the event has no user"));
  EXPECT_THAT(error("", kBase, "who,when,what\na,,i\n"), HasSubstr("row 1, column \"when\": the event has no time"));
  EXPECT_THAT(error("", kBase, "who,when,what\na,noon,i\n"), HasSubstr("\"noon\" is not a time: history.time takes"));
  EXPECT_THAT(error("", kBase, "who,when,what\na,1,i\na,2024-01-31,i\n"),
              HasSubstr("row 2, column \"when\": \"2024-01-31\" is not a number, but the first value is one"));
  EXPECT_THAT(
      error("", kBase, "who,when,what\na,2,i\nb,1,i\na,1,i\n"),
      HasSubstr("row 3, column \"when\": the event is earlier than one of the same user, \"a\", in a row before "
                "it: sort the files by time, or set history.order = \"sort\""));
  EXPECT_THAT(error("", kBase, "who,when,what\na,1,\na,2,i\n"),
              HasSubstr("row 1, column \"what\": the event has no value, but history.columns names the column"));
  EXPECT_THAT(error("", R"("user": "whom", "time": "when", "columns": "what")"),
              HasSubstr("history.user: the files have no column \"whom\"; the nearest is \"who\""));
  EXPECT_THAT(error("", R"("user": "who", "time": "then", "columns": "what")"),
              HasSubstr("history.time: the files have no"));
  EXPECT_THAT(error("", R"("user": "who", "time": "when", "columns": "that")"),
              HasSubstr("history.columns: the files have no column \"that\""));
  EXPECT_THAT(error(R"("by": "acts", "values": "like")"), HasSubstr("history.by: the files have no column \"acts\""));
  EXPECT_THAT(error("", kBase, "who,when,what\n"), HasSubstr("has no "));
  EXPECT_THAT(error(R"("split": "time", "test_from": "7")"),
              HasSubstr("history.split = \"time\" leaves no sample of "));
  EXPECT_THAT(error(R"("split": "time", "test_from": "0")"), HasSubstr(" to train on: change its keys"));
  EXPECT_THAT(error(R"("split": "time", "test_from": "2024-01-01")"),
              HasSubstr("history.test_from = \"2024-01-01\" is not a number, as the values of \"when\" are"));
  EXPECT_THAT(error(R"("split": "time", "test_from": "3", "validation_from": "3")"),
              HasSubstr("history.validation_from = \"3\" must be before history.test_from = \"3\""));
  EXPECT_THAT(error(R"("samples": "users")", kBase, "who,when,what\na,1,i\nb,1,i\n"),
              HasSubstr("has no user with 2 events"));
}

TEST_F(HistoryReaderTest, WrongOptionsAreNamed) {
  EXPECT_THAT(error("", R"("time": "when", "columns": "what")"), HasSubstr("history.user is empty"));
  EXPECT_THAT(error("", R"("user": "who", "columns": "what")"), HasSubstr("history.time is empty"));
  EXPECT_THAT(error("", R"("user": "who", "time": "when")"), HasSubstr("history.columns is empty"));
  EXPECT_THAT(error("", R"("user": "who", "time": "when", "columns": "what,what")"), HasSubstr("names \"what\" twice"));
  EXPECT_THAT(error(R"("length": 0)"), HasSubstr("history.length = 0, but a history has 1 to 1000000 events"));
  EXPECT_THAT(error(R"("values": "like")"), HasSubstr("history.values has no effect: set history.by"));
  EXPECT_THAT(error(R"("by": "act")"), HasSubstr("history.values is empty"));
  EXPECT_THAT(error(R"("samples": "users", "keep": "oldest")"),
              HasSubstr("does not go with history.samples = \"users\""));
  EXPECT_THAT(error(R"("samples": "users", "by": "act", "values": "like")"),
              HasSubstr("history.by = \"act\" does not go"));
  EXPECT_THAT(error(R"("samples": "users", "repeats": false)"), HasSubstr("history.repeats = false does not go"));
  EXPECT_THAT(error(R"("samples": "requests", "split": "leave_one_out")"), HasSubstr("has no effect on requests"));
  EXPECT_THAT(error(R"("test_from": "3")"), HasSubstr("history.test_from has no effect"));
  EXPECT_THAT(error(R"("split": "time")"), HasSubstr("needs history.test_from"));
  EXPECT_THAT(error(R"("test_share": 0.1)"), HasSubstr("history.test_share has no effect"));
  EXPECT_THAT(error(R"("split": "users", "test_share": 0.6, "validation_share": 0.4)"),
              HasSubstr("both together below 1"));
}

// Events that are given one by one, as to a server.
class KeptListsTest : public HistoryReaderTest {
 protected:
  // Adds an event; its fields are those of the columns of `lists`, and "-" is a missing value.
  static void add(KeptLists& lists, const std::vector<std::string>& fields) {
    std::vector<std::vector<int64_t>> ends;
    std::vector<uint8_t> present;
    for (const std::string& field : fields) {
      present.push_back(field == "-" ? uint8_t{0} : uint8_t{1});
      ends.push_back({0, field == "-" ? 0 : std::ssize(field)});
    }
    std::vector<tsr_reader_values> values;
    for (size_t k = 0; k < fields.size(); ++k)
      values.push_back({sizeof(tsr_reader_values), 0, fields[k].data(), ends[k].data(), nullptr, nullptr, &present[k]});
    lists.add(values, 0);
  }
  static std::string taken(KeptLists& lists, const std::string& user) {
    int64_t events = 0;
    std::string out, bar;
    for (const tsr_reader_values& v : lists.take(user, &events)) {
      out += std::exchange(bar, "|");
      for (int64_t i = v.lists[0]; i < v.lists[1]; ++i) out += (i > v.lists[0] ? " " : "") + std::string(text_at(v, i));
    }
    return out;
  }
};

TEST_F(KeptListsTest, CompareWords) {
  const auto kept = reader(R"("repeats": false)");
  KeptLists& lists = kept->kept_lists();
  lists.begin({"history.what"}, 1 << 20);
  add(lists, {"1", "1", "7"});
  add(lists, {"1.0", "2", "7.0"});
  add(lists, {"1", "3", "8"});
  EXPECT_EQ(taken(lists, "1.00"), "7.0 8");
  int32_t which = -1;
  EXPECT_EQ(lists.most(0, &which), 50);
  EXPECT_EQ(which, TSR_HISTORY_NEWEST);
}

TEST_F(KeptListsTest, AreTheHistoriesThatAFileHas) {
  std::string csv = "who,when,what,act\n";
  std::vector<std::vector<std::string>> events;
  uint32_t state = 7;
  const auto number = [&](uint32_t n) { return (state = state * 1664525U + 1013904223U) / 65536 % n; };
  for (uint32_t i = 0; i < 600; ++i) {
    const char* const acts[] = {"like", "skip", "hide"};
    events.push_back({"u" + std::to_string(number(9)), std::to_string(1000 + i / 3), acts[number(3)],
                      "film " + std::to_string(number(25))});
    csv += events[i][0] + ',' + events[i][1] + ',' + events[i][3] + ',' + events[i][2] + '\n';
  }
  for (const char* const more :
       {R"("length": 4)", R"("length": 4, "keep": "oldest")", R"("length": 5, "repeats": false)",
        R"("length": 5, "repeats": false, "keep": "oldest")", R"("length": 3, "by": "act", "values": "like,skip")",
        R"("length": 3, "by": "act", "values": "skip", "repeats": false)", R"("length": 4, "order": "sort")"}) {
    SCOPED_TRACE(more);
    const bool by = std::string_view(more).find("by") != std::string_view::npos;
    std::vector<ReaderWant> wants = {text("history.what", true), text("history.when", true)};
    if (by) wants.push_back(text("history.skip.what", true));
    const std::string base = R"("user": "who", "time": "when", "columns": "what,when")";
    const auto file = reader(more, base), kept = reader(more, base);
    file->open(dir_.write("events.csv", csv), 1 << 20);
    const std::vector<std::string> expected = rows_of(*file, wants);
    KeptLists& lists = kept->kept_lists();
    std::vector<std::string_view> names;
    for (const ReaderWant& w : wants) names.push_back(w.name);
    lists.begin(names, 1 << 20);
    for (size_t i = 0; i < events.size(); ++i) {
      ASSERT_EQ(taken(lists, events[i][0]), expected[i]) << i;
      std::vector<std::string> fields = {events[i][0], events[i][1], events[i][3], events[i][1]};
      if (by) fields.insert(fields.begin() + 2, events[i][2]);
      add(lists, fields);
    }
    EXPECT_EQ(lists.events().users(), 9);
    EXPECT_LT(lists.events().bytes(), 40000);
  }
  // A user's events so far are those that are asked about after a file.
  const std::string more = R"("length": 4, "samples": "requests")";
  const auto file = reader(more), kept = reader(more);
  file->open(dir_.write("events.csv", csv), 1 << 20);
  const std::vector<std::string> expected =
      rows_of(*file, {text("who"), text("history.what", true), text("seen.what", true)});
  KeptLists& lists = kept->kept_lists();
  EXPECT_THAT(lists.lists(), ElementsAre("history.what", "seen.what"));
  EXPECT_THAT(lists.event_columns(), ElementsAre("who", "when", "what"));
  lists.begin({"history.what", "seen.what"}, 1 << 20);
  for (const auto& event : events) add(lists, {event[0], event[1], event[3]});
  for (const std::string& row : expected) {
    const size_t user = row.find('|');
    EXPECT_EQ(taken(lists, row.substr(0, user)), row.substr(user + 1));
  }
}

TEST_F(KeptListsTest, AreSortedIfTheOrderIsNotThatOfTime) {
  const auto sorted = reader(R"("length": 2, "order": "sort")");
  KeptLists& lists = sorted->kept_lists();
  lists.begin({"history.what"}, 1 << 20);
  for (int i = 0; i < 60; ++i) add(lists, {"a", std::to_string(i * 37 % 60), "i" + std::to_string(i * 37 % 60)});
  EXPECT_EQ(taken(lists, "a"), "i58 i59");
  add(lists, {"a", "59", "late"});
  EXPECT_EQ(taken(lists, "a"), "i59 late") << "of one time, the later one is behind";
  add(lists, {"a", "3", "early"});
  EXPECT_EQ(taken(lists, "a"), "i59 late");
}

TEST_F(KeptListsTest, AreWithinABoundOfMemory) {
  const auto kept = reader(R"("length": 2)");
  KeptLists& lists = kept->kept_lists();
  constexpr int64_t kBytes = 20000;
  lists.begin({"history.what"}, kBytes);
  for (int i = 0; i < 5000; ++i) {
    add(lists, {"user " + std::to_string(i % 1000), std::to_string(i), "film " + std::to_string(i)});
    ASSERT_LE(lists.events().bytes(), kBytes);
  }
  EXPECT_GT(lists.events().users(), 30);
  EXPECT_EQ(lists.events().users() + lists.events().forgotten(), 5000) << "each comes anew after it was forgotten";
  EXPECT_EQ(taken(lists, "user 999"), "film 4999") << "the newest user stays";
  EXPECT_EQ(taken(lists, "user 1"), "");
}

// A server that begins without events reads times as the model's training did.
TEST_F(KeptListsTest, TimesHaveTheFormOfTraining) {
  const auto files = reader();
  EXPECT_STREQ(files->settled(), "") << "before files are open";
  files->open(dir_.write("events.csv", kEvents), 1 << 20);
  EXPECT_STREQ(files->settled(), R"(time_form="number")");
  const auto dates = reader();
  dates->open(dir_.write("dates.csv", "who,when,what,act\na,2024-02-01,x,like\n"), 1 << 20);
  EXPECT_STREQ(dates->settled(), R"(time_form="time")");
  const auto kept = reader(R"("time_form": "number")");
  KeptLists& lists = kept->kept_lists();
  lists.begin({"history.what"}, 1 << 20);
  EXPECT_THAT(failure([&] {
                add(lists, {"a", "2024-01-01", "i1"});
              }),
              HasSubstr("is not a number, as the times are that the model was trained on"));
  add(lists, {"a", "5", "i1"});
  EXPECT_EQ(taken(lists, "a"), "i1");
}

TEST_F(KeptListsTest, SayWhatIsNoEvent) {
  const auto kept = reader(R"("length": 2, "by": "act", "values": "like")");
  KeptLists& lists = kept->kept_lists();
  EXPECT_THAT(failure([&] { lists.begin({"history.wat"}, 1000); }), HasSubstr("\"history.what\""));
  lists.begin({"history.what"}, 1 << 20);
  const auto refused = [&](const std::vector<std::string>& fields) { return failure([&] { add(lists, fields); }); };
  add(lists, {"a", "5", "like", "i1"});
  EXPECT_THAT(refused({"-", "5", "like", "i1"}), HasSubstr("column \"who\": the event has no user"));
  EXPECT_THAT(refused({"a", "-", "like", "i1"}), HasSubstr("column \"when\": the event has no time"));
  EXPECT_THAT(refused({"a", "2024-01-01", "like", "i1"}), HasSubstr("is not a number, but the first value is one"));
  EXPECT_THAT(refused({"a", "6", "like", "-"}), HasSubstr("column \"what\": the event has no value"));
  EXPECT_THAT(refused({"a", "4", "like", "i2"}),
              HasSubstr("column \"when\": the event is earlier than one of the same user, \"a\", before it"));
  add(lists, {"a", "6", "-", "i3"});
  EXPECT_EQ(taken(lists, "a"), "i1") << "an event without an action that counts is in no history";
}

}  // namespace
}  // namespace tessera_readers

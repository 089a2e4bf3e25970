// Histories of events that arrive: those that a file has, continued exactly, with bad events left out on request.
#include "history/arriving.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <deque>
#include <memory>

#include "history/reader.h"
#include "test_values.h"

namespace tessera_readers {
namespace {

using tessera::sdk::ReaderWant;
using testing::ElementsAre;
using testing::HasSubstr;

// Rows in memory with the columns who, when, what and cost, of which all are texts, except "cost" as float32.
class RowsInMemory : public tessera::sdk::ArrivingReader {
 public:
  explicit RowsInMemory(bool skips) : skips_(skips) {}
  const void* extension(std::string_view id) const {
    const void* skips = skips_ ? tessera::sdk::skips_extension<RowsInMemory>(id) : nullptr;
    return skips != nullptr ? skips : tessera::sdk::arriving_extension<RowsInMemory>(id);
  }
  const std::vector<tessera::sdk::ReaderColumn>& columns() const override { return none_; }
  void follow(std::string_view, std::string_view position) override {
    EXPECT_EQ(position, "");
    next_ = 0;
  }
  void select(std::span<const ReaderWant> wants) override { wants_.assign(wants.begin(), wants.end()); }
  tessera::sdk::Arrived next(int64_t most, double) override {
    const int64_t rows = std::min(most, std::ssize(all) - next_);
    columns_.clear();
    values_.clear();
    for (const ReaderWant& w : wants_) {
      columns_.emplace_back(w.type).start(false);
      for (int64_t row = next_; row < next_ + rows; ++row) {
        const std::vector<std::string>& fields = all[static_cast<size_t>(row)];
        const std::string& text = fields[w.name == "who" ? 0 : w.name == "when" ? 1 : w.name == "what" ? 2 : 3];
        if (w.type == TSR_READER_TEXT)
          columns_.back().add(text);
        else
          columns_.back().add_cell(std::bit_cast<uint32_t>(std::stof(text)), texts_);
      }
      values_.push_back(columns_.back().values());
    }
    const int64_t first = next_;
    next_ += rows;
    return {.rows = rows, .first_row = first, .last = next_ == std::ssize(all), .where = "memory", .values = values_};
  }
  std::string position() const override { return "{}"; }
  void skip(int64_t row, const char* why) { skipped.push_back(std::to_string(row) + ": " + why); }

  std::vector<std::vector<std::string>> all;
  std::vector<std::string> skipped;

 private:
  bool skips_;
  int64_t next_ = 0;
  std::vector<tessera::sdk::ReaderColumn> none_;
  std::vector<ReaderWant> wants_;
  std::deque<HistoryColumn> columns_;
  std::vector<tsr_reader_values> values_;
  TextNumbers texts_;
};

constexpr tsr_component kInMemory = {
    sizeof(tsr_component),
    0,
    "memory",
    TSR_READER_KIND,
    "1.0.0",
    "rows in memory",
    &RowsInMemory::table<RowsInMemory>,
    nullptr,
    nullptr,
    nullptr,
    [](void* self, const char* id) { return static_cast<const RowsInMemory*>(self)->extension(id); },
    nullptr};

class ArrivingHistoriesTest : public testing::Test {
 protected:
  explicit ArrivingHistoriesTest(bool skips = false) : source_(skips) {
    for (int i = 0; i < 200; ++i)
      source_.all.push_back({"u" + std::to_string(i * 7 % 5), std::to_string(i / 2), "i" + std::to_string(i * 11 % 9),
                             std::to_string(i + 1) + ".5"});
  }
  std::unique_ptr<HistoryReader> reader(const std::string& more = "") {
    const std::string json = R"({"user": "who", "time": "when", "columns": "what,cost", "length": 4)" + more + "}";
    tessera::sdk::Options options(json);
    const tsr_instance inner{&kInMemory, &source_};
    inner_ = inner;
    auto out = std::make_unique<HistoryReader>(tessera::sdk::Setup{tessera::sdk::Host(nullptr), options, &inner_});
    return out;
  }
  // Rows of at most `each` in a call: the item, the items before, and their costs.
  static std::vector<std::string> rows_of(HistoryReader& reader, int64_t each, size_t most = 1000) {
    std::vector<std::string> out;
    for (bool last = false; !last && out.size() < most;) {
      const tessera::sdk::Arrived got = reader.next(std::min(each, static_cast<int64_t>(most - out.size())), 0);
      last = got.last;
      for (int64_t row = 0; row < got.rows; ++row) {
        std::string text(text_at(got.values[0], row));
        for (int64_t i = got.values[1].lists[row]; i < got.values[1].lists[row + 1]; ++i)
          text += " " + std::string(text_at(got.values[1], i));
        for (int64_t i = got.values[2].lists[row]; i < got.values[2].lists[row + 1]; ++i)
          text += " " + std::to_string(static_cast<int>(static_cast<const float*>(got.values[2].values)[i] * 10));
        out.push_back(text);
      }
    }
    return out;
  }
  static const std::vector<ReaderWant>& wants() {
    static const std::vector<ReaderWant> all = {
        {"what", TSR_READER_TEXT}, {"history.what", TSR_READER_TEXT, true}, {"history.cost", TSR_READER_FLOAT32, true}};
    return all;
  }

  RowsInMemory source_;
  tsr_instance inner_{};
};

TEST_F(ArrivingHistoriesTest, AreThoseBeforeEachEvent) {
  const auto whole = reader();
  ASSERT_NE(whole->extension(TSR_READER_ARRIVING), nullptr);
  EXPECT_EQ(whole->extension(TSR_READER_SKIPS), nullptr) << "the other reader has none";
  whole->follow("x", "");
  whole->select(wants());
  const std::vector<std::string> expected = rows_of(*whole, 200);
  ASSERT_EQ(expected.size(), 200u);
  for (size_t i = 0; i < expected.size(); ++i) {
    std::string items, costs;
    int found = 0;
    for (size_t before = i; before > 0 && found < 4; --before) {
      if (source_.all[before - 1][0] != source_.all[i][0]) continue;
      items = " " + source_.all[before - 1][2] + items;
      costs = " " + source_.all[before - 1][3].substr(0, source_.all[before - 1][3].find('.')) + "5" + costs;
      ++found;
    }
    EXPECT_EQ(expected[i], source_.all[i][2] + items + costs) << i;
  }
  // Portions may be others, and a position may be between.
  for (const size_t first : {size_t{0}, size_t{1}, size_t{77}, size_t{199}}) {
    const auto begun = reader();
    begun->follow("x", "");
    begun->select(wants());
    std::vector<std::string> rows = rows_of(*begun, 13, first);
    const std::string position = begun->position();
    const auto rest = reader();
    rest->follow("x", position);
    EXPECT_EQ(rest->position(), position) << "nothing was read yet";
    rest->select(wants());
    for (std::string& row : rows_of(*rest, 29)) rows.push_back(std::move(row));
    EXPECT_EQ(rows, expected) << first;
    EXPECT_EQ(rest->position(), whole->position());
  }
}

TEST_F(ArrivingHistoriesTest, SayWhatIsWrong) {
  const auto one = reader();
  one->follow("x", "");
  one->select(wants());
  source_.all[3] = {"u0", "-1", "i1", "1"};
  source_.all[4] = {"", "2", "i1", "1"};
  EXPECT_EQ(rows_of(*one, 1, 3).size(), 3u);
  EXPECT_THAT(failure([&] { one->next(1, 0); }),
              HasSubstr("memory, row 4, column \"when\": the event is earlier than one of the same user, \"u0\""));
  EXPECT_THAT(failure([&] { one->next(1, 0); }), HasSubstr("memory, row 5, column \"who\": the event has no user"));
  EXPECT_THAT(failure([&] { one->follow("x", "{\"rows\": 3}"); }), HasSubstr("is not a position of the reader histor"));
  EXPECT_THAT(failure([&] { one->open("x", 1); }), HasSubstr("its rows arrive without end"));
  for (const char* more : {R"(, "samples": "users")", R"(, "order": "sort")", R"(, "split": "leave_one_out")"})
    EXPECT_THAT(failure([&] { reader(more); }), HasSubstr("does not go with rows that arrive, which \"memory\" reads"));
}

class SkippingHistoriesTest : public ArrivingHistoriesTest {
 protected:
  SkippingHistoriesTest() : ArrivingHistoriesTest(true) {}
};

TEST_F(SkippingHistoriesTest, LeaveOutBadEvents) {
  const auto whole = reader();
  whole->follow("x", "");
  whole->select(wants());
  std::vector<std::string> expected = rows_of(*whole, 200);
  source_.all.insert(source_.all.begin() + 120, {"u1", "0", "i1", "1"});
  source_.all.insert(source_.all.begin() + 50, {"", "25", "i1", "1"});
  const auto made = reader();
  made->follow("x", "");
  made->select(wants());
  EXPECT_EQ(rows_of(*made, 40), expected);
  EXPECT_THAT(source_.skipped,
              ElementsAre(HasSubstr("10: memory, row 51, column \"who\": the event has no user"),
                          HasSubstr("memory, row 122, column \"when\": the event is earlier than one of the same")));
  // A row that the caller leaves out, by its number among those that it got.
  source_.skipped.clear();
  const auto asked = reader();
  asked->follow("x", "");
  asked->select(wants());
  rows_of(*asked, 49, 49);
  EXPECT_EQ(asked->next(3, 0).rows, 2);
  asked->skip(1, "why");
  EXPECT_THAT(source_.skipped, ElementsAre(HasSubstr("1: memory, row 51"), "2: why"));
}

}  // namespace
}  // namespace tessera_readers

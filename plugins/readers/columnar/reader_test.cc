// Tests the reader with hand-made record batches, through Arrow's C interfaces.
#include "columnar/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>

#include "test_values.h"

namespace tessera_readers {
namespace {

using tessera::sdk::ReaderWant;
using testing::ElementsAre;
using testing::HasSubstr;

// An array and its type, in the memory of a producer, which outlives what it hands out.
struct Made {
  std::string format, name;
  int64_t length = 0;
  std::vector<std::string> buffers;  // the first has the validity bits; empty if nothing is null
  std::vector<Made> children;
  std::shared_ptr<Made> dictionary;
};

template <class T>
std::string bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
std::string bits(const std::vector<bool>& values) {
  std::string out((values.size() + 7) / 8, '\0');
  for (size_t i = 0; i < values.size(); ++i)
    out[i / 8] = static_cast<char>(out[i / 8] | (values[i] ? 1 << (i % 8) : 0));
  return out;
}

template <class T>
Made numbers(const char* format, const std::vector<T>& values, const std::vector<bool>& valid = {}) {
  return {format, "", std::ssize(values), {bits(valid), bytes(values)}, {}, nullptr};
}
template <class Offset = int32_t>
Made texts(const std::vector<std::string>& values, const std::vector<bool>& valid = {}) {
  std::vector<Offset> offsets = {0};
  std::string all;
  for (const std::string& text : values) offsets.push_back(static_cast<Offset>((all += text).size()));
  return {sizeof(Offset) == 4 ? "u" : "U", "", std::ssize(values), {bits(valid), bytes(offsets), all}, {}, nullptr};
}
template <class Offset = int32_t>
Made lists(const std::vector<Offset>& offsets, Made items, const std::vector<bool>& valid = {}) {
  return {sizeof(Offset) == 4 ? "+l" : "+L", "",      std::ssize(offsets) - 1,
          {bits(valid), bytes(offsets)},     {items}, nullptr};
}
Made pairs(Made first, Made second) {
  return {"+s", "", first.length, {""}, {std::move(first), std::move(second)}, nullptr};
}
Made named(const char* name, Made column) {
  column.name = name;
  return column;
}

// Decimals of 32 * Words bits, lowest digits first.
template <size_t Words>
Made decimals(const char* format, const std::vector<std::array<uint32_t, Words>>& values) {
  return {format, "", std::ssize(values), {"", bytes(values)}, {}, nullptr};
}
// Texts as views into a further buffer, except texts of up to 12 bytes, which are inline.
Made views(const char* format, const std::vector<std::string>& values) {
  std::string all, fields;
  for (const std::string& text : values) {
    std::array<int32_t, 4> view = {static_cast<int32_t>(text.size()), 0, 0, static_cast<int32_t>(all.size())};
    std::memcpy(&view[1], text.data(), std::min<size_t>(text.size(), text.size() > 12 ? 4 : 12));
    if (text.size() > 12) all += text;
    fields.append(reinterpret_cast<const char*>(view.data()), sizeof(view));
  }
  const auto size = static_cast<int64_t>(all.size());
  return {format, "", std::ssize(values), {"", fields, all, bytes(std::vector<int64_t>{size})}, {}, nullptr};
}
Made indexed(Made indices, Made values) {
  indices.dictionary = std::make_shared<Made>(std::move(values));
  return indices;
}
Made runs(const std::vector<int32_t>& ends, Made values) {
  return {"+r",   "", ends.back(), {}, {named("run_ends", numbers("i", ends)), named("values", std::move(values))},
          nullptr};
}
Made nulls(int64_t rows) { return {"n", "", rows, {}, {}, nullptr}; }
// Lists given by the start and number of their items.
template <class Offset>
Made list_views(const std::vector<Offset>& begins, const std::vector<Offset>& sizes, Made items,
                const std::vector<bool>& valid = {}) {
  return {sizeof(Offset) == 4 ? "+vl" : "+vL",
          "",
          std::ssize(begins),
          {bits(valid), bytes(begins), bytes(sizes)},
          {std::move(items)},
          nullptr};
}

// Exports hand-made arrays through the C interface: both structs of an array, and of all its children.
struct Exported {
  Exported(const Made& made, int64_t first, int64_t rows) {
    for (const std::string& buffer : made.buffers) buffers.push_back(buffer.empty() ? nullptr : buffer.data());
    for (const Made& child : made.children) add(child);
    const auto children = std::ssize(inside);
    if (made.dictionary) add(*made.dictionary);
    for (const auto& node : inside) schemas.push_back(&node->schema), arrays.push_back(&node->array);
    const bool dictionary = made.dictionary != nullptr;
    schema = {made.format.c_str(),
              made.name.c_str(),
              nullptr,
              ARROW_FLAG_NULLABLE,
              children,
              schemas.data(),
              dictionary ? schemas.back() : nullptr,
              [](ArrowSchema* raw) { raw->release = nullptr; },
              nullptr};
    array = {rows,
             -1,
             first,
             std::ssize(buffers),
             children,
             buffers.data(),
             arrays.data(),
             dictionary ? arrays.back() : nullptr,
             [](ArrowArray* raw) { raw->release = nullptr; },
             nullptr};
  }
  void add(const Made& made) { inside.push_back(std::make_unique<Exported>(made, 0, made.length)); }

  ArrowSchema schema;
  ArrowArray array;
  std::vector<const void*> buffers;
  std::vector<std::unique_ptr<Exported>> inside;
  std::vector<ArrowSchema*> schemas;
  std::vector<ArrowArray*> arrays;
};

// A file of units, each a struct of columns.
struct File {
  std::vector<Made> units;
  std::string broken;                // column that cannot be read after row 3 of a unit
  int64_t streams = 0, batches = 0;  // batches opened; batches alive
};

// Batches of the wanted children, cut by offsets.
struct Batches {
  File* file;
  Made unit;
  int64_t rows, next = 0;

  static int get_next(ArrowArrayStream* stream, ArrowArray* out) {
    auto& self = *static_cast<Batches*>(stream->private_data);
    const bool breaks = !self.unit.children.empty() &&
                        std::any_of(self.unit.children.begin(), self.unit.children.end(),
                                    [&](const Made& column) { return column.name == self.file->broken; });
    if (breaks && self.next >= 3) return 5;
    if (self.next == self.unit.length) {
      *out = {};
      return 0;
    }
    const int64_t rows = std::min(self.rows, self.unit.length - self.next);
    auto batch = std::make_unique<Exported>(self.unit, 0, rows);
    for (const auto& column : batch->inside) column->array.offset = self.next, column->array.length = rows;
    self.next += rows;
    *out = batch->array;
    ++self.file->batches;
    out->private_data = new std::pair(self.file, std::move(batch));
    out->release = [](ArrowArray* raw) {
      auto* held = static_cast<std::pair<File*, std::unique_ptr<Exported>>*>(raw->private_data);
      --held->first->batches;
      delete held;
      raw->release = nullptr;
    };
    return 0;
  }
};

class MadeSource : public ArrowSource {
 public:
  explicit MadeSource(File& file) : file_(file), top_(file.units.front(), 0, 0) {
    for (const Made& unit : file.units) units_.push_back({unit.length, unit.length * 8});
  }
  const ArrowSchema& schema() const override { return top_.schema; }
  const std::vector<Unit>& units() const override { return units_; }
  void read(int64_t unit, std::span<const int> columns, int64_t rows, ArrowArrayStream* out) override {
    ++file_.streams;
    Made wanted = file_.units[static_cast<size_t>(unit)];
    wanted.children.clear();
    for (const int column : columns)
      wanted.children.push_back(file_.units[static_cast<size_t>(unit)].children[static_cast<size_t>(column)]);
    *out = {nullptr, &Batches::get_next, [](ArrowArrayStream*) { return "the page is bad"; },
            [](ArrowArrayStream* raw) {
              delete static_cast<Batches*>(raw->private_data);
              raw->release = nullptr;
            },
            new Batches{&file_, std::move(wanted), rows}};
  }

 private:
  File& file_;
  Exported top_;
  std::vector<Unit> units_;
};

class Columnar : public testing::Test {
 protected:
  ~Columnar() override {
    for (const auto& [name, file] : files_) EXPECT_EQ(file.batches, 0) << "all that was lent is released";
  }

  // Adds a file with this name, whose units have these columns.
  std::string add(const std::string& name, const std::vector<std::vector<Made>>& units) {
    std::string path = folder_.write(name, "made");
    for (const std::vector<Made>& columns : units)
      files_[path].units.push_back({"+s", "", columns.front().length, {""}, columns, nullptr});
    return path;
  }
  std::unique_ptr<ColumnarReader> reader(const std::string& path, int64_t block_bytes = 1 << 20) {
    auto out = std::make_unique<ColumnarReader>(
        std::vector<std::string_view>{".made"},
        ArrowFiles{[this](const std::string& file) { return std::make_unique<MadeSource>(files_.at(file)); }});
    out->open(path, block_bytes);
    return out;
  }
  // The only column of a file, read as wanted.
  std::unique_ptr<ColumnarReader> read(const Made& column, int32_t type, bool list = false, bool weighted = false) {
    auto out = reader(add(next(), {{named("c", column)}}));
    out->select(std::vector<ReaderWant>{{"c", type, list, weighted}});
    return out;
  }
  std::string wrong(const Made& column, int32_t type, bool list = false, bool weighted = false) {
    try {
      read(column, type, list, weighted)->read(0);
    } catch (const tessera::sdk::Failure& e) {
      const std::string said = e.what(), prefix = folder_.path() + "/" + name_;
      return said.starts_with(prefix) ? said.substr(prefix.size()) : said;
    }
    return "no error";
  }

  // The name of a further file.
  std::string next() { return name_ = "f" + std::to_string(++named_) + ".made"; }

  int named_ = 0;
  TestDirectory folder_;
  std::string name_;
  std::map<std::string, File> files_;
};

TEST_F(Columnar, NumbersOfAllTypesBecomeWhatIsWanted) {
  const std::vector<Made> whole = {numbers<int8_t>("c", {1, 0, 3}),
                                   numbers<uint8_t>("C", {1, 0, 3}),
                                   numbers<int16_t>("s", {1, 0, 3}),
                                   numbers<uint16_t>("S", {1, 0, 3}),
                                   numbers<int32_t>("i", {1, 0, 3}),
                                   numbers<uint32_t>("I", {1, 0, 3}),
                                   numbers<int64_t>("l", {1, 0, 3}),
                                   numbers<uint64_t>("L", {1, 0, 3}),
                                   numbers<float>("f", {1, 0, 3}),
                                   numbers<double>("g", {1, 0, 3}),
                                   numbers<uint16_t>("e", {0x3c00, 0, 0x4200}),
                                   numbers<int64_t>("tsu:UTC", {1, 0, 3})};
  for (const Made& column : whole) {
    const auto as_int = read(column, TSR_READER_INT64), as_float = read(column, TSR_READER_FLOAT32),
               as_double = read(column, TSR_READER_FLOAT64), as_text = read(column, TSR_READER_TEXT);
    EXPECT_THAT(numbers_of<int64_t>(as_int->read(0)[0].values, 3), ElementsAre(1, 0, 3)) << column.format;
    EXPECT_THAT(numbers_of<float>(as_float->read(0)[0].values, 3), ElementsAre(1, 0, 3)) << column.format;
    EXPECT_THAT(numbers_of<double>(as_double->read(0)[0].values, 3), ElementsAre(1, 0, 3)) << column.format;
    if (column.format.starts_with('t')) continue;  // the words of times differ
    EXPECT_THAT(texts_of(as_text->read(0)[0], 3), ElementsAre("1", "0", "3")) << column.format;
    EXPECT_EQ(as_int->read(0)[0].present, nullptr);
  }
  const Made flags{"b", "", 3, {"", bits({true, false, true})}, {}, nullptr};
  EXPECT_THAT(numbers_of<float>(read(flags, TSR_READER_FLOAT32)->read(0)[0].values, 3), ElementsAre(1, 0, 1));
}

TEST_F(Columnar, MissingValues) {
  const auto reader = read(numbers<int32_t>("i", {7, 99, -3}, {true, false, true}), TSR_READER_INT64);
  const tsr_reader_values v = reader->read(0)[0];
  EXPECT_THAT(numbers_of<int64_t>(v.values, 3), ElementsAre(7, 0, -3));
  ASSERT_NE(v.present, nullptr);
  EXPECT_THAT(numbers_of<uint8_t>(v.present, 3), ElementsAre(1, 0, 1));
  const auto floats = read(numbers<double>("g", {0.5, std::nan("")}), TSR_READER_FLOAT32);
  EXPECT_THAT(numbers_of<uint8_t>(floats->read(0)[0].present, 2), ElementsAre(1, 0))
      << "NaN is how pandas writes what is missing";
  EXPECT_TRUE(std::isnan(numbers_of<float>(floats->read(0)[0].values, 2)[1]));
  const auto empty = read(texts({"a", "", "b"}), TSR_READER_TEXT);
  ASSERT_NE(empty->read(0)[0].present, nullptr) << "an empty text is missing, as in CSV";
  EXPECT_THAT(numbers_of<uint8_t>(empty->read(0)[0].present, 3), ElementsAre(1, 0, 1));
  const auto words = read(texts({"a", "zzz", "b"}, {true, false, true}), TSR_READER_TEXT);
  EXPECT_THAT(texts_of(words->read(0)[0], 3), ElementsAre("a", "", "b"));
}

TEST_F(Columnar, Texts) {
  Made dictionary = numbers<int8_t>("c", {1, 0, 1, 0}, {true, true, true, false});
  dictionary.dictionary = std::make_shared<Made>(texts({"red", "blue"}));
  const Made fixed{"w:2", "", 2, {"", "abcd"}, {}, nullptr};
  EXPECT_THAT(texts_of(read(texts<int64_t>({"x", "", "yz"}), TSR_READER_TEXT)->read(0)[0], 3),
              ElementsAre("x", "", "yz"));
  EXPECT_THAT(texts_of(read(numbers<double>("g", {100000, -3e6, 429.5}), TSR_READER_TEXT)->read(0)[0], 3),
              ElementsAre("100000", "-3000000", "429.5"));
  EXPECT_THAT(texts_of(read(dictionary, TSR_READER_TEXT)->read(0)[0], 4), ElementsAre("blue", "red", "blue", ""));
  EXPECT_THAT(texts_of(read(fixed, TSR_READER_TEXT)->read(0)[0], 2), ElementsAre("ab", "cd"));
}

TEST_F(Columnar, Lists) {
  // The second list is null but has values between its offsets, which the format allows.
  const std::vector<int32_t> offsets = {1, 3, 5, 5, 6};
  const std::vector<bool> valid = {true, false, true, true};
  const Made items = numbers<int32_t>("i", {90, 1, 2, 91, 92, 3});
  const auto reader = read(lists(offsets, items, valid), TSR_READER_INT64, true);
  const tsr_reader_values v = reader->read(0)[0];
  EXPECT_THAT(numbers_of<int64_t>(v.lists, 5), ElementsAre(0, 2, 2, 2, 3));
  EXPECT_THAT(numbers_of<int64_t>(v.values, 3), ElementsAre(1, 2, 3));
  EXPECT_EQ(v.present, nullptr);
  const auto large = read(lists<int64_t>({0, 1, 3}, texts({"a", "b", "c"})), TSR_READER_TEXT, true);
  EXPECT_THAT(texts_of(large->read(0)[0], 3), ElementsAre("a", "b", "c"));
  const Made fixed{"+w:2", "", 2, {""}, {numbers<int64_t>("l", {1, 2, 3, 4})}, nullptr};
  EXPECT_THAT(numbers_of<int64_t>(read(fixed, TSR_READER_INT64, true)->read(0)[0].lists, 3), ElementsAre(0, 2, 4));

  const Made scored = lists(offsets, pairs(items, numbers<double>("g", {0, .5, 1, 0, 0, 2})), valid);
  const auto weighted = read(scored, TSR_READER_INT64, true, true);
  EXPECT_TRUE(weighted->columns()[0].list && weighted->columns()[0].weighted);
  const tsr_reader_values w = weighted->read(0)[0];
  EXPECT_THAT(numbers_of<int64_t>(w.values, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(numbers_of<float>(w.weights, 3), ElementsAre(.5f, 1.f, 2.f));
}

// Two readings of one column have the same address if neither is a copy.
TEST_F(Columnar, WhatABatchHasAsItIsWantedIsNotCopied) {
  const auto both = [&](const Made& column, int32_t type, bool list, int64_t block_bytes = 1 << 20) {
    const auto from = reader(add(next(), {{named("c", column)}}), block_bytes);
    from->select(std::vector<ReaderWant>{{"c", type, list}, {"c", type, list}});
    const auto v = from->read(0);
    return v[0].values == v[1].values;
  };
  const Made wide = numbers<int64_t>("l", {7, 1, 2, 3}), real = numbers<float>("f", {7, 1, 2, 3});
  EXPECT_TRUE(both(wide, TSR_READER_INT64, false));
  EXPECT_TRUE(both(real, TSR_READER_FLOAT32, false));
  EXPECT_TRUE(both(lists<int32_t>({1, 3, 4}, wide), TSR_READER_INT64, true));
  EXPECT_FALSE(both(wide, TSR_READER_FLOAT32, false));
  EXPECT_FALSE(both(numbers<int64_t>("l", {7, 1}, {true, false}), TSR_READER_INT64, false));
  EXPECT_FALSE(both(lists<int32_t>({1, 3, 4}, wide, {true, false}), TSR_READER_INT64, true));
  EXPECT_FALSE(both(numbers<float>("f", {7, std::nanf("")}), TSR_READER_FLOAT32, false)) << "a value is missing";
  const auto from = read(lists<int32_t>({1, 3, 4}, wide), TSR_READER_INT64, true);
  const tsr_reader_values v = from->read(0)[0];
  EXPECT_THAT(numbers_of<int64_t>(v.lists, 3), ElementsAre(0, 2, 3));
  EXPECT_THAT(numbers_of<int64_t>(v.values, 3), ElementsAre(1, 2, 3));
}

// Rows with a number, and with a list of i % 3 times that number.
std::vector<Made> counted(int64_t first, int64_t rows) {
  std::vector<int64_t> ids, listed;
  std::vector<int32_t> offsets = {0};
  for (int64_t i = first; i < first + rows; ++i) {
    ids.push_back(i);
    listed.insert(listed.end(), static_cast<size_t>(i % 3), i);
    offsets.push_back(static_cast<int32_t>(listed.size()));
  }
  return {named("list", lists(offsets, numbers<int64_t>("l", listed))), named("id", numbers<int64_t>("l", ids))};
}

TEST_F(Columnar, UnitsAreCutIntoBlocksThatAreReadInAnyOrder) {
  add("a.made", {counted(0, 100), counted(100, 7)});
  const std::string second = add("b.made", {counted(107, 50)});
  add("_a.made", {counted(0, 1)});
  add("a.other", {counted(0, 1)});
  const auto files = reader(folder_.path(), 160);  // 20 rows
  EXPECT_THAT(files->files(), ElementsAre(folder_.path() + "/a.made", second));
  files->select(std::vector<ReaderWant>{{"id", TSR_READER_INT64}, {"list", TSR_READER_INT64, true}});
  const auto& blocks = files->blocks();
  ASSERT_EQ(blocks.size(), 8u);
  EXPECT_EQ(blocks[5].rows, 7);
  EXPECT_EQ(blocks[5].first_row, 100);
  EXPECT_EQ(blocks[6].first_row, 0);
  EXPECT_TRUE(blocks[4].behind);
  EXPECT_FALSE(blocks[5].behind) << "units can be read by themselves";
  const auto check = [&](size_t block, int64_t first) {
    const auto values = files->read(static_cast<int64_t>(block));
    const auto rows = static_cast<size_t>(blocks[block].rows);
    for (size_t r = 0; r < rows; ++r) {
      const int64_t i = first + static_cast<int64_t>(r);
      ASSERT_EQ(static_cast<const int64_t*>(values[0].values)[r], i);
      ASSERT_EQ(values[1].lists[r + 1] - values[1].lists[r], i % 3);
      for (int64_t k = values[1].lists[r]; k < values[1].lists[r + 1]; ++k)
        ASSERT_EQ(static_cast<const int64_t*>(values[1].values)[k], i);
    }
  };
  std::vector<int64_t> firsts;
  for (const auto& b : blocks) firsts.push_back((b.file == 0 ? 0 : 107) + b.first_row);
  for (size_t b = 0; b < blocks.size(); ++b) check(b, firsts[b]);
  EXPECT_EQ(files_.at(folder_.path() + "/a.made").streams, 2) << "a unit is opened once, where it is read in order";
  for (size_t b = blocks.size(); b-- > 0;) check(b, firsts[b]);
  for (const size_t b : {1u, 3u, 3u, 0u, 6u, 4u}) check(b, firsts[b]);
}

TEST_F(Columnar, TextsAreSplitAsInCsvIfListsAreWanted) {
  const std::vector<std::string> fields = {"[3, 17]", "", "['a', 'b c']", "x,y", "array([1])", "none"};
  for (const Made& column : {texts(fields, {true, true, true, true, true, false}),
                             texts<int64_t>(fields, {true, true, true, true, true, false})}) {
    auto files = reader(add(next(), {{named("c", column)}, {named("c", column)}}));
    ReaderWant want{"c", TSR_READER_TEXT, true, false};
    want.separator = ',';
    files->select(std::vector<ReaderWant>{want});
    const tsr_reader_values values = files->read(0)[0];
    EXPECT_THAT(std::vector<int64_t>(values.lists, values.lists + 7), ElementsAre(0, 2, 2, 4, 6, 7, 7));
    EXPECT_THAT(texts_of(values, 7), ElementsAre("3", "17", "a", "b c", "x", "y", "1"));
    EXPECT_EQ(values.present, nullptr);
  }
  EXPECT_THAT(wrong(texts({"1", "[2"}), TSR_READER_TEXT, true),
              testing::HasSubstr(", row 2, column \"c\": \"[2\" begins"));
  EXPECT_THAT(wrong(texts({"1", "x"}), TSR_READER_INT64, true),
              testing::HasSubstr(", row 2, column \"c\": \"x\" is not"));
}

TEST_F(Columnar, WhatIsWrongIsSaidWithFileRowAndColumn) {
  EXPECT_EQ(wrong(numbers<double>("g", {1, 2.5}), TSR_READER_INT64),
            ", row 2, column \"c\": 2.5 is not a whole number");
  EXPECT_EQ(wrong(numbers<double>("g", {1e19}), TSR_READER_INT64),
            ", row 1, column \"c\": 1e+19 does not fit into 64 bits with a sign");
  EXPECT_EQ(wrong(numbers<uint64_t>("L", {uint64_t{1} << 63}), TSR_READER_INT64),
            ", row 1, column \"c\": 9223372036854775808 does not fit into 64 bits with a sign");
  EXPECT_EQ(wrong(numbers<double>("g", {1, 1e39}), TSR_READER_FLOAT32),
            ", row 2, column \"c\": 1e+39 is not a number of 32 bits");
  const Made missing = lists<int32_t>({0, 2, 2, 3}, numbers<int32_t>("i", {1, 2, 3}, {true, true, false}));
  EXPECT_EQ(wrong(missing, TSR_READER_INT64, true),
            ", row 3, column \"c\": a value of the list is missing: leave nulls out of the lists");
  EXPECT_EQ(wrong(lists<int32_t>({0, 2}, texts({"a", ""})), TSR_READER_TEXT, true),
            ", row 1, column \"c\": a value of the list is missing: leave nulls out of the lists");
  const Made unweighted =
      lists<int32_t>({0, 1, 3}, pairs(numbers<int32_t>("i", {1, 2, 3}), numbers<float>("f", {1, 2, std::nanf("")})));
  EXPECT_EQ(wrong(unweighted, TSR_READER_INT64, true, true),
            ", row 2, column \"c\": a weight of the list is missing or not a number");
  Made dictionary = numbers<int32_t>("i", {0, 2});
  dictionary.dictionary = std::make_shared<Made>(texts({"red", "blue"}));
  EXPECT_EQ(wrong(dictionary, TSR_READER_TEXT), ", row 2, column \"c\": names value 2 of a dictionary of 2");

  EXPECT_EQ(wrong(texts({"5", "a"}), TSR_READER_INT64), ", row 2, column \"c\": \"a\" is not a whole number");
  EXPECT_EQ(wrong(texts({"5", "a"}), TSR_READER_FLOAT64), ", row 2, column \"c\": \"a\" is not a number");
  EXPECT_EQ(wrong(lists<int32_t>({0, 1}, texts({"a"})), TSR_READER_INT64, true),
            ", column \"c\" holds texts, but whole numbers are wanted: it is of Arrow type list<: string>");
  EXPECT_EQ(wrong(numbers<int32_t>("i", {1}), TSR_READER_INT64, true),
            ", column \"c\" holds one value for each row, but lists are wanted: it is of Arrow type int32");
  EXPECT_EQ(wrong(missing, TSR_READER_INT64),
            ", column \"c\" holds lists, but one value for each row is wanted: it is of Arrow type list<: int32>");
  EXPECT_EQ(
      wrong(missing, TSR_READER_INT64, true, true),
      ", column \"c\" holds lists without weights, but weighted ones are wanted: it is of Arrow type list<: int32>");
  const Made map = lists<int32_t>({0, 1}, pairs(numbers<int32_t>("i", {1}), numbers<float>("f", {2})));
  EXPECT_THAT(wrong(map, TSR_READER_INT64, true), HasSubstr("holds lists with weights, but lists without are wanted"));
  const Made infinite = numbers<float>("f", {1, -std::numeric_limits<float>::infinity()});
  EXPECT_EQ(wrong(lists<int32_t>({0, 2}, infinite), TSR_READER_FLOAT64, true),
            ", row 1, column \"c\": -inf is not a number");
  EXPECT_EQ(wrong(decimals<1>("d:9,2,32", {{100}, {1250}}), TSR_READER_INT64),
            ", row 2, column \"c\": 12.5 is not a whole number");
  EXPECT_EQ(wrong(numbers<int32_t>("ttm", {86400000}), TSR_READER_TEXT),
            ", row 1, column \"c\": 86400000 is not a time of a day: a day has 86400000 of these units");
}

TEST_F(Columnar, ColumnsAreFoundByNameInEachFile) {
  const Made ids = numbers<int32_t>("i", {1, 2});
  add("a.made", {{named("film", ids), named("user", numbers<int32_t>("i", {3, 4}))}});
  const std::string other = add("b.made", {{named("usr", ids), named("film", numbers<int64_t>("l", {5, 6}))}});
  const auto files = reader(folder_.path());
  files->select(std::vector<ReaderWant>{{"film", TSR_READER_INT64}});
  EXPECT_THAT(numbers_of<int64_t>(files->read(0)[0].values, 2), ElementsAre(1, 2));
  EXPECT_THAT(numbers_of<int64_t>(files->read(1)[0].values, 2), ElementsAre(5, 6));
  EXPECT_EQ(failure([&] {
              files->select(std::vector<ReaderWant>{{"user", TSR_READER_INT64}});
            }),
            other + " has no column \"user\"; the nearest is \"usr\", and there are \"usr\", \"film\"");
  ASSERT_EQ(files->columns().size(), 3u);
  EXPECT_EQ(files->columns()[2].name, "usr");
  EXPECT_EQ(files->columns()[2].type, TSR_READER_UNREADABLE) << "only the second file has it";
  const std::string twice = add("c.made", {{named("x", ids), named("x", ids)}});
  EXPECT_EQ(failure([&] {
              reader(twice)->select(std::vector<ReaderWant>{{"x", TSR_READER_INT64}});
            }),
            twice + " has two columns named \"x\"");
  EXPECT_THAT(failure([&] { reader(folder_.path() + "/*.none"); }), HasSubstr("and none that it matches as a pattern"));
}

TEST_F(Columnar, TimesAsNumbersHaveOneUnitInAllFiles) {
  add("a.made", {{named("at", numbers<int64_t>("tss:", {1})), named("took", numbers<int64_t>("tDs", {1}))}});
  add("b.made", {{named("at", numbers<int64_t>("tsm:", {1})), named("took", numbers<int64_t>("tDm", {1}))}});
  const auto files = reader(folder_.path());
  EXPECT_THAT(failure([&] {
                files->select(std::vector<ReaderWant>{{"at", TSR_READER_FLOAT64}});
              }),
              AllOf(HasSubstr("b.made: column \"at\" is of Arrow type timestamp[ms], but in "),
                    HasSubstr("a.made it is of type timestamp[s], whose numbers differ")));
  files->select(std::vector<ReaderWant>{{"at", TSR_READER_TEXT}, {"took", TSR_READER_FLOAT64}});
  EXPECT_THAT(texts_of(files->read(1)[0], 1), ElementsAre("1970-01-01 00:00:00.001"));
}

// A column, its words, and its numbers as doubles; "-": the row has no value. Without numbers: texts.
struct Typed {
  Made column;
  std::vector<std::string> words;
  std::vector<double> numbers;
};

std::vector<std::string> words_of(const tsr_reader_values& v, size_t n) {
  std::vector<std::string> out = texts_of(v, n);
  for (size_t i = 0; i < n; ++i) {
    if (v.present != nullptr && v.present[i] == 0) out[i] = "-";
  }
  return out;
}

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

std::vector<Typed> typed_numbers() {
  const Made flags{"b", "", 2, {"", bits({true, false})}, {}, nullptr};
  constexpr uint32_t kOnes = 0xffffffff;
  return {
      {numbers<int8_t>("c", {-128, 7}), {"-128", "7"}, {-128, 7}},
      {numbers<uint64_t>("L", {18446744073709551615u, 0}), {"18446744073709551615", "0"}, {18446744073709551615., 0}},
      {numbers<uint16_t>("e", {0x3e00, 0x4400}), {"1.5", "4"}, {1.5, 4}},
      {numbers<float>("f", {0.1f, 4, std::nanf("")}), {"0.10000000149011612", "4", "-"}, {0.1f, 4, kNone}},
      {numbers<double>("g", {0.1, 1e-7, -3e6, kNone}), {"0.1", "1e-07", "-3000000", "-"}, {0.1, 1e-7, -3e6, kNone}},
      {numbers<double>("g", {-kInfinite, 1}), {"-", "1"}, {kNone, 1}},
      {numbers<int64_t>("l", {1, 2}, {false, true}), {"-", "2"}, {kNone, 2}},
      {flags, {"true", "false"}, {1, 0}},
      {decimals<1>("d:9,2,32", {{1250}, {400}, {0}}), {"12.5", "4", "0"}, {12.5, 4, 0}},
      {decimals<2>("d:18,3,64", {{kOnes, kOnes}, {5, 0}}), {"-0.001", "0.005"}, {-.001, .005}},
      {decimals<4>("d:38,10", {{0, 0, 1, 0}, {kOnes - 1249, kOnes, kOnes, kOnes}}),
       {"1844674407.3709551616", "-0.000000125"},
       {1844674407.3709551616, -.000000125}},
      {decimals<4>("d:5,-2", {{17, 0, 0, 0}}), {"1700"}, {1700}},
      {decimals<8>("d:76,0,256", {{0, 0, 0, 1u << 31}, {kOnes, kOnes, kOnes, kOnes, kOnes, kOnes, kOnes, kOnes}}),
       {"170141183460469231731687303715884105728", "-1"},
       {0x1p127, -1}},
      {indexed(numbers<int16_t>("s", {1, 0, 1}, {true, true, false}), numbers<double>("g", {.5, kNone})),
       {"-", "0.5", "-"},
       {kNone, .5, kNone}},
      {runs({2, 3}, numbers<int32_t>("i", {7, 9}, {true, false})), {"7", "7", "-"}, {7, 7, kNone}},
      {nulls(2), {"-", "-"}, {kNone, kNone}},
      {indexed(numbers<int8_t>("c", {0}), nulls(1)), {"-"}, {kNone}},
  };
}

std::vector<Typed> typed_times() {
  return {
      {numbers<int32_t>("tdD", {19753, -1}), {"2024-01-31", "1969-12-31"}, {19753, -1}},
      {numbers<int64_t>("tdm", {86400000}), {"1970-01-02"}, {86400000}},
      {numbers<int32_t>("tts", {45296}), {"12:34:56"}, {45296}},
      {numbers<int32_t>("ttm", {45296500}), {"12:34:56.5"}, {45296500}},
      {numbers<int64_t>("ttu", {1}), {"00:00:00.000001"}, {1}},
      {numbers<int64_t>("ttn", {86399999999999}), {"23:59:59.999999999"}, {86399999999999}},
      {numbers<int64_t>("tss:", {1706659200, -1}), {"2024-01-31", "1969-12-31 23:59:59"}, {1706659200, -1}},
      {numbers<int64_t>("tsm:UTC", {1706704496500}), {"2024-01-31 12:34:56.5"}, {1706704496500}},
      {numbers<int64_t>("tsu:+05:30", {1000001}), {"1970-01-01 00:00:01.000001"}, {1000001}},
      {numbers<int64_t>("tsn:America/New_York", {1}), {"1970-01-01 00:00:00.000000001"}, {1}},
      {numbers<int64_t>("tss:", {int64_t{1} << 53}), {"104249991374 07:36:32"}, {0x1p53}},
      {numbers<int64_t>("tDs", {-5, 90}), {"-5", "90"}, {-5, 90}},
      {numbers<int64_t>("tDm", {1500}), {"1.5"}, {1.5}},
      {numbers<int64_t>("tDu", {90000000, 250000}, {true, false}), {"90", "-"}, {90, kNone}},
      {numbers<int64_t>("tDn", {90000000000}), {"90"}, {90}},
      {indexed(numbers<uint8_t>("C", {0}), numbers<int32_t>("tdD", {19753})), {"2024-01-31"}, {19753}},
  };
}

std::vector<Typed> typed_texts() {
  const Made fixed{"w:2", "", 2, {bits({true, false}), "abcd"}, {}, nullptr};
  Made bytes_of = texts({"x", ""});
  bytes_of.format = "z";
  return {
      {texts({"a", "", "b"}, {true, true, false}), {"a", "-", "-"}, {}},
      {texts<int64_t>({"x", "yz"}), {"x", "yz"}, {}},
      {bytes_of, {"x", "-"}, {}},
      {texts({"1.50", "", " 2 ", "NA", "true"}), {"1.50", "-", " 2 ", "NA", "true"}, {1.5, kNone, 2, kNone, 1}},
      {indexed(numbers<int8_t>("c", {1, 0}), texts({"7", "1e3"})), {"1e3", "7"}, {1000, 7}},
      {fixed, {"ab", "-"}, {}},
      {views("vu", {"twelve bytes", "thirteen byte", "", "more than twelve"}),
       {"twelve bytes", "thirteen byte", "-", "more than twelve"},
       {}},
      {views("vz", {"b"}), {"b"}, {}},
      {indexed(numbers<uint32_t>("I", {1, 0}), views("vu", {"red", "a colour without a name"})),
       {"a colour without a name", "red"},
       {}},
      {indexed(numbers<int64_t>("l", {0, 0}), texts<int64_t>({"red"})), {"red", "red"}, {}},
      {runs({1, 3}, indexed(numbers<int8_t>("c", {1, 0}), texts({"a", "b"}))), {"b", "a", "a"}, {}},
  };
}

TEST_F(Columnar, ValuesOfEachTypeHaveTheWordsAndNumbersOfTheTable) {
  std::vector<Typed> all = typed_numbers();
  for (const auto& more : {typed_times(), typed_texts()}) all.insert(all.end(), more.begin(), more.end());
  for (const Typed& typed : all) {
    const std::string about = typed.column.format;
    const size_t n = typed.words.size();
    EXPECT_EQ(words_of(read(typed.column, TSR_READER_TEXT)->read(0)[0], n), typed.words) << about;
    if (typed.numbers.empty()) continue;
    const auto doubles = read(typed.column, TSR_READER_FLOAT64), floats = read(typed.column, TSR_READER_FLOAT32);
    const tsr_reader_values d = doubles->read(0)[0], f = floats->read(0)[0];
    for (size_t i = 0; i < n; ++i) {
      EXPECT_THAT(static_cast<const double*>(d.values)[i], testing::NanSensitiveDoubleEq(typed.numbers[i])) << about;
      EXPECT_THAT(static_cast<const float*>(f.values)[i],
                  testing::NanSensitiveFloatEq(static_cast<float>(typed.numbers[i])))
          << about;
      EXPECT_EQ(d.present == nullptr || d.present[i] != 0, !std::isnan(typed.numbers[i])) << about;
    }
  }
  EXPECT_THAT(words_of(read(numbers<double>("g", {kInfinite, -kInfinite}), TSR_READER_TEXT)->read(0)[0], 2),
              ElementsAre("-", "-"))
      << "infinite values are not words";
  EXPECT_THAT(numbers_of<int64_t>(read(decimals<1>("d:9,2,32", {{1200}}), TSR_READER_INT64)->read(0)[0].values, 1),
              ElementsAre(12));
}

TEST_F(Columnar, BatchesBeginInTheMiddleOfRunsAndDictionaries) {
  const Made ends = runs({3, 4, 9}, texts({"a", "b", "c"}));
  const auto file = reader(add("r.made", {{named("c", ends), named("n", nulls(9))}}), 24);  // 3 rows
  file->select(std::vector<ReaderWant>{{"c", TSR_READER_TEXT}, {"n", TSR_READER_INT64}});
  std::string all;
  for (int64_t b = 0; b < std::ssize(file->blocks()); ++b) {
    const auto v = file->read(b);
    const auto rows = static_cast<size_t>(file->blocks()[static_cast<size_t>(b)].rows);
    for (const std::string& word : words_of(v[0], rows)) all += word;
    for (size_t r = 0; r < rows; ++r) EXPECT_EQ(v[1].present[r], 0);
  }
  EXPECT_EQ(all, "aaabccccc");
}

TEST_F(Columnar, ListsOfAllLayouts) {
  const Made items = texts({"a", "b", "c", "d"});
  // Views lie in any order, and one item may belong to several.
  const auto check = [&](const Made& column) {
    const auto from = read(column, TSR_READER_TEXT, true);
    EXPECT_TRUE(from->columns()[0].list) << column.format;
    const tsr_reader_values v = from->read(0)[0];
    EXPECT_THAT(numbers_of<int64_t>(v.lists, 4), ElementsAre(0, 2, 2, 5)) << column.format;
    EXPECT_THAT(texts_of(v, 5), ElementsAre("c", "d", "a", "b", "c")) << column.format;
  };
  check(list_views<int32_t>({2, 0, 0}, {2, 4, 3}, items, {true, false, true}));
  check(list_views<int64_t>({2, 3, 0}, {2, 0, 3}, items));
  const Made plain = lists<int32_t>({0, 3, 3, 4}, indexed(numbers<int8_t>("c", {0, 1, 2, 3}), items));
  const Made held = lists<int32_t>({0, 3, 5}, texts({"a", "b", "c", "c", "d"}));
  check(indexed(numbers<int8_t>("c", {1, 0, 0}, {true, false, true}), held));
  const auto from = read(plain, TSR_READER_TEXT, true);
  EXPECT_THAT(texts_of(from->read(0)[0], 4), ElementsAre("a", "b", "c", "d"));
  const auto run = read(runs({2, 3}, held), TSR_READER_TEXT, true);
  EXPECT_THAT(texts_of(run->read(0)[0], 8), ElementsAre("a", "b", "c", "a", "b", "c", "c", "d"));
  const auto empty = read(lists<int32_t>({0, 0, 0}, nulls(0)), TSR_READER_INT64, true);
  EXPECT_THAT(numbers_of<int64_t>(empty->read(0)[0].lists, 3), ElementsAre(0, 0, 0))
      << "lists of nothing are of any type";
  const Made times = lists<int32_t>({0, 2}, numbers<int32_t>("tdD", {0, 19753}));
  EXPECT_THAT(texts_of(read(times, TSR_READER_TEXT, true)->read(0)[0], 2), ElementsAre("1970-01-01", "2024-01-31"));
  const Made scored = lists<int32_t>({0, 2}, pairs(texts({"x", "y"}), decimals<1>("d:9,1,32", {{5}, {20}})));
  EXPECT_THAT(numbers_of<float>(read(scored, TSR_READER_TEXT, true, true)->read(0)[0].weights, 2),
              ElementsAre(.5f, 2.f));
}

TEST_F(Columnar, TypesThatCannotBeReadAreListedAndNamed) {
  const Made ids = named("a", numbers<int64_t>("l", {1, 2}));
  const Made point = pairs(ids, named("b", texts({"x", "y"})));
  Made either{"+us:0,1", "", 2, {""}, {ids}, nullptr};
  const std::vector<std::pair<Made, const char*>> types = {
      {point, "struct<a: int64, b: string>"},
      {lists<int64_t>({0, 1, 2}, named("item", point)), "large_list<item: struct<a: int64, b: string>>"},
      {lists<int32_t>({0, 1, 2}, named("item", lists<int32_t>({0, 1, 2}, ids))), "list<item: list<a: int64>>"},
      {either, "sparse_union<a: int64>"},
      {numbers<int32_t>("tiM", {1, 2}), "month_interval"},
      {indexed(numbers<int8_t>("c", {0, 1}), point), "dictionary<values=struct<a: int64, b: string>, indices=int8>"},
      {numbers<int32_t>("X!", {1, 2}), "\"X!\" (of Arrow's C interface)"}};
  for (const auto& [column, name] : types) {
    const std::string path = add(next(), {{named("id", numbers<int64_t>("l", {1, 2})), named("c", column)}});
    const auto file = reader(path);
    ASSERT_EQ(file->columns().size(), 2u) << name;
    EXPECT_EQ(file->columns()[1].type, TSR_READER_UNREADABLE) << name;
    EXPECT_EQ(file->columns()[1].about, name);
    EXPECT_EQ(failure([&] {
                file->select(std::vector<ReaderWant>{{"c", TSR_READER_TEXT}});
              }),
              path + ": column \"c\" is of Arrow type " + name +
                  ", which cannot be read: write it as columns of numbers, texts, times or lists of them");
  }
}

TEST_F(Columnar, NamesOfTypes) {
  const auto name = [&](const Made& column) {
    return reader(add("n.made", {{named("c", column)}}))->columns()[0].about;
  };
  EXPECT_EQ(name(numbers<int64_t>("tsu:UTC", {1})), "timestamp[us, tz=UTC]");
  files_.clear();
  EXPECT_EQ(name(decimals<1>("d:9,2,32", {{1}})), "decimal32(9, 2)");
  files_.clear();
  EXPECT_EQ(name(indexed(numbers<int8_t>("c", {0}), views("vu", {"a"}))),
            "dictionary<values=string_view, indices=int8>");
  files_.clear();
  EXPECT_EQ(name(runs({1}, numbers<float>("f", {1}))), "run_end_encoded<run_ends: int32, values: float>");
  files_.clear();
  EXPECT_EQ(name({"w:2", "", 1, {"", "ab"}, {}, nullptr}), "fixed_size_binary[2]");
}

// A column may have type null in one file, numbers in the next, and texts in a third.
TEST_F(Columnar, FilesDifferInTypes) {
  const std::string a = add("a.made", {{named("c", nulls(2)), named("l", nulls(2))}});
  const std::string b = add("b.made", {{named("c", numbers<int64_t>("l", {4, 5})),
                                        named("l", lists<int32_t>({0, 1, 2}, numbers<double>("g", {1, 2})))}});
  const auto two = reader(folder_.path());
  EXPECT_EQ(two->columns()[0].type, TSR_READER_INT64);
  EXPECT_TRUE(two->columns()[1].list);
  two->select(std::vector<ReaderWant>{{"c", TSR_READER_INT64}, {"l", TSR_READER_INT64, true}});
  const auto first = two->read(0);
  EXPECT_THAT(numbers_of<uint8_t>(first[0].present, 2), ElementsAre(0, 0));
  EXPECT_THAT(numbers_of<int64_t>(first[1].lists, 3), ElementsAre(0, 0, 0));
  EXPECT_THAT(numbers_of<int64_t>(two->read(1)[0].values, 2), ElementsAre(4, 5));

  const std::string c = add("c.made", {{named("l", nulls(2)), named("c", texts({"x", "y"}))}});
  const auto three = reader(folder_.path());
  EXPECT_EQ(three->columns()[0].type, TSR_READER_TEXT);
  three->select(std::vector<ReaderWant>{{"c", TSR_READER_TEXT}});
  EXPECT_THAT(words_of(three->read(0)[0], 2), ElementsAre("-", "-"));
  EXPECT_THAT(words_of(three->read(1)[0], 2), ElementsAre("4", "5"));
  EXPECT_THAT(words_of(three->read(2)[0], 2), ElementsAre("x", "y"));
  EXPECT_EQ(failure([&] {
              three->select(std::vector<ReaderWant>{{"c", TSR_READER_INT64}});
              three->read(2);
            }),
            c + ", row 1, column \"c\": \"x\" is not a whole number");
}

TEST_F(Columnar, FoldersOfADirectory) {
  for (const char* folder : {"/day=1/hour=a%20b", "/day=__HIVE_DEFAULT_PARTITION__/hour=2.50", "/_temporary"})
    std::filesystem::create_directories(folder_.path() + folder);
  add("day=1/hour=a%20b/x.made", {{named("id", numbers<int64_t>("l", {1, 2}))}});
  add("day=__HIVE_DEFAULT_PARTITION__/hour=2.50/x.made", {{named("id", numbers<int64_t>("l", {3, 4}))}});
  add("_temporary/x.made", {{named("id", numbers<int64_t>("l", {9}))}});
  const auto file = reader(folder_.path());
  ASSERT_EQ(file->files().size(), 2u);
  ASSERT_EQ(file->columns().size(), 3u);
  EXPECT_EQ(file->columns()[1].name, "day");
  file->select(
      std::vector<ReaderWant>{{"hour", TSR_READER_TEXT}, {"id", TSR_READER_INT64}, {"day", TSR_READER_FLOAT32}});
  const auto first = file->read(0);
  EXPECT_THAT(words_of(first[0], 2), ElementsAre("a b", "a b"));
  EXPECT_THAT(numbers_of<int64_t>(first[1].values, 2), ElementsAre(1, 2));
  EXPECT_THAT(numbers_of<float>(first[2].values, 2), ElementsAre(1, 1));
  const auto second = file->read(1);
  EXPECT_THAT(words_of(second[0], 2), ElementsAre("2.50", "2.50"));
  EXPECT_THAT(numbers_of<uint8_t>(second[2].present, 2), ElementsAre(0, 0));
  file->select(std::vector<ReaderWant>{{"day", TSR_READER_INT64}});
  EXPECT_THAT(numbers_of<int64_t>(file->read(0)[0].values, 2), ElementsAre(1, 1)) << "no column of the file is needed";
  file->select(std::vector<ReaderWant>{{"hour", TSR_READER_FLOAT32}});
  EXPECT_EQ(failure([&] { file->read(0); }), file->files()[0] + ", row 1, column \"hour\": \"a b\" is not a number");
  std::filesystem::create_directories(folder_.path() + "/old/older");
  add("old/older/x.made", {{named("id", numbers<int64_t>("l", {5}))}});
  EXPECT_EQ(failure([&] { reader(folder_.path()); }),
            "directory " + folder_.path() +
                " has the folder old, whose files would be left out: move it away, or give a "
                "pattern of files, such as " +
                folder_.path() + "/*/*.made");
}

TEST_F(Columnar, DamageIsNamedByColumn) {
  const std::string path = add("a.made", {counted(0, 20)});
  files_.at(path).broken = "list";
  const auto file = reader(path, 16);  // 2 rows
  file->select(std::vector<ReaderWant>{{"id", TSR_READER_INT64}, {"list", TSR_READER_INT64, true}});
  file->read(0);
  EXPECT_EQ(failure([&] { file->read(3); }), path + " is damaged after row 6, column \"list\": the page is bad");
  file->read(1);  // continues as far as possible
  files_.at(path).broken.clear();
  files_.at(path).units[0].length = 3;
  file->read(0);
  EXPECT_EQ(failure([&] { file->read(3); }),
            path + " is damaged after row 6, column \"id\": it has fewer rows than it says");
}

}  // namespace
}  // namespace tessera_readers

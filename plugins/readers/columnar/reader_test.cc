// The reader over record batches that are made by hand, through Arrow's C interfaces.
#include "columnar/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

namespace tessera_readers {
namespace {

using tessera::sdk::ReaderWant;
using testing::ElementsAre;
using testing::HasSubstr;

// An array and its type; a producer's memory, which outlives what it hands out.
struct Made {
  std::string format, name;
  int64_t length = 0;
  std::vector<std::string> buffers;  // the first is the bits of what is not null; empty: nothing is
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

// Made memory as the C interface shows it: both structs of an array, and of all that are inside.
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
  std::string broken;                // a column that cannot be read behind row 3 of a unit
  int64_t streams = 0, batches = 0;  // opened; alive
};

// Batches of the children that are wanted, cut by offsets.
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
  Columnar() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera-columnar-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    folder_ = name;
  }
  ~Columnar() override {
    for (const auto& [name, file] : files_) EXPECT_EQ(file.batches, 0) << "all that was lent is released";
    std::filesystem::remove_all(folder_);
  }
  Columnar(const Columnar&) = delete;
  Columnar& operator=(const Columnar&) = delete;

  // A file of the name, whose units have these columns.
  std::string add(const std::string& name, const std::vector<std::vector<Made>>& units) {
    std::string path = folder_ + "/" + name;
    std::ofstream(path) << "made";
    for (const std::vector<Made>& columns : units)
      files_[path].units.push_back({"+s", "", columns.front().length, {""}, columns, nullptr});
    return path;
  }
  std::unique_ptr<ColumnarReader> reader(const std::string& path, int64_t block_bytes = 1 << 20) {
    auto out = std::make_unique<ColumnarReader>(
        std::vector<std::string_view>{".made"},
        [this](const std::string& file) { return std::make_unique<MadeSource>(files_.at(file)); });
    out->open(path, block_bytes);
    return out;
  }
  // The one column of a file, read as wanted.
  std::unique_ptr<ColumnarReader> read(const Made& column, int32_t type, bool list = false, bool weighted = false) {
    auto out = reader(add(cat_ += ".made", {{named("c", column)}}));
    out->select(std::vector<ReaderWant>{{"c", type, list, weighted}});
    return out;
  }
  std::string wrong(const Made& column, int32_t type, bool list = false, bool weighted = false) {
    std::string prefix = folder_ + "/" + cat_ + ".made";
    try {
      read(column, type, list, weighted)->read(0);
    } catch (const tessera::sdk::Failure& e) {
      const std::string said = e.what();
      return said.starts_with(prefix) ? said.substr(prefix.size()) : said;
    }
    return "no error";
  }

  std::string folder_, cat_ = "f";
  std::map<std::string, File> files_;
};

template <class T>
std::vector<T> of(const void* values, size_t n) {
  return {static_cast<const T*>(values), static_cast<const T*>(values) + n};
}
std::vector<std::string> texts_of(const tsr_reader_values& v, size_t n) {
  std::vector<std::string> out;
  for (size_t i = 0; i < n; ++i)
    out.emplace_back(static_cast<const char*>(v.values) + v.texts[i], static_cast<size_t>(v.texts[i + 1] - v.texts[i]));
  return out;
}

template <class Body>
std::string sentence(const Body& body) {
  try {
    body();
  } catch (const tessera::sdk::Failure& e) {
    return e.what();
  }
  return "no error";
}

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
               as_text = read(column, TSR_READER_TEXT);
    EXPECT_THAT(of<int64_t>(as_int->read(0)[0].values, 3), ElementsAre(1, 0, 3)) << column.format;
    EXPECT_THAT(of<float>(as_float->read(0)[0].values, 3), ElementsAre(1, 0, 3)) << column.format;
    EXPECT_THAT(texts_of(as_text->read(0)[0], 3), ElementsAre("1", "0", "3")) << column.format;
    EXPECT_EQ(as_int->read(0)[0].present, nullptr);
  }
  const Made flags{"b", "", 3, {"", bits({true, false, true})}, {}, nullptr};
  EXPECT_THAT(of<float>(read(flags, TSR_READER_FLOAT32)->read(0)[0].values, 3), ElementsAre(1, 0, 1));
}

TEST_F(Columnar, MissingValues) {
  const auto reader = read(numbers<int32_t>("i", {7, 99, -3}, {true, false, true}), TSR_READER_INT64);
  const tsr_reader_values v = reader->read(0)[0];
  EXPECT_THAT(of<int64_t>(v.values, 3), ElementsAre(7, 0, -3));
  ASSERT_NE(v.present, nullptr);
  EXPECT_THAT(of<uint8_t>(v.present, 3), ElementsAre(1, 0, 1));
  const auto floats = read(numbers<double>("g", {0.5, std::nan("")}), TSR_READER_FLOAT32);
  EXPECT_THAT(of<uint8_t>(floats->read(0)[0].present, 2), ElementsAre(1, 0))
      << "NaN is how pandas writes what is missing";
  EXPECT_TRUE(std::isnan(of<float>(floats->read(0)[0].values, 2)[1]));
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
  // The second list is null and has values between its offsets all the same, as the format allows.
  const std::vector<int32_t> offsets = {1, 3, 5, 5, 6};
  const std::vector<bool> valid = {true, false, true, true};
  const Made items = numbers<int32_t>("i", {90, 1, 2, 91, 92, 3});
  const auto reader = read(lists(offsets, items, valid), TSR_READER_INT64, true);
  const tsr_reader_values v = reader->read(0)[0];
  EXPECT_THAT(of<int64_t>(v.lists, 5), ElementsAre(0, 2, 2, 2, 3));
  EXPECT_THAT(of<int64_t>(v.values, 3), ElementsAre(1, 2, 3));
  EXPECT_EQ(v.present, nullptr);
  const auto large = read(lists<int64_t>({0, 1, 3}, texts({"a", "b", "c"})), TSR_READER_TEXT, true);
  EXPECT_THAT(texts_of(large->read(0)[0], 3), ElementsAre("a", "b", "c"));
  const Made fixed{"+w:2", "", 2, {""}, {numbers<int64_t>("l", {1, 2, 3, 4})}, nullptr};
  EXPECT_THAT(of<int64_t>(read(fixed, TSR_READER_INT64, true)->read(0)[0].lists, 3), ElementsAre(0, 2, 4));

  const Made scored = lists(offsets, pairs(items, numbers<double>("g", {0, .5, 1, 0, 0, 2})), valid);
  const auto weighted = read(scored, TSR_READER_INT64, true, true);
  EXPECT_TRUE(weighted->columns()[0].list && weighted->columns()[0].weighted);
  const tsr_reader_values w = weighted->read(0)[0];
  EXPECT_THAT(of<int64_t>(w.values, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(of<float>(w.weights, 3), ElementsAre(.5f, 1.f, 2.f));
  EXPECT_EQ(read(scored, TSR_READER_INT64, true)->read(0)[0].weights, nullptr) << "asked for without";
}

// Two readings of one column lie at one place where neither is a copy.
TEST_F(Columnar, WhatABatchHasAsItIsWantedIsNotCopied) {
  const auto both = [&](const Made& column, int32_t type, bool list, int64_t block_bytes = 1 << 20) {
    const auto from = reader(add(cat_ += ".made", {{named("c", column)}}), block_bytes);
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
  EXPECT_THAT(of<int64_t>(v.lists, 3), ElementsAre(0, 2, 3));
  EXPECT_THAT(of<int64_t>(v.values, 3), ElementsAre(1, 2, 3));
}

// Rows of a number, and of a list of i % 3 times that number.
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
  const auto files = reader(folder_, 160);  // 20 rows
  EXPECT_THAT(files->files(), ElementsAre(folder_ + "/a.made", second));
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
  EXPECT_EQ(files_.at(folder_ + "/a.made").streams, 2) << "a unit is opened once, where it is read in order";
  for (size_t b = blocks.size(); b-- > 0;) check(b, firsts[b]);
  for (const size_t b : {1u, 3u, 3u, 0u, 6u, 4u}) check(b, firsts[b]);
}

TEST_F(Columnar, WhatIsWrongIsSaidWithFileRowAndColumn) {
  EXPECT_EQ(wrong(numbers<double>("g", {1, 2.5}), TSR_READER_INT64), ", row 2, column \"c\": 2.5 is no whole number");
  EXPECT_EQ(wrong(numbers<double>("g", {1e19}), TSR_READER_INT64),
            ", row 1, column \"c\": 1e+19 does not fit into 64 bits with a sign");
  EXPECT_EQ(wrong(numbers<uint64_t>("L", {uint64_t{1} << 63}), TSR_READER_INT64),
            ", row 1, column \"c\": 9223372036854775808 does not fit into 64 bits with a sign");
  EXPECT_EQ(wrong(numbers<double>("g", {1, 1e39}), TSR_READER_FLOAT32),
            ", row 2, column \"c\": 1e+39 is no number of 32 bits");
  const Made missing = lists<int32_t>({0, 2, 2, 3}, numbers<int32_t>("i", {1, 2, 3}, {true, true, false}));
  EXPECT_EQ(wrong(missing, TSR_READER_INT64, true), ", row 3, column \"c\": a value of the list is missing");
  const Made unweighted =
      lists<int32_t>({0, 1, 3}, pairs(numbers<int32_t>("i", {1, 2, 3}), numbers<float>("f", {1, 2, std::nanf("")})));
  EXPECT_EQ(wrong(unweighted, TSR_READER_INT64, true, true),
            ", row 2, column \"c\": a weight of the list is missing or no number");
  Made dictionary = numbers<int32_t>("i", {0, 2});
  dictionary.dictionary = std::make_shared<Made>(texts({"red", "blue"}));
  EXPECT_EQ(wrong(dictionary, TSR_READER_TEXT), ", row 2, column \"c\": names value 2 of a dictionary of 2");

  EXPECT_EQ(wrong(texts({"a"}), TSR_READER_INT64), ", column \"c\" holds texts, but whole numbers are wanted");
  EXPECT_EQ(wrong(numbers<int32_t>("i", {1}), TSR_READER_INT64, true),
            ", column \"c\" holds one value a row, but lists are wanted");
  EXPECT_EQ(wrong(missing, TSR_READER_INT64), ", column \"c\" holds lists, but one value a row is wanted");
  EXPECT_EQ(wrong(missing, TSR_READER_INT64, true, true),
            ", column \"c\" holds lists without weights, but weighted ones are wanted");
  EXPECT_EQ(wrong(numbers<int64_t>("d:19,10", {1, 0}), TSR_READER_TEXT),
            ", column \"c\" is neither of numbers or texts nor of lists of them");
}

TEST_F(Columnar, ColumnsAreFoundByNameInEachFile) {
  const Made ids = numbers<int32_t>("i", {1, 2});
  add("a.made", {{named("film", ids), named("user", numbers<int32_t>("i", {3, 4}))}});
  const std::string other = add("b.made", {{named("usr", ids), named("film", numbers<int64_t>("l", {5, 6}))}});
  const auto files = reader(folder_);
  files->select(std::vector<ReaderWant>{{"film", TSR_READER_INT64}});
  EXPECT_THAT(of<int64_t>(files->read(0)[0].values, 2), ElementsAre(1, 2));
  EXPECT_THAT(of<int64_t>(files->read(1)[0].values, 2), ElementsAre(5, 6));
  EXPECT_EQ(sentence([&] {
              files->select(std::vector<ReaderWant>{{"user", TSR_READER_INT64}});
            }),
            other + " has no column \"user\"; the nearest is \"usr\"");
  const std::string twice = add("c.made", {{named("x", ids), named("x", ids)}});
  EXPECT_EQ(sentence([&] {
              reader(twice)->select(std::vector<ReaderWant>{{"x", TSR_READER_INT64}});
            }),
            twice + " has two columns named \"x\"");
  EXPECT_THAT(sentence([&] { reader(folder_ + "/*.none"); }), HasSubstr("and none that it matches as a pattern"));
}

TEST_F(Columnar, DamageIsNamedByColumn) {
  const std::string path = add("a.made", {counted(0, 20)});
  files_.at(path).broken = "list";
  const auto file = reader(path, 16);  // 2 rows
  file->select(std::vector<ReaderWant>{{"id", TSR_READER_INT64}, {"list", TSR_READER_INT64, true}});
  file->read(0);
  EXPECT_EQ(sentence([&] { file->read(3); }), path + " is damaged behind row 6, column \"list\": the page is bad");
  file->read(1);  // goes on where it can
  files_.at(path).broken.clear();
  files_.at(path).units[0].length = 3;
  file->read(0);
  EXPECT_EQ(sentence([&] { file->read(3); }),
            path + " is damaged behind row 6, column \"id\": it has fewer rows than it says");
}

}  // namespace
}  // namespace tessera_readers

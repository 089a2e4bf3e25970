// Tests the readers csv and tsv through their function tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "csv_files.h"
#include "tessera/abi/draft/reader_paths.h"
#include "test_values.h"
#ifdef TESSERA_ZSTD
#include <zstd.h>
#endif

extern "C" const tsr_plugin* tessera_plugin_v1(const tsr_host* host, tsr_error* err);

namespace {

using tessera_readers::failure;
using tessera_readers::gzipped;
using tessera_readers::numbers_of;
using tessera_readers::TestDirectory;
using tessera_readers::texts_of;
using tessera_readers::want;
using testing::ElementsAre;
using testing::HasSubstr;

// Uses a component like the core does. Failed calls throw their message.
class Part {
 public:
  explicit Part(const std::string& id, const char* options = "{}") {
    tsr_error err TSR_ERROR_INIT;
    const tsr_plugin* plugin = tessera_plugin_v1(nullptr, &err);
    for (uint32_t i = 0; i < plugin->num_components; ++i) {
      if (plugin->components[i]->id == id) component_ = plugin->components[i];
    }
    api_ = static_cast<const tsr_reader*>(component_->api);
    check(component_->create(component_, nullptr, options, nullptr, &self_, &err), err);
  }
  ~Part() { component_->destroy(self_); }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  Part& open(const std::string& path, int64_t block_bytes = 1 << 20) {
    const tsr_reader_source source{sizeof(source), 0, path.c_str(), block_bytes};
    tsr_error err TSR_ERROR_INIT;
    check(api_->open(self_, &source, &err), err);
    return *this;
  }
  std::vector<std::string> columns() const {
    std::vector<std::string> out;
    tsr_error err TSR_ERROR_INIT;
    for (tsr_reader_column c{sizeof(c), 0, nullptr, 0, 0}; api_->column(self_, std::ssize(out), &c, &err) == TSR_OK;)
      out.push_back(std::string(c.name) + (c.type == TSR_READER_UNREADABLE ? " (unreadable)" : ""));
    return out;
  }
  std::vector<tsr_reader_block> blocks() const {
    std::vector<tsr_reader_block> out;
    tsr_error err TSR_ERROR_INIT;
    for (tsr_reader_block b{sizeof(b), 0, 0, 0, 0, 0}; api_->block(self_, std::ssize(out), &b, &err) == TSR_OK;)
      out.push_back(b);
    return out;
  }
  // The options with which the reader opens the path; "no" if it does not.
  std::string opens(const std::string& path) const {
    const auto* paths = static_cast<const tsr_reader_paths*>(component_->extension(self_, TSR_READER_PATHS));
    const char* options = nullptr;
    tsr_error err TSR_ERROR_INIT;
    check(paths->opens(self_, path.c_str(), &options, &err), err);
    return options == nullptr ? "no" : options;
  }
  std::string file(int64_t i) const {
    const char* path = nullptr;
    tsr_error err TSR_ERROR_INIT;
    check(api_->file(self_, i, &path, &err), err);
    return path;
  }
  Part& select(const std::vector<tsr_reader_want>& wants) {
    tsr_error err TSR_ERROR_INIT;
    check(api_->select(self_, std::ssize(wants), sizeof(tsr_reader_want), wants.data(), &err), err);
    values_.assign(wants.size(), tsr_reader_values{sizeof(tsr_reader_values), 0, {}, {}, {}, {}, {}});
    return *this;
  }
  const std::vector<tsr_reader_values>& read(int64_t block = 0) {
    tsr_error err TSR_ERROR_INIT;
    check(api_->read(self_, block, sizeof(tsr_reader_values), values_.data(), &err), err);
    return values_;
  }

 private:
  static void check(tsr_code code, const tsr_error& err) {
    if (code != TSR_OK) throw tessera::sdk::Failure(code, err.message);
  }
  const tsr_component* component_ = nullptr;
  const tsr_reader* api_ = nullptr;
  void* self_ = nullptr;
  std::vector<tsr_reader_values> values_;
};

TEST(Csv, ReadsTypesQuotesAndMissingValues) {
  const TestDirectory dir;
  const std::string path = dir.write("a.csv",
                                     "\xef\xbb\xbf"
                                     "click,price,\"the film\",name\r\n"
                                     "1,0.5,7,plain\r\n"
                                     "0,-1e3,12.0,\"with, comma and \"\"quotes\"\"\r\nand a line\"\r\n"
                                     "\r\n"
                                     "1,,,\r\n"
                                     "0,+2.25, -3 ,last");
  Part csv("csv");
  EXPECT_THAT(csv.open(path).columns(), ElementsAre("click", "price", "the film", "name"));
  ASSERT_EQ(csv.blocks().size(), 1u);
  EXPECT_EQ(csv.blocks()[0].rows, 4);
  csv.select({want("name", TSR_READER_TEXT), want("price", TSR_READER_FLOAT32), want("the film", TSR_READER_INT64)});
  const auto& values = csv.read();
  EXPECT_THAT(texts_of(values[0], 4), ElementsAre("plain", "with, comma and \"quotes\"\r\nand a line", "", "last"));
  const auto prices = numbers_of<float>(values[1].values, 4);
  EXPECT_EQ(prices[0], 0.5f);
  EXPECT_EQ(prices[1], -1000.0f);
  EXPECT_TRUE(std::isnan(prices[2]));
  EXPECT_EQ(prices[3], 2.25f);
  EXPECT_THAT(numbers_of<int64_t>(values[2].values, 4), ElementsAre(7, 12, 0, -3));
  ASSERT_NE(values[2].present, nullptr);
  EXPECT_THAT(numbers_of<uint8_t>(values[2].present, 4), ElementsAre(1, 1, 0, 1));
}

TEST(Csv, WordsForNoNumber) {
  const TestDirectory dir;
  const std::string path = dir.write("a.csv", "x,id,land\nNA,null,NA\n\"nan\",?,-\n n/a ,None,b\n-,-1,c\n1.5,7,NaN\n");
  Part csv("csv", R"({"missing_words": true})");
  csv.open(path).select({want("x", TSR_READER_FLOAT32), want("id", TSR_READER_INT64), want("land", TSR_READER_TEXT)});
  const auto& values = csv.read();
  ASSERT_NE(values[0].present, nullptr);
  EXPECT_THAT(numbers_of<uint8_t>(values[0].present, 5), ElementsAre(0, 0, 0, 0, 1));
  EXPECT_EQ(numbers_of<float>(values[0].values, 5)[4], 1.5f);
  EXPECT_THAT(numbers_of<uint8_t>(values[1].present, 5), ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(numbers_of<int64_t>(values[1].values, 5), ElementsAre(0, 0, 0, -1, 7));
  EXPECT_EQ(values[2].present, nullptr) << "a text is a text";
  EXPECT_THAT(texts_of(values[2], 5), ElementsAre("NA", "-", "b", "c", "NaN"));
  Part strict("csv");
  strict.open(path).select({want("x", TSR_READER_FLOAT32)});
  EXPECT_EQ(failure([&] { strict.read(); }),
            path +
                ", row 1, column \"x\": \"NA\" is not a number: the reader's option missing_words=true (reader = "
                "\"csv?missing_words=true\") reads such words as missing values");
  csv.open(dir.write("b.csv", "x\nnone of it\n")).select({want("x", TSR_READER_FLOAT32)});
  EXPECT_THAT(failure([&] { csv.read(); }), HasSubstr("\"none of it\" is not a number"));
}

TEST(Csv, NumbersAreThoseOfTheirText) {
  const TestDirectory dir;
  const std::vector<std::string> written = {"0",
                                            "-0.0",
                                            "0.1",
                                            "16777217",
                                            "1e-40",
                                            "123456789012345",
                                            "0.3333333333333333",
                                            "1234567890.12345",
                                            "-7e5",
                                            "999999999999999.5",
                                            "3.4e38"};
  std::string text = "x\n";
  for (const std::string& number : written) text += number + "\n";
  Part csv("csv");
  csv.open(dir.write("x.csv", text)).select({want("x", TSR_READER_FLOAT32)});
  const auto read = numbers_of<float>(csv.read()[0].values, written.size());
  for (size_t i = 0; i < written.size(); ++i)
    EXPECT_EQ(read[i], static_cast<float>(std::stod(written[i]))) << written[i];
}

TEST(Csv, Doubles) {
  const TestDirectory dir;
  Part csv("csv");
  csv.open(dir.write("x.csv", "x\n0.1\n1700000000123\n1e300\n\"-2.5\"\nTrue\n 7 \n"));
  csv.select({want("x", TSR_READER_FLOAT64), want("x", TSR_READER_TEXT), want("x", TSR_READER_FLOAT64)});
  const auto& values = csv.read();
  EXPECT_THAT(numbers_of<double>(values[0].values, 6), ElementsAre(0.1, 1700000000123, 1e300, -2.5, 1, 7));
  EXPECT_THAT(texts_of(values[1], 6), ElementsAre("0.1", "1700000000123", "1e300", "-2.5", "True", " 7 "));
  EXPECT_EQ(numbers_of<double>(values[2].values, 6), numbers_of<double>(values[0].values, 6))
      << "one column, wanted twice";
}

// The items of one field, separated by blanks, or the error message.
std::string items_of(const std::string& field, char separator, int32_t type = TSR_READER_TEXT, uint32_t flags = 0) {
  const TestDirectory dir;
  Part csv("csv", R"({"delimiter": "~", "quotes": false})");
  const std::string path = dir.write("x.csv", "x~y\n" + field + "~1\n");
  const auto read = [&] {
    csv.open(path).select({want("x", type, TSR_READER_LIST | flags, separator)});
    return csv.read()[0];
  };
  try {
    const tsr_reader_values v = read();
    const auto n = static_cast<size_t>(v.lists[1]);
    std::string out;
    for (size_t i = 0; i < n; ++i) {
      if (i > 0) out += "|";
      out += type == TSR_READER_TEXT ? texts_of(v, n)[i] : std::to_string(static_cast<const int64_t*>(v.values)[i]);
      if (flags != 0) out += "=" + std::to_string(v.weights[i]).substr(0, 3);
    }
    return out;
  } catch (const tessera::sdk::Failure& e) {
    return std::string(e.what()).substr(path.size() + std::string(", row 1, column \"x\": ").size());
  }
}

TEST(Csv, ListsAsProgramsPrintThem) {
  for (const char* field : {"[3, 17]", "[3,17]", "(3, 17)", "{3, 17}", "3,17", " [ 3 , 17 ] ", "['3', '17']",
                            "[\"3\",\"17\"]", "(3, 17,)", "[3 17]", "[ 3  17]", "['3' '17']"})
    EXPECT_EQ(items_of(field, ','), "3|17") << field;
  for (const char* field : {"[3 17]", "[3, 17]", "3 17", "['3' '17']", "[ 3\t17 ]"}) {
    EXPECT_EQ(items_of(field, ' '), "3|17") << field;
    EXPECT_EQ(items_of(field, ' ', TSR_READER_INT64), "3|17") << field;
  }
  // Lists as NumPy, Python's collections, Scala and R print them.
  for (const char* field :
       {"array([3, 17])", "np.array([3, 17], dtype=int64)", "deque([3, 17], maxlen=5)", "List(3, 17)",
        "WrappedArray(3, 17)", "frozenset({3, 17})", "c(3, 17)", "[np.int64(3), np.int64(17)]",
        "[Decimal('3'), Decimal('17')]", "[u'3', b'17']", "c(\"3\", \"17\")"})
    EXPECT_EQ(items_of(field, ','), "3|17") << field;
  for (const char* field : {"()", "set()", "array([])", "c()", "array([], dtype=float64)"})
    EXPECT_EQ(items_of(field, ','), "") << field;
  EXPECT_EQ(items_of("[3, 17]", '|'), "3|17");
  EXPECT_EQ(items_of("[3|17]", '|'), "3|17");
  for (const char* empty : {"", "[]", "[ ]", "{}"}) EXPECT_EQ(items_of(empty, ','), "") << empty;
  EXPECT_EQ(items_of("['red wine', \"it's, \\\"so\\\"\", 'caf\\u00e9 \\ud83c\\udf77']", ','),
            "red wine|it's, \"so\"|caf\xc3\xa9 \xf0\x9f\x8d\xb7");
  EXPECT_EQ(items_of("[Se7en (1995), Heat]", ','), "Se7en (1995)|Heat");
  EXPECT_EQ(items_of("(500) Days|Up (2009)", '|'), "(500) Days|Up (2009)");
  EXPECT_EQ(items_of("(500)", '|'), "(500)");
  EXPECT_EQ(items_of("[\"a|b\", \"c\"]", '|'), "a|b|c") << "two items";
  const uint32_t weighted = TSR_READER_WEIGHTED;
  for (const char* field :
       {"{'t1': 0.5, 't2': 2}", "{t1: 0.5, t2: 2}", "['t1:0.5', 't2:2']", "[t1:0.5, t2:2]", "t1:0.5,t2:2"})
    EXPECT_EQ(items_of(field, ',', TSR_READER_TEXT, weighted), "t1=0.5|t2=2.0") << field;
  EXPECT_EQ(items_of("[3, 17", ','), "\"[3, 17\" begins with [ but does not end like a list");
  EXPECT_EQ(items_of("[3], [17]", ','), "\"[3], [17]\" begins with [ but does not end like a list");
  EXPECT_EQ(items_of("[[3], [17]]", ','), "\"[[3], [17]]\" has a list or an object in its list");
  EXPECT_EQ(items_of("[{\"id\": 3}]", ','), "\"[{\"id\": 3}]\" has a list or an object in its list");
  EXPECT_EQ(items_of("{\"a\": 3}", ','), "\"a\" is followed by a value, as in a weighted list: set weighted = true");
  EXPECT_EQ(items_of("{3: 3}", ','), "\"3\" is followed by a value, as in a weighted list: set weighted = true");
  for (const char* field : {"[3, None]", "[3, , 17]", "['', 'a']", "[null]", "[nan, 1]"})
    EXPECT_EQ(items_of(field, ','), "there is a value missing in the list \"" + std::string(field) + "\"");
  EXPECT_EQ(items_of("a:1,:0.5", ',', TSR_READER_TEXT, weighted), "there is a value missing in the list");
  EXPECT_EQ(items_of("['a' b]", ','), "\"['a' b]\" has text after a quote in its list");
  EXPECT_EQ(items_of("[0 1 ... 8 9]", ' '), "\"[0 1 ... 8 9]\" is a list of which only a part was printed");
  EXPECT_EQ(items_of("[0 1 ... 8 9]", ','), "\"[0 1 ... 8 9]\" is a list of which only a part was printed");
  EXPECT_EQ(items_of("[red wine]", ','), "red wine");
}

TEST(Csv, Encodings) {
  const TestDirectory dir;
  const std::string latin = "wort,x\nCaf\xe9,1\nna\xefve,2\n", windows = "wort,x\n\x80 5,1\n\x93q\x94,2\n";
  const auto utf16 = [](const std::string& text, bool little) {
    std::string out = little ? "\xff\xfe" : "\xfe\xff";
    for (const char c : text) {
      if (!little) out += '\0';
      out += c;
      if (little) out += '\0';
    }
    return out;
  };
  const auto words = [&](const std::string& bytes, const char* options, const char* name = "a.csv") {
    Part csv("csv", options);
    csv.open(dir.write(name, bytes)).select({want("wort", TSR_READER_TEXT)});
    return texts_of(csv.read()[0], 2);
  };
  EXPECT_THAT(words(latin, R"({"encoding": "latin-1"})"), ElementsAre("Caf\xc3\xa9", "na\xc3\xafve"));
  EXPECT_THAT(words(gzipped(latin), R"({"encoding": "latin-1"})"), ElementsAre("Caf\xc3\xa9", "na\xc3\xafve"));
  EXPECT_THAT(words(windows, R"({"encoding": "windows-1252"})"),
              ElementsAre("\xe2\x82\xac 5", "\xe2\x80\x9cq\xe2\x80\x9d"));
  for (const bool little : {true, false}) {
    const std::string bytes = utf16("wort,x\r\nab,1\r\n\"c\nd\",2\r\n", little);
    EXPECT_THAT(words(bytes, R"({"encoding": "utf-16"})"), ElementsAre("ab", "c\nd"));
    EXPECT_THAT(words(bytes, little ? R"({"encoding": "utf-16le"})" : R"({"encoding": "utf-16be"})"),
                ElementsAre("ab", "c\nd"));
    EXPECT_THAT(failure([&] { words(bytes, "{}"); }),
                HasSubstr("a.csv begins like UTF-16: the reader's option encoding=utf-16"));
    EXPECT_THAT(failure([&] { words(bytes.substr(2), "{}"); }), HasSubstr("encoding=utf-16le or utf-16be"));
    EXPECT_THAT(failure([&] { words(bytes.substr(0, bytes.size() - 1), R"({"encoding": "utf-16"})"); }),
                HasSubstr("a.csv ends inside a character in the encoding UTF-16 after row 1"));
  }
  EXPECT_THAT(failure([&] { words("wort,x\na,1\n\x81,2\n", R"({"encoding": "windows-1252"})"); }),
              HasSubstr("a.csv has bytes that are not text in the encoding WINDOWS-1252 after row 1"));
  EXPECT_THAT(failure([&] { words(latin, R"({"encoding": "ebcdic"})"); }),
              HasSubstr("encoding is \"ebcdic\", but must be utf-8, utf-16"));
}

TEST(Csv, EncodedFilesAreReadInBlocks) {
  const TestDirectory dir;
  std::string text = "x,wort\n";
  for (int i = 0; i < 20000; ++i) text += std::to_string(i) + ",\xe9\xe9" + std::to_string(i) + "\n";
  Part csv("csv", R"({"encoding": "latin-1"})");
  csv.open(dir.write("a.csv", text), 50000).select({want("wort", TSR_READER_TEXT)});
  const auto blocks = csv.blocks();
  ASSERT_GT(blocks.size(), 4u);
  for (const size_t at : {size_t{3}, size_t{1}, blocks.size() - 1, size_t{0}}) {
    const auto& values = csv.read(static_cast<int64_t>(at));
    EXPECT_EQ(texts_of(values[0], 1)[0], "\xc3\xa9\xc3\xa9" + std::to_string(blocks[at].first_row)) << at;
  }
}

TEST(Csv, Lists) {
  const TestDirectory dir;
  const std::string path = dir.write("a.csv", "liked;scored;words\n3 4  900;5:0.5,-6:2;red|blue\n;;\n7;8:1e1;green\n");
  Part csv("csv", R"({"delimiter": ";"})");
  csv.open(path).select({want("liked", TSR_READER_INT64, TSR_READER_LIST),
                         want("scored", TSR_READER_INT64, TSR_READER_LIST | TSR_READER_WEIGHTED, ','),
                         want("words", TSR_READER_TEXT, TSR_READER_LIST, '|')});
  const auto& values = csv.read();
  EXPECT_THAT(numbers_of<int64_t>(values[0].lists, 4), ElementsAre(0, 3, 3, 4));
  EXPECT_THAT(numbers_of<int64_t>(values[0].values, 4), ElementsAre(3, 4, 900, 7));
  EXPECT_THAT(numbers_of<int64_t>(values[1].lists, 4), ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(numbers_of<int64_t>(values[1].values, 3), ElementsAre(5, -6, 8));
  EXPECT_THAT(numbers_of<float>(values[1].weights, 3), ElementsAre(0.5f, 2.0f, 10.0f));
  EXPECT_THAT(numbers_of<int64_t>(values[2].lists, 4), ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(texts_of(values[2], 3), ElementsAre("red", "blue", "green"));
}

// Rows of two columns: a number, and a text that sometimes has line feeds in quotes.
std::string many_rows(int64_t first, int64_t rows) {
  std::string out = "id,text\n";
  for (int64_t i = first; i < first + rows; ++i)
    out += std::to_string(i) + (i % 7 == 0 ? ",\"a\nb, c\"\n" : ",plain text\n");
  return out;
}

// All ids of all blocks, read from the last to the first block if `backward`.
std::vector<int64_t> ids_of(Part& part, bool backward = false) {
  const auto blocks = part.blocks();
  std::vector<std::vector<int64_t>> found(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    const size_t b = backward ? blocks.size() - 1 - i : i;
    found[b] = numbers_of<int64_t>(part.read(static_cast<int64_t>(b))[0].values, static_cast<size_t>(blocks[b].rows));
  }
  std::vector<int64_t> out;
  for (const auto& part_of : found) out.insert(out.end(), part_of.begin(), part_of.end());
  return out;
}

TEST(Csv, BlocksAreAllRowsInAnyOrder) {
  const TestDirectory dir;
  constexpr int64_t kRows = 20000;
  dir.write("b.csv", many_rows(kRows, kRows));
  dir.write("a.csv.gz", gzipped(many_rows(0, kRows / 2)) + gzipped("9999,the second member\n"));
  dir.write("a2.csv.gz", gzipped(many_rows(kRows / 2, kRows / 2)));
  dir.write("notes.md", "no table");
  Part csv("csv");
  csv.open(dir.path(), 1000).select({want("id", TSR_READER_INT64)});
  EXPECT_EQ(csv.file(0), dir.path() + "/a.csv.gz");
  const auto blocks = csv.blocks();
  EXPECT_GT(blocks.size(), 300u);
  int64_t behind = 0, in_order = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_LT(blocks[i].bytes, 1100);
    const bool first = i == 0 || blocks[i].file != blocks[i - 1].file;
    EXPECT_EQ(blocks[i].first_row, first ? 0 : blocks[i - 1].first_row + blocks[i - 1].rows);
    behind += (blocks[i].flags & TSR_READER_BEHIND) != 0;
    in_order += blocks[i].file < 2 && !first;
  }
  EXPECT_EQ(behind, in_order) << "a compressed file's blocks, but its first, are read behind the one before";
  std::vector<int64_t> all(kRows / 2);
  std::iota(all.begin(), all.end(), 0);
  all.push_back(9999);
  for (int64_t i = kRows / 2; i < 2 * kRows; ++i) all.push_back(i);
  // Files come in ascending order of their names: a.csv.gz, a2.csv.gz, b.csv.
  EXPECT_EQ(ids_of(csv), all);
  csv.open(dir.path() + "/*2.csv*", 5000).select({want("id", TSR_READER_INT64)});
  EXPECT_EQ(ids_of(csv, true), std::vector<int64_t>(all.begin() + kRows / 2 + 1, all.begin() + kRows + 1));
}

#ifdef TESSERA_ZSTD
TEST(Csv, Zstd) {
  const TestDirectory dir;
  const std::string text = many_rows(0, 5000);
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);  // like the program zstd
  packed.resize(ZSTD_compress2(context, packed.data(), packed.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  Part csv("csv");
  csv.open(dir.write("a.csv.zst", packed), 4000).select({want("id", TSR_READER_INT64)});
  const auto ids = ids_of(csv);
  ASSERT_EQ(ids.size(), 5000u);
  for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(ids[i], static_cast<int64_t>(i));
  EXPECT_EQ(ids_of(csv, true), ids);
  const std::string cut = dir.write("cut.csv.zst", packed.substr(0, packed.size() / 2));
  EXPECT_THAT(failure([&] { csv.open(cut); }), testing::StartsWith(cut + " is cut off after row "));
  packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 8);
  const std::string bad = dir.write("bad.csv.zst", packed);
  EXPECT_THAT(failure([&] { csv.open(bad); }), testing::StartsWith(bad + " is damaged ("));
}
#endif

// The number of whole rows before the damage, according to the message.
int64_t rows_before(const std::string& sentence) {
  constexpr std::string_view kBehind = " after row ";
  const size_t at = sentence.find(kBehind);
  return at == std::string::npos ? -1 : std::stoll(sentence.substr(at + kBehind.size()));
}

TEST(Csv, DamagedGzip) {
  const TestDirectory dir;
  std::string packed = gzipped(many_rows(0, 5000));
  Part csv("csv");
  const std::string cut = dir.write("cut.csv.gz", packed.substr(0, packed.size() / 2));
  const std::string cut_off = failure([&] { csv.open(cut); });
  EXPECT_THAT(cut_off, testing::StartsWith(cut + " is cut off after row "));
  EXPECT_GT(rows_before(cut_off), 1000) << "of some 2500 in the first half of the file";
  EXPECT_LT(rows_before(cut_off), 4000);
  packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 8);
  const std::string bad = dir.write("bad.csv.gz", packed);
  EXPECT_THAT(failure([&] { csv.open(bad); }), testing::StartsWith(bad + " is damaged ("));
  EXPECT_GT(rows_before(failure([&] { csv.open(bad); })), 1000);
}

TEST(Csv, WrongRowsAreNamedByFileRowAndColumn) {
  struct Case {
    const char* rows;
    const char* error;
  };
  const Case cases[] = {
      {"1,2,3\n4,5\n", ", row 2 has 2 fields, but the header has 3, so column \"tags\" is missing"},
      {"1,2,3\n4,5,6,7\n", ", row 2 has 4 fields, but the header has 3"},
      {"1,2,3\n4,5,\"6\",7\n", ", row 2 has 4 fields, but the header has 3"},
      {"x,2,3\n", ", row 1, column \"x\": \"x\" is not a number"},
      {"nan,2,3\n",
       ", row 1, column \"x\": \"nan\" is not a number: the reader's option missing_words=true (reader = "
       "\"csv?missing_words=true\") reads such words as missing values"},
      {"1e400,2,3\n", ", row 1, column \"x\": \"1e400\" is too large or too small for a double"},
      {"1,2.5,3\n", ", row 1, column \"id\": \"2.5\" is not a whole number"},
      {"1,\"two\",3\n", ", row 1, column \"id\": \"two\" is not a whole number"},
      {"1,99999999999999999999,3\n",
       ", row 1, column \"id\": \"99999999999999999999\" does not fit into 64 bits with a sign; ids = "
       "\"vocabulary\" or \"hash\" takes such ids"},
      {"1,1e20,3\n", ", row 1, column \"id\": \"1e20\" is too large for a whole number in this notation"},
      {"\"1,5\",2,3\n",
       ", row 1, column \"x\": \"1,5\" is not a number: decimal = \",\" in its [[column]] if the comma is the "
       "decimal sign, or strip = \",\" if it only groups digits"},
      {"1,2,3\n\n1,2,3;;4\n", ", row 2, column \"tags\": there is a value missing in the list"},
      {"1,2,3;\n", ", row 1, column \"tags\": there is a value missing in the list"},
      {"1,2,3;x\n", ", row 1, column \"tags\": \"x\" is not a whole number"},
      {"1,2,\"3\n4,5,6\n",
       ", row 1, column \"tags\": a quote is not closed, or has text after it; a quote "
       "inside of a field is written twice"},
      {"1,\"2\"3,4\n",
       ", row 1, column \"id\": a quote is not closed, or has text after it; a quote "
       "inside of a field is written twice"},
  };
  const TestDirectory dir;
  for (const Case& c : cases) {
    const std::string path = dir.write("a.csv", std::string("x,id,tags\n") + c.rows);
    Part csv("csv");
    csv.open(path).select({want("x", TSR_READER_FLOAT32), want("id", TSR_READER_INT64),
                           want("tags", TSR_READER_INT64, TSR_READER_LIST, ';')});
    EXPECT_EQ(failure([&] { csv.read(); }), path + c.error);
  }
}

TEST(Csv, AnotherDelimiterIsAskedFor) {
  const TestDirectory dir;
  const std::string path = dir.write("a.csv", "x;y\n1;2\n1,5;2\n");
  Part csv("csv");
  csv.open(path).select({want("x;y", TSR_READER_TEXT)});
  EXPECT_EQ(failure([&] { csv.read(); }),
            path +
                ", row 2 has 2 fields, but the header has 1; does the file have another delimiter, or lines above its "
                "header?");
}

TEST(Csv, BlankLinesAndExcelsFirstLineAreAboveTheHeader) {
  struct Case {
    const char *text, *delimiter;
  };
  const std::vector<Case> cases = {{"\n\r\nid,b\n7,1\n  \n8,2\n\n", ","},
                                   {"  \t\n,,\nid,b\n7,1\n8,2\n", ","},
                                   {"\xef\xbb\xbf\r\nid,b\r\n7,1\r\n8,2\r\n", ","},
                                   {"\xef\xbb\xbfsep=;\r\nid;b\r\n7;1,5\r\n8;2\r\n", ";"},
                                   {"\nSEP=;\n\nid;b\n7;1\n8;2\n", ";"},
                                   {"\"sep=,\"\nid,b\n7,1\n8,2\n", ","},
                                   {"sep=|\nid|b,c;d,e\n7|1\n8|2\n", "|"}};
  const TestDirectory dir;
  for (const Case& c : cases) {
    const std::string path = dir.write("a.csv", c.text);
    const std::string given = std::string("{\"delimiter\": \"") + c.delimiter + "\"}";
    Part csv("csv", given.c_str());
    EXPECT_EQ(csv.opens(path), c.delimiter[0] == ',' ? "" : std::string("delimiter=") + c.delimiter) << c.text;
    csv.open(path, 4).select({want("id", TSR_READER_INT64)});
    EXPECT_THAT(ids_of(csv), ElementsAre(7, 8)) << c.text;
  }
  Part tsv("tsv");
  const std::string tabs = dir.write("a.csv", "sep=\t\nid\tb,c\n7\t1\n");
  EXPECT_EQ(tsv.opens(tabs), "");
  tsv.open(tabs).select({want("id", TSR_READER_INT64)});
  EXPECT_THAT(ids_of(tsv), ElementsAre(7));
  EXPECT_EQ(failure([&] { Part("csv").open(tabs); }),
            tabs + " begins with \"sep=\t\", which names another delimiter than \",\": set reader = \"tsv\"");
  const std::string other = dir.write("a.csv", "sep=;\nid;b\n7;1\n");
  EXPECT_THAT(failure([&] { Part("csv").open(other); }), HasSubstr("set reader = \"csv?delimiter=;\""));
  for (const char* nothing : {"\n\n", "sep=,\n", " , ,\n"})
    EXPECT_THAT(failure([&] { Part("csv").open(dir.write("b.csv", nothing)); }), HasSubstr("b.csv is empty"));
}

TEST(Csv, WrongFilesAndOptions) {
  const TestDirectory dir;
  Part csv("csv");
  EXPECT_EQ(failure([&] { csv.open(dir.path() + "/no.csv"); }),
            "there is no file " + dir.path() + "/no.csv, and none that it matches as a pattern");
  EXPECT_THAT(failure([&] { csv.open(dir.path()); }),
              HasSubstr(" has no files whose names end in one of .csv, .tsv, .txt, .csv.gz"));
  const std::string empty = dir.write("a.csv", "");
  EXPECT_EQ(failure([&] { csv.open(empty); }), empty + " is empty: its first line must name the columns");
  const std::string binary = dir.write("a.csv", std::string("\x7f"
                                                            "ELF\0\1,b\n1,2\n",
                                                            13));
  EXPECT_EQ(failure([&] { csv.open(binary); }),
            binary +
                " is not a text: its first line, which must name the columns, has a byte of value 0; UTF-16 without "
                "a byte-order mark is read with the reader's option encoding=utf-16le or utf-16be");
  const std::string twice = dir.write("a.csv", "a,b,a\n");
  EXPECT_EQ(failure([&] { csv.open(twice); }),
            twice + ": two columns of the header are named \"a\": rename one of them");
  EXPECT_THAT(failure([&] { csv.open(dir.write("a.csv", "a,,,b\n")); }), HasSubstr("header have no name: name them"));
  const std::string first = dir.write("a.csv", "film,user\n1,2\n"), second = dir.write("b.csv", "user,fylm\n3,4\n");
  EXPECT_EQ(failure([&] { csv.open(dir.path()).select({want("film", TSR_READER_INT64)}); }),
            second + " has no column \"film\"; the nearest is \"fylm\", and there are \"fylm\", \"user\"");
  EXPECT_THAT(csv.open(dir.path()).columns(), ElementsAre("film", "user", "fylm (unreadable)"));
  EXPECT_EQ(failure([&] { csv.open(first).select({want("user\tid", TSR_READER_INT64)}); }),
            first + " has no column \"user\tid\"; the nearest is \"user\", and there are \"user\", \"film\"");
  EXPECT_THAT(failure([] { Part("csv", R"({"delimiter": ";;"})"); }), HasSubstr("must be one character"));
  EXPECT_THAT(failure([] { Part("csv", R"({"seperator": ";"})"); }), HasSubstr("unknown option \"seperator\""));
}

TEST(Csv, OtherKindsOfFilesAreNamed) {
  const TestDirectory dir;
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"PK\3\4 and more", "is a zip archive or a spreadsheet, which no reader of text reads: unpack it"},
      {"BZh91AY&SY", "is compressed by bzip2, which"},
      {"\xfd"
       "7zXZ and more",
       "is compressed by xz"},
      {"PAR1\x15\4", "is a Parquet file, which no reader of text reads: the reader parquet takes it"},
      {std::string("ARROW1\0\0", 8), "is an Arrow file"},
      {"\x80\x04\x95 and more", "is a pickle, which no reader of text reads: write it as CSV"},
      {"SQLite format 3", "is a database of SQLite"},
      {std::string("\xff\xfe\0\0a\0\0\0", 8), "is text in UTF-32, which no reader of text reads: write it in UTF-8"},
      {"[{\"user\":\"u1\",\"y\":1}]\n", "begins as JSON, not CSV"},
      {"{\"user\":\"u1\",\"y\":1}\n", "begins as JSON, not CSV"},
      {"<!DOCTYPE html>\n", "begins as HTML or XML"},
      {"user,y\ru1,1\ru2,0\r", "a CR without LF is in the header"}};
  for (const auto& [bytes, said] : cases)
    EXPECT_THAT(failure([&, &text = bytes] { Part("csv").open(dir.write("a.csv", text)); }), HasSubstr(said)) << said;
  const std::string named = failure([&] { Part("csv").open(dir.write("a.parquet", "PAR1\x15\4")); });
  EXPECT_TRUE(named.ends_with("--reader parquet)")) << named;
  for (const char* text : {"PAR1,b\n1,2\n", "ARROW1,b\n1,2\n", "BZh,b\n1,2\n", "\"a\r\nb\",b\n1,2\n"})
    EXPECT_NO_THROW(Part("csv").open(dir.write("a.csv", text))) << text;
}

// A column may be at another place in the next file.
TEST(Csv, ColumnsAreFoundByName) {
  const TestDirectory dir;
  dir.write("a.csv", "film,user\n1,2\n");
  dir.write("b.csv", "user,other,film\n3,x,4\n");
  Part csv("csv");
  csv.open(dir.path()).select({want("film", TSR_READER_INT64)});
  EXPECT_THAT(ids_of(csv), ElementsAre(1, 4));
}

TEST(Csv, FilesThatChangeAreNoticed) {
  const TestDirectory dir;
  const std::string path = dir.write("a.csv", "id\n1\n2\n");
  Part csv("csv");
  csv.open(path).select({want("id", TSR_READER_INT64)});
  dir.write("a.csv", "id\n12\n\n");
  EXPECT_EQ(failure([&] { csv.read(); }), "no error") << "an empty row of one column is a missing value";
  dir.write("a.csv", "id\n1");
  EXPECT_EQ(failure([&] { csv.read(); }), path + " has changed since it was opened, after row 0");
}

TEST(Tsv, TabsAndQuotesAsTheyStand) {
  const TestDirectory dir;
  Part tsv("tsv", R"({"quotes": false})");
  tsv.open(dir.write("a.tsv", "a\tb\n\"x, y\t1\n")).select({want("a", TSR_READER_TEXT), want("b", TSR_READER_INT64)});
  const auto& values = tsv.read();
  EXPECT_THAT(texts_of(values[0], 1), ElementsAre("\"x, y"));
  EXPECT_THAT(numbers_of<int64_t>(values[1].values, 1), ElementsAre(1));
}

}  // namespace

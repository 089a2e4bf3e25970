// Reads Parquet and Arrow IPC files that Arrow C++ has written.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/writer.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>

#include <fstream>
#include <sstream>
#include <tuple>

#include "columnar/reader.h"
#include "test_values.h"

namespace tessera_readers {
namespace {

using tessera::sdk::ReaderWant;
using testing::HasSubstr;
using testing::StartsWith;

void check(const arrow::Status& status) { ASSERT_TRUE(status.ok()) << status.ToString(); }

// Row i: the id i, missing where i % 10 = 9; the text "t" + i % 5; i % 4 times the pair (i, i / 2).
std::shared_ptr<arrow::Table> table(int64_t rows) {
  auto* pool = arrow::default_memory_pool();
  arrow::Int64Builder ids(pool);
  arrow::StringBuilder words(pool);
  const auto first = std::make_shared<arrow::Int64Builder>(pool);
  const auto second = std::make_shared<arrow::FloatBuilder>(pool);
  const auto pair = arrow::struct_({arrow::field("id", arrow::int64()), arrow::field("score", arrow::float32())});
  const auto pairs = std::make_shared<arrow::StructBuilder>(
      pair, pool, std::vector<std::shared_ptr<arrow::ArrayBuilder>>{first, second});
  arrow::ListBuilder lists(pool, pairs);
  for (int64_t i = 0; i < rows; ++i) {
    check(i % 10 == 9 ? ids.AppendNull() : ids.Append(i));
    check(words.Append("t" + std::to_string(i % 5)));
    check(lists.Append());
    for (int64_t k = 0; k < i % 4; ++k) {
      check(pairs->Append());
      check(first->Append(i));
      check(second->Append(static_cast<float>(i) / 2));
    }
  }
  const auto schema = arrow::schema({arrow::field("id", arrow::int64()), arrow::field("word", arrow::utf8()),
                                     arrow::field("scored", arrow::list(pair))});
  return arrow::Table::Make(schema, {*ids.Finish(), *words.Finish(), *lists.Finish()});
}

// A format, and the program that reads it.
class ArrowFiles : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  static const char* format() { return std::get<0>(GetParam()); }
  static bool is_parquet() { return std::string(format()) == "parquet"; }
  // The file has `units` row groups or record batches.
  std::string write(int64_t rows, int64_t units) const {
    std::string path = folder_.path() + "/a." + format();
    const auto file = *arrow::io::FileOutputStream::Open(path);
    const auto all = table(rows);
    if (is_parquet()) {
      const auto properties = parquet::WriterProperties::Builder().enable_page_checksum()->build();
      check(parquet::arrow::WriteTable(*all, arrow::default_memory_pool(), file, rows / units, properties));
    } else {
      const auto writer = *arrow::ipc::MakeFileWriter(file, all->schema());
      check(writer->WriteTable(*all, rows / units));
      check(writer->Close());
    }
    check(file->Close());
    return path;
  }
  std::unique_ptr<ColumnarReader> open(const std::string& path, int64_t block_bytes = 1 << 20) const {
    auto out =
        std::make_unique<ColumnarReader>(std::vector<std::string_view>{".parquet", ".arrow"}, ArrowFiles{opener_});
    out->open(path, block_bytes);
    return out;
  }

  static ArrowOpener make_opener() {
    const ArrowFormat& what = is_parquet() ? kParquet : kIpc;
    if (std::get<1>(GetParam()) == std::string("arrow_cpp")) return arrow_cpp_opener(what);
    return python_files(what, {TESSERA_TEST_PYTHON, 60}).open;
  }

  ArrowOpener opener_ = make_opener();  // all files of a test share one Python
  TestDirectory folder_;
};

const std::vector<ReaderWant> kWants = {{"scored", TSR_READER_INT64, true, true}, {"id", TSR_READER_INT64}};

// Checks all rows of all blocks, starting with the last block if `backward`. Returns the number of rows.
int64_t check_rows(ColumnarReader& reader, bool backward) {
  int64_t rows = 0;
  const int64_t blocks = std::ssize(reader.blocks());
  for (int64_t k = 0; k < blocks; ++k) {
    const int64_t b = backward ? blocks - 1 - k : k;
    const auto& block = reader.blocks()[static_cast<size_t>(b)];
    const auto v = reader.read(b);
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t i = block.first_row + r, begin = v[0].lists[r];
      EXPECT_EQ(static_cast<const int64_t*>(v[1].values)[r], i % 10 == 9 ? 0 : i);
      EXPECT_EQ(v[1].present != nullptr && v[1].present[r] == 0, i % 10 == 9);
      EXPECT_EQ(v[0].lists[r + 1] - begin, i % 4);
      if (i % 4 == 0) continue;
      EXPECT_EQ(static_cast<const int64_t*>(v[0].values)[begin], i);
      EXPECT_EQ(v[0].weights[begin], static_cast<float>(i) / 2);
    }
    rows += block.rows;
  }
  return rows;
}

TEST_P(ArrowFiles, RowsInBlocksOfAnyOrder) {
  constexpr int64_t kRows = 3000;
  const auto reader = open(write(kRows, 3), 4000);
  reader->select(kWants);
  EXPECT_GT(reader->blocks().size(), 12u);
  EXPECT_TRUE(reader->columns()[2].weighted);
  EXPECT_EQ(reader->columns()[1].type, TSR_READER_TEXT);
  for (const bool backward : {false, true}) EXPECT_EQ(check_rows(*reader, backward), kRows);
  reader->select(std::vector<ReaderWant>{{"word"}});
  const auto v = reader->read(1)[0];
  EXPECT_EQ(std::string(static_cast<const char*>(v.values), 4),
            "t" + std::to_string(reader->blocks()[1].first_row % 5) + "t" +
                std::to_string(reader->blocks()[1].first_row % 5 + 1));
}

std::string contents(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST_P(ArrowFiles, DamagedFilesAreSaidSo) {
  const std::string path = write(3000, 3), whole = contents(path);
  const auto sentence = [&](const std::string& bytes) -> std::string {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return failure([&] {
      const auto reader = open(path);
      reader->select(kWants);
      for (int64_t b = 0; b < std::ssize(reader->blocks()); ++b) reader->read(b);
    });
  };
  EXPECT_EQ(sentence(whole), "no error");
  for (const size_t length : {whole.size() - 1, whole.size() / 2, size_t{12}})
    EXPECT_THAT(sentence(whole.substr(0, length)), StartsWith(path + " is cut off or damaged: ")) << length;
  EXPECT_THAT(sentence("id,word\n1,x\n"), HasSubstr(": it does not begin as one"));
  std::string flipped = whole;
  flipped[flipped.size() - 7] = static_cast<char>(flipped[flipped.size() - 7] ^ 0x55);  // in the footer's length
  EXPECT_THAT(sentence(flipped), StartsWith(path));
  // A byte of the data: Parquet's pages have checksums, IPC data has no protection.
  flipped = whole;
  flipped[200] = static_cast<char>(flipped[200] ^ 0xff);
  const char* const damaged = " is damaged after row 0, column \"id\": ";
  EXPECT_THAT(sentence(flipped), StartsWith(is_parquet() ? path + damaged : ""));
  // Whatever byte is flipped, the result is an error message or different numbers, nothing worse.
  for (size_t at = 8; at < whole.size(); at += whole.size() / 97) {
    flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x55);
    EXPECT_THAT(sentence(flipped), testing::AnyOf(StartsWith(path), "no error")) << at;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, ArrowFiles,
                         testing::Combine(testing::Values("parquet", "arrow"), testing::Values("arrow_cpp", "pyarrow")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_by_" + std::get<1>(info.param);
                         });

}  // namespace
}  // namespace tessera_readers

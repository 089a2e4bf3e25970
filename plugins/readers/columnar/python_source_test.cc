// Reads files of all types that pyarrow has written, with each reader; tests Pythons that do not answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "columnar/reader.h"
#include "test_values.h"

namespace tessera_readers {
namespace {

using tessera::sdk::ReaderWant;
using testing::ElementsAre;
using testing::HasSubstr;

// Writes FOLDER/types.arrow, and types.parquet with the types that Parquet has. Each column is named like its entry in
// kWords.
constexpr const char* kWrite = R"py(
import datetime, decimal, sys
import pyarrow as pa, pyarrow.parquet

D, utc = decimal.Decimal, datetime.timezone.utc
when = datetime.datetime(2024, 1, 31, 12, 34, 56, 500000)
words = pa.array(["red", None, "a colour without a name"])
columns = {
    "int8": pa.array([1, None, -3], pa.int8()), "uint64": pa.array([2**64 - 1, None, 0], pa.uint64()),
    "float": pa.array([0.1, None, float("nan")], pa.float32()), "half": pa.array([1.5, None, 4], pa.float16()),
    "double": pa.array([0.1, float("inf"), -3e6]), "bool": pa.array([True, None, False]),
    "decimal": pa.array([D("12.50"), None, D("4.00")], pa.decimal128(9, 2)),
    "decimal256": pa.array([D("-0.5"), None, D(10) ** 40], pa.decimal256(60, 3)),
    "date32": pa.array([19753, None, -1], pa.date32()), "time32": pa.array([45296500, None, 0], pa.time32("ms")),
    "time64": pa.array([1, None, 0], pa.time64("us")), "stamp": pa.array([when, None, when], pa.timestamp("us")),
    "zoned": pa.array([when.replace(tzinfo=utc), None, None], pa.timestamp("ms", "Europe/Berlin")),
    "duration": pa.array([5, None, -7], pa.duration("s")), "null": pa.nulls(3),
    "text": words, "large": words.cast(pa.large_string()), "binary": pa.array([b"x", None, b""]),
    "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)), "dictionary": words.dictionary_encode(),
    "list": pa.array([["a", "b"], None, ["c"]]), "large_list": pa.array([[1, 2], None, [3]], pa.large_list(pa.int32())),
    "fixed_list": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2)),
    "map": pa.array([[("a", 0.5)], [], [("b", 2)]], pa.map_(pa.string(), pa.float32())),
    "coded_list": pa.array([["a", "b"], [], ["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "struct": pa.array([{"a": 1}] * 3),
}
ipc = {
    "decimal32": pa.array([D("1.50"), None, D("2")], pa.decimal32(7, 2)), "view": words.cast(pa.string_view()),
    "date64": pa.array([86400000, None, 0], pa.date64()),
    "list_view": pa.array([["a", "b"], None, ["c"]], pa.list_view(pa.string())),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["x", None])),
}
table = pa.table(columns)
pyarrow.parquet.write_table(table, sys.argv[1] + "/types.parquet", row_group_size=2)
table = pa.table({**columns, **ipc})
with pa.ipc.new_file(sys.argv[1] + "/types.arrow", table.schema) as file:
    file.write_batch(table.to_batches()[0].slice(0, 1))
    file.write_batch(table.to_batches()[0].slice(1, 2))
)py";

// The words of the three rows of each column: "-" is a missing value, lists are in brackets.
const std::map<std::string, std::string> kWords = {
    {"int8", "1 - -3"},
    {"uint64", "18446744073709551615 - 0"},
    {"float", "0.10000000149011612 - -"},
    {"half", "1.5 - 4"},
    {"double", "0.1 - -3000000"},
    {"bool", "true - false"},
    {"decimal", "12.5 - 4"},
    {"decimal256", "-0.5 - 10000000000000000000000000000000000000000"},
    {"date32", "2024-01-31 - 1969-12-31"},
    {"time32", "12:34:56.5 - 00:00:00"},
    {"time64", "00:00:00.000001 - 00:00:00"},
    {"stamp", "2024-01-31 12:34:56.5 - 2024-01-31 12:34:56.5"},
    {"zoned", "2024-01-31 12:34:56.5 - -"},
    {"duration", "5 - -7"},
    {"null", "- - -"},
    {"text", "red - a colour without a name"},
    {"large", "red - a colour without a name"},
    {"binary", "x - -"},
    {"fixed", "ab - cd"},
    {"dictionary", "red - a colour without a name"},
    {"list", "[a b] [] [c]"},
    {"large_list", "[1 2] [] [3]"},
    {"fixed_list", "[1 2] [3 4] [5 6]"},
    {"map", "[a:0.5] [] [b:2]"},
    {"coded_list", "[a b] [] [a]"},
    {"struct", "struct<a: int64>"},
    {"decimal32", "1.5 - 2"},
    {"view", "red - a colour without a name"},
    {"date64", "1970-01-02 - 1970-01-01"},
    {"list_view", "[a b] [] [c]"},
    {"runs", "x x -"},
};

std::string field(const tsr_reader_values& v, int64_t row) {
  const auto text = [&](int64_t i) {
    std::string out(static_cast<const char*>(v.values) + v.texts[i], static_cast<size_t>(v.texts[i + 1] - v.texts[i]));
    if (v.weights != nullptr) (out += ":") += v.weights[i] == 2 ? "2" : std::to_string(v.weights[i]).substr(0, 3);
    return out;
  };
  if (v.lists == nullptr) return v.present != nullptr && v.present[row] == 0 ? "-" : text(row);
  std::string out;
  for (int64_t i = v.lists[row]; i < v.lists[row + 1]; ++i) (out += i > v.lists[row] ? " " : "") += text(i);
  return "[" + out + "]";
}

class PythonFiles : public testing::Test {
 protected:
  ~PythonFiles() override { EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "no child is left"; }

  std::string write(const std::string& name, const std::string& text) const { return folder_.write(name, text); }
  // A program that is started in place of a Python.
  std::string program(const std::string& lines) const {
    std::string path = write("program", "#!/bin/sh\n" + lines);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  std::string refused(const std::string& python, double timeout_s = 30) const {
    const std::string path = write("a.parquet", "PAR1...");
    try {
      (void)python_files(kParquet, {python, timeout_s}).open(path);
    } catch (const tessera::sdk::Failure& e) {
      const std::string said = e.what();
      return said.starts_with(path) ? said.substr(path.size()) : said;
    }
    return "no error";
  }

  TestDirectory folder_;
};

// Words of all columns, by name; for unreadable columns, their types.
std::map<std::string, std::string> words(const std::string& path, const ArrowOpener& opener) {
  ColumnarReader reader({".parquet", ".arrow"}, {opener});
  reader.open(path, 1 << 20);
  std::map<std::string, std::string> out;
  std::vector<ReaderWant> wants;
  for (const auto& c : reader.columns()) {
    if (c.type == TSR_READER_UNREADABLE)
      out[c.name] = c.about;
    else
      wants.push_back({c.name, TSR_READER_TEXT, c.list, c.weighted});
  }
  reader.select(wants);
  for (int64_t b = 0; b < std::ssize(reader.blocks()); ++b) {
    const auto values = reader.read(b);
    for (size_t c = 0; c < wants.size(); ++c) {
      for (int64_t r = 0; r < reader.blocks()[static_cast<size_t>(b)].rows; ++r) {
        std::string& all = out[wants[c].name];
        (all += b + r > 0 ? " " : "") += field(values[c], r);
      }
    }
  }
  return out;
}

TEST_F(PythonFiles, AllTypesHaveTheWordsOfTheTable) {
  const std::string script = write("write.py", kWrite), python = TESSERA_TEST_PYTHON;
  if (std::system((python + " -c 'import pyarrow' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << python << " has no pyarrow, which writes the files";
  ASSERT_EQ(std::system((python + " " + script + " " + folder_.path()).c_str()), 0);
  for (const auto& [format, name] : {std::pair(kIpc, "/types.arrow"), std::pair(kParquet, "/types.parquet")}) {
    for (const ArrowOpener& opener : {python_files(format, {python, 60}).open, arrow_cpp_opener(format)}) {
      if (!opener) continue;  // a build without Arrow C++
      const auto got = words(folder_.path() + name, opener);
      for (const auto& [column, expected] : kWords) {
        const auto found = got.find(column);
        if (found == got.end()) continue;  // Parquet lacks this type
        EXPECT_EQ(found->second, expected) << name << " " << column;
      }
      EXPECT_EQ(got.size(), kWords.size() - (format.parquet ? 5 : 0)) << name;
    }
  }
}

TEST_F(PythonFiles, WhatAPythonLacksIsSaid) {
  EXPECT_THAT(
      refused("/nowhere/python3"),
      HasSubstr(" cannot be read by pyarrow: \"/nowhere/python3\" cannot be started: No such file or directory: "
                "install Python and pyarrow (pip install pyarrow), or "));
  const std::string silent = program("exit 3");
  EXPECT_EQ(refused(silent), " cannot be read by pyarrow: " + silent + " has ended");
  EXPECT_EQ(refused(program("echo one >&2; echo the last line >&2; exit 3")),
            " cannot be read by pyarrow: " + silent + " has ended: the last line");
  EXPECT_EQ(refused(program("yes | head -c 300000; read line")),
            " cannot be read by pyarrow: " + silent + " has printed unexpected output");
  // A Python that reports a missing pyarrow, after the output of a start-up file.
  const std::string none = program(
      "echo hello; echo tessera-arrow-frames-1; read line\n"
      "printf 'M\\0\\0\\0\\0\\0\\0\\0\\010\\0\\0\\0\\0\\0\\0\\0'; printf "
      "'\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0'\n"
      "printf 'no arrow'; read line");
  EXPECT_EQ(refused(none), " is read by pyarrow, which " + none +
                               " does not have (no arrow): pip install pyarrow, or name a Python that has it, reader = "
                               "\"parquet?python=/PATH/TO/python\"");
}

TEST_F(PythonFiles, AHungPythonIsEnded) {
  const std::string pid = folder_.path() + "/pid", python = program("echo $$ > " + pid + "; exec sleep 1000");
  EXPECT_EQ(refused(python, 0.5), " cannot be read by pyarrow: " + python +
                                      " has sent nothing for 0.5 s (the option timeout_s) and was ended");
  pid_t child = 0;
  std::ifstream(pid) >> child;
  ASSERT_GT(child, 0);
  EXPECT_EQ(::kill(child, 0), -1) << "it is gone";
}

}  // namespace
}  // namespace tessera_readers

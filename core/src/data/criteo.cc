// Raw Criteo click logs: label, 13 integers and 26 hexadecimal categories, separated by tabs.
#include <algorithm>
#include <cmath>

#include "data/hash.h"
#include "data/line_reader.h"
#include "data/readers.h"
#include "data/test_split.h"

namespace tessera::data {
namespace {

constexpr int kIntegers = 13, kCategories = 26;

bool is_hex(std::string_view text) {
  return text.size() <= 16 && text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

[[noreturn]] void too_few_fields(const LineReader& lines) {
  fail(Code::kInvalidArgument, lines.where(), ": a line has ", 1 + kIntegers + kCategories,
       " fields with tabs between; this one has fewer");
}

void add_line(std::string_view text, const LineReader& lines, const std::vector<std::string>& prefixes,
              Examples& examples) {
  const std::string_view label = cut(text, '\t');
  if (label != "0" && label != "1") {
    fail(Code::kInvalidArgument, lines.where(), ": the label is \"", label.substr(0, 20), "\", but must be 0 or 1");
  }
  examples.begin_sample(label == "1" ? 1.0f : 0.0f);
  for (int i = 1; i <= kIntegers; ++i) {
    if (finished(text)) too_few_fields(lines);
    const std::string_view field = cut(text, '\t');
    int64_t value = 0;
    if (!field.empty() && !parse_number(field, value)) {
      fail(Code::kInvalidArgument, lines.where(), ": I", i, " is \"", field.substr(0, 20),
           "\", but must be an integer");
    }
    examples.add_dense(static_cast<float>(std::log1p(static_cast<double>(std::max<int64_t>(value, 0)))));
  }
  for (int i = 0; i < kCategories; ++i) {
    if (finished(text)) too_few_fields(lines);
    const std::string_view field = cut(text, '\t');
    if (!is_hex(field)) {
      fail(Code::kInvalidArgument, lines.where(), ": C", i + 1, " is \"", field.substr(0, 20),
           "\", but must be a hexadecimal number");
    }
    examples.add_id(row_of(prefixes[i], field, examples.columns()[i].rows));
    examples.end_bag();
  }
  if (!finished(text)) {
    fail(Code::kInvalidArgument, lines.where(), ": there are more than ", 1 + kIntegers + kCategories, " fields");
  }
  examples.end_sample();
}

Examples read_file(const std::string& path, const Dataset& set, int64_t limit) {
  std::vector<std::string> prefixes;
  for (const DataColumn& column : set.columns) prefixes.push_back(column.name + "=");
  Examples examples(set.dense.size(), set.columns);
  LineReader lines(path);
  for (std::string_view line; (limit == 0 || examples.size() < limit) && lines.next(line);) {
    add_line(line, lines, prefixes, examples);
  }
  return examples;
}

}  // namespace

Dataset describe_criteo(const DataConfig& config) {
  Dataset set;
  set.name = "criteo";
  const std::vector<int64_t> rows = rows_of(config, kCategories);
  for (int i = 1; i <= kIntegers; ++i) set.dense.push_back(str_cat("I", i));
  for (int i = 1; i <= kCategories; ++i) set.columns.push_back({str_cat("C", i), rows[i - 1], "sum"});
  return set;
}

Dataset read_criteo(const DataConfig& config, uint64_t seed) {
  Dataset set = describe_criteo(config);
  const TestSplit test = TestSplit::from(config, TestSplit::Rows::kLast);
  if (test.rows == TestSplit::Rows::kNewest)
    fail(Code::kInvalidArgument, "data.test = \"", config.test, "\": the lines of \"", config.reader,
         "\" have no column of times: use random, last or file:PATH");
  Examples train = read_file(config.path, set, config.limit);
  if (test.rows == TestSplit::Rows::kFile) {
    set.test = finish(read_file(test.of, set, config.limit));
  } else if (test.rows == TestSplit::Rows::kRandom) {
    const RandomRows random(test.fraction, seed);
    set.test = finish(train.take_out(0, [&](int64_t row) { return random.takes(row); }));
  } else {
    set.test = finish(train.split_off(train.size() - test.count(train.size())));
  }
  test.describe(&set);
  set.train = finish(std::move(train));
  return set;
}

}  // namespace tessera::data

#include "data/test_split.h"

#include "data/column_numbers.h"
#include "tessera/sdk/nearest.h"
#include "tessera/sdk/random.h"

namespace tessera::data {
namespace {

constexpr std::string_view kTime = "time:", kFile = "file:";
constexpr uint64_t kSalt = 0x7e57;  // makes it choose other rows than `validation`

TestSplit::Rows rows_from(const DataConfig& config, std::string& of) {
  const std::string& text = config.test;
  if (text == "random") return TestSplit::Rows::kRandom;
  if (text == "last") return TestSplit::Rows::kLast;
  for (const std::string_view prefix : {kTime, kFile}) {
    if (!text.starts_with(prefix)) continue;
    of = text.substr(prefix.size());
    if (of.empty())
      fail(Code::kInvalidArgument, "data.test = \"", text, "\" names no ", prefix == kTime ? "column" : "file");
    return prefix == kTime ? TestSplit::Rows::kNewest : TestSplit::Rows::kFile;
  }
  fail(Code::kInvalidArgument, "data.test = \"", text, "\": the nearest is \"",
       sdk::nearest_name(text, {"random", "last", "time:COLUMN", "file:PATH"}),
       "\"; there are random, last, time:COLUMN and file:PATH");
}

}  // namespace

TestSplit TestSplit::from(const DataConfig& config, Rows by_default) {
  TestSplit out{by_default, "", config.test_fraction, config.order_by};
  if (!config.test.empty()) out.rows = rows_from(config, out.of);
  if (!config.test_path.empty()) {
    if (!config.test.empty())
      fail(Code::kInvalidArgument, "data.test = \"", config.test, "\" and data.test_path = \"", config.test_path,
           "\" both say which rows are the test: leave one of them out");
    out.rows = Rows::kFile;
    out.of = config.test_path;
  }
  if (out.rows != Rows::kFile) return out;
  if (config.test_fraction != 0 && config.test_fraction != DataConfig().test_fraction)
    fail(Code::kInvalidArgument, "data.test_fraction = ", config.test_fraction,
         " has no effect with a file of test rows, ", out.of, ": leave one of them out");
  out.fraction = 0;
  return out;
}

void TestSplit::take_formats(const std::vector<ColumnConfig>& columns) {
  for (const ColumnConfig& c : columns) {
    const std::vector<std::string> named = c.column.empty() ? c.name : std::vector{c.column};
    for (const std::string& name : named) {
      if (!c.time_format.empty()) formats.emplace(name, c.time_format);
      if (takes_time(c)) times.insert(name);
    }
  }
}

std::string TestSplit::format_of(const std::string& column) const {
  const auto found = formats.find(column);
  return found == formats.end() ? "" : found->second;
}

void TestSplit::describe(Dataset* set) const {
  const std::string part = str_cat(100 * fraction, " % of the rows");
  set->test_is_last = rows == Rows::kLast && order_by.empty() && fraction > 0;
  if (rows == Rows::kFile)
    set->test_split = "a file of its own";
  else if (fraction == 0)
    set->test_split = "no rows";
  else if (rows == Rows::kRandom)
    set->test_split = str_cat(part, ", random");
  else if (rows == Rows::kLast)
    set->test_split = str_cat("the last ", part, order_by.empty() ? "" : str_cat(" in the order of \"", order_by, '"'));
  else
    set->test_split = str_cat("the newest ", part, " by \"", of, '"');
}

RandomRows::RandomRows(double fraction, uint64_t seed) : fraction_(fraction), seed_(sdk::combine(seed, kSalt)) {}

bool RandomRows::takes(int64_t row) const {
  return sdk::Random(sdk::combine(seed_, static_cast<uint64_t>(row))).uniform() < fraction_;
}

int64_t RandomRows::count(int64_t rows) const {
  int64_t out = 0;
  for (int64_t row = 0; row < rows; ++row) out += takes(row) ? 1 : 0;
  return out;
}

}  // namespace tessera::data

namespace tessera {

std::string test_file(const DataConfig& config) {
  return config.test.starts_with(data::kFile) ? config.test.substr(data::kFile.size()) : config.test_path;
}

}  // namespace tessera

#include "criteo.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "files.h"
#include "tessera/sdk/fields.h"

namespace tessera_readers {
namespace {

using tessera::sdk::cut;
using tessera::sdk::finished;
using tessera::sdk::ReaderColumn;

constexpr size_t kIntegers = 13, kCategories = 26, kFields = 1 + kIntegers + kCategories;
constexpr size_t kShown = 20;

bool is_hex(std::string_view text) {
  return text.size() <= 16 && text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

std::vector<ReaderColumn> columns_of_lines() {
  std::vector<ReaderColumn> out = {{"label", TSR_READER_FLOAT64}};
  for (size_t i = 1; i <= kIntegers; ++i) out.push_back({"I" + std::to_string(i), TSR_READER_FLOAT32});
  for (size_t i = 1; i <= kCategories; ++i) out.push_back({"C" + std::to_string(i), TSR_READER_TEXT});
  return out;
}

}  // namespace

const char* Criteo::describe(const std::string&) {
  using json = nlohmann::ordered_json;
  json all = json::array();
  for (const ReaderColumn& c : columns_of_lines()) {
    const bool ids = c.type == TSR_READER_TEXT;
    const char* const as = ids ? "ids" : c.type == TSR_READER_FLOAT32 ? "dense" : "label";
    all.push_back({{"name", c.name}, {"as", as}, {"table", c.name}, {"ids", ids ? "hash" : "row"}});
  }
  said_ = json{{"name", "criteo"}, {"columns", all}}.dump();
  return said_.c_str();
}

void Criteo::open(std::string_view path, int64_t block_bytes) {
  constexpr std::string_view kEndings[] = {".tsv", ".txt", ".tsv.gz", ".txt.gz", ".tsv.zst", ".txt.zst"};
  start(columns_of_lines());
  for (const std::string& file : files_of(path, kEndings)) add_file(file, block_bytes);
  if (!blocks().empty()) (void)read(0);  // a file of another kind is refused at once
}

void Criteo::add_line(std::string_view text, const LinePlace& place, std::vector<SampleColumn>& columns) const {
  const std::string_view label = cut(text, '\t');
  if (label != "0" && label != "1") place.wrong("the label is \"", label.substr(0, kShown), "\", but must be 0 or 1");
  auto column = columns.begin();
  column++->add(label == "1" ? 1.0 : 0.0);
  const auto next_field = [&] {
    if (finished(text)) place.wrong("a line has ", kFields, " fields with tabs between; this one has fewer");
    return cut(text, '\t');
  };
  for (size_t i = 1; i <= kIntegers; ++i) {
    const std::string_view field = next_field();
    int64_t value = 0;
    if (!field.empty() && !tessera::sdk::parse_number(field, value))
      place.wrong("I", i, " is \"", field.substr(0, kShown), "\", but must be an integer");
    column++->add(static_cast<float>(std::log1p(static_cast<double>(std::max<int64_t>(value, 0)))));
  }
  for (size_t i = 1; i <= kCategories; ++i) {
    const std::string_view field = next_field();
    if (!is_hex(field)) place.wrong("C", i, " is \"", field.substr(0, kShown), "\", but must be a hexadecimal number");
    column++->add(field);
  }
  if (!finished(text)) place.wrong("there are more than ", kFields, " fields");
}

}  // namespace tessera_readers

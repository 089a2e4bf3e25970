// Labels and weights of samples.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "data/column_numbers.h"
#include "data/columns.h"
#include "data/words.h"
#include "tessera/sdk/number_text.h"

namespace tessera::data {
namespace {

constexpr const char* kZeroOrOne =
    ", but must be 0 or 1; threshold = X makes it 1 from X on, positive = \"X\" makes X 1 and all others 0, and real = "
    "true takes any number";

// Returns 0 or 1 for labels in the usual form; -1: anything else.
int plain_label(const ColumnConfig& c, int32_t type, const tsr_reader_values& v, int64_t row) {
  if (c.threshold || !c.positive.empty() || !has(v, row)) return -1;
  if (type == TSR_READER_FLOAT64) {
    const double value = static_cast<const double*>(v.values)[row];
    return value == 0 ? 0 : value == 1 ? 1 : -1;
  }
  if (v.texts[row + 1] - v.texts[row] != 1) return -1;
  const char text = static_cast<const char*>(v.values)[v.texts[row]];
  return text == '0' || text == '1' ? text - '0' : -1;
}

// True if a text stands for a missing value. "none", "-" and "?" may be classes.
bool is_missing_label(std::string_view text) {
  if (text.empty()) return true;
  const bool may_be_class = text == "-" || text == "?" || sdk::values_detail::same_but_case(text, "none");
  return sdk::is_missing_word(text) && !may_be_class;
}

bool same_letters(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

float Columns::label_of(const Column& column, const BlockRows& at, const tsr_reader_values& v, int64_t row) {
  if (const int plain = plain_label(column.config, column.type, v, row); plain >= 0) return static_cast<float>(plain);
  const ColumnConfig& c = column.config;
  const auto wrong = [&](const auto&... why) {
    fail(Code::kInvalidArgument, at.where(row, column.field()), ": ", why...);
  };
  const ColumnNumbers numbers(c, column.type, v);
  if (!has(v, row)) wrong("the label is missing");
  if (column.type == TSR_READER_TEXT && is_missing_label(sdk::trimmed(numbers.text(row))))
    wrong("the label is missing: it is ", sdk::shown_text(numbers.text(row)));
  if (!c.positive.empty()) {
    Words given(true), wanted(true);
    const std::string_view text = sdk::trimmed(numbers.text(row)), one = wanted.of(c.positive);
    if (given.of(text) == one) return 1.0f;
    if (same_letters(text, one))
      wrong("the label is ", sdk::shown_text(text), ", but positive = \"", c.positive,
            "\" makes only that spelling 1: write one spelling into the files");
    return 0.0f;
  }
  double value = kMissing;
  try {
    value = numbers.at(row);
  } catch (const NoNumber& e) {
    const bool plain = !c.threshold && !c.real && sdk::number_advice(numbers.text(row)).empty();
    const std::string word = sdk::shown_text(sdk::trimmed(numbers.text(row)));
    if (plain)
      wrong(word, " is not a number: positive = ", word, " in its [[column]] makes that word 1 and all others 0");
    wrong(e.what());
  }
  if (std::isnan(value)) wrong("the label is missing");
  if (c.threshold) return reaches(value, *c.threshold) ? 1.0f : 0.0f;
  const auto label = static_cast<float>(value);
  if (!std::isfinite(label)) wrong("the label is ", value, ", which is too large for a float32");
  if (!c.real && value != 0 && value != 1) wrong("the label is ", value, kZeroOrOne);
  return label;
}

float Columns::weight_of(const Column& column, const BlockRows& at, const tsr_reader_values& v, int64_t row) {
  double value = number_at({column.config, column.type, v}, row, at, row, column.field());
  if (std::isnan(value) && !column.config.missing)
    fail(Code::kInvalidArgument, at.where(row, column.field()),
         ": the weight is missing; set missing in its [[column]] to a number to use that instead");
  if (std::isnan(value)) value = column.config.missing->number;
  const auto weight = static_cast<float>(value);
  if (!std::isfinite(weight) || value < 0)
    fail(Code::kInvalidArgument, at.where(row, column.field()), ": the weight is ", value,
         value < 0 ? ", but must be 0 or more" : ", which is too large for a float32");
  return weight;
}

// Returns each sample's labels, followed by its weight if samples have weights.
std::vector<float> Columns::labels_of(const BlockRows& at, std::span<const tsr_reader_values> values) const {
  const std::vector<const Column*> labels = of("label"), weights = of("weight");
  const size_t stride = label_form().values();
  std::vector<float> out(static_cast<size_t>(at.rows) * stride);
  for (size_t k = 0; k < stride; ++k) {
    const bool is_label = k < labels.size();
    const Column& column = is_label ? *labels[k] : *weights[0];
    float* to = out.data() + k;
    if (!labelled_) {
      for (int64_t i = 0; i < at.rows; ++i, to += stride) *to = is_label ? 0.0f : 1.0f;
      continue;
    }
    const tsr_reader_values& v = values[column.place];
    for (int64_t i = 0; i < at.rows; ++i, to += stride)
      *to = is_label ? label_of(column, at, v, at.first + i) : weight_of(column, at, v, at.first + i);
  }
  return out;
}

}  // namespace tessera::data

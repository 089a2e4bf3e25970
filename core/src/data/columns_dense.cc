// Dense values of samples, and what columns learn from the training rows.
#include <algorithm>
#include <cmath>

#include "config/json.h"
#include "data/column_numbers.h"
#include "data/columns.h"
#include "data/words.h"

namespace tessera::data {
namespace {

bool has_transform(const ColumnConfig& c, const char* name) {
  return std::find(c.transform.begin(), c.transform.end(), name) != c.transform.end();
}

double logarithm_of(const ColumnConfig& c, double value) {
  return has_transform(c, "log1p") ? std::log1p(std::max(value, 0.0)) : value;
}

// Returns plain float32 values of rows [at.first, at.first + at.rows) if all of them are present and finite; else null.
const float* as_they_are(const ColumnConfig& c, int32_t type, const BlockRows& at, const tsr_reader_values& v) {
  if (type != TSR_READER_FLOAT32 || v.present != nullptr || !c.transform.empty()) return nullptr;
  const float* from = static_cast<const float*>(v.values) + at.first;
  bool finite = true;
  for (int64_t i = 0; i < at.rows; ++i) finite &= std::isfinite(from[i]);
  return finite ? from : nullptr;
}

}  // namespace

bool Columns::Column::standardised() const { return has_transform(config, "standardise"); }

double Columns::dense_of(const Column& column, double value) {
  return (logarithm_of(column.config, value) - column.mean) / column.deviation;
}

// The values are in sample-major order.
std::vector<float> Columns::dense_of(const BlockRows& at, std::span<const tsr_reader_values> values) const {
  const std::vector<const Column*> dense = of("dense");
  const auto width = static_cast<size_t>(dense_width());
  std::vector<float> out(static_cast<size_t>(at.rows) * width);
  for (size_t k = 0; k < dense.size(); ++k) {
    const Column& column = *dense[k];
    const tsr_reader_values& v = values[column.place];
    const ColumnNumbers numbers(column.config, column.type, v);
    const float* plain = as_they_are(column.config, column.type, at, v);
    float* to = out.data() + k;
    for (int64_t i = 0; i < at.rows; ++i, to += width) {
      if (plain != nullptr) {
        *to = plain[i];
        continue;
      }
      const int64_t row = at.first + i;
      double value = number_at(numbers, row, at, row, column.field());
      if (std::isnan(value)) {
        if (!column.config.missing)
          fail(Code::kInvalidArgument, at.where(row, column.field()),
               ": the value is missing; set missing in its [[column]] to a number, or to \"mean\", to use that "
               "instead");
        value = column.config.missing->number;
      }
      *to = static_cast<float>(dense_of(column, value));
      if (!std::isfinite(*to))
        fail(Code::kInvalidArgument, at.where(row, column.field()), ": the value ", value,
             " is too large for a float32");
    }
  }
  size_t first = dense.size();
  for (const Column* column : of("vector")) {
    vectors_of(*column, at, values[column->place], out.data() + first, width);
    first += static_cast<size_t>(column->config.width);
  }
  return out;
}

void Columns::vectors_of(const Column& column, const BlockRows& at, const tsr_reader_values& v, float* to,
                         size_t stride) {
  const ColumnNumbers numbers(column.config, column.type, v);
  for (int64_t row = at.first; row < at.first + at.rows; ++row, to += stride) {
    const int64_t begin = v.lists[row], count = v.lists[row + 1] - begin;
    if (count == 0 && column.config.missing) {
      std::fill_n(to, column.config.width, static_cast<float>(column.config.missing->number));
      continue;
    }
    if (count != column.config.width)
      fail(Code::kInvalidArgument, at.where(row, column.field()), ": the vector has ", count,
           count == 1 ? " number" : " numbers", ", but the [[column]] says width = ", column.config.width,
           count == 0 ? "; set missing to a number to use that instead" : "");
    for (int64_t i = 0; i < count; ++i) {
      to[i] = static_cast<float>(number_at(numbers, begin + i, at, row, column.field()));
      if (!std::isfinite(to[i]))
        fail(Code::kInvalidArgument, at.where(row, column.field()), ": number ", i + 1,
             " of the vector is missing or not finite");
    }
  }
}

float Columns::dense_value(const std::string& name, double value) const {
  const Column& column = named(name);
  if (!std::isnan(value)) return static_cast<float>(dense_of(column, value));
  TESSERA_CHECK(column.config.missing, "the column has no value for what is missing");
  return static_cast<float>(dense_of(column, column.config.missing->number));
}

double Columns::dense_number(const std::string& name, std::string_view text) const {
  try {
    const ColumnConfig& config = named(name).config;
    return number_in(config, text, since_of(config));
  } catch (const NoNumber& e) {
    fail(Code::kInvalidArgument, e.what());
  }
}

std::string Columns::learning() const {
  const auto learns = [](const Column& c) {
    return c.standardised() || c.learns_missing() || (c.config.as == "ids" && c.config.ids == "vocabulary");
  };
  const auto first = std::find_if(columns_.begin(), columns_.end(), learns);
  return learned_ || first == columns_.end() ? "" : first->name;
}

void Columns::learn(const BlockRows& at, std::span<const tsr_reader_values> values) {
  for (Column& c : columns_) {
    if (!c.config.cross.empty()) continue;
    if (c.standardised() || c.learns_missing()) learn_numbers(c, at, values[c.place]);
    if (c.config.as == "ids" && c.config.ids == "vocabulary") learn_words(c, at, values[c.place]);
  }
}

void Columns::learn_numbers(Column& c, const BlockRows& at, const tsr_reader_values& v) {
  const ColumnNumbers numbers(c.config, c.type, v);
  for (int64_t row = at.first; row < at.first + at.rows; ++row) {
    double value = number_at(numbers, row, at, row, c.field());
    if (c.learns_missing()) std::isnan(value) ? c.missing.add_missing() : c.missing.add(value);
    // it was counted, or append() will refuse it
    if (std::isnan(value) && (c.learns_missing() || !c.config.missing)) continue;
    if (std::isnan(value)) value = c.config.missing->number;
    const double x = logarithm_of(c.config, value);
    const double before = x - c.mean;  // Welford's algorithm
    c.mean += before / ++c.count;
    c.squares += before * (x - c.mean);
  }
}

void Columns::learn_words(const Column& column, const BlockRows& at, const tsr_reader_values& v) {
  Vocabulary& vocabulary = vocabularies_[column.table];
  Words words(words_);
  for (int64_t row = at.first; row < at.first + at.rows; ++row) {
    const int64_t begin = v.lists ? v.lists[row] : row, end = v.lists ? v.lists[row + 1] : row + (has(v, row) ? 1 : 0);
    for (int64_t i = begin; i < end; ++i) {
      const std::string_view text(static_cast<const char*>(v.values) + v.texts[i],
                                  static_cast<size_t>(v.texts[i + 1] - v.texts[i]));
      if (!vocabulary.add(words.of(text)) || config::is_utf8(std::string(text))) continue;
      fail(Code::kInvalidArgument, at.where(row, column.field()),
           ": a word of a vocabulary must be UTF-8; a file in another encoding is read by reader = "
           "\"csv?encoding=latin-1\", or windows-1252 or utf-16, and ids = \"hash\" takes any bytes");
    }
  }
}

void Columns::finish_learning() {
  for (Column& c : columns_) {
    if (c.config.as == "ids" && c.config.ids == "vocabulary" && !learned_)
      vocabularies_[c.table].drop_rare(c.config.min_count);
    if (c.learns_missing() && !learned_) take_missing(c);
    if (!c.standardised()) {
      c.mean = 0;
    } else if (c.count > 0 && c.squares > 0) {
      c.deviation = std::sqrt(c.squares / c.count);
      if (!std::isfinite(c.deviation))
        fail(Code::kInvalidArgument, "column \"", c.field(),
             "\" has values too large to standardise: their variance is ", "beyond what a double holds");
    }
  }
  learned_ = true;
}

// Computes the replacement for missing values. Rows without a value then count as rows with it.
void Columns::take_missing(Column& c) {
  MissingValue& seen = c.missing;
  if (seen.count() == 0)
    fail(Code::kInvalidArgument, "no training row has a value in column \"", c.field(), "\", so it has no ",
         c.config.missing->word, ": leave the column out, or give missing a number");
  c.config.missing->number = c.config.missing->word == "mean" ? seen.mean() : seen.median();
  const double x = logarithm_of(c.config, c.config.missing->number);
  const auto missing = static_cast<double>(seen.missing());
  const double apart = x - c.mean, all = c.count + missing;
  c.squares += apart * apart * c.count * missing / all;
  c.mean += apart * missing / all;
  c.count = all;
  seen = {};
}

}  // namespace tessera::data

// Labels and weights of samples.
#include <cmath>

#include "data/columns.h"

namespace tessera::data {
namespace {

// Labels that are taken as they are: each is 0 or 1.
bool are_plain_labels(const ColumnConfig& c, const tsr_reader_values& v, std::span<const float> values) {
  if (v.present != nullptr || c.threshold) return false;
  bool plain = true;
  for (const float value : values) plain &= (value == 0.0f) | (value == 1.0f);
  return plain;
}

}  // namespace

float Columns::label_of(const Column& column, const BlockRows& at, const tsr_reader_values& v, int64_t row) {
  if (!has(v, row)) fail(Code::kInvalidArgument, at.where(row, column.name), ": the label is missing");
  const float value = static_cast<const float*>(v.values)[row];
  if (column.config.threshold) return static_cast<double>(value) >= *column.config.threshold ? 1.0f : 0.0f;
  if (!std::isfinite(value))
    fail(Code::kInvalidArgument, at.where(row, column.name), ": the label is ", value, ", which is no number");
  if (!column.config.real && value != 0 && value != 1)
    fail(Code::kInvalidArgument, at.where(row, column.name), ": the label is ", value,
         ", but must be 0 or 1; threshold = X makes it 1 from X on, and real = true takes any number");
  return value;
}

float Columns::weight_of(const Column& column, const BlockRows& at, const tsr_reader_values& v, int64_t row) {
  if (!has(v, row) && !column.config.missing)
    fail(Code::kInvalidArgument, at.where(row, column.name),
         ": the weight is missing; missing = X in its [[column]] takes X instead");
  const float value =
      has(v, row) ? static_cast<const float*>(v.values)[row] : static_cast<float>(column.config.missing->number);
  if (!std::isfinite(value) || value < 0)
    fail(Code::kInvalidArgument, at.where(row, column.name), ": the weight is ", value, ", but must be 0 or more");
  return value;
}

// Of each sample its labels and, where samples have weights, its weight.
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
    } else if (!is_label) {
      for (int64_t i = 0; i < at.rows; ++i, to += stride) *to = weight_of(column, at, values[k], at.first + i);
    } else if (const float* from = static_cast<const float*>(values[k].values) + at.first;
               are_plain_labels(column.config, values[k], {from, static_cast<size_t>(at.rows)})) {
      for (int64_t i = 0; i < at.rows; ++i, to += stride) *to = from[i];
    } else {
      for (int64_t i = 0; i < at.rows; ++i, to += stride) *to = label_of(column, at, values[k], at.first + i);
    }
  }
  return out;
}

}  // namespace tessera::data

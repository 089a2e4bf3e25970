#include "sequence_moves.h"

namespace tessera_dense {
namespace {

using tessera::sdk::fail;
using tessera::sdk::ModuleCall;
using tessera::sdk::Value;
using Rows = SampleRows;

// The number of a sample's rows that rows_of takes; throws Failure if the sample has fewer.
int64_t taken(const RowCounts& counts, const Rows& rows, int64_t sample) {
  const int64_t count = counts.of(sample);
  if (count >= 0 && count <= rows.count(sample)) return count;
  fail(TSR_INVALID_ARGUMENT, "rows_of is to take ", count, " rows of sample ", sample, ", which has ",
       rows.count(sample));
}

// The number of a sample's rows that split_sequences gives to the first output.
int64_t first_part(int64_t rows, int64_t like, int64_t sample) {
  if (like <= rows) return like;
  fail(TSR_INVALID_ARGUMENT, "split_sequences is to take ", like, " rows of sample ", sample, ", which has ", rows);
}

}  // namespace

int64_t one_width(std::span<const Value> inputs, size_t least, const char* layer) {
  if (inputs.size() < least)
    fail(TSR_INVALID_ARGUMENT, layer, " takes at least ", least, " inputs, not ", inputs.size());
  for (const Value& value : inputs) {
    if (!is_float(value.dtype)) fail(TSR_INVALID_ARGUMENT, layer, " takes float32 values");
    if (value.width != inputs[0].width) {
      fail(TSR_INVALID_ARGUMENT, layer, " takes inputs of one width, not of ", inputs[0].width, " and ", value.width,
           " values: put the layer \"linear\" before it");
    }
  }
  return inputs[0].width;
}

float* output_rows(const ModuleCall& call, size_t k, const char* layer) {
  return matrix(call.outputs[k], call.outputs[k].shape[0], call.outputs[k].shape[1], layer);
}
const float* output_gradient(const ModuleCall& call, size_t k, const char* layer) {
  return matrix_or_null(call.grad_outputs[k], call.outputs[k].shape[0], call.outputs[k].shape[1], layer);
}
int64_t* written_offsets(const ModuleCall& call, size_t k) {
  return tessera::sdk::elements<int64_t>(call.output_offsets[k], "an output's offsets").data();
}

SampleRows::SampleRows(const ModuleCall& call, size_t i, const char* layer)
    : width_(call.inputs[i].shape[1]),
      dense_(call.offsets.empty() || call.offsets[i].data == nullptr),
      offsets_(dense_ ? nullptr : offsets_of(call, i, layer)) {
  const int64_t rows = call.inputs[i].shape[0];
  if (dense_ && rows != call.batch)
    fail(TSR_INVALID_ARGUMENT, layer, " takes a dense input with a row for each sample");
  values_ = matrix(call.inputs[i], rows, width_, layer);
  if (!call.grad_inputs.empty()) gradient_ = matrix_or_null(call.grad_inputs[i], rows, width_, layer);
}

const std::vector<SampleRows>& MovesRows::take_rows(const ModuleCall& call, const char* layer) {
  rows_.clear();
  for (size_t i = 0; i < call.inputs.size(); ++i) rows_.emplace_back(call, i, layer);
  return rows_;
}

void MovesRows::backward(const ModuleCall& call, tsr_module_context*) {
  for (const DLTensor& t : call.grad_inputs) {
    if (t.data != nullptr) std::fill_n(tessera::sdk::data_as<float>(t), tessera::sdk::numel(t), 0.0f);
  }
  parameter_data(call.grad_parameters, parameters_, gradients_);
  compute_back(call);
}

std::vector<Value> ConcatSequences::outputs(std::span<const Value> inputs) const {
  return {Value::own_rows(one_width(inputs, 2, "concat_sequences"))};
}

void ConcatSequences::max_rows(const ModuleCall& call, std::span<int64_t> rows) const {
  for (const DLTensor& t : call.inputs) rows[0] += t.shape[0];
}

void ConcatSequences::compute(const ModuleCall& call) {
  const std::vector<Rows>& all = take_rows(call, "concat_sequences");
  const int64_t width = call.inputs[0].shape[1];
  float* to = output_rows(call, 0, "concat_sequences' output");
  int64_t* offsets = written_offsets(call, 0);
  offsets[0] = 0;
  for (int64_t s = 0; s < call.batch; ++s) {
    offsets[s + 1] = offsets[s];
    for (const Rows& rows : all) {
      to = std::copy_n(rows.values(s), rows.count(s) * width, to);
      offsets[s + 1] += rows.count(s);
    }
  }
}

void ConcatSequences::compute_back(const ModuleCall& call) {
  const float* from = output_gradient(call, 0, "the gradient of concat_sequences' output");
  if (!from) return;
  const std::vector<Rows>& all = take_rows(call, "concat_sequences");
  const int64_t width = call.inputs[0].shape[1];
  for (int64_t s = 0; s < call.batch; ++s) {
    for (const Rows& rows : all) {
      if (float* to = rows.gradient(s)) std::copy_n(from, rows.count(s) * width, to);
      from += rows.count(s) * width;
    }
  }
}

std::vector<Value> SplitSequences::outputs(std::span<const Value> inputs) const {
  if (inputs.size() != 2)
    fail(TSR_INVALID_ARGUMENT, "split_sequences takes a sequence and one whose rows it takes first, not ",
         inputs.size(), " inputs");
  const int64_t width = width_of_rows(inputs[0], "split_sequences");
  if (!inputs[1].jagged) fail(TSR_INVALID_ARGUMENT, "split_sequences takes two sequences");
  return {inputs[1].with_width(width), Value::own_rows(width)};
}

void SplitSequences::max_rows(const ModuleCall& call, std::span<int64_t> rows) const {
  rows[1] = call.inputs[0].shape[0];
}

void SplitSequences::compute(const ModuleCall& call) {
  const Rows rows(call, 0, "split_sequences");
  const int64_t* like = offsets_of(call, 1, "split_sequences");
  const int64_t width = call.inputs[0].shape[1];
  float *first = output_rows(call, 0, "split_sequences' output"),
        *rest = output_rows(call, 1, "split_sequences' output");
  int64_t* offsets = written_offsets(call, 1);
  offsets[0] = 0;
  for (int64_t s = 0; s < call.batch; ++s) {
    const int64_t taken_first = first_part(rows.count(s), like[s + 1] - like[s], s);
    first = std::copy_n(rows.values(s), taken_first * width, first);
    rest = std::copy_n(rows.values(s) + taken_first * width, (rows.count(s) - taken_first) * width, rest);
    offsets[s + 1] = offsets[s] + rows.count(s) - taken_first;
  }
}

void SplitSequences::compute_back(const ModuleCall& call) {
  const Rows rows(call, 0, "split_sequences");
  const int64_t* like = offsets_of(call, 1, "split_sequences");
  const int64_t width = call.inputs[0].shape[1];
  const float *first = output_gradient(call, 0, "a gradient of split_sequences"),
              *rest = output_gradient(call, 1, "a gradient of split_sequences");
  const int64_t* offsets = written_offsets(call, 1);
  for (int64_t s = 0; s < call.batch; ++s) {
    float* to = rows.gradient(s);
    if (!to) return;
    const int64_t count = like[s + 1] - like[s];
    if (first) std::copy_n(first + like[s] * width, count * width, to);
    if (rest) std::copy_n(rest + offsets[s] * width, (rows.count(s) - count) * width, to + count * width);
  }
}

std::vector<Value> LastRow::outputs(std::span<const Value> inputs) const {
  if (inputs.size() != 1) fail(TSR_INVALID_ARGUMENT, "last_row takes one sequence, not ", inputs.size(), " inputs");
  return {Value{width_of_rows(inputs[0], "last_row")}};
}

void LastRow::compute(const ModuleCall& call) {
  const Rows rows(call, 0, "last_row");
  const int64_t width = call.inputs[0].shape[1];
  float* to = output_rows(call, 0, "last_row's output");
  for (int64_t s = 0; s < call.batch; ++s, to += width) {
    if (rows.count(s) == 0)
      std::fill_n(to, width, 0.0f);
    else
      std::copy_n(rows.values(s) + (rows.count(s) - 1) * width, width, to);
  }
}

void LastRow::compute_back(const ModuleCall& call) {
  const float* from = output_gradient(call, 0, "the gradient of last_row's output");
  const Rows rows(call, 0, "last_row");
  const int64_t width = call.inputs[0].shape[1];
  for (int64_t s = 0; from && s < call.batch; ++s) {
    float* to = rows.gradient(s);
    if (to && rows.count(s) > 0) std::copy_n(from + s * width, width, to + (rows.count(s) - 1) * width);
  }
}

std::vector<Value> RowsOf::outputs(std::span<const Value> inputs) const {
  if (inputs.size() != 2)
    fail(TSR_INVALID_ARGUMENT, "rows_of takes a sequence and numbers of rows, not ", inputs.size(), " inputs");
  RowCounts::check(inputs[1], "rows_of", "numbers of rows");
  const int64_t width = width_of_rows(inputs[0], "rows_of");
  const bool has_rows = inputs[1].jagged || is_float(inputs[1].dtype);
  return {has_rows ? inputs[1].with_width(width) : Value::own_rows(width)};
}

void RowsOf::max_rows(const ModuleCall& call, std::span<int64_t> rows) const { rows[0] = call.inputs[0].shape[0]; }

void RowsOf::compute(const ModuleCall& call) {
  const Rows rows(call, 0, "rows_of");
  const int64_t width = call.inputs[0].shape[1];
  const RowCounts counts(call, 1, "rows_of");
  float* to = output_rows(call, 0, "rows_of's output");
  const bool own = !call.output_offsets.empty() && call.output_offsets[0].data != nullptr;
  int64_t* offsets = own ? written_offsets(call, 0) : nullptr;
  if (own) offsets[0] = 0;
  for (int64_t s = 0; s < call.batch; ++s) {
    const int64_t count = taken(counts, rows, s);
    to = std::copy_n(rows.values(s) + (rows.count(s) - count) * width, count * width, to);
    if (own) offsets[s + 1] = offsets[s] + count;
  }
}

void RowsOf::compute_back(const ModuleCall& call) {
  const float* from = output_gradient(call, 0, "the gradient of rows_of's output");
  const Rows rows(call, 0, "rows_of");
  const RowCounts counts(call, 1, "rows_of");
  const int64_t width = call.inputs[0].shape[1];
  for (int64_t s = 0; from && s < call.batch; ++s) {
    const int64_t count = taken(counts, rows, s);
    if (float* to = rows.gradient(s)) std::copy_n(from, count * width, to + (rows.count(s) - count) * width);
    from += count * width;
  }
}

std::vector<Value> Add::outputs(std::span<const Value> inputs) const {
  const int64_t width = one_width(inputs, 2, "add");
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].jagged && !inputs[i].has_rows_of(inputs[0]))
      fail(TSR_INVALID_ARGUMENT, "add takes sequences with the same rows, but inputs 0 and ", i,
           " have different ones");
  }
  return {inputs[0].with_width(width)};
}

void Add::compute(const ModuleCall& call) {
  const std::vector<Rows>& all = take_rows(call, "add");
  const int64_t width = call.inputs[0].shape[1];
  float* to = output_rows(call, 0, "add's output");
  std::copy_n(all[0].values(0), tessera::sdk::numel(call.inputs[0]), to);
  for (size_t k = 1; k < all.size(); ++k) {
    if (all[k].dense() == all[0].dense()) {
      loops_.add(tessera::sdk::numel(call.inputs[0]), all[k].values(0), to);
      continue;
    }
    for (int64_t s = 0; s < call.batch; ++s) {
      for (int64_t r = all[0].begin(s); r < all[0].begin(s) + all[0].count(s); ++r)
        loops_.add(width, all[k].values(s), to + r * width);
    }
  }
}

void Add::compute_back(const ModuleCall& call) {
  const float* from = output_gradient(call, 0, "the gradient of add's output");
  if (!from) return;
  const std::vector<Rows>& all = take_rows(call, "add");
  const int64_t width = call.inputs[0].shape[1];
  for (const Rows& rows : all) {
    for (int64_t s = 0; s < call.batch; ++s) {
      float* to = rows.gradient(s);
      if (!to) break;
      for (int64_t r = 0; r < all[0].count(s); ++r)
        loops_.add(width, from + (all[0].begin(s) + r) * width, rows.dense() ? to : to + r * width);
    }
  }
}

}  // namespace tessera_dense

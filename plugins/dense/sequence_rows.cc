#include "sequence_rows.h"

#include "dropout.h"
#include "weights.h"

namespace tessera_dense {
namespace {

using tessera::sdk::fail;
using tessera::sdk::ModuleCall;
using tessera::sdk::Value;
using Rows = SampleRows;

int64_t positive(tessera::sdk::Options& options, const char* name, const char* what) {
  const int64_t value = options.integer(name, 0);
  if (value < 1) fail(TSR_INVALID_ARGUMENT, "option \"", name, "\" must give ", what, ", above 0");
  return value;
}

// The width of input `i`, from the option "inputs".
int64_t listed_width(const tessera::sdk::Setup& setup, size_t i, const char* layer) {
  const std::vector<int64_t> widths = setup.options.integers("inputs", {});
  if (widths.size() > i && widths[i] > 0) return widths[i];
  fail(TSR_INVALID_ARGUMENT, layer, ": option \"inputs\" must list the widths of its inputs");
}

void take_inputs(std::span<const Value> inputs, size_t wanted, const char* layer, const char* what) {
  if (inputs.size() != wanted) fail(TSR_INVALID_ARGUMENT, layer, " takes ", what, ", not ", inputs.size(), " inputs");
  for (const Value& value : inputs) {
    if (!is_float(value.dtype)) fail(TSR_INVALID_ARGUMENT, layer, " takes float32 values");
  }
}

}  // namespace

ReplaceLast::ReplaceLast(const tessera::sdk::Setup& setup)
    : MovesRows(setup), learnt_(setup.options.flag("learnt", false)) {
  if (learnt_)
    parameters_.push_back({"weight", {listed_width(setup, 1, "replace_last")}, tessera::sdk::normal(0, 0.02)});
}

std::vector<Value> ReplaceLast::outputs(std::span<const Value> inputs) const {
  take_inputs(inputs, 2, "replace_last", "a sequence and the rows that replace its last ones");
  (void)width_of_rows(inputs[0], "replace_last");
  return {inputs[0].with_width(learnt_ ? inputs[1].width : one_width(inputs, 2, "replace_last"))};
}

int64_t ReplaceLast::staying(const Rows& all, const Rows& last, int64_t sample) const {
  if (last.count(sample) <= all.count(sample)) return all.count(sample) - last.count(sample);
  fail(TSR_INVALID_ARGUMENT, "replace_last is to replace ", last.count(sample), " rows of sample ", sample,
       ", which has ", all.count(sample));
}

void ReplaceLast::compute(const ModuleCall& call) {
  const Rows all(call, 0, "replace_last"), last(call, 1, "replace_last");
  const int64_t width = call.inputs[1].shape[1];
  float* to = output_rows(call, 0, "replace_last's output");
  for (int64_t s = 0; s < call.batch; ++s) {
    const int64_t stay = staying(all, last, s);
    for (int64_t r = 0; r < stay; ++r) to = std::copy_n(learnt_ ? values_[0] : all.values(s) + r * width, width, to);
    to = std::copy_n(last.values(s), last.count(s) * width, to);
  }
}

void ReplaceLast::compute_back(const ModuleCall& call) {
  const float* from = output_gradient(call, 0, "the gradient of replace_last's output");
  if (!from) return;
  const Rows all(call, 0, "replace_last"), last(call, 1, "replace_last");
  const int64_t width = call.inputs[1].shape[1];
  for (int64_t s = 0; s < call.batch; ++s) {
    const int64_t stay = staying(all, last, s);
    for (int64_t r = 0; r < stay; ++r, from += width) {
      if (learnt_) {
        loops_.add(width, from, gradients_[0]);
      } else if (float* to = all.gradient(s)) {
        std::copy_n(from, width, to + r * width);
      }
    }
    if (float* to = last.gradient(s)) std::copy_n(from, last.count(s) * width, to);
    from += last.count(s) * width;
  }
}

Interleave::Interleave(const tessera::sdk::Setup& setup)
    : MovesRows(setup), only_first_(setup.options.word("evaluation", {"all", "first"}) == 1) {}

std::vector<Value> Interleave::outputs(std::span<const Value> inputs) const {
  const int64_t width = one_width(inputs, 2, "interleave");
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].jagged || !inputs[i].has_rows_of(inputs[0]))
      fail(TSR_INVALID_ARGUMENT, "interleave takes sequences with the same rows, but inputs 0 and ", i,
           " have different ones");
  }
  return {Value::own_rows(width)};
}

void Interleave::max_rows(const ModuleCall& call, std::span<int64_t> rows) const {
  for (const DLTensor& t : call.inputs) rows[0] += t.shape[0];
}

void Interleave::compute(const ModuleCall& call) {
  const std::vector<Rows>& all = take_rows(call, "interleave");
  const size_t taken = only_first_ && !call.trains ? 1 : all.size();
  const int64_t width = call.inputs[0].shape[1];
  float* to = output_rows(call, 0, "interleave's output");
  int64_t* offsets = written_offsets(call, 0);
  offsets[0] = 0;
  for (int64_t s = 0; s < call.batch; ++s) {
    offsets[s + 1] = offsets[s] + all[0].count(s) * static_cast<int64_t>(taken);
    for (int64_t r = 0; r < all[0].count(s); ++r) {
      for (size_t i = 0; i < taken; ++i) to = std::copy_n(all[i].values(s) + r * width, width, to);
    }
  }
}

void Interleave::compute_back(const ModuleCall& call) {
  const float* from = output_gradient(call, 0, "the gradient of interleave's output");
  if (!from) return;
  const std::vector<Rows>& all = take_rows(call, "interleave");
  const size_t taken = only_first_ && !call.trains ? 1 : all.size();
  const int64_t width = call.inputs[0].shape[1];
  for (int64_t s = 0; s < call.batch; ++s) {
    for (int64_t r = 0; r < all[0].count(s); ++r) {
      for (size_t i = 0; i < taken; ++i, from += width) {
        if (float* to = all[i].gradient(s)) std::copy_n(from, width, to + r * width);
      }
    }
  }
}

PadRows::PadRows(const tessera::sdk::Setup& setup)
    : MovesRows(setup),
      length_(positive(setup.options, "length", "the rows of each sample")),
      min_rows_(setup.options.integer("min_rows", 0)),
      value_(static_cast<float>(setup.options.number("value", 0))) {
  if (min_rows_ < 0) fail(TSR_INVALID_ARGUMENT, "option \"min_rows\" must be 0 or above, not ", min_rows_);
}

std::vector<Value> PadRows::outputs(std::span<const Value> inputs) const {
  take_inputs(inputs, min_rows_ > 0 ? 2 : 1, "pad_rows",
              min_rows_ > 0 ? "a sequence and one whose rows it counts" : "one sequence");
  if (!inputs.back().jagged) fail(TSR_INVALID_ARGUMENT, "pad_rows takes sequences: tables whose pooling is none");
  return {Value{length_ * width_of_rows(inputs[0], "pad_rows")}};
}

int64_t PadRows::taken(const ModuleCall& call, const Rows& rows, int64_t sample) const {
  if (min_rows_ > 0 && RowCounts(call, 1, "pad_rows").of(sample) < min_rows_) return 0;
  return std::min(rows.count(sample), length_);
}

void PadRows::compute(const ModuleCall& call) {
  const Rows rows(call, 0, "pad_rows");
  const int64_t width = call.inputs[0].shape[1];
  float* to = output_rows(call, 0, "pad_rows' output");
  for (int64_t s = 0; s < call.batch; ++s, to += length_ * width) {
    const int64_t values = taken(call, rows, s) * width;
    std::copy_n(rows.values(s), values, to);
    std::fill(to + values, to + length_ * width, value_);
  }
}

void PadRows::compute_back(const ModuleCall& call) {
  const float* from = output_gradient(call, 0, "the gradient of pad_rows' output");
  const Rows rows(call, 0, "pad_rows");
  const int64_t width = call.inputs[0].shape[1];
  for (int64_t s = 0; from && s < call.batch; ++s) {
    if (float* to = rows.gradient(s)) std::copy_n(from + s * length_ * width, taken(call, rows, s) * width, to);
  }
}

UnpadRows::UnpadRows(const tessera::sdk::Setup& setup)
    : MovesRows(setup), length_(positive(setup.options, "length", "the rows of each sample")) {}

std::vector<Value> UnpadRows::outputs(std::span<const Value> inputs) const {
  take_inputs(inputs, 2, "unpad_rows", "a row for each sample and a sequence whose rows it counts");
  if (inputs[0].jagged || !inputs[1].jagged)
    fail(TSR_INVALID_ARGUMENT, "unpad_rows takes a row for each sample, and then a sequence");
  if (inputs[0].width % length_ != 0)
    fail(TSR_INVALID_ARGUMENT, "unpad_rows takes \"length\" rows side by side, but ", inputs[0].width,
         " values are no multiple of ", length_);
  return {inputs[1].with_width(inputs[0].width / length_)};
}

void UnpadRows::compute(const ModuleCall& call) {
  const Rows padded(call, 0, "unpad_rows"), like(call, 1, "unpad_rows");
  const int64_t width = call.inputs[0].shape[1] / length_;
  float* to = output_rows(call, 0, "unpad_rows' output");
  for (int64_t s = 0; s < call.batch; ++s) {
    const int64_t taken = std::min(like.count(s), length_);
    to = std::copy_n(padded.values(s), taken * width, to);
    to = std::fill_n(to, (like.count(s) - taken) * width, 0.0F);
  }
}

void UnpadRows::compute_back(const ModuleCall& call) {
  const float* from = output_gradient(call, 0, "the gradient of unpad_rows' output");
  const Rows padded(call, 0, "unpad_rows"), like(call, 1, "unpad_rows");
  const int64_t width = call.inputs[0].shape[1] / length_;
  for (int64_t s = 0; from && s < call.batch; ++s) {
    if (float* to = padded.gradient(s)) std::copy_n(from, std::min(like.count(s), length_) * width, to);
    from += like.count(s) * width;
  }
}

MaskRows::MaskRows(const tessera::sdk::Setup& setup) : MovesRows(setup), rate_(setup.options.number("rate", 0.2)) {
  if (!(rate_ > 0 && rate_ < 1)) fail(TSR_INVALID_ARGUMENT, "option \"rate\" must be above 0 and below 1, not ", rate_);
  parameters_.push_back({"weight", {listed_width(setup, 0, "mask_rows")}, tessera::sdk::normal(0, 0.02)});
}

std::vector<Value> MaskRows::outputs(std::span<const Value> inputs) const {
  take_inputs(inputs, 1, "mask_rows", "one sequence");
  return {inputs[0].with_width(width_of_rows(inputs[0], "mask_rows")), inputs[0].with_width(1)};
}

void MaskRows::draw(const ModuleCall& call, float* masked) const {
  const Rows rows(call, 0, "mask_rows");
  const int64_t count = call.inputs[0].shape[0];
  if (call.trains) {
    // Dropout turns ones into zeros in the rows that it drops, which are the masked ones.
    std::fill_n(masked, count, 1.0F);
    Dropper(call, 0, rate_).drop(0, count, masked, masked);
    for (int64_t r = 0; r < count; ++r) masked[r] = masked[r] == 0 ? 1.0F : 0.0F;
    return;
  }
  std::fill_n(masked, count, 0.0F);
  for (int64_t s = 0; s < call.batch; ++s) {
    if (rows.count(s) > 0) masked[rows.begin(s) + rows.count(s) - 1] = 1;
  }
}

void MaskRows::compute(const ModuleCall& call) {
  const int64_t width = call.inputs[0].shape[1];
  const float* from = matrix(call.inputs[0], call.inputs[0].shape[0], width, "mask_rows' input");
  float *to = output_rows(call, 0, "mask_rows' output"), *masked = output_rows(call, 1, "mask_rows' output");
  draw(call, masked);
  for (int64_t r = 0; r < call.inputs[0].shape[0]; ++r)
    std::copy_n(masked[r] != 0 ? values_[0] : from + r * width, width, to + r * width);
}

void MaskRows::compute_back(const ModuleCall& call) {
  const float* from = output_gradient(call, 0, "the gradient of mask_rows' output");
  if (!from) return;
  const int64_t width = call.inputs[0].shape[1];
  const float* masked = output_rows(call, 1, "mask_rows' output");
  float* to = matrix_or_null(call.grad_inputs[0], call.inputs[0].shape[0], width, "a gradient");
  for (int64_t r = 0; r < call.inputs[0].shape[0]; ++r, from += width) {
    if (masked[r] != 0)
      loops_.add(width, from, gradients_[0]);
    else if (to)
      std::copy_n(from, width, to + r * width);
  }
}

std::vector<Value> ScaleRows::outputs(std::span<const Value> inputs) const {
  take_inputs(inputs, 2, "scale_rows", "rows and a number for each, or for each sample");
  if (inputs[1].width > 1 || (inputs[1].jagged && !inputs[1].has_rows_of(inputs[0])))
    fail(TSR_INVALID_ARGUMENT, "scale_rows takes numbers, one for each row of its first input or for each sample");
  return {inputs[0].with_width(inputs[0].width)};
}

namespace {

// Calls body(index of the row, index of its number) for all rows of `rows`.
template <class Body>
void for_scaled(const ModuleCall& call, const Rows& rows, const Rows& numbers, const Body& body) {
  for (int64_t s = 0; s < call.batch; ++s) {
    for (int64_t r = 0; r < rows.count(s); ++r) body(rows.begin(s) + r, numbers.dense() ? s : numbers.begin(s) + r);
  }
}

}  // namespace

void ScaleRows::compute(const ModuleCall& call) {
  const std::vector<Rows>& all = take_rows(call, "scale_rows");
  const int64_t width = call.inputs[0].shape[1];
  float* to = output_rows(call, 0, "scale_rows' output");
  for_scaled(call, all[0], all[1], [&](int64_t row, int64_t number) {
    loops_.of_rows->scale(width, all[1].values(0)[number], all[0].values(0) + row * width, to + row * width);
  });
}

void ScaleRows::compute_back(const ModuleCall& call) {
  const float* from = output_gradient(call, 0, "the gradient of scale_rows' output");
  if (!from) return;
  const std::vector<Rows>& all = take_rows(call, "scale_rows");
  const int64_t width = call.inputs[0].shape[1];
  float *dx = all[0].gradient(0), *dnumbers = all[1].gradient(0);
  for_scaled(call, all[0], all[1], [&](int64_t row, int64_t number) {
    if (dx) loops_.of_rows->scale(width, all[1].values(0)[number], from + row * width, dx + row * width);
    if (dnumbers) dnumbers[number] += loops_.of_rows->dot(width, from + row * width, all[0].values(0) + row * width);
  });
}

SampleLinear::SampleLinear(const tessera::sdk::Setup& setup) : MovesRows(setup) { prepare_products(); }

std::vector<Value> SampleLinear::outputs(std::span<const Value> inputs) const {
  take_inputs(inputs, 2, "sample_linear", "rows and a matrix for each sample");
  const int64_t width = inputs[0].width, values = inputs[1].width;
  if (inputs[1].jagged) fail(TSR_INVALID_ARGUMENT, "sample_linear takes one matrix for each sample, not a sequence");
  if (width < 1 || values % width != 0)
    fail(TSR_INVALID_ARGUMENT, "sample_linear takes rows of ", width, " values, and matrices of ", values,
         " values are no multiple of it");
  return {inputs[0].with_width(values / width)};
}

void SampleLinear::compute(const ModuleCall& call) {
  const OneThread alone;
  const std::vector<Rows>& all = take_rows(call, "sample_linear");
  const int64_t width = call.inputs[0].shape[1], out = call.outputs[0].shape[1];
  float* to = output_rows(call, 0, "sample_linear's output");
  for (int64_t s = 0; s < call.batch; ++s) {
    const int64_t rows = all[0].count(s);
    if (rows == 0) continue;
    multiply({'N', 'N', rows, out, width, 1, all[0].values(s), width, all[1].values(s), out, 0,
              to + all[0].begin(s) * out, out});
  }
}

void SampleLinear::compute_back(const ModuleCall& call) {
  const float* from = output_gradient(call, 0, "the gradient of sample_linear's output");
  if (!from) return;
  const OneThread alone;
  const std::vector<Rows>& all = take_rows(call, "sample_linear");
  const int64_t width = call.inputs[0].shape[1], out = call.outputs[0].shape[1];
  for (int64_t s = 0; s < call.batch; ++s) {
    const int64_t rows = all[0].count(s);
    if (rows == 0) continue;
    const float* dout = from + all[0].begin(s) * out;
    if (float* dx = all[0].gradient(s))
      multiply({'N', 'T', rows, width, out, 1, dout, out, all[1].values(s), out, 0, dx, width});
    if (float* dmatrix = all[1].gradient(s))
      multiply({'T', 'N', width, out, rows, 1, all[0].values(s), width, dout, out, 0, dmatrix, out});
  }
}

}  // namespace tessera_dense

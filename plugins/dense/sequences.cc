#include "sequences.h"

namespace tessera_dense {

using tessera::sdk::fail;
using tessera::sdk::ModuleCall;
using tessera::sdk::Value;

const int64_t* offsets_of(const ModuleCall& call, size_t i, const char* layer) {
  const DLTensor& rows = call.inputs[i];
  if (call.offsets.empty() || call.offsets[i].data == nullptr || rows.ndim != 2)
    fail(TSR_INVALID_ARGUMENT, layer, " takes a sequence: rows [n, width] with offsets");
  const std::span<int64_t> offsets = tessera::sdk::elements<int64_t>(call.offsets[i], "offsets");
  if (static_cast<int64_t>(offsets.size()) != call.batch + 1)
    fail(TSR_INVALID_ARGUMENT, layer, " needs ", call.batch + 1, " offsets, not ", offsets.size());
  if (offsets.front() != 0 || offsets.back() != rows.shape[0])
    fail(TSR_INVALID_ARGUMENT, layer, " needs offsets from 0 to the number of rows, ", rows.shape[0]);
  return offsets.data();
}

Sequence sequence_of(const ModuleCall& call, size_t i, int64_t width, const char* layer) {
  const int64_t* offsets = offsets_of(call, i, layer);
  const DLTensor& rows = call.inputs[i];
  if (width > 0 && rows.shape[1] != width)
    fail(TSR_INVALID_ARGUMENT, layer, " takes rows of ", width, " values, not ", rows.shape[1]);
  return {matrix(rows, rows.shape[0], rows.shape[1], layer), offsets, rows.shape[0], rows.shape[1]};
}

int64_t width_of_rows(const Value& value, const char* layer) {
  if (!value.jagged || !tessera::sdk::same_dtype(value.dtype, tessera::sdk::dtype_of<float>()))
    fail(TSR_INVALID_ARGUMENT, layer, " takes a sequence of float32 rows: a table whose pooling is none");
  return value.width;
}

void check_integers(const Value& value, const Value* like, const char* layer, const char* what) {
  const bool integers = value.dtype.code == kDLInt && (value.dtype.bits == 32 || value.dtype.bits == 64);
  const bool fits = like != nullptr ? value.has_rows_of(*like) : !value.jagged;
  if (integers && fits && value.width <= 1) return;
  fail(TSR_INVALID_ARGUMENT, layer, " takes ", what, " as integers, one for each ",
       like != nullptr ? "row of its sequence" : "sample");
}

namespace {

bool has_offsets(const ModuleCall& call, size_t i) { return !call.offsets.empty() && call.offsets[i].data != nullptr; }

}  // namespace

IntegerRows::IntegerRows(const ModuleCall& call, size_t i, const char* layer)
    : values_(&call.inputs[i]), offsets_(has_offsets(call, i) ? offsets_of(call, i, layer) : nullptr) {}

RowCounts::RowCounts(const ModuleCall& call, size_t i, const char* layer)
    : values_(&call.inputs[i]), offsets_(has_offsets(call, i) ? offsets_of(call, i, layer) : nullptr) {}

void RowCounts::check(const Value& value, const char* layer, const char* what) {
  if (!value.jagged && !is_float(value.dtype)) check_integers(value, nullptr, layer, what);
}

void DrawnInputs::check(size_t candidates, bool per_sample, const char* layer) const {
  const int64_t draw = of(candidates);
  if (draw == kPerSample && !per_sample)
    fail(TSR_INVALID_ARGUMENT, layer,
         " with negatives = \"batch\" takes candidates that all samples of a rank share, but ", "input ", candidates,
         " is drawn for each sample: leave out per=sample, or set negatives = \"sample\"");
  if (per_sample && (draw == kAll || draw == kPerBatch))
    fail(TSR_INVALID_ARGUMENT, layer,
         " with negatives = \"sample\" or \"row\" takes each sample's own candidates, but ", "input ", candidates,
         " is drawn for the batch: draw it with ", draw == kAll ? "draw=uniform, count and " : "", "per=sample");
}

void clear_gradient(const ModuleCall& call, size_t i) {
  const DLTensor& t = call.grad_inputs[i];
  if (t.data != nullptr) std::fill_n(tessera::sdk::data_as<float>(t), tessera::sdk::numel(t), 0.0f);
}

std::vector<Value> SequenceLayer::outputs(std::span<const Value> inputs) const {
  if (inputs.size() != 1) fail(TSR_INVALID_ARGUMENT, layer_, " takes one sequence, not ", inputs.size(), " inputs");
  const int64_t width = width_of_rows(inputs[0], layer_);
  if (width_ > 0 && width > 0 && width != width_)
    fail(TSR_INVALID_ARGUMENT, layer_, " takes rows of ", width_, " values, not ", width);
  return {Value{width_ > 0 ? width_ : width}};
}

void SequenceLayer::forward(const ModuleCall& call, tsr_module_context** context) {
  const Sequence in = sequence_of(call, 0, width_, layer_);
  float* out = matrix(call.outputs[0], call.batch, in.width, layer_);
  parameter_data(call.parameters, parameters_, pointers_);
  for (int64_t s = 0; s < call.batch; ++s) {
    const int64_t first = in.offsets[s];
    pool(in.offsets[s + 1] - first, in.width, in.rows + first * in.width, pointers_.empty() ? nullptr : pointers_[0],
         out + s * in.width);
  }
  if (context) *context = reinterpret_cast<tsr_module_context*>(this);
}

void SequenceLayer::backward(const ModuleCall& call, tsr_module_context*) {
  if (nothing_comes_back(call)) return;
  const Sequence in = sequence_of(call, 0, width_, layer_);
  const float* dout = matrix(call.grad_outputs[0], call.batch, in.width, layer_);
  float* drows = matrix_or_null(call.grad_inputs[0], in.count, in.width, layer_);
  parameter_data(call.parameters, parameters_, pointers_);
  parameter_data(call.grad_parameters, parameters_, gradients_);
  if (drows) std::fill_n(drows, in.count * in.width, 0.0f);
  for (int64_t s = 0; s < call.batch; ++s) {
    const int64_t at = in.offsets[s] * in.width;
    pool_back(in.offsets[s + 1] - in.offsets[s], in.width, in.rows + at, pointers_.empty() ? nullptr : pointers_[0],
              dout + s * in.width, drows ? drows + at : nullptr, gradients_.empty() ? nullptr : gradients_[0]);
  }
}

void SumPooling::pool(int64_t count, int64_t width, const float* rows, const float*, float* out) const {
  std::fill_n(out, width, 0.0f);
  const float each = mean_ && count > 0 ? 1.0f / static_cast<float>(count) : 1.0f;
  for (int64_t r = 0; r < count; ++r) loops_.add_scaled(width, each, rows + r * width, out);
}

void SumPooling::pool_back(int64_t count, int64_t width, const float*, const float*, const float* dout, float* drows,
                           float*) const {
  const float each = mean_ && count > 0 ? 1.0f / static_cast<float>(count) : 1.0f;
  for (int64_t r = 0; drows && r < count; ++r) loops_.add_scaled(width, each, dout, drows + r * width);
}

void MaxPooling::pool(int64_t count, int64_t width, const float* rows, const float*, float* out) const {
  for (int64_t i = 0; i < width; ++i) {
    float largest = count > 0 ? rows[i] : 0.0f;
    for (int64_t r = 1; r < count; ++r) largest = rows[r * width + i] > largest ? rows[r * width + i] : largest;
    out[i] = largest;
  }
}

void MaxPooling::pool_back(int64_t count, int64_t width, const float* rows, const float*, const float* dout,
                           float* drows, float*) const {
  if (!drows || count == 0) return;
  for (int64_t i = 0; i < width; ++i) {
    int64_t largest = 0;
    for (int64_t r = 1; r < count; ++r) largest = rows[r * width + i] > rows[largest * width + i] ? r : largest;
    drows[largest * width + i] = dout[i];
  }
}

PositionWeights::PositionWeights(const tessera::sdk::Setup& setup)
    : SequenceLayer(setup, "position_weights"), max_length_(setup.options.integer("max_length", 0)) {
  if (max_length_ < 1)
    fail(TSR_INVALID_ARGUMENT,
         "option \"max_length\" must be the largest length of a sequence, "
         "above 0");
  parameters_.push_back({"position_weight", {max_length_}, tessera::sdk::constant(1)});
}

void PositionWeights::check_length(int64_t count) const {
  if (count > max_length_) {
    fail(TSR_INVALID_ARGUMENT, "a sequence has ", count, " rows, but \"max_length\" is ", max_length_,
         ": truncate the lists or raise it");
  }
}

void PositionWeights::pool(int64_t count, int64_t width, const float* rows, const float* w, float* out) const {
  check_length(count);
  std::fill_n(out, width, 0.0f);
  for (int64_t r = 0; r < count; ++r) loops_.add_scaled(width, w[r], rows + r * width, out);
}

void PositionWeights::pool_back(int64_t count, int64_t width, const float* rows, const float* w, const float* dout,
                                float* drows, float* dw) const {
  check_length(count);
  for (int64_t r = 0; r < count; ++r) {
    dw[r] += loops_.dot(width, dout, rows + r * width);
    if (drows) loops_.add_scaled(width, w[r], dout, drows + r * width);
  }
}

TargetAttention::TargetAttention(const tessera::sdk::Setup& setup)
    : host_(setup.host),
      loops_(*choose_loops().of_rows),
      width_(0),
      softmax_(setup.options.flag("softmax", false)),
      chain_(setup.host) {
  const std::vector<int64_t> inputs = setup.options.integers("inputs", {});
  if (inputs.size() != 2 || inputs[0] != inputs[1] || inputs[0] < 1) {
    fail(TSR_INVALID_ARGUMENT,
         "option \"inputs\" must list the widths of its target and of its sequence, which are equal");
  }
  width_ = inputs[0];
  const std::string activation = setup.options.string("activation", "sigmoid");
  const Precision precision = read_precision(setup);
  int64_t from = 4 * width_, number = 0;
  for (const int64_t width : setup.options.integers("widths", {64})) {
    if (width < 1) fail(TSR_INVALID_ARGUMENT, "option \"widths\" must be above 0, not ", width);
    const std::string name = std::to_string(number++) + ".";
    chain_.add(make_linear(host_, from, width, true, precision), name);
    chain_.add(make_activation(host_, "target_attention", activation, width), name + "activation.");
    from = width;
  }
  chain_.add(make_linear(host_, from, 1, true, precision), std::to_string(number) + ".");
}

std::vector<Value> TargetAttention::outputs(std::span<const Value> inputs) const {
  if (inputs.size() != 2 || inputs[0].jagged || inputs[0].width != width_ ||
      width_of_rows(inputs[1], "target_attention") != width_) {
    fail(TSR_INVALID_ARGUMENT, "target_attention takes a target and a sequence, both of ", width_, " values");
  }
  return {Value{width_}};
}

void TargetAttention::forward(const ModuleCall& call, tsr_module_context** context) {
  const Sequence history = sequence_of(call, 1, width_, "target_attention");
  const float* target = matrix(call.inputs[0], call.batch, width_, "target_attention's target");
  float* out = matrix(call.outputs[0], call.batch, width_, "target_attention's output");
  auto lease = contexts_.take();
  float* to = lease->features.at_least(host_, history.count * 4 * width_);
  for (int64_t s = 0; s < call.batch; ++s) {
    const float* q = target + s * width_;
    for (int64_t r = history.offsets[s]; r < history.offsets[s + 1]; ++r, to += 4 * width_)
      loops_.compare(width_, q, history.rows + r * width_, to);
  }
  float* scores = lease->scores.at_least(host_, history.count);
  lease->kept.at_least(host_, chain_.kept(history.count));
  chain_.forward(pointers_.run(call, chain_, history.count, context != nullptr), lease->features.data(), scores,
                 lease->kept.data());
  std::fill_n(out, call.batch * width_, 0.0f);
  for (int64_t s = 0; s < call.batch; ++s) {
    const int64_t first = history.offsets[s], count = history.offsets[s + 1] - first;
    if (softmax_ && count > 0) loops_.softmax(1, count, scores + first, scores + first);
    for (int64_t r = first; r < first + count; ++r)
      loops_.add_scaled(width_, scores[r], history.rows + r * width_, out + s * width_);
  }
  contexts_.hand_out(std::move(lease), context);
}

void TargetAttention::backward(const ModuleCall& call, tsr_module_context* context) {
  if (nothing_comes_back(call)) return;
  const Context& kept = *contexts_.of(context);
  const Sequence history = sequence_of(call, 1, width_, "target_attention");
  const float* dout = matrix(call.grad_outputs[0], call.batch, width_, "the gradient of target_attention's output");
  const float* scores = kept.scores.data();
  float* dscores = dscores_.at_least(host_, history.count);
  for (int64_t s = 0; s < call.batch; ++s) {
    const int64_t first = history.offsets[s], count = history.offsets[s + 1] - first;
    for (int64_t r = first; r < first + count; ++r)
      dscores[r] = loops_.dot(width_, dout + s * width_, history.rows + r * width_);
    if (softmax_ && count > 0) loops_.softmax_back(1, count, scores + first, dscores + first, dscores + first);
  }
  float* dfeatures = dfeatures_.at_least(host_, history.count * 4 * width_);
  chain_.backward(pointers_.run(call, chain_, history.count, true), kept.features.data(), dscores, dfeatures,
                  kept.kept.data());
  add_rows_gradients(call, kept, dfeatures);
}

// Computes the gradients of q and k from those of [q, k, q - k, q * k]. The weighted sum also adds to the gradient of
// k.
void TargetAttention::add_rows_gradients(const ModuleCall& call, const Context& kept, const float* dfeatures) const {
  const Sequence history = sequence_of(call, 1, width_, "target_attention");
  const float* target = matrix(call.inputs[0], call.batch, width_, "target_attention's target");
  const float* dout = matrix(call.grad_outputs[0], call.batch, width_, "the gradient of target_attention's output");
  float* dtarget = matrix_or_null(call.grad_inputs[0], call.batch, width_, "the gradient of the target");
  float* drows = matrix_or_null(call.grad_inputs[1], history.count, width_, "the gradient of the sequence");
  const float* scores = kept.scores.data();
  if (dtarget) std::fill_n(dtarget, call.batch * width_, 0.0f);
  for (int64_t s = 0; s < call.batch; ++s) {
    for (int64_t r = history.offsets[s]; r < history.offsets[s + 1]; ++r) {
      float *dq = dtarget ? dtarget + s * width_ : nullptr, *dk = drows ? drows + r * width_ : nullptr;
      if (dk) loops_.scale(width_, scores[r], dout + s * width_, dk);
      loops_.compare_back(width_, target + s * width_, history.rows + r * width_, dfeatures + r * 4 * width_, dq, dk);
    }
  }
}

}  // namespace tessera_dense

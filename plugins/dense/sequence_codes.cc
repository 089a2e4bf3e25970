#include "sequence_codes.h"

#include <cmath>
#include <numbers>

namespace tessera_dense {
namespace {

using tessera::sdk::fail;
using tessera::sdk::ModuleCall;
using tessera::sdk::Value;

constexpr double kSpread = 0.02;  // standard deviation of the initial tables

// The gradient of the output, which must not be NULL.
const float* gradient_of(const ModuleCall& call, const char* layer) {
  return matrix(call.grad_outputs[0], call.outputs[0].shape[0], call.outputs[0].shape[1], layer);
}
float* output(const ModuleCall& call, const char* layer) {
  return matrix(call.outputs[0], call.outputs[0].shape[0], call.outputs[0].shape[1], layer);
}

int64_t above(tessera::sdk::Options& options, const char* name, int64_t least, int64_t otherwise) {
  const int64_t value = options.integer(name, otherwise);
  if (value < least) fail(TSR_INVALID_ARGUMENT, "option \"", name, "\" must be at least ", least, ", not ", value);
  return value;
}

}  // namespace

void CodeLayer::forward(const ModuleCall& call, tsr_module_context** context) {
  parameter_data(call.parameters, parameters_, pointers_);
  compute(call, pointers_.data());
  if (context) *context = reinterpret_cast<tsr_module_context*>(this);
}

void CodeLayer::backward(const ModuleCall& call, tsr_module_context*) {
  if (nothing_comes_back(call)) return;
  parameter_data(call.grad_parameters, parameters_, gradients_);
  compute_back(call, gradients_.data());
}

int64_t CodeLayer::needed_row_width(const char* layer) const {
  if (inputs_.empty() || inputs_[0] < 1)
    fail(TSR_INVALID_ARGUMENT, layer, ": option \"inputs\" must list the widths of its inputs");
  return inputs_[0];
}

int64_t CodeLayer::targets_of(const RowCounts& of, int64_t sample, int64_t rows) {
  const int64_t targets = of.of(sample);
  if (targets >= 0 && targets <= rows) return targets;
  fail(TSR_INVALID_ARGUMENT, "sample ", sample, " has ", targets, " targets, but ", rows, " rows");
}

PositionEmbedding::PositionEmbedding(const tessera::sdk::Setup& setup)
    : CodeLayer(setup),
      length_(setup.options.integer("length", 0)),
      contextual_(above(setup.options, "contextual", 0, 0)),
      from_(setup.options.string("from", "front")),
      targets_(setup.options.flag("targets", false)),
      scale_(static_cast<float>(setup.options.number("scale", 1))) {
  if (length_ < 1) fail(TSR_INVALID_ARGUMENT, "option \"length\" must say how many positions there are, above 0");
  if (from_ != "front" && from_ != "end" && from_ != "target")
    fail(TSR_INVALID_ARGUMENT, "option \"from\" is \"", from_, "\", but must be front, end or target");
  if (from_ != "target" && (targets_ || contextual_ > 0))
    fail(TSR_INVALID_ARGUMENT, "options \"targets\" and \"contextual\" are of from = \"target\"");
  if (contextual_ > length_)
    fail(TSR_INVALID_ARGUMENT, "option \"contextual\" must be at most \"length\", ", length_, ", not ", contextual_);
  parameters_.push_back(
      {"weight", {length_, needed_row_width("position_embedding")}, tessera::sdk::normal(0, kSpread)});
}

std::vector<Value> PositionEmbedding::outputs(std::span<const Value> inputs) const {
  const size_t wanted = targets_ ? 2 : 1;
  if (inputs.size() != wanted)
    fail(TSR_INVALID_ARGUMENT, "position_embedding takes a sequence", targets_ ? " and numbers of targets" : "",
         ", not ", inputs.size(), " inputs");
  const int64_t width = width_of_rows(inputs[0], "position_embedding");
  if (width != inputs_[0] && width != 0)
    fail(TSR_INVALID_ARGUMENT, "position_embedding takes rows of ", inputs_[0], " values, not ", width);
  if (targets_) RowCounts::check(inputs[1], "position_embedding", "numbers of targets");
  return {inputs[0].with_width(inputs_[0])};
}

// The table's row for a position in a sample.
int64_t PositionEmbedding::row_of(int64_t position, int64_t rows, int64_t targets) const {
  if (from_ == "front") return position;
  if (from_ == "end") return length_ - rows + position;
  if (position < contextual_) return position;
  return std::min(std::max<int64_t>(rows - targets - position, 0) + contextual_, length_ - 1);
}

// Calls body(row of the sequence, row of the table).
template <class Body>
void PositionEmbedding::for_rows(const ModuleCall& call, const Body& body) const {
  const int64_t* offsets = offsets_of(call, 0, "position_embedding");
  const RowCounts counts = targets_ ? RowCounts(call, 1, "position_embedding") : RowCounts();
  for (int64_t s = 0; s < call.batch; ++s) {
    const int64_t rows = offsets[s + 1] - offsets[s];
    if (from_ != "target" && rows > length_) {
      fail(TSR_INVALID_ARGUMENT, "sample ", s, " has ", rows, " rows, but position_embedding's \"length\" is ", length_,
           ": truncate the lists or raise it");
    }
    const int64_t targets = targets_of(counts, s, rows);
    for (int64_t i = 0; i < rows; ++i) body(offsets[s] + i, row_of(i, rows, targets));
  }
}

void PositionEmbedding::compute(const ModuleCall& call, float* const* parameters) const {
  const Sequence in = sequence_of(call, 0, inputs_[0], "position_embedding");
  float* to = output(call, "position_embedding's output");
  loops_.scale(in.count * in.width, scale_, in.rows, to);
  for_rows(call, [&](int64_t row, int64_t position) {
    loops_.add_scaled(in.width, 1, parameters[0] + position * in.width, to + row * in.width);
  });
}

void PositionEmbedding::compute_back(const ModuleCall& call, float* const* gradients) const {
  const Sequence in = sequence_of(call, 0, inputs_[0], "position_embedding");
  const float* grad = gradient_of(call, "the gradient of position_embedding's output");
  for_rows(call, [&](int64_t row, int64_t position) {
    loops_.add_scaled(in.width, 1, grad + row * in.width, gradients[0] + position * in.width);
  });
  if (targets_) clear_gradient(call, 1);
  if (float* dx = matrix_or_null(call.grad_inputs[0], in.count, in.width, "a gradient"))
    loops_.scale(in.count * in.width, scale_, grad, dx);
}

TimeEncoding::TimeEncoding(const tessera::sdk::Setup& setup)
    : CodeLayer(setup), contextual_(above(setup.options, "contextual", 0, 0)) {
  const size_t kind = setup.options.word("kind", {"sqrt", "log", "calendar"});
  if (kind == 2) {
    units_ = setup.options.integers("units", {3600, 86400});
    periods_ = setup.options.integers("periods", {24, 7});
    pi_ = setup.options.number("pi", std::numbers::pi);
    const auto bad = [](int64_t n) { return n < 1; };
    if (periods_.empty() || units_.size() != periods_.size() || std::any_of(units_.begin(), units_.end(), bad) ||
        std::any_of(periods_.begin(), periods_.end(), bad))
      fail(TSR_INVALID_ARGUMENT, "options \"units\" and \"periods\" must list as many numbers, all above 0");
    needed_row_width("time_encoding");
    return;
  }
  log_ = kind == 1;
  unit_ = setup.options.number("unit", 60);
  if (!(unit_ > 0)) fail(TSR_INVALID_ARGUMENT, "option \"unit\" must be above 0, not ", unit_);
  buckets_ = above(setup.options, "buckets", 1, 2047);
  const int64_t rows = above(setup.options, "rows", buckets_ + 1, buckets_ + 1);
  parameters_.push_back({"weight", {rows, needed_row_width("time_encoding")}, tessera::sdk::normal(0, kSpread)});
}

std::vector<Value> TimeEncoding::outputs(std::span<const Value> inputs) const {
  if (inputs.size() < 2)
    fail(TSR_INVALID_ARGUMENT, "time_encoding takes a sequence and the times of its rows, not only one input");
  const int64_t width = width_of_rows(inputs[0], "time_encoding");
  if (width != inputs_[0] && width != 0)
    fail(TSR_INVALID_ARGUMENT, "time_encoding takes rows of ", inputs_[0], " values, not ", width);
  const bool whole = inputs.size() == 2 && contextual_ == 0;
  for (const Value& times : inputs.subspan(1))
    check_integers(times, whole ? &inputs[0] : times.jagged ? &times : nullptr, "time_encoding", "times");
  return {inputs[0].with_width(inputs_[0] + 2 * std::ssize(periods_))};
}

int64_t TimeEncoding::bucket(int64_t time, int64_t last) const {
  const double units = std::max(static_cast<double>(last - time), 1e-6) / unit_;
  const double at = log_ ? std::max(std::log(units), 0.0) : std::sqrt(units);
  return at >= static_cast<double>(buckets_) ? buckets_ : static_cast<int64_t>(at);
}

// Computes in integers, because a float32 cannot tell one second since 1970 from the next.
void TimeEncoding::append_calendar(int64_t time, float* to) const {
  for (size_t k = 0; k < periods_.size(); ++k) {
    const int64_t past = time / units_[k] - (time % units_[k] < 0 ? 1 : 0);
    const int64_t at = ((past % periods_[k]) + periods_[k]) % periods_[k];
    const double angle = 2 * pi_ * static_cast<double>(at) / static_cast<double>(periods_[k]);
    *to++ = static_cast<float>(std::cos(angle));
    *to++ = static_cast<float>(std::sin(angle));
  }
}

// Calls body(row of the sequence, its time, the time of the sample's last row).
template <class Body>
void TimeEncoding::for_times(const ModuleCall& call, const Body& body) const {
  const int64_t* offsets = offsets_of(call, 0, "time_encoding");
  std::vector<IntegerRows> all;
  for (size_t i = 1; i < call.inputs.size(); ++i) all.emplace_back(call, i, "time_encoding");
  for (int64_t s = 0; s < call.batch; ++s) {
    int64_t row = offsets[s], last = 0, rows = contextual_;
    for (const IntegerRows& times : all) {
      rows += times.count(s);
      if (times.count(s) > 0) last = times.at(s, times.count(s) - 1);
    }
    if (rows != offsets[s + 1] - row) {
      fail(TSR_INVALID_ARGUMENT, "sample ", s, " has ", offsets[s + 1] - row,
           " rows, but time_encoding has the times of ", rows, contextual_ > 0 ? ", contextual rows included" : "");
    }
    for (int64_t k = 0; k < contextual_; ++k) body(row++, 0, last);
    for (const IntegerRows& times : all) {
      for (int64_t k = 0; k < times.count(s); ++k) body(row++, times.at(s, k), last);
    }
  }
}

// Calls body(row of the sequence, row of the table).
template <class Body>
void TimeEncoding::for_buckets(const ModuleCall& call, const Body& body) const {
  for_times(call, [&](int64_t row, int64_t time, int64_t last) { body(row, bucket(time, last)); });
}

void TimeEncoding::compute(const ModuleCall& call, float* const* parameters) const {
  const Sequence in = sequence_of(call, 0, inputs_[0], "time_encoding");
  float* to = output(call, "time_encoding's output");
  if (!calendar()) {
    std::copy_n(in.rows, in.count * in.width, to);
    for_buckets(call, [&](int64_t row, int64_t bucket) {
      loops_.add_scaled(in.width, 1, parameters[0] + bucket * in.width, to + row * in.width);
    });
    return;
  }
  for_times(call, [&](int64_t row, int64_t time, int64_t) {
    to = std::copy_n(in.rows + row * in.width, in.width, to);
    append_calendar(time, to);
    to += 2 * std::ssize(periods_);
  });
}

void TimeEncoding::compute_back(const ModuleCall& call, float* const* gradients) const {
  const Sequence in = sequence_of(call, 0, inputs_[0], "time_encoding");
  const float* grad = gradient_of(call, "the gradient of time_encoding's output");
  const int64_t stride = in.width + 2 * std::ssize(periods_);
  if (!calendar()) {
    for_buckets(call, [&](int64_t row, int64_t bucket) {
      loops_.add_scaled(in.width, 1, grad + row * in.width, gradients[0] + bucket * in.width);
    });
  }
  float* dx = matrix_or_null(call.grad_inputs[0], in.count, in.width, "a gradient");
  for (int64_t r = 0; dx && r < in.count; ++r) std::copy_n(grad + r * stride, in.width, dx + r * in.width);
}

ActionEmbedding::ActionEmbedding(const tessera::sdk::Setup& setup)
    : CodeLayer(setup),
      actions_(setup.options.integers("actions", {})),
      thresholds_(setup.options.integers("thresholds", {})),
      threshold_bits_(setup.options.integers("threshold_bits", {})),
      dim_(setup.options.integer("dim", 0)),
      targets_(setup.options.flag("targets", false)) {
  if (actions_.empty()) fail(TSR_INVALID_ARGUMENT, "option \"actions\" must list the bits of each action: [1, 2, 4]");
  for (const int64_t bits : actions_) {
    if (bits < 1) fail(TSR_INVALID_ARGUMENT, "option \"actions\" must list numbers above 0, not ", bits);
  }
  if (dim_ < 1) fail(TSR_INVALID_ARGUMENT, "option \"dim\" must give the values of an action, above 0");
  if (thresholds_.size() != threshold_bits_.size())
    fail(TSR_INVALID_ARGUMENT, "options \"thresholds\" and \"threshold_bits\" must list as many numbers, not ",
         thresholds_.size(), " and ", threshold_bits_.size());
  const int64_t count = std::ssize(actions_);
  parameters_.push_back({"weight", {count, dim_}, tessera::sdk::normal(0, kSpread)});
  if (targets_) parameters_.push_back({"target", {count * dim_}, tessera::sdk::normal(0, kSpread)});
}

std::vector<Value> ActionEmbedding::outputs(std::span<const Value> inputs) const {
  const bool over_rows = targets_ && !inputs.empty() && is_float(inputs[0].dtype);
  const size_t first = over_rows ? 1 : 0, numbers = thresholds_.empty() ? 0 : 1;
  if (inputs.size() != first + 1 + numbers + (targets_ && !over_rows ? 1 : 0) || !inputs[0].jagged ||
      !inputs[first].jagged) {
    fail(TSR_INVALID_ARGUMENT, "action_embedding takes ",
         over_rows ? "a sequence of rows and one of integers" : "a sequence of integers",
         numbers > 0 ? ", numbers to compare with \"thresholds\"" : "",
         targets_ && !over_rows ? " and numbers of targets" : "");
  }
  check_integers(inputs[first], &inputs[first], "action_embedding", "actions");
  if (numbers > 0) check_integers(inputs[first + 1], &inputs[first], "action_embedding", "numbers");
  if (targets_ && !over_rows) RowCounts::check(inputs.back(), "action_embedding", "numbers of targets");
  return {inputs[0].with_width(std::ssize(actions_) * dim_)};
}

int64_t ActionEmbedding::with_thresholds(int64_t bits, int64_t number) const {
  for (size_t k = 0; k < thresholds_.size(); ++k) {
    if (number >= thresholds_[k]) bits |= threshold_bits_[k];
  }
  return bits;
}

template <class Target, class Action>
void ActionEmbedding::for_actions(const ModuleCall& call, const Target& target, const Action& action) const {
  constexpr const char* kName = "action_embedding";
  const int64_t* offsets = offsets_of(call, 0, kName);
  const size_t first = codes_at(call);
  const IntegerRows codes(call, first, kName), numbers(call, first + (thresholds_.empty() ? 0 : 1), kName);
  const RowCounts counts = targets_ && first == 0 ? RowCounts(call, call.inputs.size() - 1, kName) : RowCounts();
  for (int64_t s = 0; s < call.batch; ++s) {
    const int64_t rows = offsets[s + 1] - offsets[s];
    const int64_t known = first == 0 ? rows - targets_of(counts, s, rows) : codes.count(s);
    if (known > rows)
      fail(TSR_INVALID_ARGUMENT, "sample ", s, " has ", known, " actions, but action_embedding's rows are ", rows);
    for (int64_t r = 0; r < rows; ++r) {
      if (r >= known) {
        target(offsets[s] + r);
        continue;
      }
      const int64_t bits = with_thresholds(codes.at(s, r), numbers.at(s, r));
      for (size_t k = 0; k < actions_.size(); ++k) {
        if ((bits & actions_[k]) != 0) action(offsets[s] + r, static_cast<int64_t>(k));
      }
    }
  }
}

void ActionEmbedding::compute(const ModuleCall& call, float* const* parameters) const {
  float* to = output(call, "action_embedding's output");
  const int64_t width = std::ssize(actions_) * dim_;
  std::fill_n(to, tessera::sdk::numel(call.outputs[0]), 0.0f);
  for_actions(
      call, [&](int64_t row) { std::copy_n(parameters[1], width, to + row * width); },
      [&](int64_t row, int64_t k) { std::copy_n(parameters[0] + k * dim_, dim_, to + row * width + k * dim_); });
}

void ActionEmbedding::compute_back(const ModuleCall& call, float* const* gradients) const {
  if (codes_at(call) == 1) clear_gradient(call, 0);
  if (targets_ && codes_at(call) == 0) clear_gradient(call, call.inputs.size() - 1);
  const float* grad = gradient_of(call, "the gradient of action_embedding's output");
  const int64_t width = std::ssize(actions_) * dim_;
  for_actions(
      call, [&](int64_t row) { loops_.add_scaled(width, 1, grad + row * width, gradients[1]); },
      [&](int64_t row, int64_t k) {
        loops_.add_scaled(dim_, 1, grad + row * width + k * dim_, gradients[0] + k * dim_);
      });
}

}  // namespace tessera_dense

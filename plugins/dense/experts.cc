#include "experts.h"

namespace tessera_dense {
namespace {

using tessera::sdk::fail;
using tessera::sdk::MlpLayers;
using tessera::sdk::ModuleCall;
using tessera::sdk::Setup;
using tessera::sdk::Value;

// Checks the widths of the inputs against the option "inputs".
void check_inputs(std::span<const Value> inputs, const std::vector<int64_t>& listed, const char* layer) {
  const std::vector<int64_t> widths = tessera::sdk::dense_widths(inputs, layer);
  if (widths.size() != listed.size())
    fail(TSR_INVALID_ARGUMENT, layer, " takes ", listed.size(), " inputs, not ", widths.size());
  for (size_t i = 0; i < widths.size(); ++i) {
    if (widths[i] != 0 && widths[i] != listed[i])
      fail(TSR_INVALID_ARGUMENT, layer, ": input ", i, " must have ", listed[i], " values, not ", widths[i]);
  }
}

const float* input(const ModuleCall& call, size_t i, int64_t width) {
  return matrix(call.inputs[i], call.batch, width, "an input");
}

std::vector<int64_t> listed_inputs(const Setup& setup, const char* layer) {
  needed_width(setup.options, layer);
  return setup.options.integers("inputs", {});
}

std::unique_ptr<tessera::sdk::Module> make_experts(const Setup& setup) {
  needed_width(setup.options, "experts");
  const int64_t count = setup.options.integer("experts", 4);
  const MlpLayers shape(setup.options);
  if (count < 1) fail(TSR_INVALID_ARGUMENT, "option \"experts\" must be above 0, not ", count);
  refuse_sums(shape, "experts");
  if (shape.plain()) return std::make_unique<PlainExperts>(setup, shape, count);
  return std::make_unique<AnyExperts>(setup, shape, count);
}

std::unique_ptr<tessera::sdk::Module> make_gate(const Setup& setup) {
  std::vector<int64_t> widths = listed_inputs(setup, "gate");
  int64_t from = needed_width(setup.options, "gate");
  if (widths.size() > 1) from -= widths[0];
  std::vector<int64_t> layers = {from};
  for (const int64_t hidden : setup.options.integers("hidden", {})) {
    if (hidden < 1) fail(TSR_INVALID_ARGUMENT, "option \"hidden\" must list widths above 0, not ", hidden);
    layers.push_back(hidden);
  }
  layers.push_back(widths[0]);
  if (!setup.options.flag("bias", true) || setup.options.string("activation", "sigmoid") != "sigmoid")
    return std::make_unique<AnyGate>(setup, std::move(widths), layers);
  return std::make_unique<PlainGate>(setup, std::move(widths), plain_layers(layers));
}

}  // namespace

Experts::Experts(const Setup& setup) : EitherLayer(make_experts(setup)) {}

void Branches::add(Chain chain) {
  first_parameter_.push_back(parameters_.size());
  parameters_.insert(parameters_.end(), chain.parameters().begin(), chain.parameters().end());
  chains_.push_back(std::move(chain));
}

int64_t Branches::kept(int64_t batch) const {
  int64_t floats = 0;
  for (const Chain& c : chains_) floats += c.kept(batch);
  return floats;
}

Run Branches::run_of(size_t i, const ModuleCall& call, bool backward_follows) {
  parameter_data(call.parameters, parameters_, pointers_);
  const bool back = !call.grad_parameters.empty();
  if (back) parameter_data(call.grad_parameters, parameters_, gradients_);
  return {call,
          call.batch,
          pointers_.data() + first_parameter_[i],
          back ? gradients_.data() + first_parameter_[i] : nullptr,
          nullptr,
          backward_follows};
}

void Branches::forward_branch(size_t i, const ModuleCall& call, bool backward_follows, const float* x, float* y,
                              float* memory) {
  for (size_t k = 0; k < i; ++k) memory += chains_[k].kept(call.batch);
  chains_[i].forward(run_of(i, call, backward_follows), x, y, memory);
}

void Branches::backward_branch(size_t i, const ModuleCall& call, const float* x, const float* dy, float* dx,
                               const float* memory) {
  for (size_t k = 0; k < i; ++k) memory += chains_[k].kept(call.batch);
  chains_[i].backward(run_of(i, call, true), x, dy, dx, memory);
}

PlainExperts::PlainExperts(const Setup& setup, const MlpLayers& shape, int64_t count)
    : host_(setup.host),
      joined_(setup.host, "experts", shape.input()),
      stack_(setup.host, shape, read_precision(setup), count) {
  for (int64_t e = 0; e < count; ++e) {
    for (tessera::sdk::Parameter p : shape.parameters()) {
      p.name = std::to_string(e) + "." + p.name;
      parameters_.push_back(std::move(p));
    }
  }
  mark_int8(read_precision(setup), parameters_);
}

std::vector<Value> PlainExperts::outputs(std::span<const Value> inputs) const {
  joined_.width_of(inputs);
  return {Value{stack_.output()}};
}

PlainStack::Pass PlainExperts::pass(const JoinedBlocks& inputs, const float* x, const Context& memory) {
  const ModuleCall& call = inputs.call;
  parameter_data(call.parameters, parameters_, pointers_);
  float* const y = matrix(call.outputs[0], call.batch, stack_.output(), "experts' output");
  return {call.batch, pointers_.data(), x, y, memory.kept.data(), inputs};
}

void PlainExperts::forward(const ModuleCall& call, tsr_module_context** context) {
  auto lease = contexts_.take();
  lease->kept.at_least(host_, stack_.kept(call.batch));
  const JoinedBlocks inputs{joined_, call, lease->joined};
  const PlainStack::Pass all = pass(inputs, joined_.place(call, lease->joined), *lease);
  if (context != nullptr) {
    stack_.forward(all);
  } else {
    stack_.infer(all);
  }
  contexts_.hand_out(std::move(lease), context);
}

void PlainExperts::backward(const ModuleCall& call, tsr_module_context* context) {
  if (nothing_comes_back(call)) return;
  const Context& memory = *contexts_.of(context);
  const float* dy = matrix(call.grad_outputs[0], call.batch, stack_.output(), "the gradient of experts' output");
  const JoinedBlocks inputs{joined_, call, memory.joined};
  const PlainStack::Pass all = pass(inputs, joined_.rows_again(call, memory.joined), memory);
  parameter_data(call.grad_parameters, parameters_, gradients_);
  stack_.backward(all, {dy, gradients_.data()});
}

AnyExperts::AnyExperts(const Setup& setup, const MlpLayers& shape, int64_t count)
    : Branches(setup), joined_(setup.host, "experts", shape.input()) {
  for (int64_t e = 0; e < count; ++e) {
    Chain chain(setup.host);
    add_mlp(chain, setup, shape, std::to_string(e) + ".");
    add(std::move(chain));
  }
}

std::vector<Value> AnyExperts::outputs(std::span<const Value> inputs) const {
  joined_.width_of(inputs);
  return {Value{static_cast<int64_t>(chains_.size()) * width()}};
}

void AnyExperts::forward(const ModuleCall& call, tsr_module_context** context) {
  const int64_t all = static_cast<int64_t>(chains_.size()) * width();
  float* y = matrix(call.outputs[0], call.batch, all, "experts' output");
  float* rows = rows_.at_least(host_, call.batch * width());
  auto lease = contexts_.take();
  const float* x = joined_.rows(call, lease->joined);
  float* memory = lease->kept.at_least(host_, kept(call.batch));
  for (size_t e = 0; e < chains_.size(); ++e) {
    forward_branch(e, call, context != nullptr, x, rows, memory);
    copy_columns(call.batch, width(), rows, width(), y + static_cast<int64_t>(e) * width(), all);
  }
  contexts_.hand_out(std::move(lease), context);
}

void AnyExperts::backward(const ModuleCall& call, tsr_module_context* context) {
  if (nothing_comes_back(call)) return;
  const int64_t all = static_cast<int64_t>(chains_.size()) * width(), n = call.batch * chains_[0].in();
  const Context& memory = *contexts_.of(context);
  const float* x = joined_.rows_again(call, memory.joined);
  const float* dy = matrix(call.grad_outputs[0], call.batch, all, "the gradient of experts' output");
  float* dx = joined_.gradient(call);
  float* rows = rows_.at_least(host_, call.batch * width());
  float* of_one = dx_.at_least(host_, n);
  if (dx) std::fill_n(dx, n, 0.0f);
  for (size_t e = 0; e < chains_.size(); ++e) {
    copy_columns(call.batch, width(), dy + static_cast<int64_t>(e) * width(), all, rows, width());
    backward_branch(e, call, x, rows, dx ? of_one : nullptr, memory.kept.data());
    if (dx) loops_.add(n, of_one, dx);
  }
  if (dx) joined_.give(call);
}

Projection::Projection(const Setup& setup)
    : Branches(setup), widths_(listed_inputs(setup, "projection")), width_(setup.options.integer("width", 0)) {
  if (width_ < 1) fail(TSR_INVALID_ARGUMENT, "option \"width\" must be the output's width, above 0");
  const bool bias = setup.options.flag("bias", false);
  const Precision precision = read_precision(setup);
  for (size_t i = 0; i < widths_.size(); ++i) {
    Chain chain(setup.host);
    chain.add(make_linear(setup.host, widths_[i], width_, bias, precision), std::to_string(i) + ".");
    add(std::move(chain));
  }
}

std::vector<Value> Projection::outputs(std::span<const Value> inputs) const {
  check_inputs(inputs, widths_, "projection");
  return {Value{static_cast<int64_t>(widths_.size()) * width_}};
}

void Projection::forward(const ModuleCall& call, tsr_module_context** context) {
  const int64_t all = static_cast<int64_t>(widths_.size()) * width_;
  float* y = matrix(call.outputs[0], call.batch, all, "projection's output");
  float* rows = rows_.at_least(host_, call.batch * width_);
  auto lease = contexts_.take();
  float* memory = lease->kept.at_least(host_, kept(call.batch));
  for (size_t i = 0; i < widths_.size(); ++i) {
    forward_branch(i, call, context != nullptr, input(call, i, widths_[i]), rows, memory);
    copy_columns(call.batch, width_, rows, width_, y + static_cast<int64_t>(i) * width_, all);
  }
  contexts_.hand_out(std::move(lease), context);
}

void Projection::backward(const ModuleCall& call, tsr_module_context* context) {
  if (nothing_comes_back(call)) return;
  const int64_t all = static_cast<int64_t>(widths_.size()) * width_;
  const float* dy = matrix(call.grad_outputs[0], call.batch, all, "the gradient of projection's output");
  float* rows = rows_.at_least(host_, call.batch * width_);
  for (size_t i = 0; i < widths_.size(); ++i) {
    copy_columns(call.batch, width_, dy + static_cast<int64_t>(i) * width_, all, rows, width_);
    float* dx = matrix_or_null(call.grad_inputs[i], call.batch, widths_[i], "the gradient of an input");
    backward_branch(i, call, input(call, i, widths_[i]), rows, dx, contexts_.of(context)->kept.data());
  }
}

Gate::Gate(const Setup& setup) : EitherLayer(make_gate(setup)) {}

// The layer's values are each [batch, w]. Only backward has `dy`, `dgate` and `dx`.
struct PlainGate::Rows final : PlainStack::Around {
  Rows(const RowLoops& the_loops, int64_t the_width, float the_scale)
      : loops(the_loops), width(the_width), scale(the_scale) {}
  void after_forward(int64_t begin, int64_t end) const override {
    const int64_t at = begin * width;
    loops.gate((end - begin) * width, x + at, scale, gate + at, y + at);
  }
  void before_backward(int64_t begin, int64_t end) const override {
    const int64_t at = begin * width;
    loops.gate_back((end - begin) * width, x + at, gate + at, dy + at, scale, dgate + at, dx ? dx + at : nullptr);
  }
  const RowLoops& loops;
  int64_t width;
  float scale;
  const float *x = nullptr, *dy = nullptr;
  float *gate = nullptr, *y = nullptr, *dgate = nullptr, *dx = nullptr;
};

PlainGate::PlainGate(const Setup& setup, std::vector<int64_t> widths, const MlpLayers& shape)
    : host_(setup.host),
      loops_(choose_loops()),
      widths_(std::move(widths)),
      scale_(static_cast<float>(setup.options.number("scale", 1))),
      stack_(setup.host, shape, read_precision(setup)),
      parameters_(shape.parameters()),
      signals_(setup.host, "gate", 0, widths_.size() > 1 ? 1 : 0) {
  mark_int8(read_precision(setup), parameters_);
}

std::vector<Value> PlainGate::outputs(std::span<const Value> inputs) const {
  check_inputs(inputs, widths_, "gate");
  return {Value{widths_[0]}};
}

void PlainGate::forward(const ModuleCall& call, tsr_module_context** context) {
  Rows rows(*loops_.of_rows, widths_[0], scale_);
  rows.x = input(call, 0, widths_[0]);
  rows.y = matrix(call.outputs[0], call.batch, widths_[0], "gate's output");
  auto lease = contexts_.take();
  lease->kept.at_least(host_, stack_.kept(call.batch));
  rows.gate = lease->gate.at_least(host_, call.batch * widths_[0]);
  parameter_data(call.parameters, parameters_, pointers_);
  const float* signals = signals_.place(call, lease->joined);
  const PlainStack::Pass pass = {
      call.batch, pointers_.data(), signals, rows.gate, lease->kept.data(), {signals_, call, lease->joined}, &rows};
  if (context != nullptr) {
    stack_.forward(pass);
  } else {
    stack_.infer(pass);
  }
  contexts_.hand_out(std::move(lease), context);
}

void PlainGate::backward(const ModuleCall& call, tsr_module_context* context) {
  if (nothing_comes_back(call)) return;
  const int64_t n = call.batch * widths_[0];
  const Context& memory = *contexts_.of(context);
  const bool itself = widths_.size() == 1;  // dx then receives the gradient that came through the gate first
  float* dx = matrix_or_null(call.grad_inputs[0], call.batch, widths_[0], "the gradient of an input");
  Rows rows(*loops_.of_rows, widths_[0], scale_);
  rows.x = input(call, 0, widths_[0]);
  rows.dy = matrix(call.grad_outputs[0], call.batch, widths_[0], "the gradient of gate's output");
  rows.gate = memory.gate.data();
  rows.dgate = dgate_.at_least(host_, n);
  rows.dx = itself ? nullptr : dx;
  parameter_data(call.parameters, parameters_, pointers_);
  parameter_data(call.grad_parameters, parameters_, gradients_);
  const float* signals = signals_.rows_again(call, memory.joined);
  const PlainStack::Pass pass = {
      call.batch, pointers_.data(), signals, rows.gate, memory.kept.data(), {signals_, call, memory.joined}, &rows};
  stack_.backward(pass, {rows.dgate, gradients_.data()});
  if (!dx || !itself) return;
  in_blocks(host_, n, kValuesWorthAThread, [&](int64_t begin, int64_t end, int64_t) {
    loops_.of_rows->multiply(end - begin, rows.dy + begin, rows.gate + begin, scale_, rows.dgate + begin);
    loops_.add(end - begin, rows.dgate + begin, dx + begin);
  });
}

AnyGate::AnyGate(const Setup& setup, std::vector<int64_t> widths, const std::vector<int64_t>& layers)
    : Branches(setup),
      widths_(std::move(widths)),
      scale_(static_cast<float>(setup.options.number("scale", 1))),
      sigmoid_(false),
      signals_(setup.host, "gate", 0, widths_.size() > 1 ? 1 : 0) {
  const Precision precision = read_precision(setup);
  const std::string activation = setup.options.string("activation", "sigmoid");
  sigmoid_ = activation == "sigmoid";
  const bool bias = setup.options.flag("bias", true);
  Chain chain(setup.host);
  for (size_t k = 0; k + 1 < layers.size(); ++k) {
    const bool last = k + 2 == layers.size();
    const std::string name = std::to_string(k) + ".";
    chain.add(make_linear(setup.host, layers[k], layers[k + 1], bias || !last, precision), name);
    if (!last) chain.add(make_activation(setup.host, "gate", "relu", layers[k + 1]), "");
    if (last && !sigmoid_)
      chain.add(make_activation(setup.host, "gate", activation, layers[k + 1]), name + "activation.");
  }
  add(std::move(chain));
}

std::vector<Value> AnyGate::outputs(std::span<const Value> inputs) const {
  check_inputs(inputs, widths_, "gate");
  return {Value{widths_[0]}};
}

// The context has the state of the chain, followed by its output.
void AnyGate::forward(const ModuleCall& call, tsr_module_context** context) {
  const int64_t n = call.batch * widths_[0];
  const float* x = input(call, 0, widths_[0]);
  float* y = matrix(call.outputs[0], call.batch, widths_[0], "gate's output");
  auto lease = contexts_.take();
  float* memory = lease->kept.at_least(host_, kept(call.batch) + n);
  float* gate = memory + kept(call.batch);
  forward_branch(0, call, context != nullptr, signals_.rows(call, lease->joined), gate, memory);
  in_blocks(host_, n, kValuesWorthAThread, [&](int64_t begin, int64_t end, int64_t) {
    if (sigmoid_)
      loops_.of_rows->gate(end - begin, x + begin, scale_, gate + begin, y + begin);
    else
      loops_.of_rows->multiply(end - begin, x + begin, gate + begin, scale_, y + begin);
  });
  contexts_.hand_out(std::move(lease), context);
}

void AnyGate::backward(const ModuleCall& call, tsr_module_context* context) {
  if (nothing_comes_back(call)) return;
  const int64_t n = call.batch * widths_[0];
  const Context& memory = *contexts_.of(context);
  const float *x = input(call, 0, widths_[0]), *gate = memory.kept.data() + kept(call.batch);
  const float* dy = matrix(call.grad_outputs[0], call.batch, widths_[0], "the gradient of gate's output");
  float* dgate = dgate_.at_least(host_, n);
  float* dx = matrix_or_null(call.grad_inputs[0], call.batch, widths_[0], "the gradient of an input");
  const bool itself = widths_.size() == 1;  // dx then receives the gradient that came through the gate first
  const auto multiply = [&](int64_t begin, int64_t end, const float* by, float* to) {
    loops_.of_rows->multiply(end - begin, dy + begin, by + begin, scale_, to + begin);
  };
  in_blocks(host_, n, kValuesWorthAThread, [&](int64_t begin, int64_t end, int64_t) {
    float* const to = dx && !itself ? dx + begin : nullptr;
    if (sigmoid_)
      return loops_.of_rows->gate_back(end - begin, x + begin, gate + begin, dy + begin, scale_, dgate + begin, to);
    multiply(begin, end, x, dgate);
    if (to) multiply(begin, end, gate, dx);
  });
  float* dsignals = signals_.gradient(call);
  backward_branch(0, call, signals_.rows_again(call, memory.joined), dgate, dsignals, memory.kept.data());
  if (dx && itself) {
    in_blocks(host_, n, kValuesWorthAThread, [&](int64_t begin, int64_t end, int64_t) {
      multiply(begin, end, gate, dgate);
      loops_.add(end - begin, dgate + begin, dx + begin);
    });
  }
  if (dsignals) signals_.give(call);
}

Mixture::Mixture(const Setup& setup)
    : host_(setup.host), loops_(*choose_loops().of_rows), softmax_(setup.options.flag("softmax", true)) {
  tessera::sdk::joined_width(setup.options);
}

int64_t Mixture::width_of(int64_t gates, int64_t experts) {
  if (gates < 1 || experts % gates != 0) {
    fail(TSR_INVALID_ARGUMENT, "mixture takes gates and experts, and ", experts, " values are not a multiple of ",
         gates, " gates");
  }
  return experts / gates;
}

std::vector<Value> Mixture::outputs(std::span<const Value> inputs) const {
  const std::vector<int64_t> widths = tessera::sdk::dense_widths(inputs, "mixture");
  if (widths.size() != 2) fail(TSR_INVALID_ARGUMENT, "mixture takes gates and experts, not ", widths.size(), " inputs");
  return {Value{width_of(widths[0], widths[1])}};
}

void Mixture::forward(const ModuleCall& call, tsr_module_context** context) {
  const int64_t experts = call.inputs[0].shape[1], width = width_of(experts, call.inputs[1].shape[1]);
  const float *gates = input(call, 0, experts), *x = input(call, 1, experts * width);
  float* y = matrix(call.outputs[0], call.batch, width, "mixture's output");
  auto lease = contexts_.take();
  float* weights = softmax_ ? lease->at_least(host_, call.batch * experts) : nullptr;
  in_row_blocks(host_, call.batch, experts * width, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * experts;
    if (softmax_) loops_.softmax(end - begin, experts, gates + at, weights + at);
    loops_.mix(end - begin, experts, width, (softmax_ ? weights : gates) + at, x + at * width, y + begin * width);
  });
  contexts_.hand_out(std::move(lease), context);
}

void Mixture::backward(const ModuleCall& call, tsr_module_context* context) {
  if (nothing_comes_back(call)) return;
  const int64_t experts = call.inputs[0].shape[1], width = width_of(experts, call.inputs[1].shape[1]);
  const float* x = input(call, 1, experts * width);
  const float* weights = softmax_ ? contexts_.of(context)->data() : input(call, 0, experts);
  const float* dy = matrix(call.grad_outputs[0], call.batch, width, "the gradient of mixture's output");
  float* dx = matrix_or_null(call.grad_inputs[1], call.batch, experts * width, "the gradient of an input");
  float* wanted = matrix_or_null(call.grad_inputs[0], call.batch, experts, "the gradient of an input");
  float* dgates = wanted && !softmax_ ? wanted : dgates_.at_least(host_, call.batch * experts);
  in_row_blocks(host_, call.batch, experts * width, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * experts;
    loops_.mix_back(end - begin, experts, width, weights + at, x + at * width, dy + begin * width, dgates + at,
                    dx ? dx + at * width : nullptr);
    if (wanted && softmax_) loops_.softmax_back(end - begin, experts, weights + at, dgates + at, wanted + at);
  });
}

}  // namespace tessera_dense

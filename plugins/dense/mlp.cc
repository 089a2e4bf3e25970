#include "mlp.h"

#include "chain_layer.h"

namespace tessera_dense {

namespace {

std::unique_ptr<tessera::sdk::Module> make_mlp(const tessera::sdk::Setup& setup) {
  tessera::sdk::MlpLayers shape(setup.options);
  if (!shape.plain()) return std::make_unique<AnyMlp>(setup, shape);
  std::vector<tessera::sdk::Parameter> parameters = shape.parameters();
  return std::make_unique<PlainMlp>(setup, "mlp", std::move(shape), std::move(parameters));
}

std::unique_ptr<tessera::sdk::Module> make_linear_layer(const tessera::sdk::Setup& setup) {
  const int64_t in = needed_width(setup.options, "linear"), out = setup.options.integer("width", 1);
  if (out < 1) tessera::sdk::fail(TSR_INVALID_ARGUMENT, "option \"width\" must be above 0, not ", out);
  const double init_std = tessera::sdk::read_init_std(setup.options);
  if (!setup.options.flag("bias", true)) return std::make_unique<LinearChain>(setup, out);
  std::vector<tessera::sdk::Parameter> parameters = {
      {"weight", {out, in}, tessera::sdk::matrix_init(init_std, out, in)}, {"bias", {out}}};
  return std::make_unique<PlainMlp>(setup, "linear", plain_layers({in, out}), std::move(parameters));
}

}  // namespace

Mlp::Mlp(const tessera::sdk::Setup& setup) : EitherLayer(make_mlp(setup)) {}
Linear::Linear(const tessera::sdk::Setup& setup) : EitherLayer(make_linear_layer(setup)) {}

PlainMlp::PlainMlp(const tessera::sdk::Setup& setup, const char* name, tessera::sdk::MlpLayers shape,
                   std::vector<tessera::sdk::Parameter> parameters)
    : host_(setup.host),
      stack_(setup.host, std::move(shape), read_precision(setup)),
      described_(std::move(parameters)),
      joined_(setup.host, name, stack_.shape().input()) {
  mark_int8(read_precision(setup), described_);
}

PlainStack::Pass PlainMlp::pass(const JoinedBlocks& inputs, const float* x, const Context& kept) {
  const tessera::sdk::ModuleCall& args = inputs.call;
  parameter_data(args.parameters, parameters(), parameters_);
  float* const y = matrix(args.outputs[0], args.batch, stack_.output(), "a layer's output");
  return {args.batch, parameters_.data(), x, y, kept.hidden.data(), inputs};
}

void PlainMlp::forward(const tessera::sdk::ModuleCall& args, tsr_module_context** context) {
  auto lease = contexts_.take();
  lease->hidden.at_least(host_, stack_.kept(args.batch));
  const JoinedBlocks inputs{joined_, args, lease->joined};
  const PlainStack::Pass all = pass(inputs, joined_.place(args, lease->joined), *lease);
  if (context == nullptr) return stack_.infer(all);
  stack_.forward(all);
  contexts_.hand_out(std::move(lease), context);
}

void PlainMlp::backward(const tessera::sdk::ModuleCall& args, tsr_module_context* context) {
  if (nothing_comes_back(args)) return;
  const float* grad = matrix(args.grad_outputs[0], args.batch, stack_.output(), "the gradient of a layer's output");
  parameter_data(args.grad_parameters, parameters(), gradients_);
  const Context& kept = *contexts_.of(context);
  const JoinedBlocks inputs{joined_, args, kept.joined};
  const PlainStack::Pass all = pass(inputs, joined_.rows_again(args, kept.joined), kept);
  stack_.backward(all, {grad, gradients_.data()});
}

}  // namespace tessera_dense

#include "chain_layer.h"

#include <cmath>

#include "dropout.h"

namespace tessera_dense {
namespace {

using tessera::sdk::fail;
using tessera::sdk::MlpLayers;
using tessera::sdk::Setup;

constexpr double kDiceEps = 1e-8;  // as in the paper

double positive(tessera::sdk::Options& options, const char* key, double otherwise) {
  const double value = options.number(key, otherwise);
  if (!(value > 0)) fail(TSR_INVALID_ARGUMENT, "option \"", key, "\" must be above 0, not ", value);
  return value;
}

// Weight of a batch's mean in the running mean.
double momentum_of(tessera::sdk::Options& options) {
  const double momentum = options.number("momentum", 0.1);
  if (!(momentum > 0 && momentum <= 1))
    fail(TSR_INVALID_ARGUMENT, "option \"momentum\" must be above 0 and not above 1, not ", momentum);
  return momentum;
}

}  // namespace

int64_t needed_width(tessera::sdk::Options& options, const char* layer) {
  const int64_t width = tessera::sdk::joined_width(options);
  if (width == 0) fail(TSR_INVALID_ARGUMENT, layer, ": option \"inputs\" must list the widths of its inputs");
  return width;
}

void refuse_sums(const MlpLayers& shape, const char* layer) {
  const bool batch_norm = shape.norm() == "batch";
  bool dice = false;
  for (size_t k = 0; k < shape.count(); ++k) dice = dice || shape.activation(k) == kDice;
  if (!batch_norm && !dice) return;
  fail(TSR_INVALID_ARGUMENT, batch_norm ? "batch norm" : kDice, " adds up over the ranks, which ", layer,
       " does not: use the layer \"mlp_batch_norm\"",
       batch_norm ? "" : ", with norm = \"none\" if only dice is needed");
}

void add_mlp(Chain& chain, const Setup& setup, const MlpLayers& shape, const std::string& prefix) {
  const tessera::sdk::Host host = setup.host;
  const Precision precision = read_precision(setup);
  for (size_t k = 0; k < shape.count(); ++k) {
    const std::string name = prefix + std::to_string(k) + ".";
    const int64_t width = shape.out(k);
    const std::string& activation = shape.activation(k);
    const std::string norm = k + 1 < shape.count() || activation != "none" ? shape.norm() : "none";
    // There is no bias before a batch norm, which would subtract it with the mean. The bias's gradient would be
    // rounding noise, which an optimizer that scales gradients turns into steps.
    chain.add(make_linear(host, shape.in(k), width, shape.bias() && norm != "batch", precision, shape.init_std()),
              name);
    if (norm == "layer") chain.add(make_layer_norm(host, width, 1e-5), name + "norm.");
    if (norm == "batch") chain.add(make_batch_norm(width, 1e-5, 0.1), name + "norm.");
    if (activation == kDice)
      chain.add(make_dice(host, width, kDiceEps, 0.1), name + "activation.");
    else if (activation != "none")
      chain.add(make_activation(host, "mlp", activation, width), name + "activation.");
    if (shape.dropout() > 0 && k + 1 < shape.count()) chain.add(make_dropout(host, width, shape.dropout(), k), name);
  }
}

ChainLayer::ChainLayer(const Setup& setup, const char* name, int64_t width)
    : chain_(setup.host), host_(setup.host), name_(name), joined_(setup.host, name, width) {}

void ChainLayer::forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) {
  float* y = matrix(call.outputs[0], call.batch, chain_.out(), name_);
  auto lease = contexts_.take();
  const float* x = joined_.rows(call, lease->joined);
  lease->kept.at_least(host_, chain_.kept(call.batch));
  chain_.forward(pointers_.run(call, chain_, call.batch, context != nullptr), x, y, lease->kept.data());
  contexts_.hand_out(std::move(lease), context);
}

void ChainLayer::backward(const tessera::sdk::ModuleCall& call, tsr_module_context* context) {
  const Context& kept = *contexts_.of(context);
  const float* x = joined_.rows_again(call, kept.joined);
  const float* dy = matrix_or_null(call.grad_outputs[0], call.batch, chain_.out(), name_);
  if (dy == nullptr) {  // go on with zeros, because a batch norm of other ranks waits for this one's sums
    float* zeros = zeros_.at_least(host_, call.batch * chain_.out());
    std::fill_n(zeros, call.batch * chain_.out(), 0.0f);
    dy = zeros;
  }
  float* dx = joined_.gradient(call);
  chain_.backward(pointers_.run(call, chain_, call.batch, true), x, dy, dx, kept.kept.data());
  if (dx) joined_.give(call);
}

LinearChain::LinearChain(const Setup& setup, int64_t width)
    : ChainLayer(setup, "linear", needed_width(setup.options, "linear")) {
  chain_.add(make_linear(setup.host, needed_width(setup.options, "linear"), width, false, read_precision(setup),
                         tessera::sdk::read_init_std(setup.options)),
             "");
}

ActivationLayer::ActivationLayer(const Setup& setup)
    : ChainLayer(setup, "activation", needed_width(setup.options, "activation")) {
  const std::string kind = setup.options.string("kind", "relu");
  if (setup.options.has("slope") && kind != "leaky_relu")
    fail(TSR_INVALID_ARGUMENT, "option \"slope\" belongs to the kind \"leaky_relu\": \"", kind, "\" has none");
  chain_.add(make_activation(setup.host, "activation", kind, needed_width(setup.options, "activation"),
                             setup.options.number("slope", 0.01)),
             "");
}

AffineLayer::AffineLayer(const Setup& setup) : ChainLayer(setup, "affine", needed_width(setup.options, "affine")) {
  const double factor = setup.options.number("factor", 1), offset = setup.options.number("offset", 0);
  const auto number = [](double value) { return std::isfinite(static_cast<float>(value)); };
  if (!number(factor) || factor == 0 || !number(offset))
    fail(TSR_INVALID_ARGUMENT, "\"factor\" must be a float other than 0 and \"offset\" a float, not ", factor, " and ",
         offset);
  chain_.add(make_affine(needed_width(setup.options, "affine"), factor, offset), "");
}

LayerNorm::LayerNorm(const Setup& setup) : ChainLayer(setup, "layer_norm", needed_width(setup.options, "layer_norm")) {
  const double eps = positive(setup.options, "eps", 1e-5);
  const int64_t width = needed_width(setup.options, "layer_norm"), groups = setup.options.integer("groups", 1);
  const bool weights = setup.options.flag("weights", true);
  if (groups < 1 || width % groups != 0)
    fail(TSR_INVALID_ARGUMENT, "option \"groups\" must divide ", width, " values, and ", groups, " does not");
  chain_.add(groups == 1 && weights ? make_layer_norm(setup.host, width, eps)
                                    : make_group_norm(setup.host, width, groups, eps, weights),
             "");
}

L2Norm::L2Norm(const Setup& setup) : ChainLayer(setup, "l2_norm", needed_width(setup.options, "l2_norm")) {
  const double eps = positive(setup.options, "eps", 1e-6);
  chain_.add(make_l2_norm(setup.host, needed_width(setup.options, "l2_norm"), eps), "");
}

SwishLayerNorm::SwishLayerNorm(const Setup& setup)
    : ChainLayer(setup, "swish_layer_norm", needed_width(setup.options, "swish_layer_norm")) {
  const double eps = positive(setup.options, "eps", 1e-5);
  chain_.add(make_swish_layer_norm(setup.host, needed_width(setup.options, "swish_layer_norm"), eps), "");
}

BatchNorm::BatchNorm(const Setup& setup) : ChainLayer(setup, "batch_norm", needed_width(setup.options, "batch_norm")) {
  const double eps = positive(setup.options, "eps", 1e-5);
  const double momentum = momentum_of(setup.options);
  chain_.add(make_batch_norm(needed_width(setup.options, "batch_norm"), eps, momentum), "");
}

Dice::Dice(const Setup& setup) : ChainLayer(setup, kDice, needed_width(setup.options, kDice)) {
  const double eps = positive(setup.options, "eps", kDiceEps);
  const double momentum = momentum_of(setup.options);
  chain_.add(make_dice(setup.host, needed_width(setup.options, kDice), eps, momentum), "");
}

Softmax::Softmax(const Setup& setup) : ChainLayer(setup, "softmax", needed_width(setup.options, "softmax")) {
  chain_.add(make_softmax(needed_width(setup.options, "softmax")), "");
}

AnyMlp::AnyMlp(const Setup& setup, const MlpLayers& shape) : ChainLayer(setup, "mlp", shape.input()) {
  refuse_sums(shape, "mlp");
  add_mlp(chain_, setup, shape, "");
}

BatchNormMlp::BatchNormMlp(const Setup& setup) : BatchNormMlp(setup, tessera::sdk::MlpLayers(setup.options, "batch")) {}
BatchNormMlp::BatchNormMlp(const Setup& setup, const MlpLayers& shape)
    : ChainLayer(setup, "mlp_batch_norm", shape.input()) {
  add_mlp(chain_, setup, shape, "");
}

}  // namespace tessera_dense

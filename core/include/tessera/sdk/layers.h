// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/layers.h - the layers "mlp", "dot_interaction" and "cross" without arithmetic: options, parameters,
// widths, checks. Plugins that compute these layers on some device share them, so that all components of a layer agree.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/sdk/module.h"

namespace tessera::sdk {
inline namespace v1 {

// Contexts live as long as the module and are reused, so later steps make no new ones.
template <class Context>
class ContextPool {
 public:
  struct Return {
    ContextPool* pool;
    void operator()(Context* context) const { pool->give_back(context); }
  };
  using Lease = std::unique_ptr<Context, Return>;

  Lease take() {
    if (free_.empty()) {
      free_.reserve(all_.size() + 1);  // so that give_back() never allocates
      all_.push_back(std::make_unique<Context>());
      return Lease(all_.back().get(), {this});
    }
    Context* context = free_.back();
    free_.pop_back();
    return Lease(context, {this});
  }
  void give_back(Context* context) noexcept { free_.push_back(context); }
  void give_back(tsr_module_context* context) noexcept { give_back(of(context)); }

  static Context* of(tsr_module_context* context) { return reinterpret_cast<Context*>(context); }
  // Passes the context to the caller, or back to the pool if the caller wants none.
  static void hand_out(Lease lease, tsr_module_context** context) {
    if (context) *context = reinterpret_cast<tsr_module_context*>(lease.release());
  }

 private:
  std::vector<std::unique_ptr<Context>> all_;
  std::vector<Context*> free_;
};

// Returns the floats of a [batch, width] tensor; refuses another type or shape.
inline float* matrix(const DLTensor& tensor, int64_t batch, int64_t width, const char* what) {
  if (tensor.ndim < 1 || tensor.shape[0] != batch || numel(tensor) != batch * width)
    fail(TSR_INVALID_ARGUMENT, what, " must have ", batch, " rows of ", width, " values");
  return elements<float>(tensor, what).data();
}
// Does the same for a gradient; NULL if it is not wanted.
inline float* matrix_or_null(const DLTensor& tensor, int64_t batch, int64_t width, const char* what) {
  return tensor.data == nullptr ? nullptr : matrix(tensor, batch, width, what);
}

// Returns the widths of inputs that are float32 with one row per sample. Throws Failure for others.
inline std::vector<int64_t> dense_widths(std::span<const Value> inputs, const char* layer) {
  std::vector<int64_t> widths;
  for (const Value& value : inputs) {
    if (value.jagged)
      fail(TSR_INVALID_ARGUMENT, layer, " takes one row for each sample, but this is a sequence: pool it first");
    if (!same_dtype(value.dtype, dtype_of<float>())) fail(TSR_INVALID_ARGUMENT, layer, " takes float32 values");
    widths.push_back(value.width);
  }
  return widths;
}

inline int64_t batch_of(std::span<const DLTensor> inputs, size_t wanted, const char* layer) {
  if (inputs.size() != wanted || inputs[0].ndim < 1) {
    fail(TSR_INVALID_ARGUMENT, layer, " takes ", wanted, " input", wanted == 1 ? "" : "s", " [batch, width], not ",
         inputs.size());
  }
  return inputs[0].shape[0];
}

// Gets the data of all parameters (or gradients), whose sizes must match the declared ones.
inline void parameter_data(std::span<const DLTensor> tensors, const std::vector<Parameter>& declared,
                           std::vector<float*>& out) {
  out.resize(declared.size());
  for (size_t i = 0; i < declared.size(); ++i) {
    int64_t count = 1;
    for (int64_t s : declared[i].shape) count *= s;
    if (numel(tensors[i]) != count) {
      fail(TSR_INVALID_ARGUMENT, declared[i].name, " must have ", count, " values, not ", numel(tensors[i]));
    }
    out[i] = elements<float>(tensors[i], declared[i].name.c_str()).data();
  }
}

// The sum of the option "inputs": the widths of a layer's inputs, which a graph sets for each layer. 0: not set.
inline int64_t joined_width(Options& options) {
  int64_t width = 0;
  for (const int64_t w : options.integers("inputs", {})) {
    if (w < 1) fail(TSR_INVALID_ARGUMENT, "option \"inputs\" must list widths above 0, not ", w);
    width += w;
  }
  return width;
}

// The option "init_std" of layers with matrices: the deviation of the normal distribution from which their weights
// start. 0: without the option, xavier_normal() decides.
inline double read_init_std(Options& options) {
  const double std = options.number("init_std", 0);
  if (options.has("init_std") && !(std > 0 && std::isfinite(std)))
    fail(TSR_INVALID_ARGUMENT, "option \"init_std\" must be a deviation above 0, not ", std);
  return std;
}
inline Init matrix_init(double init_std, int64_t out, int64_t in) {
  return init_std > 0 ? normal(0, init_std) : xavier_normal(out, in);
}

// "mlp": a stack of linear layers. Each except the last is followed by a norm, an activation and dropout, if wanted.
//
// Options: {"inputs": [13], "widths": [512, 256, 64]}, the inputs' widths and each layer's output, or both as
// {"layers": [13, 512, 256, 64]}. "activation": "relu" (default; docs/layers.md lists others). "final_activation":
// after the last layer, "none" (default) or as above, then also with the norm. "bias": true. "dropout": 0. "norm":
// "none", "layer" or, in the layer "mlp_batch_norm", "batch". "init_std": read_init_std(). The output is [batch, last].
// Layer k has the parameters "k.weight" [out, in] and "k.bias" [out].
class MlpLayers {
 public:
  // A layer with more options must read them first: without widths, any unread option is refused here.
  explicit MlpLayers(Options& options, std::string_view norm = "none")
      : widths_(options.integers("layers", {})),
        activation_(options.string("activation", "relu")),
        final_activation_(options.string("final_activation", "none")),
        dropout_(options.number("dropout", 0)),
        bias_(options.flag("bias", true)),
        norm_(options.string("norm", norm)),
        init_std_(read_init_std(options)) {
    const int64_t joined = joined_width(options);
    const std::vector<int64_t> outputs = options.integers("widths", {});
    if (widths_.empty() && joined > 0) widths_.push_back(joined);
    if (widths_.size() > 1 && !outputs.empty())
      fail(TSR_INVALID_ARGUMENT, "options \"layers\" and \"widths\" both list the outputs: leave one of them out");
    if (widths_.size() == 1) widths_.insert(widths_.end(), outputs.begin(), outputs.end());
    if (widths_.size() < 2) options.finish();  // an unknown option "width" is a better error than missing "widths"
    if (widths_.size() < 2 || *std::min_element(widths_.begin(), widths_.end()) < 1) {
      fail(TSR_INVALID_ARGUMENT,
           "option \"widths\" must list the widths of the layers' outputs, at least one, all above 0; without "
           "\"inputs\", \"layers\" must begin with the input's width");
    }
    if (joined > 0 && joined != input())
      fail(TSR_INVALID_ARGUMENT, "\"layers\" begins with ", input(), ", but \"inputs\" have ", joined, " values");
    if (!(dropout_ >= 0 && dropout_ < 1))
      fail(TSR_INVALID_ARGUMENT, "option \"dropout\" must be at least 0 and below 1, not ", dropout_);
    if (norm_ != "none" && norm_ != "layer" && norm_ != "batch")
      fail(TSR_INVALID_ARGUMENT, "option \"norm\" is \"", norm_, "\", but must be none, layer or batch");
    if (count() == 1) refuse_between(options.has("activation"));
    for (size_t k = 0; k < count(); ++k) {
      parameters_.push_back({std::to_string(k) + ".weight", {out(k), in(k)}, matrix_init(init_std_, out(k), in(k))});
      parameters_.push_back({std::to_string(k) + ".bias", {out(k)}});
      if (k + 1 < count()) hidden_width_ += out(k);
      widest_ = std::max(widest_, out(k));
    }
  }

  // True if it has only linear layers with biases and ReLU between them. Only then parameters() is complete.
  bool plain() const {
    return activation_ == "relu" && (final_activation_ == "none" || final_activation_ == "relu") && dropout_ == 0 &&
           bias_ && norm_ == "none";
  }
  // Refuses other than plain stacks, for components that compute only these.
  void need_plain(const char* where) const {
    if (plain()) return;
    fail(TSR_UNIMPLEMENTED, "mlp ", where, " computes only linear layers with biases and ReLU, without \"norm\", ",
         "\"dropout\" and other activations: run this model on the CPU");
  }
  const std::string& activation(size_t k) const { return k + 1 < count() ? activation_ : final_activation_; }
  double dropout() const { return dropout_; }
  bool bias() const { return bias_; }
  const std::string& norm() const { return norm_; }
  double init_std() const { return init_std_; }  // read_init_std()

  size_t count() const { return widths_.size() - 1; }
  int64_t in(size_t k) const { return widths_[k]; }
  int64_t out(size_t k) const { return widths_[k + 1]; }
  bool relu(size_t k) const { return activation(k) == "relu"; }
  int64_t input() const { return widths_.front(); }
  int64_t output() const { return widths_.back(); }
  int64_t hidden_width() const { return hidden_width_; }  // sum over all layers except the last
  int64_t widest() const { return widest_; }              // widest output
  const std::vector<Parameter>& parameters() const { return parameters_; }

  std::vector<Value> outputs(std::span<const Value> inputs) const {
    const std::vector<int64_t> widths = dense_widths(inputs, "mlp");
    if (widths.size() != 1 || (widths[0] != 0 && widths[0] != input())) {
      fail(TSR_INVALID_ARGUMENT, "mlp takes one input of ", input(), " values, not ",
           widths.size() == 1 ? std::to_string(widths[0]) + " values" : std::to_string(widths.size()) + " inputs");
    }
    return {Value{output()}};
  }
  // The output of layer `k`, which is not the last, if all outputs are one after the other.
  float* hidden(float* memory, int64_t batch, size_t k) const {
    for (size_t i = 0; i < k; ++i) memory += batch * out(i);
    return memory;
  }

 private:
  // Refuses options that apply between two widths, because there is only one.
  void refuse_between(bool activation) const {
    const char* const option = activation                                       ? "activation"
                               : dropout_ > 0                                   ? "dropout"
                               : norm_ != "none" && final_activation_ == "none" ? "norm"
                                                                                : nullptr;
    if (option != nullptr)
      fail(TSR_INVALID_ARGUMENT, "option \"", option, "\" applies after each of the \"widths\" except the last, and ",
           "there is only one: ", activation ? "set \"final_activation\" instead" : "leave it out, or add widths");
  }

  std::vector<int64_t> widths_;
  std::string activation_, final_activation_;
  double dropout_;
  bool bias_;
  std::string norm_;
  double init_std_;
  std::vector<Parameter> parameters_;
  int64_t hidden_width_ = 0;
  int64_t widest_ = 0;
};

// "dot_interaction": takes a dense vector [batch, dim] and pooled ones [batch, features * dim]. Returns the dense
// vector, then dot(i, j) for i < j of the features + 1 vectors, of which the dense one is the first. It has no options
// or parameters.
struct InteractionShape {
  int64_t batch, features, dim, width;

  static int64_t output_width(std::span<const int64_t> widths) {
    if (widths.size() != 2) {
      fail(TSR_INVALID_ARGUMENT, "dot_interaction takes two inputs, the dense one and the pooled one, not ",
           widths.size());
    }
    const int64_t dim = widths[0], pooled = widths[1];
    if (dim < 1 || pooled < 0 || pooled % dim != 0) {
      fail(TSR_INVALID_ARGUMENT, "dot_interaction needs pooled embeddings as wide as the dense input: ", pooled,
           " values are not a multiple of ", dim);
    }
    const int64_t n = pooled / dim + 1;
    return dim + n * (n - 1) / 2;
  }
  static std::vector<Value> outputs(std::span<const Value> inputs) {
    return {Value{output_width(dense_widths(inputs, "dot_interaction"))}};
  }
  static InteractionShape of(std::span<const DLTensor> inputs) {
    const int64_t batch = batch_of(inputs, 2, "dot_interaction");
    if (inputs[0].ndim != 2 || inputs[1].ndim != 2)
      fail(TSR_INVALID_ARGUMENT, "dot_interaction takes inputs [batch, width]");
    const int64_t widths[] = {inputs[0].shape[1], inputs[1].shape[1]};
    const int64_t width = output_width(widths);
    return {batch, widths[1] / widths[0], widths[0], width};
  }
};

// "cross": the cross network of DCN-v2 (Wang et al., DCN V2, 2021). x_{k+1} = x_0 * (W_k x_k + b_k) + x_k with an
// elementwise product. With low_rank r > 0, W_k = U_k V_k. Options: {"width": N, "layers": 3, "low_rank": 0}; N may
// also be the sum of "inputs". Alternatively "kind": "full" or "low_rank", with "rank" (64). Input and output are
// [batch, N]. Parameters of layer k: "k.weight" [N, N] and "k.bias" [N]; with low_rank "k.v.weight" [r, N], "k.weight"
// [N, r], "k.bias" [N].
class CrossLayers {
 public:
  explicit CrossLayers(Options& options)
      : width_(options.integer("width", joined_width(options))),
        layers_(options.integer("layers", 3)),
        low_rank_(options.integer("low_rank", 0)) {
    const std::string kind = options.string("kind", low_rank_ > 0 ? "low_rank" : "full");
    const int64_t rank = options.integer("rank", kind == "low_rank" && low_rank_ == 0 ? 64 : low_rank_);
    if (low_rank_ > 0 && (options.has("rank") || kind != "low_rank"))
      fail(TSR_INVALID_ARGUMENT, "option \"low_rank\" is the kind \"low_rank\" with this \"rank\": leave out \"",
           options.has("rank") ? "rank" : "kind", '"');
    if (kind == "full" && options.has("rank"))
      fail(TSR_INVALID_ARGUMENT, "option \"rank\" belongs to the kinds low_rank and mixture, not to \"full\"");
    if (kind == "low_rank") {
      if (rank < 1) fail(TSR_INVALID_ARGUMENT, "option \"rank\" must be above 0, not ", rank);
      low_rank_ = rank;
    } else if (kind != "full") {
      fail(kind == "vector" || kind == "mixture" ? TSR_UNIMPLEMENTED : TSR_INVALID_ARGUMENT, "cross: kind \"", kind,
           "\" is not supported here: full and low_rank are supported everywhere, vector and mixture on the CPU");
    }
    if (width_ < 1) fail(TSR_INVALID_ARGUMENT, "option \"width\" must give the input's width, above 0");
    if (layers_ < 1) fail(TSR_INVALID_ARGUMENT, "option \"layers\" must be above 0, not ", layers_);
    if (low_rank_ < 0) fail(TSR_INVALID_ARGUMENT, "option \"low_rank\" must be 0 or above, not ", low_rank_);
    for (int64_t k = 0; k < layers_; ++k) {
      const std::string name = std::to_string(k);
      if (low_rank_ > 0)
        parameters_.push_back({name + ".v.weight", {low_rank_, width_}, xavier_normal(low_rank_, width_)});
      parameters_.push_back({name + ".weight", {width_, inner()}, xavier_normal(width_, inner())});
      parameters_.push_back({name + ".bias", {width_}});
    }
  }

  int64_t width() const { return width_; }
  int64_t count() const { return layers_; }
  int64_t low_rank() const { return low_rank_; }
  int64_t inner() const { return low_rank_ > 0 ? low_rank_ : width_; }  // columns of "k.weight"
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // Index of a layer's first parameter.
  size_t first_parameter(int64_t k) const { return static_cast<size_t>(k) * (low_rank_ > 0 ? 3 : 2); }

  std::vector<Value> outputs(std::span<const Value> inputs) const {
    const std::vector<int64_t> widths = dense_widths(inputs, "cross");
    if (widths.size() != 1 || (widths[0] != 0 && widths[0] != width_))
      fail(TSR_INVALID_ARGUMENT, "cross takes one input of ", width_, " values");
    return {Value{width_}};
  }

  // The state of layer k that forward keeps: its input (k > 0), V x (low rank) and W x + b.
  struct Kept {
    float *x, *projected, *y;
  };
  int64_t kept_floats(int64_t batch) const { return batch * layers_ * (2 * width_ + low_rank_); }
  Kept kept(float* memory, int64_t batch, int64_t k) const {
    float* x = memory + k * batch * (2 * width_ + low_rank_);
    return {x, x + batch * width_, x + batch * (width_ + low_rank_)};
  }

 private:
  int64_t width_, layers_, low_rank_;
  std::vector<Parameter> parameters_;
};

}  // namespace v1
}  // namespace tessera::sdk

// Checks dense layers: compares gradients with finite differences, and tests their duties to callers.
#include "tessera/abi/module.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "verify/check.h"
#include "verify/formulas.h"
#include "verify/gradients.h"
#include "verify/kernel_bed.h"
#include "verify/module_inputs.h"

namespace tessera::cli::verify {
namespace {

// Lists the results of slot(i, out, err): parameters or buffers.
template <class Slot>
std::vector<tsr_parameter> list_of(const char* what, const Slot& slot) {
  std::vector<tsr_parameter> out;
  for (uint32_t i = 0; i < 10000; ++i) {
    tsr_parameter p{};
    p.struct_size = sizeof(p);
    Call call;
    const tsr_code code = slot(i, &p, call.out());
    if (call.fails_well(code, what); code == TSR_OUT_OF_RANGE) return out;
    call.succeeds(code, str_cat(what, " ", i));
    require(p.name != nullptr && *p.name != '\0', "a ", what, " has no name");
    require(p.ndim >= 0 && p.ndim <= 4, what, " ", p.name, " has ", p.ndim, " dimensions, but 1 to 4 are allowed");
    for (int32_t d = 0; d < p.ndim; ++d)
      require(p.shape[d] > 0, what, " ", p.name, " has ", p.shape[d], " for dimension ", d);
    out.push_back(p);
  }
  broken("its list of ", what, "s does not end");
}
std::vector<tsr_parameter> parameters_of(const tsr_module& api, void* self) {
  return list_of("parameter", [&](uint32_t i, tsr_parameter* p, tsr_error* e) { return api.parameter(self, i, p, e); });
}
std::vector<tsr_parameter> buffers_of(const tsr_module& api, void* self) {
  if (!TSR_FITS(tsr_module, &api, buffer) || api.buffer == nullptr) return {};
  return list_of("buffer", [&](uint32_t i, tsr_parameter* p, tsr_error* e) { return api.buffer(self, i, p, e); });
}

// A layer with its inputs, parameters, buffers, outputs and all gradients.
class Layer {
 public:
  using Arrays = std::vector<std::unique_ptr<Array>>;

  Layer(Subject& subject, Random& random, int64_t batch) : Layer(subject, random, batch, subject.make(), {}) {}
  // `values`: the inputs; empty: some that it takes.
  Layer(Subject& subject, Random& random, int64_t batch, Made part, Values values)
      : subject_(subject), part_(std::move(part)), api_(part_.api<tsr_module>()), batch_(batch) {
    subject.doing("output");
    if (values.empty()) values = find_inputs(api_, part_.self());
    for (const tsr_value& v : values) add_input(v, random);
    for (const tsr_parameter& p : parameters_of(api_, part_.self())) {
      parameters.push_back(filled(shape_of(p), random, 0.4));
      grad_parameters.push_back(std::make_unique<Array>(kFloat32, shape_of(p)));
    }
    for (const tsr_parameter& p : buffers_of(api_, part_.self())) {
      buffers.push_back(std::make_unique<Array>(p.dtype, shape_of(p)));
      for (int64_t i = 0; i < buffers.back()->size(); ++i) buffers.back()->set(i, p.init_values[0]);
    }
    const std::optional<Values> given = outputs_of(api_, part_.self(), values);
    described_ = *given;
    const std::vector<int64_t> most = most_rows();
    for (size_t k = 0; k < described_.size(); ++k) {
      const tsr_value& v = described_[k];
      int64_t rows = has_own_rows(v) ? most[k] : batch;
      if (is_sequence(v) && !has_own_rows(v)) rows = rows_of(*inputs[static_cast<size_t>(v.rows_like)]);
      const std::vector<int64_t> shape{rows, v.width};
      outputs.push_back(std::make_unique<Array>(kFloat32, shape));
      directions.push_back(filled(shape, random, 1));
      own_offsets.push_back(has_own_rows(v) ? offsets_of_batch() : nullptr);
      rows_.push_back(rows);
    }
  }

  tsr_module_context* forward(bool train, double before = kUntouched) { return forward(train, train, before); }
  // `keep`: a backward may follow.
  tsr_module_context* forward(bool train, bool keep, double before) {
    for (size_t k = 0; k < outputs.size(); ++k) {
      for (int64_t i = 0; i < outputs[k]->size(); ++i) outputs[k]->set(i, before);
      rows_[k] = rows_of(*outputs[k]);
    }
    Raw raw(*this);
    raw.call.flags = train ? uint32_t{TSR_MODULE_TRAIN} : 0;
    tsr_module_context* context = nullptr;
    subject_.doing("forward");
    Call call;
    call.succeeds(api_.forward(part_.self(), &raw.call, keep ? &context : nullptr, call.out()), "forward");
    for (const Arrays* all : {&outputs, &buffers}) {
      for (const auto& a : *all) a->check_end("forward");
    }
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (own_offsets[k] != nullptr) rows_[k] = rows_written(k);
    }
    return context;
  }
  // Computes the gradients of `wanted` inputs; the others' tensors have data NULL. Then releases the context.
  void backward(tsr_module_context* context, bool wanted = true) {
    Raw raw(*this);
    raw.call.flags = TSR_MODULE_TRAIN;
    std::vector<DLTensor> grad_out = tensors(directions), grad_in;
    const std::vector<DLTensor> grad_params = tensors(grad_parameters);
    for (size_t k = 0; k < grad_out.size(); ++k) grad_out[k].shape = raw.shapes[k].data();
    for (size_t i = 0; i < inputs.size(); ++i) {
      grad_in.push_back(grad_inputs[i] == nullptr ? *inputs[i]->raw() : *grad_inputs[i]->raw());
      if (!wanted || grad_inputs[i] == nullptr) grad_in.back().data = nullptr;
    }
    raw.call.grad_outputs = grad_out.data();
    raw.call.grad_inputs = grad_in.data();
    raw.call.grad_parameters = grad_params.data();
    subject_.doing("backward");
    Call call;
    const tsr_code code = api_.backward(part_.self(), &raw.call, context, call.out());
    release(context);
    call.succeeds(code, "backward");
    for (const Arrays* all : {&grad_inputs, &grad_parameters}) {
      for (const auto& a : *all) {
        if (a != nullptr) a->check_end("backward");
      }
    }
  }
  void release(tsr_module_context* context) {
    subject_.doing("release");
    if (context != nullptr) api_.release(part_.self(), context);
  }
  void refuses_flag(uint32_t flag) {
    Raw raw(*this);
    raw.call.flags = flag;
    subject_.doing("forward");
    Call call;
    call.fails(api_.forward(part_.self(), &raw.call, nullptr, call.out()),
               "forward with an unknown flag that must be understood");
  }
  // The sum of outputs * directions of a training forward, so that buffers of an earlier one do not matter.
  Loss loss() {
    release(forward(true));
    double sum = 0, squares = 0;
    for (size_t k = 0; k < outputs.size(); ++k) {
      for (int64_t i = 0; i < values_of(k); ++i) {
        const double part = outputs[k]->get(i) * directions[k]->get(i);
        sum += part;
        squares += part * part;
      }
    }
    return {sum, std::sqrt(squares)};
  }
  std::vector<double> all_outputs() const {
    std::vector<double> out;
    for (size_t k = 0; k < outputs.size(); ++k) {
      for (int64_t i = 0; i < values_of(k); ++i) out.push_back(outputs[k]->get(i));
    }
    return out;
  }

  Arrays own_offsets;  // of outputs; null if an output has none of its own
  Arrays inputs, offsets, parameters, buffers, grad_parameters, outputs, directions;
  Arrays grad_inputs;  // null for an integer input

 private:
  // A call with the tensors of the layer.
  struct Raw {
    explicit Raw(const Layer& layer)
        : in(tensors(layer.inputs)),
          params(tensors(layer.parameters)),
          bufs(tensors(layer.buffers)),
          out(tensors(layer.outputs)) {
      bool jagged = false, own = false;
      for (size_t k = 0; k < out.size(); ++k) {
        shapes.push_back({layer.rows_[k], out[k].shape[1]});
        own_bounds.push_back(layer.own_offsets[k] == nullptr ? DLTensor{} : *layer.own_offsets[k]->raw());
        own |= layer.own_offsets[k] != nullptr;
      }
      for (size_t k = 0; k < out.size(); ++k) out[k].shape = shapes[k].data();
      for (const auto& a : layer.offsets) {
        bounds.push_back(a == nullptr ? DLTensor{} : *a->raw());
        jagged |= a != nullptr;
      }
      call.struct_size = sizeof(call);
      call.seed = layer.subject_.what().seed;
      call.step = 1;
      call.batch = layer.batch_;
      call.num_inputs = static_cast<uint32_t>(in.size());
      call.num_outputs = static_cast<uint32_t>(out.size());
      call.inputs = in.data();
      call.offsets = jagged ? bounds.data() : nullptr;
      call.parameters = params.data();
      call.buffers = bufs.data();
      call.outputs = out.data();
      call.output_offsets = own ? own_bounds.data() : nullptr;
    }
    std::vector<DLTensor> in, params, bufs, out, bounds, own_bounds;
    std::vector<std::array<int64_t, 2>> shapes;  // of the outputs
    tsr_module_call call{};
  };

  void add_input(const tsr_value& v, Random& random) {
    int64_t rows = batch_;
    const size_t number = offsets.size();
    offsets.push_back(nullptr);
    if (is_sequence(v)) {
      offsets.back() = offsets_of_batch();
      const auto like = static_cast<size_t>(v.rows_like);
      rows = 0;
      for (int64_t s = 0; s <= batch_; ++s) {
        if (like < number) rows = static_cast<int64_t>(offsets[like]->get(s));
        offsets.back()->set(s, static_cast<double>(rows));
        if (s < batch_ && like == number) rows += between(random, 0, 3);
      }
    }
    const std::vector<int64_t> shape{rows, v.width};
    if (v.dtype.code == kDLFloat) {
      inputs.push_back(filled(shape, random, 1));
      grad_inputs.push_back(std::make_unique<Array>(kFloat32, shape));
      return;
    }
    inputs.push_back(std::make_unique<Array>(v.dtype, shape));
    // An integer of a sample is at most the number of its rows, if there are sequences, because it may count some.
    const Array* rows_of_samples = is_sequence(v) || offsets.empty() ? nullptr : offsets.front().get();
    for (int64_t i = 0; i < inputs.back()->size(); ++i) {
      uint64_t choices = 4;
      if (rows_of_samples != nullptr)
        choices = static_cast<uint64_t>(rows_of_samples->get(i + 1) - rows_of_samples->get(i)) + 1;
      inputs.back()->set(i, static_cast<double>(random() % choices));
    }
    grad_inputs.push_back(nullptr);
  }
  std::unique_ptr<Array> offsets_of_batch() const {
    return std::make_unique<Array>(DLDataType{kDLInt, 64, 1}, std::vector<int64_t>{batch_ + 1});
  }
  static int64_t rows_of(const Array& array) { return array.raw()->shape[0]; }
  // Values of an output that the last forward wrote.
  int64_t values_of(size_t k) const { return rows_[k] * described_[k].width; }
  // The most rows of outputs with offsets of their own.
  std::vector<int64_t> most_rows() {
    std::vector<int64_t> rows(described_.size(), 0);
    if (std::none_of(described_.begin(), described_.end(), has_own_rows)) return rows;
    Raw raw(*this);
    raw.call.num_outputs = static_cast<uint32_t>(rows.size());
    subject_.doing("max_rows");
    Call call;
    call.succeeds(api_.max_rows(part_.self(), &raw.call, rows.data(), call.out()), "max_rows");
    for (size_t k = 0; k < rows.size(); ++k)
      require(!has_own_rows(described_[k]) || (rows[k] >= 0 && rows[k] < (1 << 24)), "max_rows says that output ", k,
              " may have ", rows[k], " rows");
    return rows;
  }
  // Rows of an output with offsets of its own, which are checked.
  int64_t rows_written(size_t k) const {
    const Array& bounds = *own_offsets[k];
    bounds.check_end("forward");
    for (int64_t s = 0; s <= batch_; ++s) {
      const double at = bounds.get(s), before = s == 0 ? 0 : bounds.get(s - 1);
      require(at >= before && (s > 0 || at == 0) && at <= static_cast<double>(rows_of(*outputs[k])), "the offsets of ",
              "output ", k, " do not rise from 0 to at most max_rows");
    }
    return static_cast<int64_t>(bounds.get(batch_));
  }
  static std::vector<int64_t> shape_of(const tsr_parameter& p) { return {p.shape, p.shape + p.ndim}; }
  static std::unique_ptr<Array> filled(std::vector<int64_t> shape, Random& random, double scale) {
    auto out = std::make_unique<Array>(kFloat32, std::move(shape));
    std::normal_distribution<double> normal(0, scale);
    for (int64_t i = 0; i < out->size(); ++i) out->set(i, normal(random));
    return out;
  }
  static std::vector<DLTensor> tensors(const Arrays& arrays) {
    std::vector<DLTensor> out;
    for (const auto& a : arrays) out.push_back(*a->raw());
    return out;
  }
  Subject& subject_;
  Made part_;
  const tsr_module& api_;
  int64_t batch_;
  Values described_;           // the outputs
  std::vector<int64_t> rows_;  // of the outputs, in the last forward
};

void check_module_parameters(Subject& subject) {
  const Made part = subject.make();
  const auto& api = part.api<tsr_module>();
  std::set<std::string> names;
  const auto check = [&](const std::vector<tsr_parameter>& all, const char* what, bool buffers) {
    for (const tsr_parameter& p : all) {
      require(names.insert(p.name).second, "two parameters are called ", p.name);
      require(buffers || p.ndim > 0, what, p.name, " has no dimensions");
      require(p.init == TSR_INIT_CONSTANT || p.init == TSR_INIT_NORMAL || p.init == TSR_INIT_UNIFORM, what, p.name,
              " has init ", p.init, ", which does not exist");
      const bool floats = p.dtype.code == kDLFloat && p.dtype.bits == 32 && p.dtype.lanes == 1;
      const bool counts = p.dtype.code == kDLInt && p.dtype.bits == 64 && p.init == TSR_INIT_CONSTANT;
      require(floats || (buffers && counts), what, p.name, " has a type that it may not have");
      require(std::isfinite(p.init_values[0]) && std::isfinite(p.init_values[1]), what, p.name,
              " has start values that are not numbers");
    }
  };
  subject.doing("parameter");
  check(parameters_of(api, part.self()), "parameter ", false);
  subject.doing("buffer");
  check(buffers_of(api, part.self()), "buffer ", true);
}

void check_module_outputs(Subject& subject) {
  const Made part = subject.make();
  const auto& api = part.api<tsr_module>();
  const Values inputs = find_inputs(api, part.self());
  subject.doing("output for too many inputs");
  outputs_of(api, part.self(), Values(inputs.size() + 5, value_of(3)));
  const auto refused = [&](const Values& values, const char* what) {
    tsr_value value{};
    value.struct_size = sizeof(value);
    subject.doing(str_cat("output for ", what));
    Call call;
    call.fails(api.output(part.self(), 0, static_cast<uint32_t>(values.size()), sizeof(tsr_value), inputs.data(),
                          &value, call.out()),
               str_cat("output for ", what));
  };
  refused({}, "no inputs");
  Values strange = inputs;
  for (tsr_value& v : strange) v.flags |= 0x80000000u;
  tsr_value value{};
  value.struct_size = sizeof(value);
  subject.doing("output for inputs with an unknown flag");
  Call call;
  const tsr_code code = api.output(part.self(), 0, static_cast<uint32_t>(strange.size()), sizeof(tsr_value),
                                   strange.data(), &value, call.out());
  call.fails(code, "output for inputs with the unknown flag 0x80000000");
}

void check_module_inference(Subject& subject) {
  Random random = subject.random();
  Layer layer(subject, random, 5);
  layer.release(layer.forward(false, true, kUntouched));
  const std::vector<double> first = layer.all_outputs();
  for (size_t i = 0; i < first.size(); ++i)
    require(first[i] != kUntouched, "forward leaves element ", i, " of the output unwritten");
  layer.forward(false, 5);
  const std::vector<double> again = layer.all_outputs();
  for (size_t i = 0; i < first.size(); ++i) {
    require(std::abs(again[i] - first[i]) <= 1e-4 + 1e-4 * std::abs(first[i]),
            "without a context, into memory that held 5, forward gives ", again[i], " for element ", i,
            ", with one, over 77, ", first[i]);
  }
}

// Compares gradients with differences of the layer's loss.
void compare_gradient(Layer& layer, Array& at, const Array& gradient, const std::string& what, double times = 1) {
  compare_gradient([&] { return layer.loss(); }, at, gradient, what, times);
}
void compare_together(Layer& layer, Array& at, const Array& gradient, const std::string& what) {
  compare_together([&] { return layer.loss(); }, at, values_of(gradient), what);
}

void check_module_gradients(Subject& subject) {
  for (const int64_t batch : {int64_t{1}, int64_t{6}}) {
    Random random = subject.random(static_cast<uint64_t>(batch));
    Layer layer(subject, random, batch);
    layer.backward(layer.forward(true));
    for (size_t i = 0; i < layer.inputs.size(); ++i) {
      if (layer.grad_inputs[i] != nullptr)
        compare_gradient(layer, *layer.inputs[i], *layer.grad_inputs[i], str_cat("input ", i));
    }
    for (size_t p = 0; p < layer.parameters.size(); ++p)
      compare_gradient(layer, *layer.parameters[p], *layer.grad_parameters[p], str_cat("parameter ", p));
  }
}

// Gradients of parameters are accumulated. Gradients of inputs are written, and only those that are wanted.
void check_module_accumulation(Subject& subject) {
  Random random = subject.random(7);
  Layer layer(subject, random, 4);
  for (const auto& g : layer.grad_inputs) {
    for (int64_t i = 0; g != nullptr && i < g->size(); ++i) g->set(i, 1000);
  }
  layer.backward(layer.forward(true));
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    if (layer.grad_inputs[i] != nullptr)
      compare_gradient(layer, *layer.inputs[i], *layer.grad_inputs[i],
                       str_cat("input ", i, ", which held 1000 before,"));
  }
  layer.backward(layer.forward(true), false);
  for (size_t p = 0; p < layer.parameters.size(); ++p) {
    compare_gradient(layer, *layer.parameters[p], *layer.grad_parameters[p],
                     str_cat("parameter ", p, ", half of what two backwards added up,"), 2);
  }
}

// A layer with an input of 257 values, if its options or its inputs allow that, and its usual inputs otherwise.
Layer wide_layer(Subject& subject, Random& random, int64_t batch) {
  const Values wide = {value_of(257)};
  for (const std::string& options : {with_widths(subject.what().options, {257}), subject.what().options}) {
    try {
      Made part = subject.make(options);
      const std::optional<Values> outputs = outputs_of(part.api<tsr_module>(), part.self(), wide);
      if (outputs && !outputs->empty()) return {subject, random, batch, std::move(part), wide};
    } catch (const Broken&) {  // it has no such option
    }
  }
  return {subject, random, batch};
}

// Many samples and wide rows, with one thread and with three.
void check_module_large(Subject& subject) {
  Random random = subject.random(9);
  Layer layer = wide_layer(subject, random, subject.thorough() ? 4099 : 515);
  std::vector<std::vector<double>> outputs, gradients;
  for (const uint32_t threads : {1u, 3u}) {
    subject.host().threads = threads;
    for (const auto& g : layer.grad_parameters) {
      for (int64_t i = 0; i < g->size(); ++i) g->set(i, 0);
    }
    layer.backward(layer.forward(true));
    outputs.push_back(layer.all_outputs());
    std::vector<double> all;
    for (const Layer::Arrays* arrays : {&layer.grad_inputs, &layer.grad_parameters}) {
      for (const auto& a : *arrays) {
        for (int64_t i = 0; a != nullptr && i < a->size(); ++i) all.push_back(a->get(i));
      }
    }
    gradients.push_back(std::move(all));
  }
  const auto same = [](const std::vector<double>& a, const std::vector<double>& b, const char* what) {
    double largest = 0;
    for (const double x : a) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < a.size(); ++i) {
      require(std::abs(a[i] - b[i]) <= 1e-4 * (1e-3 + largest), "element ", i, " of the ", what, " is ", a[i],
              " with one thread and ", b[i], " with three");
    }
  };
  same(outputs[0], outputs[1], "outputs");
  same(gradients[0], gradients[1], "gradients");
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    if (layer.grad_inputs[i] != nullptr)
      compare_together(layer, *layer.inputs[i], *layer.grad_inputs[i], str_cat("input ", i));
  }
  for (size_t p = 0; p < layer.parameters.size(); ++p)
    compare_together(layer, *layer.parameters[p], *layer.grad_parameters[p], str_cat("parameter ", p));
}

void check_module_flags(Subject& subject) {
  Random random = subject.random(10);
  Layer layer(subject, random, 3);
  layer.refuses_flag(1u << 31);
}

void check_module_sequences(Subject& subject) {
  Random random = subject.random(8);
  for (int i = 0; i < 60; ++i) {
    subject.host().threads = 1 + static_cast<uint32_t>(random() % 3);
    Layer layer(subject, random, between(random, 0, 300));
    tsr_module_context* first = layer.forward(true);
    layer.forward(false);
    layer.release(first);
    tsr_module_context* second = layer.forward(true);
    layer.backward(second);
    const int64_t size = layer.outputs[0]->size();
    if (i % 10 == 0 && layer.grad_inputs[0] != nullptr && size > 0 && size < 4000)
      compare_gradient(layer, *layer.inputs[0], *layer.grad_inputs[0], "input 0");
  }
}

}  // namespace

std::span<const Check> module_checks() {
  static constexpr const char* kBackward = "abi/module.h, tsr_module::backward";
  static constexpr Check kChecks[] = {
      {"module.parameters", 3, TSR_MODULE_KIND, "abi/module.h, tsr_parameter", 20, check_module_parameters},
      {"module.outputs", 3, TSR_MODULE_KIND, "abi/module.h, tsr_module::output", 20, check_module_outputs},
      {"module.flags", 3, TSR_MODULE_KIND, "abi/module.h, tsr_module_call::flags", 20, check_module_flags},
      {"module.inference", 4, TSR_MODULE_KIND, "abi/module.h, tsr_module::forward", 20, check_module_inference},
      {"module.gradients", 4, TSR_MODULE_KIND, kBackward, 60, check_module_gradients},
      {"module.accumulation", 4, TSR_MODULE_KIND, kBackward, 60, check_module_accumulation},
      {"module.large", 4, TSR_MODULE_KIND, kBackward, 200, check_module_large},
      {"module.sequences", 5, TSR_MODULE_KIND, kBackward, 120, check_module_sequences},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify

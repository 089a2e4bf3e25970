// Checks dense layers: compares gradients with finite differences, and tests their duties to callers.
#include "tessera/abi/module.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <set>

#include "verify/formulas.h"
#include "verify/memory_growth.h"
#include "verify/module_layer.h"
#include "verify/other_processes.h"

namespace tessera::cli::verify {
namespace {

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
    auto value = sdk::sized<tsr_value>();
    subject.doing(str_cat("output for ", what));
    Call call;
    call.fails(api.output(part.self(), 0, static_cast<uint32_t>(values.size()), sizeof(tsr_value), inputs.data(),
                          &value, call.out()),
               str_cat("output for ", what));
  };
  refused({}, "no inputs");
  Values strange = inputs;
  for (tsr_value& v : strange) v.flags |= 0x80000000u;
  auto value = sdk::sized<tsr_value>();
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

// The rows that a sample's sequence may have.
int64_t longest_sequence(Subject& subject) {
  Random random = subject.random(6);
  try {
    Layer(subject, random, 9, Layer::kLong).forward(false);
    return Layer::kLong;
  } catch (const Broken&) {  // an option of the layer bounds them
    return Layer::kShort;
  }
}

// Gradients of parameters are accumulated. Gradients of inputs are written, and only those that are wanted.
void check_module_accumulation(Subject& subject) {
  Random random = subject.random(7);
  Layer layer(subject, random, 4, longest_sequence(subject));
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
      if (outputs && !outputs->empty()) return {subject, random, batch, std::make_shared<Made>(std::move(part)), wide};
    } catch (const Broken&) {  // it has no such option
    }
  }
  return {subject, random, batch};
}

// True if a call that trains computes the same as an evaluation.
bool trains_as_it_evaluates(Layer& layer) {
  layer.release(layer.forward(true));
  const std::vector<double> trained = layer.all_outputs();
  layer.forward(false);
  const std::vector<double> evaluated = layer.all_outputs();
  return std::equal(trained.begin(), trained.end(), evaluated.begin(), evaluated.end(),
                    [](double a, double b) { return std::abs(a - b) <= 1e-4 + 1e-4 * std::abs(a); });
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
  Layer few = wide_layer(subject, random, 40);
  require(!trains_as_it_evaluates(few) || trains_as_it_evaluates(layer),
          "an evaluation of many samples gives other outputs than a forward that trains, but not one of 40 samples");
}

// An evaluation of other inputs comes between a forward and its backward.
void check_module_contexts(Subject& subject) {
  Random random = subject.random(12);
  Layer layer(subject, random, 4);
  Layer other = layer.with_other_inputs(random);
  tsr_module_context* const context = layer.forward(true);
  other.forward(false);
  layer.backward(context);
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    if (layer.grad_inputs[i] != nullptr)
      compare_gradient(layer, *layer.inputs[i], *layer.grad_inputs[i],
                       str_cat("input ", i, ", after an evaluation of other inputs,"));
  }
  for (size_t p = 0; p < layer.parameters.size(); ++p)
    compare_gradient(layer, *layer.parameters[p], *layer.grad_parameters[p],
                     str_cat("parameter ", p, ", after an evaluation of other inputs,"));
}

void check_module_ranks(Subject& subject) {
  const std::vector<double> sums = ask_in_processes(2, [&] {
    Random random = subject.random(13);
    Layer layer(subject, random, 20);
    layer.backward(layer.forward(true));
    double sum = 0, place = 1;
    for (const double x : layer.all_outputs()) sum += x * (place += 1);
    for (const Layer::Arrays* arrays : {&layer.grad_inputs, &layer.grad_parameters}) {
      for (const auto& a : *arrays) {
        for (int64_t i = 0; a != nullptr && i < a->size(); ++i) sum += a->get(i) * (place += 1);
      }
    }
    return sum;
  });
  require(std::bit_cast<uint64_t>(sums[0]) == std::bit_cast<uint64_t>(sums[1]),
          "the same call gives other values in a process with RANK=1 than with RANK=0");
}

void check_module_many_calls(Subject& subject) {
  Random random = subject.random(14);
  Layer layer(subject, random, 7);
  constexpr int kWarm = 50, kCalls = 300;
  MemoryGrowth growth;
  for (int call = 1; call <= kWarm + kCalls; ++call) {
    layer.backward(layer.forward(true));
    layer.forward(false);
    if (call == kWarm) growth.begin();
    if (call > kWarm && call % 50 == 0) growth.require_little("forwards and backwards", call - kWarm);
  }
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
      {"module.contexts", 4, TSR_MODULE_KIND, kBackward, 60, check_module_contexts},
      {"module.many_calls", 4, TSR_MODULE_KIND, kBackward, 60, check_module_many_calls},
      {"module.ranks", 4, TSR_MODULE_KIND, "abi/module.h, tsr_module_call", 60, check_module_ranks},
      {"module.large", 4, TSR_MODULE_KIND, kBackward, 200, check_module_large},
      {"module.sequences", 5, TSR_MODULE_KIND, kBackward, 120, check_module_sequences},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify

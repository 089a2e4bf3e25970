// A layer as its checks call it: with its inputs, parameters, buffers, outputs and all gradients.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/abi/module.h"
#include "verify/check.h"
#include "verify/gradients.h"
#include "verify/kernel_bed.h"
#include "verify/module_inputs.h"

namespace tessera::cli::verify {

// Lists the results of slot(i, out, err): parameters or buffers.
template <class Slot>
std::vector<tsr_parameter> list_of(const char* what, const Slot& slot) {
  std::vector<tsr_parameter> out;
  for (uint32_t i = 0; i < 10000; ++i) {
    auto p = sdk::sized<tsr_parameter>();
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
inline std::vector<tsr_parameter> parameters_of(const tsr_module& api, void* self) {
  return list_of("parameter", [&](uint32_t i, tsr_parameter* p, tsr_error* e) { return api.parameter(self, i, p, e); });
}
inline std::vector<tsr_parameter> buffers_of(const tsr_module& api, void* self) {
  if (!TSR_FITS(tsr_module, &api, buffer) || api.buffer == nullptr) return {};
  return list_of("buffer", [&](uint32_t i, tsr_parameter* p, tsr_error* e) { return api.buffer(self, i, p, e); });
}

// A layer with its inputs, parameters, buffers, outputs and all gradients.
class Layer {
 public:
  using Arrays = std::vector<std::unique_ptr<Array>>;

  static constexpr int64_t kShort = 3, kLong = 7;  // rows of a sample's sequence at most; some layers bound them
  Layer(Subject& subject, Random& random, int64_t batch, int64_t longest = kShort)
      : Layer(subject, random, batch, std::make_shared<Made>(subject.make()), {}, longest) {}
  // `values`: the inputs; empty: some that it takes.
  Layer(Subject& subject, Random& random, int64_t batch, std::shared_ptr<Made> part, Values values,
        int64_t longest = kShort)
      : subject_(subject), part_(std::move(part)), api_(part_->api<tsr_module>()), batch_(batch), longest_(longest) {
    subject.doing("output");
    if (values.empty()) values = find_inputs(api_, part_->self());
    values_ = values;
    for (const tsr_value& v : values) add_input(v, random);
    for (const tsr_parameter& p : parameters_of(api_, part_->self())) {
      parameters.push_back(filled(shape_of(p), random, 0.4));
      grad_parameters.push_back(std::make_unique<Array>(kFloat32, shape_of(p)));
    }
    for (const tsr_parameter& p : buffers_of(api_, part_->self())) {
      buffers.push_back(std::make_unique<Array>(p.dtype, shape_of(p)));
      for (int64_t i = 0; i < buffers.back()->size(); ++i) buffers.back()->set(i, p.init_values[0]);
    }
    const std::optional<Values> given = outputs_of(api_, part_->self(), values);
    described_ = *given;
    make_outputs(random);
    if (!takes_noise()) make_labels(random);
  }

  // The same object and parameters with other inputs and outputs.
  Layer with_other_inputs(Random& random) const {
    Layer out(subject_, random, batch_, part_, values_, longest_);
    for (size_t p = 0; p < parameters.size(); ++p) {
      for (int64_t i = 0; i < parameters[p]->size(); ++i) out.parameters[p]->set(i, parameters[p]->get(i));
    }
    return out;
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
    call.succeeds(api_.forward(part_->self(), &raw.call, keep ? &context : nullptr, call.out()), "forward");
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
    const tsr_code code = api_.backward(part_->self(), &raw.call, context, call.out());
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
    if (context != nullptr) api_.release(part_->self(), context);
  }
  void refuses_flag(uint32_t flag) {
    Raw raw(*this);
    raw.call.flags = flag;
    subject_.doing("forward");
    Call call;
    call.fails(api_.forward(part_->self(), &raw.call, nullptr, call.out()),
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

  // Makes outputs for the inputs, and directions of their gradients.
  void make_outputs(Random& random) {
    const std::vector<int64_t> most = most_rows();
    for (size_t k = 0; k < described_.size(); ++k) {
      const tsr_value& v = described_[k];
      int64_t rows = has_own_rows(v) ? most[k] : batch_;
      if (is_sequence(v) && !has_own_rows(v)) rows = rows_of(*inputs[static_cast<size_t>(v.rows_like)]);
      const std::vector<int64_t> shape{rows, v.width};
      outputs.push_back(std::make_unique<Array>(kFloat32, shape));
      directions.push_back(filled(shape, random, 1));
      own_offsets.push_back(has_own_rows(v) ? offsets_of_batch() : nullptr);
      rows_.push_back(rows);
    }
  }
  // False if the layer refuses random numbers, as losses do whose labels are classes.
  bool takes_noise() {
    Raw raw(*this);
    subject_.doing("forward");
    Call call;
    return api_.forward(part_->self(), &raw.call, nullptr, call.out()) != TSR_INVALID_ARGUMENT;
  }
  // Makes labels of the inputs after the first that have one value for each sample: 0 and 1, without gradients.
  void make_labels(Random& random) {
    for (size_t i = 1; i < inputs.size(); ++i) {
      const tsr_value& v = values_[i];
      if (v.width != 1 || v.dtype.code != kDLFloat || is_sequence(v)) continue;
      for (int64_t s = 0; s < batch_; ++s) inputs[i]->set(s, static_cast<double>(random() % 2));
      grad_inputs[i] = nullptr;
    }
  }
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
        if (s < batch_ && like == number) rows += between(random, s == 1 ? longest_ : 0, longest_);
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
    call.succeeds(api_.max_rows(part_->self(), &raw.call, rows.data(), call.out()), "max_rows");
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
  Values values_;  // the inputs
  std::shared_ptr<Made> part_;
  const tsr_module& api_;
  int64_t batch_, longest_;
  Values described_;           // the outputs
  std::vector<int64_t> rows_;  // of the outputs, in the last forward
};

}  // namespace tessera::cli::verify

#include "tessera/lookup.h"

#include <algorithm>
#include <utility>

#include "modules/kernel_config.h"
#include "modules/lookup_impl.h"
#include "modules/lookup_staging.h"

namespace tessera {
namespace {

// Chooses a stream if the options do not.
DeviceStreamPtr stream_for(const Runtime& runtime, const LookupOptions& options) {
  if (options.stream || options.kernel == "auto") return options.stream;
  const ComponentPtr kernel = runtime.create(TSR_KERNEL_KIND, options.kernel);
  const int32_t* types = kernel->api<tsr_kernel>().device_types;
  for (const int32_t* type = types; *type != 0; ++type) {
    if (*type == kDLCPU) return nullptr;
  }
  return *types == 0 ? nullptr : open_device_type(runtime, *types);
}

ComponentPtr named_kernel(const Runtime& runtime, const std::string& id, const tsr_kernel_config& config) {
  ComponentPtr kernel = runtime.create(TSR_KERNEL_KIND, id);
  const std::string reason = refusal(*kernel, config);
  if (!reason.empty()) fail(Code::kUnimplemented, "kernel \"", id, "\" cannot serve these tables: ", reason);
  return kernel;
}

// Returns the kernel of the highest priority that supports the config. Kernels of equal priority are ordered by id.
ComponentPtr best_kernel(const Runtime& runtime, const tsr_kernel_config& config) {
  std::vector<ComponentPtr> usable;
  std::string reasons;
  auto refuse = [&](const std::string& id, const std::string& why) {
    reasons += str_cat(reasons.empty() ? "" : "; ", id, ": ", why);
  };
  for (const std::string& id : runtime.ids(TSR_KERNEL_KIND)) {
    try {
      usable.push_back(runtime.create(TSR_KERNEL_KIND, id));
    } catch (const Error& e) {
      refuse(id, e.what());
    }
  }
  std::stable_sort(usable.begin(), usable.end(), [](const ComponentPtr& a, const ComponentPtr& b) {
    return a->raw()->component->priority > b->raw()->component->priority;
  });
  for (const ComponentPtr& kernel : usable) {
    const std::string reason = refusal(*kernel, config);
    if (reason.empty()) return kernel;
    refuse(kernel->id(), reason);
  }
  if (reasons.empty()) fail(Code::kUnimplemented, "no kernel plugin was found: see tessera plugins");
  fail(Code::kUnimplemented, "no kernel can serve these tables. ", reasons);
}

// Returns the states of an optimizer that this core moves between ranks and checkpoints. The kernel may know more kinds
// and types.
std::vector<tsr_state> known_states(const Component& optimizer) {
  std::vector<tsr_state> out;
  try {
    const sdk::OptimizerRef ref(optimizer.raw());
    ref.check_states();
    for (uint32_t k = 0; k < ref.num_states(); ++k) out.push_back(ref.state(k));
  } catch (const sdk::Failure& e) {
    fail(static_cast<Code>(e.code()), e.what());
  }
  return out;
}

}  // namespace

Lookup::Impl::Impl(const Runtime& runtime, LookupOptions o) : options(std::move(o)) {
  if (!options.optimizer.name.empty()) {
    optimizer = runtime.create(TSR_OPTIMIZER_KIND, options.optimizer.name, options.optimizer.options);
    learning_rate = optimizer->api<tsr_optimizer>().learning_rate(optimizer->self());
  }
  const std::vector<tsr_state> known = optimizer ? known_states(*optimizer) : std::vector<tsr_state>();
  options.stream = stream_for(runtime, options);
  const KernelConfig config(options, optimizer.get(), (options.stream ? options.stream->device() : kCpu).dl());
  kernel =
      options.kernel == "auto" ? best_kernel(runtime, config.raw) : named_kernel(runtime, options.kernel, config.raw);
  api = &kernel->api<tsr_kernel>();
  prefetch = kernel->extension<tsr_prefetch>(TSR_PREFETCH);
  tsr_kernel_config raw = config.raw;
  raw.start_values = &start_values;
  AbiError error;
  const plugin::CallScope call(*kernel, "open", options.tables.empty() ? "" : options.tables[0].name);
  const tsr_code code = api->open(kernel->self(), &raw, &instance, error.out());
  error.check(code, code == TSR_RESOURCE_EXHAUSTED ? str_cat(largest_table(), ": ", kernel->id()) : kernel->id());
  if (instance == nullptr) fail(Code::kInternal, kernel->id(), ": open returned TSR_OK, but no instance");
  if (optimizer && options.train) {
    for (const tsr_state& s : known) states.push_back({s.name, s.kind == TSR_STATE_PER_ROW, s.start});
  }
}

Lookup::Context::Context(Context&& other) noexcept
    : owner_(std::move(other.owner_)), raw_(std::exchange(other.raw_, nullptr)) {}
Lookup::Context& Lookup::Context::operator=(Context&& other) noexcept {
  if (this != &other) {
    release();
    owner_ = std::move(other.owner_);
    raw_ = std::exchange(other.raw_, nullptr);
  }
  return *this;
}
Lookup::Context::~Context() { release(); }
void Lookup::Context::release() {
  if (raw_ != nullptr) owner_->api->release(owner_->instance, raw_);
  raw_ = nullptr;
  owner_.reset();
}

Lookup::Lookup(const Runtime& runtime, LookupOptions options)
    : impl_(std::make_shared<Impl>(runtime, std::move(options))) {}
Lookup::~Lookup() = default;
Lookup::Lookup(Lookup&&) noexcept = default;
Lookup& Lookup::operator=(Lookup&&) noexcept = default;

const LookupOptions& Lookup::options() const { return impl_->options; }
const std::string& Lookup::kernel_id() const { return impl_->kernel->id(); }
bool Lookup::updates_in_backward() const {
  return impl_->options.train && impl_->options.compute_kernel != TSR_COMPUTE_DENSE;
}
bool Lookup::places_rows() const { return impl_->places_rows(); }
bool Lookup::makes_rows() const { return impl_->makes_rows(); }
double Lookup::learning_rate() const { return impl_->learning_rate; }
void Lookup::set_learning_rate(double value) { impl_->learning_rate = value; }
int64_t Lookup::step() const { return impl_->step; }
void Lookup::set_step(int64_t step) { impl_->step = step; }
void Lookup::count_step() { ++impl_->step; }
const std::vector<Lookup::State>& Lookup::states() const { return impl_->states; }

bool Lookup::prefetches() const { return impl_->prefetch != nullptr; }
void Lookup::prefetch(const tsr_lookup& lookup) const {
  impl_->call("prefetch", impl_->prefetch->prefetch, impl_->instance, &lookup, tsr_stream{});
}

void Lookup::forward(const tsr_lookup& given, std::span<const Tensor> outputs, Context* context) {
  if (context != nullptr) context->release();
  const tsr_lookup lookup = impl_->promised(given, outputs.size(), context != nullptr);
  tsr_context* raw = nullptr;
  LookupStaging staging(impl_->options.stream.get());
  const tsr_lookup* batch = staging.batch(lookup);
  impl_->call("forward", impl_->api->forward, impl_->instance, batch, staging.output(impl_->views(outputs)),
              staging.raw_stream(), context == nullptr ? nullptr : &raw);
  if (context != nullptr) {
    context->owner_ = impl_;
    context->raw_ = raw;
  }
  staging.finish();
}

// Ends the context by call(its handle, args, stream).
template <class Call>
void Lookup::with_backward(Context&& context, const tsr_lookup& given, std::span<const Tensor> grad_outputs,
                           double grad_scale, const Tensor& grad_weights, const Call& call) {
  const Context spent = std::move(context);
  TESSERA_CHECK(spent.owner_ == impl_, "the context belongs to another lookup, or is spent");
  const tsr_lookup lookup = impl_->promised(given, grad_outputs.size(), true);
  const tsr_update update = impl_->update();
  const DLTensor weights = grad_weights.dl();
  LookupStaging staging(impl_->options.stream.get());
  const tsr_backward args{sizeof(tsr_backward),
                          0,
                          staging.batch(lookup),
                          staging.input(impl_->views(grad_outputs)),
                          grad_weights.defined() ? staging.output(&weights) : nullptr,
                          grad_scale,
                          &update};
  call(spent.raw_, args, staging.raw_stream());
  staging.finish();
}

void Lookup::backward(Context&& context, const tsr_lookup& lookup, std::span<const Tensor> grad_outputs,
                      double grad_scale, const Tensor& grad_weights) {
  impl_->need(impl_->api->backward, "update rows in backward");
  with_backward(std::move(context), lookup, grad_outputs, grad_scale, grad_weights,
                [&](tsr_context* raw, const tsr_backward& args, tsr_stream stream) {
                  impl_->call("backward", impl_->api->backward, impl_->instance, raw, &args, stream);
                  ++impl_->step;
                });
}

template <class Take>
void Lookup::hand_out(Context&& context, const tsr_lookup& lookup, std::span<const Tensor> grad_outputs,
                      double grad_scale, const Tensor& grad_weights, const Take& take) {
  impl_->need(impl_->api->backward_rows, "hand gradients out");
  std::vector<tsr_row_gradient>& rows = impl_->row_gradients;
  rows.assign(impl_->options.tables.size(), {});
  with_backward(std::move(context), lookup, grad_outputs, grad_scale, grad_weights,
                [&](tsr_context* raw, const tsr_backward& args, tsr_stream stream) {
                  impl_->call("backward_rows", impl_->api->backward_rows, impl_->instance, raw, &args, rows.data(),
                              stream);
                  for (size_t t = 0; t < rows.size(); ++t) take(static_cast<int>(t), rows[t]);
                });
}

std::vector<RowGradient> Lookup::backward_rows(Context&& context, const tsr_lookup& lookup,
                                               std::span<const Tensor> grad_outputs, double grad_scale,
                                               const Tensor& grad_weights) {
  std::vector<RowGradient> out;
  DeviceStream* stream = impl_->options.stream.get();
  hand_out(std::move(context), lookup, grad_outputs, grad_scale, grad_weights, [&](int, const tsr_row_gradient& g) {
    out.push_back({host_copy_of(g.rows, stream), host_copy_of(g.values, stream)});
  });
  return out;
}

void Lookup::backward_rows(Context&& context, const tsr_lookup& lookup, const Tensor& grad_output, double grad_scale,
                           const TakeRows& take) {
  DeviceStream* stream = impl_->options.stream.get();
  hand_out(std::move(context), lookup, std::span(&grad_output, 1), grad_scale, {},
           [&](int table, const tsr_row_gradient& g) {
             take(table, {view_of(g.rows, stream), view_of(g.values, stream)});
           });
}

void Lookup::apply(int table, const RowGradient& gradient) {
  impl_->need(impl_->api->apply, "apply gradients");
  impl_->table(table);
  const DLTensor rows = gradient.rows.dl();
  const DLTensor values = gradient.values.dl();
  const tsr_update update = impl_->update();
  LookupStaging staging(impl_->options.stream.get());
  const DLTensor* staged_rows = staging.input(&rows);
  impl_->call("apply", impl_->api->apply, impl_->instance, static_cast<uint32_t>(table), staged_rows,
              staging.input(&values), &update, staging.raw_stream());
  staging.finish();
}

}  // namespace tessera

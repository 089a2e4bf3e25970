#include "tessera/lookup.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "modules/kernel_config.h"
#include "modules/lookup_staging.h"
#include "plugin/calls.h"
#include "tessera/sdk/error.h"
#include "tessera/sdk/kernel.h"
#include "tessera/sdk/structs.h"

namespace tessera {
namespace {

// Rows moved per call of export_rows and import_rows: bounds the memory for their ids.
constexpr int64_t kRowsPerCall = 1 << 16;
// And of new rows, whose values are made first.
constexpr int64_t kRowsPerStart = 1 << 13;

// Where the options leave it open.
DeviceStreamPtr stream_for(const Runtime& runtime, const LookupOptions& options) {
  if (options.stream || options.kernel == "auto") return options.stream;
  const PartPtr kernel = runtime.create(TSR_KERNEL_KIND, options.kernel);
  const int32_t* types = kernel->api<tsr_kernel>().device_types;
  for (const int32_t* type = types; *type != 0; ++type) {
    if (*type == kDLCPU) return nullptr;
  }
  return *types == 0 ? nullptr : open_device_type(runtime, *types);
}

PartPtr named_kernel(const Runtime& runtime, const std::string& id, const tsr_kernel_config& config) {
  PartPtr kernel = runtime.create(TSR_KERNEL_KIND, id);
  const std::string reason = refusal(*kernel, config);
  if (!reason.empty()) fail(Code::kUnimplemented, "kernel \"", id, "\" cannot serve these tables: ", reason);
  return kernel;
}

// The supporting kernel of the highest priority; equal ones by id.
PartPtr best_kernel(const Runtime& runtime, const tsr_kernel_config& config) {
  std::vector<PartPtr> usable;
  std::string reasons;
  auto refuse = [&](const std::string& id, const std::string& why) {
    reasons += cat(reasons.empty() ? "" : "; ", id, ": ", why);
  };
  for (const std::string& id : runtime.ids(TSR_KERNEL_KIND)) {
    try {
      usable.push_back(runtime.create(TSR_KERNEL_KIND, id));
    } catch (const Error& e) {
      refuse(id, e.what());
    }
  }
  std::stable_sort(usable.begin(), usable.end(), [](const PartPtr& a, const PartPtr& b) {
    return a->raw()->component->priority > b->raw()->component->priority;
  });
  for (const PartPtr& kernel : usable) {
    const std::string reason = refusal(*kernel, config);
    if (reason.empty()) return kernel;
    refuse(kernel->id(), reason);
  }
  if (reasons.empty()) fail(Code::kUnimplemented, "no kernel plugin was found: see tessera plugins");
  fail(Code::kUnimplemented, "no kernel can serve these tables. ", reasons);
}

}  // namespace

struct Lookup::Impl {
  Impl(const Runtime& runtime, LookupOptions o) : options(std::move(o)) {
    if (!options.optimizer.name.empty()) {
      optimizer = runtime.create(TSR_OPTIMIZER_KIND, options.optimizer.name, options.optimizer.options);
      learning_rate = optimizer->api<tsr_optimizer>().learning_rate(optimizer->self());
    }
    options.stream = stream_for(runtime, options);
    const KernelConfig config(options, optimizer.get(), (options.stream ? options.stream->device() : kCpu).dl());
    kernel =
        options.kernel == "auto" ? best_kernel(runtime, config.raw) : named_kernel(runtime, options.kernel, config.raw);
    api = &kernel->api<tsr_kernel>();
    tsr_kernel_config raw = config.raw;
    raw.start_values = &start_values;
    AbiError error;
    const plugin::CallScope call(*kernel, "open", options.tables.empty() ? "" : options.tables[0].name);
    const tsr_code code = api->open(kernel->self(), &raw, &instance, error.out());
    error.check(code, code == TSR_RESOURCE_EXHAUSTED ? cat(largest_table(), ": ", kernel->id()) : kernel->id());
    if (instance == nullptr) fail(Code::kInternal, kernel->id(), ": open returned TSR_OK, but no instance");
    if (optimizer && options.train) {
      const sdk::OptimizerRef updates(optimizer->raw());  // the kernel has seen that it can keep them
      for (uint32_t k = 0; k < updates.num_states(); ++k) {
        const tsr_state& s = updates.state(k);
        states.push_back({s.name, s.kind != TSR_STATE_PER_ELEMENT, s.start});
      }
      updates_tables = updates.updates_tables();
    }
  }
  ~Impl() {
    if (instance == nullptr) return;
    const plugin::CallScope call(*kernel, "close");
    api->close(instance);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Which one a lack of memory is about.
  std::string largest_table() const {
    const auto bytes = [&](const LookupTable& t) {
      return t.rows *
             (options.row_format ? sdk::row_bytes(*options.row_format, t.dim) : t.dim * size_of(options.weight_dtype));
    };
    const auto largest =
        std::max_element(options.tables.begin(), options.tables.end(),
                         [&](const LookupTable& a, const LookupTable& b) { return bytes(a) < bytes(b); });
    if (largest == options.tables.end()) return "no tables";
    const size_t others = options.tables.size() - 1;
    return cat("table \"", largest->name, "\" with ", largest->rows, " rows of ", largest->dim, " columns here, ",
               bytes(*largest), " bytes", others > 0 ? cat(", and ", others, " smaller") : "",
               options.optimizer.name.empty() ? "" : ", and optimizer states");
  }
  void check(tsr_code code, const AbiError& error) const { error.check(code, kernel->id()); }
  template <class Function>
  void need(Function function, const char* what) const {
    if (function == nullptr) fail(Code::kUnimplemented, "kernel \"", kernel->id(), "\" cannot ", what);
  }
  const LookupTable& table(int t) const {
    TESSERA_CHECK(t >= 0 && static_cast<size_t>(t) < options.tables.size(), "table ", t);
    return options.tables[static_cast<size_t>(t)];
  }
  tsr_update update() const { return {sizeof(tsr_update), 0, learning_rate, step + 1}; }
  bool makes_rows() const {
    return (api->flags & TSR_KERNEL_ROWS_ON_DEMAND) != 0 || !TSR_HAS(tsr_kernel, api, import_rows);
  }
  bool places_rows() const { return (api->flags & TSR_KERNEL_PLACES_ROWS) != 0 && !options.stream; }
  // The batch as this kernel is promised to get it.
  tsr_lookup promised(tsr_lookup lookup, size_t outputs, bool trains) const {
    lookup.flags = trains ? 0 : TSR_LOOKUP_READ_ONLY;
    lookup.num_outputs = static_cast<uint32_t>(outputs);
    if (!places_rows()) lookup.output_rows = nullptr;
    lookup.step = step + 1;
    lookup.time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    return lookup;
  }
  static tsr_code fill_slot(void* self, uint32_t table, int64_t count, const int64_t* rows, float* out,
                            tsr_error* err) noexcept {
    return sdk::guard(err, [&] {
      const LookupTable& t = static_cast<Impl*>(self)->options.tables.at(table);
      t.start.fill({rows, static_cast<size_t>(count)}, t.dim, out);
    });
  }
  static tsr_code formula_slot(void* self, uint32_t table, tsr_start_formula* out, tsr_error* err) noexcept {
    return sdk::guard(err, [&] {
      const LookupTable& t = static_cast<Impl*>(self)->options.tables.at(table);
      if (t.start.unroute) sdk::fail(TSR_UNIMPLEMENTED, "the rows of table \"", t.name, "\" are routed: use fill");
      sdk::write_struct(t.start.formula, out);
    });
  }
  // The tensors side by side, as the ABI wants them.
  const DLTensor* views(std::span<const Tensor> tensors) {
    TESSERA_CHECK(tensors.size() == 1 || (!tensors.empty() && places_rows()), "outputs: ", tensors.size());
    outputs.clear();
    for (const Tensor& t : tensors) outputs.push_back(t.dl());
    return outputs.data();
  }

  LookupOptions options;
  const tsr_start_values start_values{sizeof(tsr_start_values), 0, this, fill_slot, formula_slot};
  PartPtr optimizer;
  PartPtr kernel;
  const tsr_kernel* api = nullptr;
  void* instance = nullptr;
  std::vector<State> states;
  bool updates_tables = false;
  std::vector<Tensor> adopted;                  // by table: memory that the instance reads
  std::vector<tsr_row_gradient> row_gradients;  // scratch
  std::vector<DLTensor> outputs;                // scratch
  double learning_rate = 0;
  int64_t step = 0;
};

namespace {

// tsr_rows over the caller's memory, for one call.
struct RawRows {
  RawRows(Tensor& ids, const LookupTable& table, const std::vector<Lookup::State>& states, int64_t count,
          const float* weights, std::span<const float* const> values, int64_t first) {
    ids_ = ids.first({count}).dl();
    row_shape_[0] = count;
    row_shape_[1] = table.dim;
    ids_.shape = row_shape_;
    weights_ = view(weights + first * table.dim, 2);
    state_views_.reserve(values.size());
    for (size_t k = 0; k < values.size(); ++k) {
      const int64_t width = states[k].per_row ? 1 : table.dim;
      state_views_.push_back(view(values[k] + first * width, states[k].per_row ? 1 : 2));
    }
    for (const DLTensor& v : state_views_) state_pointers_.push_back(&v);
    const auto num_states = static_cast<uint32_t>(values.size());
    raw = {sizeof(tsr_rows), 0, num_states, 0, count, &ids_, &weights_, state_pointers_.data(), nullptr};
  }
  RawRows(const RawRows&) = delete;
  RawRows& operator=(const RawRows&) = delete;
  void take_extra(const void* extra, int64_t bytes, int64_t first) {
    if (extra == nullptr) return;
    raw.extra = static_cast<char*>(const_cast<void*>(extra)) + first * bytes;
    raw.extra_stride = static_cast<uint32_t>(bytes);
  }

  tsr_rows raw;

 private:
  // The ABI has one struct for both ways; import only reads.
  DLTensor view(const float* data, int32_t ndim) {
    return {const_cast<float*>(data), kCpu.dl(), ndim, to_dl(DType::kFloat32), row_shape_, nullptr, 0};
  }

  int64_t row_shape_[2];
  DLTensor ids_;
  DLTensor weights_;
  std::vector<DLTensor> state_views_;
  std::vector<const DLTensor*> state_pointers_;
};

void check_range(const LookupTable& table, int64_t first, int64_t count, size_t states, size_t wanted) {
  TESSERA_CHECK(first >= 0 && count >= 0 && first + count <= table.rows, "rows ", first, " + ", count, " of ",
                table.rows);
  TESSERA_CHECK(wanted == 0 || wanted == states, "the optimizer has ", states, " states");
}

}  // namespace

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
bool Lookup::updates_tables() const { return impl_->updates_tables; }

void Lookup::forward(const tsr_lookup& given, std::span<const Tensor> outputs, Context* context) {
  if (context != nullptr) context->release();
  const tsr_lookup lookup = impl_->promised(given, outputs.size(), context != nullptr);
  tsr_context* raw = nullptr;
  LookupStaging staging(impl_->options.stream.get());
  const tsr_lookup* batch = staging.batch(lookup);
  AbiError error;
  const plugin::CallScope call(*impl_->kernel, "forward");
  impl_->check(impl_->api->forward(impl_->instance, batch, staging.output(impl_->views(outputs)), staging.raw_stream(),
                                   context == nullptr ? nullptr : &raw, error.out()),
               error);
  if (context != nullptr) {
    context->owner_ = impl_;
    context->raw_ = raw;
  }
  staging.finish();
}

// Ends the context. call(its handle, args, stream).
template <class Call>
void Lookup::with_backward(Context&& context, const tsr_lookup& given, std::span<const Tensor> grad_outputs,
                           double grad_scale, const Tensor& grad_weights, const Call& call) {
  const Context spent = std::move(context);
  TESSERA_CHECK(spent.owner_ == impl_, "the context is of another lookup, or spent");
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
                  AbiError error;
                  const plugin::CallScope call(*impl_->kernel, "backward");
                  impl_->check(impl_->api->backward(impl_->instance, raw, &args, stream, error.out()), error);
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
                  AbiError error;
                  const plugin::CallScope call(*impl_->kernel, "backward_rows");
                  impl_->check(impl_->api->backward_rows(impl_->instance, raw, &args, rows.data(), stream, error.out()),
                               error);
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
  AbiError error;
  const plugin::CallScope call(*impl_->kernel, "apply");
  impl_->check(impl_->api->apply(impl_->instance, static_cast<uint32_t>(table), staged_rows, staging.input(&values),
                                 &update, staging.raw_stream(), error.out()),
               error);
  staging.finish();
}

void Lookup::read_rows(int table, int64_t first, int64_t count, float* weights, std::span<float* const> states,
                       void* extra) const {
  impl_->need(impl_->api->export_rows, "hand out ranges of rows");
  const LookupTable& t = impl_->table(table);
  check_range(t, first, count, impl_->states.size(), states.size());
  Tensor ids = Tensor::empty({std::min(count, kRowsPerCall)}, DType::kInt64);
  const std::vector<const float*> into(states.begin(), states.end());
  const int64_t extra_row = extra == nullptr ? 0 : extra_bytes(table);
  for (int64_t done = 0; done < count;) {
    RawRows rows(ids, t, impl_->states, std::min(count - done, kRowsPerCall), weights, into, done);
    rows.take_extra(extra, extra_row, done);
    uint64_t cursor = static_cast<uint64_t>(first + done);
    AbiError error;
    const plugin::CallScope call(*impl_->kernel, "export_rows");
    impl_->check(
        impl_->api->export_rows(impl_->instance, static_cast<uint32_t>(table), &cursor, &rows.raw, error.out()), error);
    if (rows.raw.count <= 0 || ids.data<int64_t>()[0] != first + done) {
      fail(Code::kUnimplemented, "kernel \"", kernel_id(), "\" holds table \"", t.name, "\" not as a range of rows");
    }
    done += rows.raw.count;
  }
}

void Lookup::write_rows(int table, int64_t first, int64_t count, const float* weights,
                        std::span<const float* const> states, const void* extra) {
  impl_->need(impl_->api->import_rows, "take ranges of rows");
  const LookupTable& t = impl_->table(table);
  check_range(t, first, count, impl_->states.size(), states.size());
  Tensor ids = Tensor::empty({std::min(count, kRowsPerCall)}, DType::kInt64);
  const int64_t extra_row = extra == nullptr ? 0 : extra_bytes(table);
  for (int64_t done = 0; done < count;) {
    RawRows rows(ids, t, impl_->states, std::min(count - done, kRowsPerCall), weights, states, done);
    rows.take_extra(extra, extra_row, done);
    for (int64_t i = 0; i < rows.raw.count; ++i) ids.data<int64_t>()[i] = first + done + i;
    AbiError error;
    const plugin::CallScope call(*impl_->kernel, "import_rows");
    impl_->check(impl_->api->import_rows(impl_->instance, static_cast<uint32_t>(table), &rows.raw, error.out()), error);
    done += rows.raw.count;
  }
}

int64_t Lookup::extra_bytes(int table) const {
  const uint32_t bytes = stats(table).extra_bytes;
  if (bytes % 4 != 0) fail(Code::kInternal, kernel_id(), ": ", bytes, " extra bytes of a row are no multiple of 4");
  return bytes;
}

void Lookup::adopt_rows(int table, const Tensor& rows) {
  const LookupTable& t = impl_->table(table);
  if (!TSR_HAS(tsr_kernel, impl_->api, adopt_rows)) {
    fail(Code::kUnimplemented, "kernel \"", kernel_id(), "\" cannot read stored rows in place");
  }
  if (rows.dtype() != DType::kUInt8 || rows.dim() != 2 || rows.size(0) != t.rows) {
    fail(Code::kInvalidArgument, "the stored rows of table \"", t.name, "\" must be uint8 [", t.rows,
         ", bytes of a row]");
  }
  const tsr_stored_rows raw{sizeof(tsr_stored_rows), 0, rows.raw(), static_cast<uint64_t>(rows.bytes()), rows.size(1)};
  AbiError error;
  const plugin::CallScope call(*impl_->kernel, "adopt_rows");
  impl_->check(impl_->api->adopt_rows(impl_->instance, static_cast<uint32_t>(table), &raw, error.out()), error);
  impl_->adopted.resize(impl_->options.tables.size());
  impl_->adopted[static_cast<size_t>(table)] = rows;
}

void Lookup::start_rows() {
  if (makes_rows()) return;
  std::vector<int64_t> rows;
  std::vector<float> values;
  for (size_t t = 0; t < options().tables.size(); ++t) {
    const LookupTable& table = options().tables[t];
    if (table.start.formula.scale == 0) continue;  // as they are
    for (int64_t first = 0; first < table.rows; first += static_cast<int64_t>(rows.size())) {
      rows.resize(static_cast<size_t>(std::min(kRowsPerStart, table.rows - first)));
      std::iota(rows.begin(), rows.end(), first);
      values.resize(rows.size() * static_cast<size_t>(table.dim));
      table.start.fill(rows, table.dim, values.data());
      write_rows(static_cast<int>(t), first, static_cast<int64_t>(rows.size()), values.data());
    }
  }
}

Tensor Lookup::weight(int table) const {
  const LookupTable& t = impl_->table(table);
  Tensor out = Tensor::empty({t.rows, t.dim});
  read_rows(table, 0, t.rows, out.data<float>());
  return out;
}

Tensor Lookup::state(int table, int k) const {
  const LookupTable& t = impl_->table(table);
  TESSERA_CHECK(k >= 0 && static_cast<size_t>(k) < impl_->states.size(), "state ", k);
  Tensor weights = Tensor::empty({t.rows, t.dim});
  std::vector<Tensor> all;
  std::vector<float*> into;
  for (const State& s : impl_->states) {
    all.push_back(Tensor::empty(s.per_row ? std::vector<int64_t>{t.rows} : std::vector<int64_t>{t.rows, t.dim}));
    into.push_back(all.back().data<float>());
  }
  read_rows(table, 0, t.rows, weights.data<float>(), into);
  return all[static_cast<size_t>(k)];
}

void Lookup::set_weight(int table, const Tensor& value) {
  const LookupTable& t = impl_->table(table);
  TESSERA_CHECK(value.numel() == t.rows * t.dim, "table ", t.name, " has ", t.rows, " x ", t.dim, " weights");
  const Tensor as_float = value.to(DType::kFloat32);
  write_rows(table, 0, t.rows, as_float.data<float>());
}

tsr_kernel_stats Lookup::stats(int table) const {
  impl_->table(table);
  tsr_kernel_stats out{};
  out.struct_size = sizeof(out);
  AbiError error;
  const plugin::CallScope call(*impl_->kernel, "stats");
  impl_->check(impl_->api->stats(impl_->instance, static_cast<uint32_t>(table), &out, error.out()), error);
  return out;
}

}  // namespace tessera

#include "kernel/instance.h"

#include <algorithm>

#include "gpu/forward.h"
#include "gpu/sort.h"
#include "gpu/upload.h"

namespace tessera::gpu {
namespace {

int device_of(DLDevice device) { return device.device_type == kDLCPU ? 0 : device.device_id; }

}  // namespace

GpuInstance::OwnStream::OwnStream(DLDevice device) {
  if (device.device_type == kDLCPU) return;  // NULL stands for host memory
  const DeviceScope scope(device_of(device));
  raw = stream_create();
}
GpuInstance::OwnStream::~OwnStream() {
  if (raw != nullptr) stream_destroy(raw);
}

GpuInstance::GpuInstance(sdk::Host host, Config config)
    : host_(host),
      config_(std::move(config)),
      own_(config_.device),
      views_(host, config_.device),
      lookups_(host, config_.device),
      scratch_(host, config_.device),
      starts_(host, config_.device) {
  const DeviceScope scope(device_of(config_.device));
  std::vector<TableView> views;
  tables_.reserve(config_.tables.size());
  for (const TableSpec& t : config_.tables) {
    tables_.emplace_back(host, config_.device, t, config_.weights, config_.optimizer, own_.raw);
    views.push_back(tables_.back().view(keys_));
    keys_ += t.rows;
  }
  const size_t bytes = views.size() * sizeof(TableView);
  upload(views_.take(bytes, own_.raw), views.data(), bytes, own_.raw);
  const size_t counts = views.size() * sizeof(uint64_t);
  memset_async(lookups_.take(counts, own_.raw), 0, counts, own_.raw);
  stream_synchronize(own_.raw);
  last_ = own_.raw;
  moved_ = event_create();
}

GpuInstance::~GpuInstance() {
  try {
    const DeviceScope scope(device_of(config_.device));
    if (used_) stream_synchronize(last_);
    event_destroy(moved_);
  } catch (const sdk::Failure& failure) {
    host_.log(TSR_LOG_WARNING, std::string("a kernel was closed after its device had failed: ") + failure.what());
  }
}

Stream GpuInstance::use(tsr_stream raw) {
  if (raw == nullptr && config_.device.device_type != kDLCPU)
    sdk::fail(TSR_INVALID_ARGUMENT, "the stream is NULL, which stands for host memory: give a stream of the device");
  const Stream stream = static_cast<Stream>(raw);
  if (used_ && stream != last_) {
    event_record(moved_, last_);
    stream_wait(stream, moved_);
  }
  last_ = stream;
  used_ = true;
  return stream;
}

void GpuInstance::done(Stream stream) const {
  if (config_.device.device_type == kDLCPU) stream_synchronize(stream);
}

Context& GpuInstance::take_context() {
  if (idle_.empty()) {
    contexts_.push_back(std::make_unique<Context>(host_, config_.device));
    idle_.reserve(contexts_.size());
    return *contexts_.back();
  }
  Context& context = *idle_.back();
  idle_.pop_back();
  return context;
}

void GpuInstance::release(tsr_context* context) noexcept {
  if (context != nullptr) idle_.push_back(&Context::of(context));  // take_context() has reserved the capacity
}

BatchView GpuInstance::batch_of(const tsr_lookup& lookup, const Context& context) const {
  BatchView batch{};
  batch.tables = views_.data<TableView>();
  batch.features = context.features.data<FeatureView>();
  batch.num_tables = static_cast<int32_t>(tables_.size());
  batch.num_features = static_cast<int32_t>(lookup.num_features);
  batch.bags = context.bags;
  batch.ids = indices_of(*lookup.ids, "ids");
  batch.offsets = indices_of(*lookup.offsets, "offsets");
  batch.weights = lookup.weights == nullptr ? nullptr : sdk::data_as<const float>(*lookup.weights);
  return batch;
}

void GpuInstance::forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream raw, tsr_context** context) {
  check_batch(lookup, config_, output);
  if (context != nullptr && !config_.train) {
    sdk::fail(TSR_FAILED_PRECONDITION, "an instance opened to infer keeps no context for backward");
  }
  const DeviceScope scope(device_of(config_.device));
  const Stream stream = use(raw);
  Context& kept = take_context();
  try {
    kept.describe(lookup, config_, output, stream);
    launch_forward(batch_of(lookup, kept), kept.blocks, config_.weights, config_.output, sdk::raw(output),
                   lookups_.data<uint64_t>(), stream);
    done(stream);
  } catch (...) {
    release(kept.raw());
    throw;
  }
  if (context == nullptr) {
    release(kept.raw());
  } else {
    *context = kept.raw();
  }
}

UpdateLaunch GpuInstance::update_launch() const {
  return {views_.data<TableView>(), static_cast<int32_t>(tables_.size()), static_cast<int32_t>(config_.max_dim()),
          config_.weights, config_.vectors()};
}

// Does everything before the update, including the gradients of the ids' weights. sizes.entries is 0 if there is
// nothing to update.
GpuInstance::Plan GpuInstance::plan_of(Context& context, const tsr_backward& args, bool wants_runs, Stream stream) {
  const tsr_lookup& lookup = *args.lookup;
  check_batch(lookup, config_, *args.grad_output);
  context.describe(lookup, config_, *args.grad_output, stream);
  const int64_t ids = sdk::numel(*lookup.ids);
  Plan plan{};
  plan.batch = batch_of(lookup, context);
  const void* gradient = sdk::raw(*args.grad_output);
  const uintptr_t vector = static_cast<uintptr_t>(4 * bytes_of(config_.output));
  plan.gradient = {gradient, config_.output, static_cast<float>(args.grad_scale), config_.max_gradient,
                   context.vectors && reinterpret_cast<uintptr_t>(gradient) % vector == 0};
  if (args.grad_weights != nullptr) {
    const std::span<float> out = sdk::elements<float>(*args.grad_weights, "grad_weights");
    if (static_cast<int64_t>(out.size()) != ids) {
      sdk::fail(TSR_INVALID_ARGUMENT, "grad_weights has ", out.size(), " elements for ", ids, " ids");
    }
    if (ids > 0) launch_weight_gradients(update_launch(), plan.batch, plan.gradient, out.data(), stream);
  }
  if (context.bags == 0 || ids == 0) return plan;
  if (ids > kMostSorted / context.id_runs) {
    sdk::fail(TSR_RESOURCE_EXHAUSTED, "a backward of ", ids, " ids, each read by up to ", context.id_runs,
              " features, is more than ", kMostSorted, " can be sorted: use smaller batches");
  }
  plan.sizes = {ids * context.id_runs,
                context.bags,
                plan.batch.num_features,
                static_cast<int32_t>(config_.max_dim()),
                keys_,
                wants_runs};
  plan.work = gradient_work(plan.sizes, scratch_.take(gradient_bytes(plan.sizes), stream));
  launch_gradient_plan(plan.batch, plan.sizes, plan.work, stream);
  return plan;
}

void GpuInstance::backward(tsr_context* context, const tsr_backward& args, tsr_stream raw) {
  if (!config_.fused) {
    sdk::fail(TSR_FAILED_PRECONDITION,
              "the kernel was opened without an optimizer that has a fused form on the device: use backward_rows");
  }
  const DeviceScope scope(device_of(config_.device));
  const Stream stream = use(raw);
  const Plan plan = plan_of(Context::of(context), args, false, stream);
  if (plan.sizes.entries > 0) {
    launch_update(update_launch(), plan.sizes, plan.work, plan.gradient, config_.fused->at(*args.update), stream);
  }
  done(stream);
}

// Allocates memory for the counted runs, and fills in views of it.
std::vector<RunTarget> GpuInstance::place_gradients(Context& context, const std::vector<uint32_t>& starts,
                                                    std::span<tsr_row_gradient> out, Stream stream) const {
  const auto padded = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  int64_t bytes = 0;
  for (size_t t = 0; t < tables_.size(); ++t) {
    const int64_t runs = starts[t + 1] - starts[t];
    bytes += padded(runs * 8) + padded(runs * tables_[t].spec().dim * 4);
  }
  char* memory = static_cast<char*>(context.gradients.take(static_cast<uint64_t>(bytes) + 256, stream));
  context.shapes.resize(2 * tables_.size());
  std::vector<RunTarget> targets;
  for (size_t t = 0; t < tables_.size(); ++t) {
    int64_t* shape = context.shapes.data() + 2 * t;
    shape[0] = starts[t + 1] - starts[t];
    shape[1] = tables_[t].spec().dim;
    RunTarget target{reinterpret_cast<int64_t*>(memory), nullptr, starts[t]};
    memory += padded(shape[0] * 8);
    target.values = reinterpret_cast<float*>(memory);
    memory += padded(shape[0] * shape[1] * 4);
    out[t].rows = {target.rows, config_.device, 1, sdk::dtype_of<int64_t>(), shape, nullptr, 0};
    out[t].values = {target.values, config_.device, 2, sdk::dtype_of<float>(), shape, nullptr, 0};
    targets.push_back(target);
  }
  return targets;
}

void GpuInstance::backward_rows(tsr_context* raw_context, const tsr_backward& args, std::span<tsr_row_gradient> out,
                                tsr_stream raw) {
  const DeviceScope scope(device_of(config_.device));
  const Stream stream = use(raw);
  Context& context = Context::of(raw_context);
  const Plan plan = plan_of(context, args, true, stream);
  std::vector<uint32_t> starts(tables_.size() + 1, 0);
  if (plan.sizes.entries > 0) {
    const size_t bytes = starts.size() * sizeof(uint32_t);
    uint32_t* on_device = static_cast<uint32_t*>(starts_.take(bytes, stream));
    launch_table_runs(plan.batch, plan.work, on_device, stream);
    memcpy_async(starts.data(), on_device, bytes, stream);
    stream_synchronize(stream);
  }
  const std::vector<RunTarget> targets = place_gradients(context, starts, out, stream);
  if (plan.sizes.entries > 0) {
    const size_t bytes = targets.size() * sizeof(RunTarget);
    upload(context.targets.take(bytes, stream), targets.data(), bytes, stream);
    launch_hand_out(update_launch(), plan.sizes, plan.work, plan.gradient, context.targets.data<RunTarget>(), stream);
  }
  done(stream);
}

void GpuInstance::apply(uint32_t table, const DLTensor& rows, const DLTensor& values, const tsr_update& update,
                        tsr_stream raw) {
  if (!config_.optimizer.updates()) {
    sdk::fail(TSR_FAILED_PRECONDITION, "the kernel was opened without an optimizer that updates rows");
  }
  const TableStore& store = tables_.at(table);
  const std::span<const int64_t> ids = sdk::elements<const int64_t>(rows, "rows");
  const std::span<const float> gradients = sdk::elements<const float>(values, "values");
  const int64_t count = static_cast<int64_t>(ids.size());
  if (static_cast<int64_t>(gradients.size()) != count * store.spec().dim) {
    sdk::fail(TSR_INVALID_ARGUMENT, "table \"", store.spec().name, "\": ", count, " rows of ", store.spec().dim,
              " columns need ", count * store.spec().dim, " gradient values, not ", gradients.size());
  }
  const DeviceScope scope(device_of(config_.device));
  const Stream stream = use(raw);
  if (config_.fused) {
    launch_apply(update_launch(), static_cast<int32_t>(table), count, ids.data(), gradients.data(),
                 config_.fused->at(update), stream);
  } else {
    store.update_on_host(config_.optimizer, update, count, ids.data(), gradients.data(), view(table), stream);
  }
  done(stream);
}

void GpuInstance::export_rows(uint32_t table, uint64_t& cursor, tsr_rows& rows) {
  const DeviceScope scope(device_of(config_.device));
  tables_.at(table).export_rows(cursor, rows, view(table), last_);
}
void GpuInstance::import_rows(uint32_t table, const tsr_rows& rows) {
  const DeviceScope scope(device_of(config_.device));
  tables_.at(table).import_rows(rows, view(table), last_);
}

void GpuInstance::read_rows(uint32_t table, tsr_rows& rows) {
  const DeviceScope scope(device_of(config_.device));
  tables_.at(table).read_named_rows(rows, view(table), last_);
}

tsr_kernel_stats GpuInstance::stats(uint32_t table) {
  const DeviceScope scope(device_of(config_.device));
  const TableStore& t = tables_.at(table);
  uint64_t lookups = 0;
  memcpy_async(&lookups, lookups_.data<uint64_t>() + table, sizeof(lookups), last_);
  stream_synchronize(last_);
  uint64_t scratch = scratch_.bytes() + views_.bytes() + lookups_.bytes() + starts_.bytes();
  for (const auto& c : contexts_) scratch += c->features.bytes() + c->gradients.bytes() + c->targets.bytes();
  tsr_kernel_stats out{};
  out.weight_bytes = t.weight_bytes();
  out.state_bytes = t.state_bytes();
  out.other_bytes = scratch / tables_.size();
  out.rows_in_use = static_cast<uint64_t>(t.spec().rows);
  out.lookups = out.hits = lookups;
  return out;
}

}  // namespace tessera::gpu

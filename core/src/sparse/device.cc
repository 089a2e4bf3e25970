#include "tessera/device.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "tessera/abi/kernel.h"
#include "tessera/sdk/sized.h"

namespace tessera {

namespace {

// Checks that the functions of a group are all there, or none.
void check_together(const std::string& part, const char* names, std::initializer_list<bool> there) {
  const auto count = static_cast<size_t>(std::count(there.begin(), there.end(), true));
  if (count == 0 || count == there.size()) return;
  fail(Code::kFailedPrecondition, "device plugin \"", part, "\" has ", count, " of ", names,
       " (abi/draft/device_ops.h): give all of them or none");
}

const tsr_device_ops* ops_of(const Component& part) {
  const auto* ops = part.extension<tsr_device_ops>(TSR_DEVICE_OPS_DRAFT_1);
  if (ops == nullptr) return nullptr;
  if (ops->flags & TSR_MUST_UNDERSTAND)
    fail(Code::kUnimplemented, "device plugin \"", part.id(), "\" has device_ops of flags ", ops->flags,
         ", which this core does not know");
  check_together(part.id(), "combine_rows and split_rows",
                 {TSR_HAS(tsr_device_ops, ops, combine_rows), TSR_HAS(tsr_device_ops, ops, split_rows)});
  check_together(part.id(), "sum_lengths, check_bounds, permute and bucketize",
                 {TSR_HAS(tsr_device_ops, ops, sum_lengths), TSR_HAS(tsr_device_ops, ops, check_bounds),
                  TSR_HAS(tsr_device_ops, ops, permute), TSR_HAS(tsr_device_ops, ops, bucketize)});
  check_together(part.id(), "update_parameters and binary_cross_entropy",
                 {TSR_HAS(tsr_device_ops, ops, update_parameters), TSR_HAS(tsr_device_ops, ops, binary_cross_entropy)});
  return ops;
}

}  // namespace

DeviceStream::DeviceStream(ComponentPtr part, Device device)
    : part_(std::move(part)), ops_(ops_of(*part_)), device_(device) {
  AbiError err;
  err.check(api().stream_create(self(), device_.index, nullptr, &stream_, err.out()), id());
}

DeviceStream::~DeviceStream() {
  AbiError dropped;
  api().synchronize(self(), device_.index, stream_, dropped.out());
  for (const Staging& staging : staging_) {
    if (staging.memory) api().host_free(self(), staging.memory, staging.bytes);
    if (staging.copied) api().event_destroy(self(), device_.index, staging.copied);
  }
  api().stream_destroy(self(), device_.index, stream_);
}

DeviceStreamPtr DeviceStream::open(ComponentPtr part, int index) {
  const auto& api = part->api<tsr_device>();
  int32_t count = 0;
  AbiError err;
  err.check(api.count(part->self(), &count, err.out()), part->id());
  if (index < 0 || index >= count)
    fail(Code::kInvalidArgument, part->id(), " has ", count, " device(s), so there is no device ", index);
  const Device device{static_cast<DeviceType>(api.device_type), index};
  return DeviceStreamPtr(new DeviceStream(std::move(part), device));
}

tsr_device_info DeviceStream::info() const {
  auto out = sdk::sized<tsr_device_info>();
  AbiError err;
  err.check(api().info(self(), device_.index, &out, err.out()), id());
  return out;
}

tsr_device_stats DeviceStream::stats() const {
  auto out = sdk::sized<tsr_device_stats>();
  AbiError err;
  err.check(api().stats(self(), device_.index, &out, err.out()), id());
  return out;
}

Tensor DeviceStream::empty(const Shape& shape, DType dtype) {
  Tensor t = Tensor::borrow(nullptr, shape, dtype);
  const auto bytes = static_cast<uint64_t>(t.bytes());
  if (bytes) {
    AbiError err;
    err.check(api().alloc(self(), device_.index, bytes, stream_, &t.data_, err.out()), id());
  }
  // An empty tensor also needs storage, because the storage keeps the tensor's stream alive.
  t.storage_ = std::shared_ptr<void>(t.data_, [stream = shared_from_this(), bytes](void* memory) {
    if (memory) stream->api().free(stream->self(), stream->device_.index, memory, bytes, stream->stream_);
  });
  t.device_ = device_;
  t.stream_ = this;
  return t;
}

Tensor DeviceStream::borrow(void* memory, const Shape& shape, DType dtype) {
  Tensor t = Tensor::borrow(memory, shape, dtype, shared_from_this());
  t.device_ = device_;
  t.stream_ = this;
  return t;
}

Tensor DeviceStream::host_1d(int64_t n, DType dtype) {
  const auto bytes = static_cast<uint64_t>(n * size_of(dtype));
  void* memory = nullptr;
  AbiError err;
  err.check(api().host_alloc(self(), bytes, nullptr, &memory, err.out()), id());
  return Tensor::borrow(
      memory, {n}, dtype, std::shared_ptr<void>(memory, [stream = shared_from_this(), bytes](void* m) {
        AbiError dropped;  // pending work may still read the memory, so wait before freeing it
        stream->api().synchronize(stream->self(), stream->device_.index, stream->stream_, dropped.out());
        stream->api().host_free(stream->self(), m, bytes);
      }));
}

void DeviceStream::copy(const Tensor& from, const Tensor& to) {
  TESSERA_CHECK(from.bytes() == to.bytes(), "a copy of ", from.bytes(), " bytes into ", to.bytes());
  TESSERA_CHECK((!from.stream() || from.device() == device_) && (!to.stream() || to.device() == device_),
                "a stream copies from and to its own device");
  if (!from.bytes()) return;
  if (!from.stream() && !to.stream()) {
    std::memcpy(to.raw(), from.raw(), static_cast<size_t>(from.bytes()));
    return;
  }
  const int32_t direction = !from.stream() ? TSR_COPY_TO_DEVICE : !to.stream() ? TSR_COPY_TO_HOST : TSR_COPY_ON_DEVICE;
  AbiError err;
  err.check(api().copy(self(), device_.index, to.raw(), from.raw(), static_cast<uint64_t>(from.bytes()), direction,
                       stream_, err.out()),
            id());
}

void DeviceStream::fill(const Tensor& tensor, uint8_t byte) {
  TESSERA_CHECK(tensor.stream() && tensor.device() == device_, "a stream fills tensors of its own device");
  if (!tensor.bytes()) return;
  AbiError err;
  err.check(
      api().fill(self(), device_.index, tensor.raw(), byte, static_cast<uint64_t>(tensor.bytes()), stream_, err.out()),
      id());
}

void DeviceStream::synchronize() {
  AbiError err;
  err.check(api().synchronize(self(), device_.index, stream_, err.out()), id());
}

Tensor DeviceStream::to_device(const Tensor& host) {
  Tensor out = empty(host.shape(), host.dtype());
  copy(host, out);
  synchronize();
  return out;
}

Tensor DeviceStream::to_host(const Tensor& tensor) {
  if (!tensor.stream()) return tensor;
  Tensor out = Tensor::empty(tensor.shape(), tensor.dtype());
  copy(tensor, out);
  synchronize();
  return out;
}

// call(tsr_error*) calls a function of the component that enqueues work.
template <class Call>
void DeviceStream::enqueue(const Call& call) const {
  AbiError err;
  err.check(call(err.out()), id());
}

DeviceStream::Staging& DeviceStream::next_staging(uint64_t bytes) {
  Staging& staging = staging_[next_++ % staging_.size()];
  if (!staging.copied)
    enqueue([&](tsr_error* err) { return api().event_create(self(), device_.index, nullptr, &staging.copied, err); });
  enqueue([&](tsr_error* err) { return api().event_synchronize(self(), device_.index, staging.copied, err); });
  if (staging.bytes >= bytes) return staging;
  api().host_free(self(), staging.memory, staging.bytes);
  staging.memory = nullptr;
  staging.bytes = 0;
  enqueue([&](tsr_error* err) { return api().host_alloc(self(), bytes, nullptr, &staging.memory, err); });
  staging.bytes = bytes;
  return staging;
}

Tensor DeviceStream::upload(const Tensor& host) {
  Tensor out = empty(host.shape(), host.dtype());
  if (!host.bytes()) return out;
  Staging& staging = next_staging(static_cast<uint64_t>(host.bytes()));
  std::memcpy(staging.memory, host.raw(), static_cast<size_t>(host.bytes()));
  copy(Tensor::borrow(staging.memory, host.shape(), host.dtype()), out);
  enqueue([&](tsr_error* err) { return api().event_record(self(), device_.index, staging.copied, stream_, err); });
  return out;
}

bool DeviceStream::handles_jagged() const { return TSR_HAS(tsr_device_ops, ops_, bucketize); }

void DeviceStream::sum_lengths(const Tensor& lengths, const Tensor& offsets) {
  const DLTensor from = lengths.dl(), to = offsets.dl();
  enqueue([&](tsr_error* err) { return ops().sum_lengths(self(), &from, &to, stream_, err); });
}

void DeviceStream::check_bounds(const tsr_jagged& input, const Tensor& rows, const Tensor& report) {
  const DLTensor bounds = rows.dl();
  auto* to = static_cast<tsr_bounds_report*>(report.raw());
  enqueue([&](tsr_error* err) { return ops().check_bounds(self(), &input, &bounds, nullptr, to, stream_, err); });
}

void DeviceStream::permute(const tsr_jagged& input, const Tensor& order, const tsr_jagged_output& output) {
  const DLTensor features = order.dl();
  enqueue([&](tsr_error* err) { return ops().permute(self(), &input, &features, &output, stream_, err); });
}

void DeviceStream::bucketize(const tsr_jagged& input, int32_t blocks, const Tensor& block_rows,
                             const tsr_jagged_output& output) {
  const DLTensor rows = block_rows.dl();
  enqueue([&](tsr_error* err) { return ops().bucketize(self(), &input, blocks, &rows, &output, stream_, err); });
}

void DeviceStream::set(const Tensor& to, const Tensor& values) {
  copy(values, to);
  if (to.stream() || values.stream()) synchronize();
}

bool DeviceStream::moves_rows() const { return TSR_HAS(tsr_device_ops, ops_, combine_rows); }

void DeviceStream::combine_rows(const tsr_row_moves& moves) {
  AbiError err;
  err.check(ops().combine_rows(self(), &moves, stream_, err.out()), id());
}

void DeviceStream::split_rows(const tsr_row_moves& moves) {
  AbiError err;
  err.check(ops().split_rows(self(), &moves, stream_, err.out()), id());
}

bool DeviceStream::trains() const { return TSR_HAS(tsr_device_ops, ops_, update_parameters); }

void DeviceStream::update_parameters(const tsr_parameter_updates& updates) {
  AbiError err;
  err.check(ops().update_parameters(self(), &updates, stream_, err.out()), id());
}

void DeviceStream::binary_cross_entropy(const tsr_binary_cross_entropy& loss) {
  AbiError err;
  err.check(ops().binary_cross_entropy(self(), &loss, stream_, err.out()), id());
}

bool DeviceStream::clips() const { return TSR_HAS(tsr_device_ops, ops_, clip_gradients); }

void DeviceStream::clip_gradients(const tsr_clipping& clipping) {
  enqueue([&](tsr_error* err) { return ops().clip_gradients(self(), &clipping, stream_, err); });
}

DeviceStream::Event::Event(DeviceStreamPtr stream) : stream_(std::move(stream)) {
  AbiError err;
  err.check(stream_->api().event_create(stream_->self(), stream_->device_.index, nullptr, &raw_, err.out()),
            stream_->id());
}

DeviceStream::Event::~Event() { stream_->api().event_destroy(stream_->self(), stream_->device_.index, raw_); }

void DeviceStream::Event::record() {
  AbiError err;
  err.check(stream_->api().event_record(stream_->self(), stream_->device_.index, raw_, stream_->stream_, err.out()),
            stream_->id());
}

void DeviceStream::Event::wait() {
  AbiError err;
  err.check(stream_->api().event_synchronize(stream_->self(), stream_->device_.index, raw_, err.out()), stream_->id());
}

Tensor in_host_memory(const Tensor& tensor) { return tensor.stream() ? tensor.stream()->to_host(tensor) : tensor; }

void assign(const Tensor& to, const Tensor& values) {
  TESSERA_CHECK(to.dtype() == values.dtype() && to.numel() == values.numel(), "a tensor keeps its type and size");
  DeviceStream* stream = to.stream() ? to.stream() : values.stream();
  if (stream)
    stream->set(to, values);
  else if (to.bytes())
    std::memcpy(to.raw(), values.raw(), static_cast<size_t>(to.bytes()));
}

Tensor zeros_like(const Tensor& tensor) {
  if (!tensor.stream()) return Tensor::zeros(tensor.shape(), tensor.dtype());
  Tensor out = tensor.stream()->empty(tensor.shape(), tensor.dtype());
  tensor.stream()->fill(out, 0);
  return out;
}

namespace {

bool has_kernel(const Runtime& runtime, int32_t device_type, const std::string& wanted) {
  const std::vector<std::string> ids = wanted == "auto" ? runtime.ids(TSR_KERNEL_KIND) : std::vector{wanted};
  for (const std::string& id : ids) {
    try {
      const ComponentPtr kernel = runtime.create(TSR_KERNEL_KIND, id);
      for (const int32_t* type = kernel->api<tsr_kernel>().device_types; *type != 0; ++type) {
        if (*type == device_type) return true;
      }
    } catch (const Error&) {  // the load report says why
    }
  }
  return false;
}

// Returns null if there is none.
ComponentPtr best_device(const Runtime& runtime, const std::string& kernel) {
  ComponentPtr best;
  for (const std::string& id : runtime.ids(TSR_DEVICE_KIND)) {
    try {
      ComponentPtr part = runtime.create(TSR_DEVICE_KIND, id);
      if (best && part->raw()->component->priority <= best->raw()->component->priority) continue;
      if (has_kernel(runtime, part->api<tsr_device>().device_type, kernel)) best = std::move(part);
    } catch (const Error&) {  // the load report says why
    }
  }
  return best;
}

}  // namespace

DeviceStreamPtr open_device_type(const Runtime& runtime, int32_t device_type) {
  std::string reasons;
  for (const std::string& id : runtime.ids(TSR_DEVICE_KIND)) {
    try {
      const ComponentPtr part = runtime.create(TSR_DEVICE_KIND, id);
      if (part->api<tsr_device>().device_type == device_type) return DeviceStream::open(part, 0);
    } catch (const Error& e) {
      reasons += str_cat(reasons.empty() ? "" : "; ", id, ": ", e.what());
    }
  }
  fail(Code::kUnavailable, "no device plugin serves DLPack device type ", device_type, reasons.empty() ? "" : ". ",
       reasons);
}

DeviceStreamPtr open_device(const Runtime& runtime, const std::string& name, int local_rank,
                            const std::string& kernel) {
  if (name == "cpu") return nullptr;
  const ComponentPtr part = name == "auto" ? best_device(runtime, kernel) : runtime.create(TSR_DEVICE_KIND, name);
  if (!part) return nullptr;
  int32_t count = 0;
  AbiError err;
  err.check(part->api<tsr_device>().count(part->self(), &count, err.out()), part->id());
  if (count < 1) fail(Code::kUnavailable, "device plugin \"", part->id(), "\" has no device here");
  return DeviceStream::open(part, local_rank % count);
}

}  // namespace tessera

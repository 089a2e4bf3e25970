// The jagged operations of the device plugin. Calls are checked as far as the host can see, and then launched.

#include "device/gpu_device.h"
#include "gpu/jagged.h"
#include "tessera/sdk/tensor.h"

namespace tessera::gpu {
namespace {

bool wide(const DLTensor& tensor, const char* what) {
  if (sdk::holds<int64_t>(tensor)) return true;
  if (!sdk::holds<int32_t>(tensor)) sdk::fail(TSR_INVALID_ARGUMENT, what, " must be int32 or int64");
  return false;
}

void require_numel(const DLTensor& tensor, int64_t count, const char* what) {
  if (sdk::numel(tensor) != count)
    sdk::fail(TSR_INVALID_ARGUMENT, what, " must have ", count, " elements, not ", sdk::numel(tensor));
}

Indices indices(const DLTensor& tensor, const char* what) { return {sdk::raw(tensor), wide(tensor, what)}; }
IndicesOut written(const DLTensor& tensor, int64_t count, const char* what) {
  require_numel(tensor, count, what);
  return {sdk::raw(tensor), wide(tensor, what)};
}

JaggedView view_of(const tsr_jagged& input) {
  const int64_t n = sdk::numel(*input.ids);
  require_numel(*input.offsets, input.features * input.batch + 1, "the offsets");
  const auto weights = sdk::elements_or_empty<float>(input.weights, "the weights");
  if (input.weights != nullptr) require_numel(*input.weights, n, "the weights");
  return {input.features,
          input.batch,
          n,
          {sdk::raw(*input.ids), sdk::element_bytes(*input.ids) == 8},
          indices(*input.offsets, "the offsets"),
          weights.data()};
}

template <class T>
const T* per_feature(const DLTensor& tensor, int32_t features, const char* what) {
  require_numel(tensor, features, what);
  return sdk::elements<T>(tensor, what).data();
}

// The output ids, which must be as wide as the input's.
void* ids_of(const tsr_jagged& input, const DLTensor& output) {
  if (sdk::element_bytes(output) != sdk::element_bytes(*input.ids))
    sdk::fail(TSR_INVALID_ARGUMENT, "the output's ids must be as wide as the input's");
  return sdk::raw(output);
}

float* weights_of(const tsr_jagged& input, const tsr_jagged_output& output) {
  if ((input.weights == nullptr) != (output.weights == nullptr))
    sdk::fail(TSR_INVALID_ARGUMENT, "input and output must both have weights, or neither");
  return sdk::elements_or_empty<float>(output.weights, "the output's weights").data();
}

// Memory for the scans of one call; freed in the order of the stream.
class Scratch {
 public:
  Scratch(GpuDevice& device, int32_t index, int64_t lengths, tsr_stream stream)
      : device_(device),
        index_(index),
        bytes_(scan_scratch_bytes(lengths)),
        stream_(stream),
        memory_(device.alloc(index, bytes_, stream)) {}
  ~Scratch() { device_.free(index_, memory_, bytes_, stream_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* get() const { return memory_; }

 private:
  GpuDevice& device_;
  int32_t index_;
  uint64_t bytes_;
  tsr_stream stream_;
  void* memory_;
};

Stream as_stream(tsr_stream stream) { return static_cast<Stream>(stream); }

}  // namespace

void GpuDevice::sum_lengths(const DLTensor& lengths, const DLTensor& offsets, tsr_stream stream) {
  const int32_t index = lengths.device.device_id;
  memory_of(index);
  const int64_t count = sdk::numel(lengths);
  const Indices from = indices(lengths, "lengths");
  const IndicesOut to = written(offsets, count + 1, "the offsets");
  const DeviceScope scope(index);
  const Scratch scratch(*this, index, count, stream);
  launch_offsets(from, count, to, scratch.get(), as_stream(stream));
}

void GpuDevice::check_bounds(const tsr_jagged& input, const DLTensor& rows, const DLTensor* repaired,
                             tsr_bounds_report* report, tsr_stream stream) {
  memory_of(input.ids->device.device_id);
  wide(*input.ids, "the ids");
  const JaggedView view = view_of(input);
  const int64_t* bounds = per_feature<int64_t>(rows, input.features, "rows");
  if (repaired != nullptr) require_numel(*repaired, view.num_ids, "the repaired ids");
  void* const to = repaired == nullptr ? nullptr : ids_of(input, *repaired);
  const DeviceScope scope(input.ids->device.device_id);
  launch_check_bounds(view, bounds, to, report, as_stream(stream));
}

void GpuDevice::permute(const tsr_jagged& input, const DLTensor& order, const tsr_jagged_output& output,
                        tsr_stream stream) {
  const int32_t index = input.ids->device.device_id;
  memory_of(index);
  if (const int64_t bytes = sdk::element_bytes(*input.ids); bytes != 4 && bytes != 8)
    sdk::fail(TSR_UNIMPLEMENTED, "values of ", bytes, " bytes cannot be permuted on the device: give 4 or 8");
  const JaggedView view = view_of(input);
  const auto outputs = static_cast<int32_t>(sdk::numel(order));
  const int64_t bags = outputs * input.batch;
  const Permuted to{written(*output.lengths, bags, "the output's lengths"),
                    written(*output.offsets, bags + 1, "the output's offsets"), ids_of(input, *output.ids),
                    weights_of(input, output)};
  const int32_t* features = sdk::elements<int32_t>(order, "order").data();
  const DeviceScope scope(index);
  const Scratch scratch(*this, index, bags, stream);
  launch_permute(view, outputs, features, to, scratch.get(), as_stream(stream));
}

void GpuDevice::bucketize(const tsr_jagged& input, int32_t blocks, const DLTensor& block_rows,
                          const tsr_jagged_output& output, tsr_stream stream) {
  const int32_t index = input.ids->device.device_id;
  memory_of(index);
  wide(*input.ids, "the ids");
  const JaggedView view = view_of(input);
  const int64_t bags = int64_t{blocks} * input.features * input.batch;
  require_numel(*output.ids, view.num_ids, "the output's ids");
  const Bucketized to{written(*output.lengths, bags, "the output's lengths"),
                      written(*output.offsets, bags + 1, "the output's offsets"), ids_of(input, *output.ids),
                      weights_of(input, output),
                      sdk::elements_or_empty<int64_t>(output.positions, "the positions").data()};
  const int64_t* rows = per_feature<int64_t>(block_rows, input.features, "block_rows");
  const DeviceScope scope(index);
  const Scratch scratch(*this, index, bags, stream);
  launch_bucketize(view, blocks, rows, to, scratch.get(), as_stream(stream));
}

}  // namespace tessera::gpu

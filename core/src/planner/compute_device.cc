// Looks up the devices that a plan can be for.
#include "tessera/device.h"
#include "tessera/planner.h"

namespace tessera {

ComputeDevice compute_device(const DeviceStreamPtr& stream) {
  if (!stream) return {};
  constexpr double kPerMillisecond = 1e-3;
  const tsr_device_info info = stream->info();
  return {stream->id(), static_cast<int32_t>(stream->device().type), static_cast<int64_t>(info.total_bytes),
          info.memory_bandwidth * kPerMillisecond, info.link_bandwidth * kPerMillisecond};
}

ComputeDevice compute_device(const Runtime& runtime, const std::string& id) {
  if (!runtime.has(TSR_DEVICE_KIND, id)) return ComputeDevice::named(id);
  ComponentPtr part;
  try {
    part = runtime.create(TSR_DEVICE_KIND, id);
  } catch (const Error&) {  // the component is installed, but the device is on another machine
    return ComputeDevice::named(id);
  }
  return compute_device(DeviceStream::open(part, 0));
}

}  // namespace tessera

// NCCL between GPUs, over a transport for host memory that names ranks that are late or gone.
#include "gpu/gpu.h"
#include "group.h"

namespace tessera::nccl {
namespace {

class Nccl : public sdk::Collective {
 public:
  static constexpr uint32_t kFlags = TSR_COLLECTIVE_WRAPS;
  static constexpr int32_t kDeviceTypes[] = {TESSERA_NCCL_DEVICE_TYPE, 0};

  explicit Nccl(const sdk::Setup& setup) : inner_(setup.inner) {}
  static void probe(sdk::Host) { gpu::require_device(); }

  sdk::CollectiveInfo describe() const override {
    static constexpr DLDataType kReducible[] = {sdk::dtype_of<float>(),   sdk::dtype_of<double>(),
                                                sdk::dtype_of<int32_t>(), sdk::dtype_of<int64_t>(),
                                                {kDLFloat, 16, 1},        {kDLBfloat, 16, 1}};
    return {kDeviceTypes, kReducible};
  }
  std::unique_ptr<sdk::Group> connect(const tsr_rendezvous& where) override {
    if (inner_ == nullptr) sdk::fail(TSR_INVALID_ARGUMENT, "nccl needs another transport: name it, as in nccl(tcp)");
    if (where.device.device_type != TESSERA_NCCL_DEVICE_TYPE) {
      sdk::fail(TSR_INVALID_ARGUMENT, "nccl connects devices, but rank ", where.rank,
                " has none: use a device, or name another comm.backend");
    }
    GroupOptions options;
    options.timeout_s = where.timeout_s > 0 ? where.timeout_s : options.timeout_s;
    options.device = where.device.device_id;
    const gpu::DeviceScope scope(options.device);
    auto side = std::make_unique<Side>(Side::connect(*inner_, where));
    auto communicator = Communicator::connect(*side, options.timeout_s);
    return std::make_unique<NcclGroup>(std::move(side), std::move(communicator), options);
  }

 private:
  const tsr_instance* inner_;
};

}  // namespace
}  // namespace tessera::nccl

// Its priority is below the transports for host memory; "auto" chooses it if tables are on its devices.
TESSERA_PLUGIN("nccl", "0.1.0",
               tessera::sdk::component<tessera::nccl::Nccl>(
                   {.id = "nccl", .version = "0.1.0", .about = "NVIDIA's NCCL between GPUs", .priority = -10}));

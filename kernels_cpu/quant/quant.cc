// The quant kernel: the component.
#include "quant_instance.h"
#include "tessera/sdk/kernel.h"
#include "tessera/sdk/plugin.h"

namespace {

namespace sdk = tessera::sdk;
using tessera_cpu::Config;

// Costs of one lookup on one core, measured on 2-core cloud machines with huge pages.
constexpr double kLookupSeconds = 4e-9;
constexpr double kByteSeconds = 0.07e-9;

class QuantKernel : public sdk::Kernel {
 public:
  using Instance = tessera_cpu::QuantInstance;
  static constexpr const char* kComputeKernels[] = {"quant", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
  static constexpr uint32_t kFlags = TSR_KERNEL_PLACES_ROWS;
  static constexpr const char* kRowFormats[] = {TSR_ROW_FORMAT_INT8, TSR_ROW_FORMAT_INT4, TSR_ROW_FORMAT_INT2,
                                                TSR_ROW_FORMAT_FP8, nullptr};

  explicit QuantKernel(const sdk::Setup& setup) : host_(setup.host), ops_(tessera_cpu::best_quant_ops()) {}
  static void probe(sdk::Host) { tessera_cpu::best_quant_ops(); }

  void supports(const tsr_kernel_config& config) const override { checked(config); }
  std::unique_ptr<sdk::KernelInstance> open(const tsr_kernel_config& config) const override {
    Checked c = checked(config);
    return std::make_unique<Instance>(host_, ops_, std::move(c.config), c.format);
  }

  tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work) const override {
    const Checked c = checked(config);
    const int64_t row = sdk::row_bytes(c.format, work.dim);
    const double out = work.bags * static_cast<double>(work.dim * tessera_cpu::bytes_of(c.config.output));
    tsr_estimate e{};
    e.bytes = static_cast<uint64_t>(work.rows * row);
    e.forward_seconds = (work.ids * (kLookupSeconds + static_cast<double>(row) * kByteSeconds) + out * kByteSeconds) /
                        host_.num_threads();
    return e;
  }

 private:
  struct Checked {
    Config config;
    sdk::RowFormat format;
  };
  static Checked checked(const tsr_kernel_config& config) {
    const char* layout = sdk::read_struct(config).row_format;
    const sdk::RowFormatInfo* format = sdk::row_format_of(config.weight_dtype, layout);
    if (format == nullptr) {
      sdk::fail(TSR_UNIMPLEMENTED, layout == nullptr ? "plain values" : layout, " of DLPack type code ",
                int{config.weight_dtype.code}, " with ", int{config.weight_dtype.bits},
                " bits are not served, only values of float32 and float16, ", TSR_ROW_FORMAT_FP8, ", ",
                TSR_ROW_FORMAT_INT8, ", ", TSR_ROW_FORMAT_INT4, " and ", TSR_ROW_FORMAT_INT2);
    }
    tsr_kernel_config plain = config;
    plain.weight_dtype = sdk::dtype_of<float>();  // the format was checked above
    Checked out{tessera_cpu::checked(plain, kComputeKernels, INT64_MAX), format->format};
    if (out.config.train) sdk::fail(TSR_UNIMPLEMENTED, "the kernel quant only infers: open it in that mode");
    for (const tessera_cpu::TableSpec& t : out.config.tables) {
      if (t.dim * format->bits % 8 == 0) continue;
      sdk::fail(TSR_INVALID_ARGUMENT, "table \"", t.name, "\" has ", t.dim,
                " columns, which do not fill whole bytes in ", format->name, ": their number must be a multiple of ",
                8 / format->bits);
    }
    return out;
  }

  sdk::Host host_;
  const tessera_cpu::QuantOps& ops_;
};

}  // namespace

TESSERA_PLUGIN("kernel-quant", "0.1.0",
               tessera::sdk::component<QuantKernel>({.id = "quant",
                                                     .version = "0.1.0",
                                                     .about = "tables of 2 to 32 bits that only infer",
                                                     .priority = 10}));

// test.reads_only: serves quantized tables with a higher priority than other kernels, with zeros as rows, and refuses
// lookups that may change something. It logs each call.
#include "tessera/sdk/kernel.h"

namespace {

using namespace tessera::sdk;

class Instance : public KernelInstance {
 public:
  Instance(Host host, const tsr_kernel_config& config) : host_(host) {
    for (uint32_t t = 0; t < config.num_tables; ++t) dims_.push_back(table_of(config, t).dim);
  }
  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream, tsr_context**) override {
    if ((lookup.flags & TSR_LOOKUP_READ_ONLY) == 0)
      fail(TSR_FAILED_PRECONDITION, "test.reads_only: a prediction may insert rows");
    host_.log(TSR_LOG_WARNING, "test.reads_only: nothing is inserted");
    for (uint32_t f = 0; f < lookup.num_features; ++f) {
      const tsr_lookup_feature& feature = feature_of(lookup, f);
      for (int64_t b = 0; b < feature.bags; ++b)
        std::fill_n(data_as<float>(output) + feature.output_offset + b * feature.output_stride,
                    dims_[static_cast<size_t>(feature.table)], 0.0f);
    }
  }
  void release(tsr_context*) noexcept override {}
  void import_rows(uint32_t, const tsr_rows&) override {}
  void adopt_rows(uint32_t, const tsr_stored_rows&) override {}
  tsr_kernel_stats stats(uint32_t) override { return {}; }

 private:
  Host host_;
  std::vector<int64_t> dims_;
};

class ReadsOnly : public Kernel {
 public:
  using Instance = ::Instance;
  static constexpr uint32_t kFlags = TSR_KERNEL_FORWARD_ANY_THREAD;
  static constexpr const char* kComputeKernels[] = {TSR_COMPUTE_QUANT, nullptr};
  static constexpr const char* kRowFormats[] = {TSR_ROW_FORMAT_INT8, TSR_ROW_FORMAT_INT4, TSR_ROW_FORMAT_INT2,
                                                TSR_ROW_FORMAT_FP8, nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
  explicit ReadsOnly(const Setup& setup) : host_(setup.host) {}
  void supports(const tsr_kernel_config& config) const override {
    if (std::string_view(config.compute_kernel) != TSR_COMPUTE_QUANT || config.mode != TSR_MODE_INFER ||
        !same_dtype(config.output_dtype, dtype_of<float>()))
      fail(TSR_UNIMPLEMENTED, "quantized tables with float32 outputs alone");
  }
  std::unique_ptr<KernelInstance> open(const tsr_kernel_config& config) const override {
    supports(config);
    return std::make_unique<::Instance>(host_, config);
  }

 private:
  Host host_;
};

}  // namespace

TESSERA_PLUGIN("test.reads_only", "0.1.0",
               component<ReadsOnly>({.id = "test.reads_only",
                                     .version = "0.1.0",
                                     .about = "zeros, for lookups that change nothing",
                                     .priority = 1000}));

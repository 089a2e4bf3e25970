// The GPU kernel's instance: kernel/1 over TableStores and the launches of gpu/.
//
// Calls enqueue on their stream and return. Calls that move rows to or from the host wait for the stream, and so does
// backward_rows, which must know the number of rows. On the CPU (emulator) every call waits. A stream must live until
// the instance is closed. If a call uses another stream than the one before, the device waits for the earlier work.
#pragma once

#include <memory>
#include <vector>

#include "gpu/update.h"
#include "kernel/config.h"
#include "kernel/context.h"
#include "kernel/memory.h"
#include "kernel/table_store.h"

namespace tessera::gpu {

class GpuInstance : public sdk::KernelInstance {
 public:
  GpuInstance(sdk::Host host, Config config);
  ~GpuInstance() override;

  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, tsr_context** context) override;
  void backward(tsr_context* context, const tsr_backward& args, tsr_stream stream) override;
  void backward_rows(tsr_context* context, const tsr_backward& args, std::span<tsr_row_gradient> out,
                     tsr_stream stream) override;
  void apply(uint32_t table, const DLTensor& rows, const DLTensor& values, const tsr_update& update,
             tsr_stream stream) override;
  void release(tsr_context* context) noexcept override;
  void export_rows(uint32_t table, uint64_t& cursor, tsr_rows& rows) override;
  void import_rows(uint32_t table, const tsr_rows& rows) override;
  void read_rows(uint32_t table, tsr_rows& rows) override;
  tsr_kernel_stats stats(uint32_t table) override;

 private:
  // The gradient of one batch during backward.
  struct Plan {
    BatchView batch;
    OutputGradient gradient;
    GradientSizes sizes;
    GradientWork work;
  };

  // The stream of work before the first call with a stream; NULL in host memory.
  struct OwnStream {
    explicit OwnStream(DLDevice device);
    ~OwnStream();
    OwnStream(const OwnStream&) = delete;
    OwnStream& operator=(const OwnStream&) = delete;
    Stream raw = nullptr;
  };

  Stream use(tsr_stream stream);
  void done(Stream stream) const;
  Context& take_context();
  BatchView batch_of(const tsr_lookup& lookup, const Context& context) const;
  Plan plan_of(Context& context, const tsr_backward& args, bool wants_runs, Stream stream);
  UpdateLaunch update_launch() const;
  const TableView* view(uint32_t table) const { return views_.data<TableView>() + table; }
  std::vector<RunTarget> place_gradients(Context& context, const std::vector<uint32_t>& starts,
                                         std::span<tsr_row_gradient> out, Stream stream) const;

  sdk::Host host_;
  Config config_;
  OwnStream own_;
  std::vector<TableStore> tables_;
  int64_t keys_ = 0;  // rows of all tables
  DeviceScratch views_;
  DeviceScratch lookups_;  // uint64 per table
  DeviceScratch scratch_;  // GradientWork of a backward
  DeviceScratch starts_;   // for backward_rows: the number of each table's first run
  std::vector<std::unique_ptr<Context>> contexts_;
  std::vector<Context*> idle_;
  Stream last_ = nullptr;
  bool used_ = false;
  Event moved_ = nullptr;
};

}  // namespace tessera::gpu

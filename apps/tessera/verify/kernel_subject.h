// A kernel in host memory as its checks take it, with the compute kernels it serves.
#pragma once

#include <string_view>
#include <vector>

#include "modules/kernel_config.h"
#include "plugin/interfaces.h"
#include "tessera/abi/kernel.h"
#include "verify/check.h"
#include "verify/formulas.h"
#include "verify/kernel_bed.h"

namespace tessera::cli::verify {

// A kernel for a check that needs host memory.
struct Kernel {
  explicit Kernel(Subject& s) : subject(s), part(s.make()), api(part.api<tsr_kernel>()) {
    bool host = false;
    for (const int32_t* type = api.device_types; *type != 0; ++type) host |= *type == kDLCPU;
    if (!host)
      throw Skipped(str_cat("it serves devices of type ", api.device_types[0], ": verify has host memory only"));
    if (const std::string& text = s.what().compute_kernel; !text.empty()) asked = compute_kernel_name(text);
    if (!asked.name.empty() && !plugin::serves(api, asked.name))
      throw Skipped(str_cat("it does not serve \"", asked.name, "\""));
  }
  // If one compute kernel was asked for, others do not count.
  bool serves(const char* compute_kernel) const {
    return plugin::serves(api, compute_kernel) && (asked.name.empty() || asked.name == compute_kernel);
  }
  bool moves_rows() const { return TSR_HAS(tsr_kernel, &api, export_rows) && TSR_HAS(tsr_kernel, &api, import_rows); }
  void needs_rows() const {
    if (!moves_rows()) throw Skipped("it exports or imports no rows, so verify does not know what it holds");
  }
  // The compute kernel whose backward updates rows, "fused" or one of its own; "" if there is none.
  std::string updating() const {
    if (!TSR_HAS(tsr_kernel, &api, backward)) return "";
    if (serves(TSR_COMPUTE_FUSED)) return TSR_COMPUTE_FUSED;
    for (const char* const* name = api.compute_kernels; *name != nullptr; ++name) {
      if (*name != std::string_view(TSR_COMPUTE_DENSE) && *name != std::string_view(TSR_COMPUTE_QUANT) && serves(*name))
        return *name;
    }
    return "";
  }
  void needs_updates() const {
    if (updating().empty()) throw Skipped("it serves only \"dense\", or only infers: its backward updates nothing");
  }
  bool exact() const { return !updating().empty() || serves(TSR_COMPUTE_DENSE); }  // rows stay as imported
  KernelBed::Parts with(KernelShape shape, const char* optimizer = "exact_sgd") const {
    if (shape.compute_kernel == TSR_COMPUTE_FUSED && !updating().empty()) shape.compute_kernel = updating();
    const Formula& formula = *formulas_of(optimizer).front();
    return {subject, *part.raw(), optimizer_instance(formula), formula.options, std::move(shape)};
  }
  // A shape that it supports, for checks that do not care: fused if it trains, float32 rows if it has them.
  KernelShape any_shape(std::vector<TableShape> tables = {{7, 4}, {40, 16}, {100, 32}}) const {
    KernelShape shape{std::move(tables)};
    shape.table_options = asked.options;
    if (updating().empty()) {
      shape.train = serves(TSR_COMPUTE_DENSE);
      shape.compute_kernel = shape.train ? TSR_COMPUTE_DENSE : asked.name.empty() ? api.compute_kernels[0] : asked.name;
    }
    for (const DLDataType type : {kFloat32, kFloat16, kBFloat16}) {
      KernelShape tried = shape;
      tried.weights = type;
      if (KernelBed(with(tried)).why_not().empty()) return tried;
    }
    return shape;  // the kernel will report why float32 is not supported
  }
  Subject& subject;
  Made part;
  const tsr_kernel& api;
  ComputeKernelName asked;  // unset if any will do
};

// Compares rows and sums with those of plain loops; rows must be ascending and unique. Defined in kernels.cc.
void compare_row_gradients(const std::vector<tsr_row_gradient>& got, const PlainTables::RowGradients& want,
                           const KernelShape& shape);

// Defined in kernel_rows.cc.
void check_kernel_rows(Subject& subject);
void check_kernel_read_rows(Subject& subject);
void check_kernel_quantized(Subject& subject);

// Defined in kernel_runs.cc.
void check_kernel_row_views(Subject& subject);
void check_kernel_many_calls(Subject& subject);
void check_kernel_ranks(Subject& subject);

// Defined in kernel_large.cc.
void check_kernel_large(Subject& subject);

// Defined in kernel_changes.cc.
void check_kernel_changes(Subject& subject);

// Defined in kernel_promises.cc.
void check_kernel_flags(Subject& subject);
void check_kernel_cursors(Subject& subject);
void check_kernel_extra(Subject& subject);
void check_kernel_read_only(Subject& subject);
void check_kernel_start_values(Subject& subject);
void check_kernel_prefetch(Subject& subject);
void check_kernel_estimate(Subject& subject);
void check_kernel_threads(Subject& subject);

}  // namespace tessera::cli::verify

// The implementation of Lookup over a kernel's instance.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include "tessera/abi/draft/prefetch.h"
#include "tessera/calls.h"
#include "tessera/lookup.h"
#include "tessera/sdk/error.h"
#include "tessera/sdk/kernel.h"
#include "tessera/sdk/structs.h"

namespace tessera {

struct Lookup::Impl {
  Impl(const Runtime& runtime, LookupOptions o);  // opens the kernel
  ~Impl() {
    if (instance == nullptr) return;
    const plugin::CallScope call(*kernel, "close");
    api->close(instance);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // The table to name in an error about a lack of memory.
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
    return str_cat("table \"", largest->name, "\" with ", largest->rows, " rows of ", largest->dim, " columns here, ",
                   bytes(*largest), " bytes", others > 0 ? str_cat(", and ", others, " smaller") : "",
                   options.optimizer.name.empty() ? "" : ", and optimizer states");
  }
  // Calls a function of the kernel, which takes its error last.
  template <class Function, class... Args>
  void call(const char* what, Function function, Args... args) const {
    plugin::call({*kernel, what, {}, kernel->id()}, function, args...);
  }
  template <class Function>
  void need(Function function, const char* what) const {
    if (function == nullptr) fail(Code::kUnimplemented, "kernel \"", kernel->id(), "\" cannot ", what);
  }
  const LookupTable& table(int t) const {
    TESSERA_CHECK(t >= 0 && static_cast<size_t>(t) < options.tables.size(), "table ", t);
    return options.tables[static_cast<size_t>(t)];
  }
  tsr_update update() const { return {sizeof(tsr_update), 0, learning_rate, step + 1}; }
  bool rows_on_demand() const { return (api->flags & TSR_KERNEL_ROWS_ON_DEMAND) != 0; }
  bool makes_rows() const {
    return rows_on_demand() || (api->flags & TSR_KERNEL_STARTS_ROWS) != 0 || !TSR_HAS(tsr_kernel, api, import_rows);
  }
  void import(int t, const tsr_rows& rows) const {
    need(api->import_rows, "take rows");
    call("import_rows", api->import_rows, instance, static_cast<uint32_t>(t), &rows);
  }
  // Checks the number of rows that a kernel returned.
  int64_t count_of(const tsr_rows& rows, int64_t room, const char* call) const {
    if (rows.count < 0 || rows.count > room)
      fail(Code::kInternal, kernel->id(), ": ", call, " gives ", rows.count, " rows, but only ", room, " have room");
    return rows.count;
  }
  bool places_rows() const { return (api->flags & TSR_KERNEL_PLACES_ROWS) != 0 && !options.stream; }
  // Returns the batch in the form that this kernel was promised.
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
  // Returns views of the tensors in one array, as the ABI requires.
  const DLTensor* views(std::span<const Tensor> tensors) {
    TESSERA_CHECK(tensors.size() == 1 || (!tensors.empty() && places_rows()), "outputs: ", tensors.size());
    outputs.clear();
    for (const Tensor& t : tensors) outputs.push_back(t.dl());
    return outputs.data();
  }

  LookupOptions options;
  const tsr_start_values start_values{sizeof(tsr_start_values), 0, this, fill_slot, formula_slot};
  ComponentPtr optimizer;
  ComponentPtr kernel;
  const tsr_kernel* api = nullptr;
  const tsr_prefetch* prefetch = nullptr;  // set if the kernel wants ids early
  void* instance = nullptr;
  std::vector<State> states;
  std::vector<Tensor> adopted;                  // by table: memory that the instance reads
  std::vector<tsr_row_gradient> row_gradients;  // scratch
  std::vector<DLTensor> outputs;                // scratch
  double learning_rate = 0;
  int64_t step = 0;
};

}  // namespace tessera

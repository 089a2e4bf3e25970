#include "config.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tessera/sdk/options.h"

namespace tessera_cpu {
namespace {

void check_compute_kernel(const tsr_kernel_config& config, const char* const* served) {
  for (const char* const* c = served; *c != nullptr; ++c) {
    if (std::strcmp(*c, config.compute_kernel) == 0) return;
  }
  std::string list;
  for (const char* const* c = served; *c != nullptr; ++c) list += (list.empty() ? "" : ", ") + std::string(*c);
  sdk::fail(TSR_UNIMPLEMENTED, "compute kernel \"", config.compute_kernel, "\" is not served, only ", list);
}

void check_optimizer(const tsr_kernel_config& config, const sdk::OptimizerRef& optimizer) {
  if (config.mode != TSR_MODE_TRAIN) return;
  if (std::strcmp(config.compute_kernel, "fused") == 0 && !optimizer.updates()) {
    sdk::fail(TSR_UNIMPLEMENTED, "compute kernel \"fused\" updates rows in backward, but ",
              config.optimizer == nullptr ? std::string("no optimizer is given")
                                          : "optimizer \"" + std::string(optimizer.id()) + "\" updates none",
              ": choose an optimizer, or the compute kernel \"dense\"");
  }
  optimizer.check_states();
}

// The random key of a table, and its shard's place in the whole table, from the config.
Rounding stochastic(const tsr_kernel_config& config, uint32_t t, const std::string& name) {
  Rounding out{true, config.seed};
  for (const char c : name) out.key = (out.key ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  if (!TSR_HAS(tsr_start_values, config.start_values, formula)) return out;
  tsr_start_formula formula{};
  formula.struct_size = sizeof(formula);
  sdk::Call call;
  const tsr_code code = config.start_values->formula(config.start_values->self, t, &formula, call.err());
  if (code == TSR_UNIMPLEMENTED) {
    sdk::fail(code, "table \"", name, "\": rounding=stochastic needs to know the rows of a shard, and a sharder that ",
              "routes them hides them: choose another sharder, or rounding=nearest");
  }
  call.check(code);
  return {true, out.key, formula.first_row, formula.first_col};
}

Rounding rounding_of(const tsr_kernel_config& config, uint32_t t, Storage storage) {
  const tsr_kernel_table& table = sdk::table_of(config, t);
  if (table.options == nullptr) return {};
  sdk::Options options(table.options);
  const bool is_stochastic = options.word("rounding", {"nearest", "stochastic"}) == 1;
  options.finish();
  if (!is_stochastic) return {};
  const std::string name = table.name == nullptr ? "" : table.name;
  if (storage == Storage::kFloat32) {
    sdk::fail(TSR_INVALID_ARGUMENT, "table \"", name,
              "\": rounding=stochastic is for rows of float16 or bfloat16, and ",
              "its rows are float32: leave it out, or set data_type");
  }
  if (std::strcmp(config.compute_kernel, "fused") != 0) {
    sdk::fail(TSR_INVALID_ARGUMENT, "table \"", name, "\": rounding=stochastic is for the compute kernel \"fused\", ",
              "which updates rows, not for \"", config.compute_kernel, '"');
  }
  return stochastic(config, t, name);
}

TableSpec checked_table(const tsr_kernel_table& table, int64_t max_rows) {
  const std::string name = table.name == nullptr ? "" : table.name;
  if (table.dim <= 0 || table.rows < 0) {
    sdk::fail(TSR_INVALID_ARGUMENT, "table \"", name, "\" has ", table.rows, " rows of ", table.dim,
              " columns, but needs at least 0 rows and 1 column");
  }
  if (table.rows > max_rows) {
    sdk::fail(TSR_UNIMPLEMENTED, "table \"", name, "\" has ", table.rows, " rows, but at most ", max_rows,
              " are served: divide its rows among more shards");
  }
  return {name, table.rows, table.dim};
}

[[noreturn]] void bad_feature(size_t f, const char* what, int64_t got, int64_t bound) {
  sdk::fail(TSR_INVALID_ARGUMENT, "lookup feature ", f, ": ", what, " ", got, " does not fit, the bound is ", bound);
}

}  // namespace

Storage storage_of(DLDataType dtype, const char* what) {
  if (dtype.lanes == 1 && dtype.code == kDLFloat && dtype.bits == 32) return Storage::kFloat32;
  if (dtype.lanes == 1 && dtype.code == kDLFloat && dtype.bits == 16) return Storage::kFloat16;
  if (dtype.lanes == 1 && dtype.code == kDLBfloat && dtype.bits == 16) return Storage::kBFloat16;
  sdk::fail(TSR_UNIMPLEMENTED, what, " must be float32, float16 or bfloat16, not DLPack type code ", int{dtype.code},
            " with ", int{dtype.bits}, " bits");
}

Config checked(const tsr_kernel_config& config, const char* const* compute_kernels, int64_t max_rows) {
  check_compute_kernel(config, compute_kernels);
  if (config.device.device_type != kDLCPU) {
    sdk::fail(TSR_UNIMPLEMENTED, "device type ", int{config.device.device_type}, " is not served, only the CPU");
  }
  Config out;
  out.train = config.mode == TSR_MODE_TRAIN;
  out.weights = storage_of(config.weight_dtype, "the type of rows");
  out.output = storage_of(config.output_dtype, "the type of outputs");
  out.optimizer = sdk::OptimizerRef(out.train ? config.optimizer : nullptr);
  check_optimizer(config, out.optimizer);
  if (!(config.max_gradient >= 0) || std::isinf(config.max_gradient)) {
    sdk::fail(TSR_INVALID_ARGUMENT, "max_gradient is ", config.max_gradient, " but must be 0 (off) or positive");
  }
  out.max_gradient = static_cast<float>(config.max_gradient);
  out.tables.reserve(config.num_tables);
  for (uint32_t t = 0; t < config.num_tables; ++t) {
    out.tables.push_back(checked_table(sdk::table_of(config, t), max_rows));
    out.tables.back().rounding = rounding_of(config, t, out.weights);
  }
  return out;
}

Indices::Indices(const DLTensor& tensor, const char* what)
    : data_(sdk::raw(tensor)), size_(sdk::numel(tensor)), wide_(sdk::holds<int64_t>(tensor)) {
  if (!wide_ && !sdk::holds<int32_t>(tensor)) {
    sdk::fail(TSR_INVALID_ARGUMENT, what, " must be int32 or int64, not DLPack type code ", int{tensor.dtype.code},
              " with ", int{tensor.dtype.bits}, " bits");
  }
}

Batch::Batch(const tsr_lookup& l, const Config& config, const DLTensor& v)
    : lookup(&l),
      ids(*l.ids, "ids"),
      offsets(*l.offsets, "offsets"),
      weights(l.weights == nullptr ? nullptr : sdk::elements<const float>(*l.weights, "weights").data()),
      listed(TSR_HAS(tsr_lookup, lookup, output_rows)
                 ? sdk::elements<const int32_t>(*l.output_rows, "output_rows").data()
                 : nullptr),
      first_values(&v),
      value_bytes(bytes_of(config.output)) {
  for (uint32_t k = 0; k < std::max(l.num_outputs, 1u); ++k) {
    if (storage_of((&v)[k].dtype, "output and its gradient") == config.output) continue;
    sdk::fail(TSR_INVALID_ARGUMENT, "the output or its gradient has another type than the kernel was opened with");
  }
  if (weights != nullptr && sdk::numel(*l.weights) != ids.size()) {
    sdk::fail(TSR_INVALID_ARGUMENT, "there are ", sdk::numel(*l.weights), " weights for ", ids.size(), " ids");
  }
  if (listed != nullptr && sdk::numel(*l.output_rows) < offsets.size()) {
    sdk::fail(TSR_INVALID_ARGUMENT, "there are ", sdk::numel(*l.output_rows), " output_rows for ", offsets.size(),
              " offsets");
  }
  for (size_t f = 0; f < l.num_features; ++f) {
    const tsr_lookup_feature& x = feature(f);
    if (x.table < 0 || static_cast<size_t>(x.table) >= config.tables.size()) {
      bad_feature(f, "table", x.table, static_cast<int64_t>(config.tables.size()));
    }
    if (x.bags == 0) continue;
    if (x.bags < 0 || x.first_offset < 0 || x.first_offset + x.bags >= offsets.size()) {
      bad_feature(f, "last offset", x.first_offset + x.bags, offsets.size());
    }
    if (x.pooling < TSR_POOLING_NONE || x.pooling > TSR_POOLING_MAX)
      sdk::fail(TSR_UNIMPLEMENTED, "lookup feature ", f, ": pooling ", x.pooling, " is not known to this kernel");
    if (x.pooling == TSR_POOLING_MAX && weights != nullptr) {
      sdk::fail(TSR_INVALID_ARGUMENT, "lookup feature ", f, ": MAX pooling takes no weights");
    }
    int64_t n = x.pooling == TSR_POOLING_NONE ? end(x) - begin(x) : x.bags;
    if (const int32_t* row = rows(x)) {
      if (x.pooling == TSR_POOLING_NONE) {
        sdk::fail(TSR_INVALID_ARGUMENT, "lookup feature ", f, ": output_rows cannot be used for a sequence");
      }
      if (row[0] < 0) bad_feature(f, "first listed row", row[0], 0);
      n = int64_t{row[x.bags - 1]} + 1;
    }
    if (begin(x) < 0 || end(x) > ids.size()) bad_feature(f, "end of ids", end(x), ids.size());
    if (l.num_outputs > 1 && x.output >= l.num_outputs) bad_feature(f, "output", x.output, l.num_outputs);
    const int64_t size = sdk::numel(sdk::output_of(l, x, v));
    const int64_t last = x.output_offset + (n - 1) * x.output_stride + config.tables[x.table].dim;
    if (n > 0 && (x.output_offset < 0 || last > size)) bad_feature(f, "end of output", last, size);
  }
}

}  // namespace tessera_cpu

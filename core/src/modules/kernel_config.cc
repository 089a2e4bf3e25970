#include "modules/kernel_config.h"

#include <algorithm>

#include "tessera/calls.h"

namespace tessera {

namespace {

// Adds a text for each value of the first option in `text` that has several, and recurses for the next such option.
// `whole` is for messages.
void add_choices(const std::string& text, const std::string& whole, std::vector<std::string>& out) {
  constexpr size_t kMost = 64;
  const auto refuse = [&](const std::string& why) {
    fail(Code::kInvalidArgument, "\"", whole, "\" is not a choice of compute kernels: ", why,
         "; one looks like name?key=1|2|3");
  };
  const size_t bar = text.find('|');
  if (bar == std::string::npos) {
    if (out.size() == kMost) refuse(str_cat("these are more than ", kMost));
    out.push_back(text);
    return;
  }
  const size_t from = text.rfind('=', bar) + 1, end = std::min(text.find('&', bar), text.size());
  if (from == 0) refuse("a | stands between values of an option");
  for (size_t at = from; at <= end;) {
    const size_t to = std::min(text.find('|', at), end);
    if (to == at) refuse("a value is missing next to a |");
    add_choices(text.substr(0, from) + text.substr(at, to - at) + text.substr(end), whole, out);
    at = to + 1;
  }
}

}  // namespace

KernelConfig::KernelConfig(const LookupOptions& o, const Component* optimizer, DLDevice device) {
  for (const LookupTable& t : o.tables) {
    tables.push_back({sizeof(tsr_kernel_table), t.any_id ? uint32_t{TSR_TABLE_ANY_ID} : 0, t.name.c_str(), t.rows,
                      t.dim, t.options.empty() ? nullptr : t.options.c_str(), t.poolings, 0});
  }
  raw.struct_size = sizeof(raw);
  raw.mode = o.train ? TSR_MODE_TRAIN : TSR_MODE_INFER;
  raw.compute_kernel = o.compute_kernel.c_str();
  raw.device = device;
  raw.weight_dtype = o.row_format ? sdk::info_of(*o.row_format).dtype : to_dl(o.weight_dtype);
  raw.output_dtype = to_dl(o.output_dtype);
  raw.num_tables = static_cast<uint32_t>(tables.size());
  raw.table_stride = sizeof(tsr_kernel_table);
  raw.tables = tables.data();
  raw.optimizer = optimizer == nullptr ? nullptr : optimizer->raw();
  raw.optimizer_options = optimizer == nullptr ? nullptr : optimizer->options().c_str();
  raw.max_gradient = o.optimizer.max_gradient;
  raw.row_format = o.row_format ? sdk::info_of(*o.row_format).layout : nullptr;
  raw.seed = o.seed;
}

ComputeKernelName compute_kernel_name(const std::string& text) {
  const ComponentName part = parse_component_name(text);
  if (!part.name.empty() || !part.inner.empty()) {
    fail(Code::kInvalidArgument, "\"", text, "\" is not the name of a compute kernel, which looks like ", part.id,
         " or ", part.id, "?key=value");
  }
  return {part.id, part.options == "{}" ? "" : part.options};
}

std::vector<std::string> compute_kernel_choices(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  for (const std::string& text : texts) {
    std::vector<std::string> choices;
    add_choices(text, text, choices);
    out.insert(out.end(), choices.begin(), choices.end());
  }
  return out;
}

uint32_t shard_poolings(PoolingType pooling) {
  const uint32_t own = 1u << static_cast<uint32_t>(pooling);
  return pooling == PoolingType::kMean ? own | 1u << TSR_POOLING_SUM : own;
}

std::string refusal(const Component& kernel, const tsr_kernel_config& config) {
  AbiError error;
  const plugin::CallScope call(kernel, "supports");
  const tsr_code code = kernel.api<tsr_kernel>().supports(kernel.self(), &config, error.out());
  if (code == TSR_OK) return "";
  return error.said().empty() ? str_cat("refused with code ", code) : std::string(error.said());
}

}  // namespace tessera

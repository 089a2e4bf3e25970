#include "plugin/interfaces.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>

#include "tessera/abi/collective.h"
#include "tessera/abi/draft/device.h"
#include "tessera/abi/draft/endpoint.h"
#include "tessera/abi/draft/index.h"
#include "tessera/abi/draft/metric.h"
#include "tessera/abi/draft/reader.h"
#include "tessera/abi/module.h"
#include "tessera/abi/optimizer.h"
#include "tessera/abi/sharder.h"
#include "tessera/error.h"

namespace tessera::plugin {
namespace {

// A pointer that must not be NULL.
struct Member {
  const char* name;
  size_t offset;
};
struct Interface {
  const char* kind;
  std::span<const Member> members;
  uint32_t known;  // the must-understand flags that this core knows
};

#define TESSERA_MEMBER(type, member) \
  { #member, offsetof(type, member) }
constexpr Member kPlugin[] = {TESSERA_MEMBER(tsr_plugin, name), TESSERA_MEMBER(tsr_plugin, version),
                              TESSERA_MEMBER(tsr_plugin, build), TESSERA_MEMBER(tsr_plugin, components)};
constexpr Member kComponent[] = {TESSERA_MEMBER(tsr_component, id),      TESSERA_MEMBER(tsr_component, kind),
                                 TESSERA_MEMBER(tsr_component, version), TESSERA_MEMBER(tsr_component, about),
                                 TESSERA_MEMBER(tsr_component, api),     TESSERA_MEMBER(tsr_component, create),
                                 TESSERA_MEMBER(tsr_component, destroy)};
constexpr Member kSharder[] = {TESSERA_MEMBER(tsr_sharder, propose)};
constexpr Member kOptimizer[] = {TESSERA_MEMBER(tsr_optimizer, learning_rate)};
constexpr Member kKernel[] = {TESSERA_MEMBER(tsr_kernel, compute_kernels), TESSERA_MEMBER(tsr_kernel, device_types),
                              TESSERA_MEMBER(tsr_kernel, supports),        TESSERA_MEMBER(tsr_kernel, open),
                              TESSERA_MEMBER(tsr_kernel, close),           TESSERA_MEMBER(tsr_kernel, forward),
                              TESSERA_MEMBER(tsr_kernel, release),         TESSERA_MEMBER(tsr_kernel, stats)};
constexpr Member kCollective[] = {
    TESSERA_MEMBER(tsr_collective, describe),     TESSERA_MEMBER(tsr_collective, connect),
    TESSERA_MEMBER(tsr_collective, split),        TESSERA_MEMBER(tsr_collective, rank),
    TESSERA_MEMBER(tsr_collective, world_size),   TESSERA_MEMBER(tsr_collective, all_to_all_v),
    TESSERA_MEMBER(tsr_collective, all_reduce),   TESSERA_MEMBER(tsr_collective, reduce_scatter_v),
    TESSERA_MEMBER(tsr_collective, all_gather_v), TESSERA_MEMBER(tsr_collective, broadcast),
    TESSERA_MEMBER(tsr_collective, barrier),      TESSERA_MEMBER(tsr_collective, wait),
    TESSERA_MEMBER(tsr_collective, abort),        TESSERA_MEMBER(tsr_collective, close)};
constexpr Member kModule[] = {TESSERA_MEMBER(tsr_module, parameter), TESSERA_MEMBER(tsr_module, output),
                              TESSERA_MEMBER(tsr_module, forward), TESSERA_MEMBER(tsr_module, backward),
                              TESSERA_MEMBER(tsr_module, release)};
constexpr Member kDevice[] = {TESSERA_MEMBER(tsr_device, count),         TESSERA_MEMBER(tsr_device, info),
                              TESSERA_MEMBER(tsr_device, alloc),         TESSERA_MEMBER(tsr_device, free),
                              TESSERA_MEMBER(tsr_device, host_alloc),    TESSERA_MEMBER(tsr_device, host_free),
                              TESSERA_MEMBER(tsr_device, copy),          TESSERA_MEMBER(tsr_device, fill),
                              TESSERA_MEMBER(tsr_device, stream_create), TESSERA_MEMBER(tsr_device, stream_destroy),
                              TESSERA_MEMBER(tsr_device, synchronize),   TESSERA_MEMBER(tsr_device, event_create),
                              TESSERA_MEMBER(tsr_device, event_destroy), TESSERA_MEMBER(tsr_device, event_record),
                              TESSERA_MEMBER(tsr_device, event_wait),    TESSERA_MEMBER(tsr_device, event_synchronize),
                              TESSERA_MEMBER(tsr_device, event_query),   TESSERA_MEMBER(tsr_device, stats)};
constexpr Member kReader[] = {TESSERA_MEMBER(tsr_reader, open),   TESSERA_MEMBER(tsr_reader, file),
                              TESSERA_MEMBER(tsr_reader, column), TESSERA_MEMBER(tsr_reader, block),
                              TESSERA_MEMBER(tsr_reader, select), TESSERA_MEMBER(tsr_reader, read)};
constexpr Member kMetric[] = {TESSERA_MEMBER(tsr_metric, info), TESSERA_MEMBER(tsr_metric, add),
                              TESSERA_MEMBER(tsr_metric, value)};
constexpr Member kEndpoint[] = {TESSERA_MEMBER(tsr_endpoint, start), TESSERA_MEMBER(tsr_endpoint, stop)};
constexpr Member kIndex[] = {TESSERA_MEMBER(tsr_index, build), TESSERA_MEMBER(tsr_index, search)};
#undef TESSERA_MEMBER

constexpr Interface kInterfaces[] = {{TSR_SHARDER_KIND, kSharder, TSR_SHARDER_KEEPS_IDS},
                                     {TSR_OPTIMIZER_KIND, kOptimizer, 0},
                                     {TSR_KERNEL_KIND, kKernel, TSR_KERNEL_ROWS_ON_DEMAND | TSR_KERNEL_WRAPS},
                                     {TSR_COLLECTIVE_KIND, kCollective, TSR_COLLECTIVE_WRAPS},
                                     {TSR_MODULE_KIND, kModule, TSR_MODULE_SUMS_OVER_RANKS},
                                     {TSR_DEVICE_KIND, kDevice, 0},
                                     {TSR_READER_KIND, kReader, 0},
                                     {TSR_METRIC_KIND, kMetric, 0},
                                     {TSR_ENDPOINT_KIND, kEndpoint, 0},
                                     {TSR_INDEX_KIND, kIndex, 0}};

// Returns the first missing member. `what` names the table in the message. All tables begin with their struct_size.
std::string missing_member(const std::string& what, const void* table, std::span<const Member> members) {
  uint32_t size = 0;
  std::memcpy(&size, table, sizeof(size));
  for (const Member& member : members) {
    if (size < member.offset + sizeof(void*)) {
      return str_cat(what, " has struct_size ", size, ", too small for \"", member.name, "\", which must be there");
    }
    const void* value = nullptr;
    std::memcpy(&value, static_cast<const char*>(table) + member.offset, sizeof(value));
    if (value == nullptr) return str_cat(what, " has NULL for \"", member.name, "\", which must be there");
  }
  return "";
}

// Checks rules that concern more than one member.
std::string check_pairs(const std::string& what, const tsr_component& c) {
  if (c.kind == std::string_view(TSR_SHARDER_KIND)) {
    const auto* s = static_cast<const tsr_sharder*>(c.api);
    if (TSR_HAS(tsr_sharder, s, route) != TSR_HAS(tsr_sharder, s, unroute)) {
      return str_cat(what, " has only one of \"route\" and \"unroute\", but needs both or neither");
    }
  }
  if (c.kind == std::string_view(TSR_DEVICE_KIND)) {
    const auto* d = static_cast<const tsr_device*>(c.api);
    if (d->device_type <= 0 || d->device_type == kDLCPU) {
      return str_cat(what, " serves device type ", d->device_type, ", which is not a device beside the CPU");
    }
  }
  return "";
}

// The words of a note's line, by which the host finds the component.
std::string check_words(const std::string& what, const tsr_component& c) {
  for (const char* word : {c.kind, c.id, c.version}) {
    const std::string_view text = word;
    const bool printable = std::all_of(text.begin(), text.end(), [](char x) { return x > ' ' && x <= '~'; });
    if (text.empty() || !printable)
      return str_cat(what, " has \"", word, "\" as kind, id or version, which are printable ASCII without spaces");
  }
  return "";
}

}  // namespace

std::string unknown_flags(const std::string& what, const void* table, uint32_t known) {
  uint32_t head[2] = {};  // struct_size and flags, with which every table begins
  std::memcpy(head, table, sizeof(head[0]));
  if (head[0] < sizeof(head)) return "";
  std::memcpy(head, table, sizeof(head));
  const uint32_t flags = head[1] & TSR_MUST_UNDERSTAND & ~known;
  if (flags == 0) return "";
  char bits[16];
  std::snprintf(bits, sizeof(bits), "0x%x", flags);
  return str_cat(what, " has flags ", bits, ", which this core does not know: it needs a newer one");
}

std::string check_plugin(const tsr_plugin* plugin) {
  if (TSR_FITS(tsr_plugin, plugin, epoch) && (plugin->abi_major != TSR_ABI_MAJOR || plugin->epoch != TSR_ABI_EPOCH)) {
    return str_cat("the plugin table is not of release candidate ", TSR_ABI_EPOCH, " of plugin ABI ", TSR_ABI_MAJOR,
                   ", which this core has: build the plugin with headers of this core");
  }
  return missing_member("the plugin table", plugin, kPlugin);
}

std::string check_component(const tsr_component* component) {
  if (component == nullptr) return "the plugin table has a NULL component";
  std::string wrong = missing_member("a component", component, kComponent);
  if (!wrong.empty()) return wrong;
  const std::string what = str_cat(component->kind, " \"", component->id, "\"");
  if (wrong = check_words(what, *component); !wrong.empty()) return wrong;
  for (const Interface& i : kInterfaces) {
    if (std::string_view(component->kind) != i.kind) continue;
    wrong = missing_member(what, component->api, i.members);
    if (wrong.empty()) wrong = unknown_flags(what, component->api, i.known);
    return wrong.empty() ? check_pairs(what, *component) : wrong;
  }
  return "";
}

bool serves(const tsr_kernel& kernel, std::string_view compute_kernel) {
  const char* const* name = kernel.compute_kernels;
  while (*name != nullptr && *name != compute_kernel) ++name;
  return *name != nullptr;
}

bool wraps(const tsr_component& c) {
  if (c.kind == std::string_view(TSR_COLLECTIVE_KIND))
    return (static_cast<const tsr_collective*>(c.api)->flags & TSR_COLLECTIVE_WRAPS) != 0;
  return c.kind == std::string_view(TSR_KERNEL_KIND) &&
         (static_cast<const tsr_kernel*>(c.api)->flags & TSR_KERNEL_WRAPS) != 0;
}

bool can_wrap(const tsr_component& component, const tsr_component& inner) {
  if (wraps(inner)) return false;
  if (component.kind != std::string_view(TSR_KERNEL_KIND)) return true;
  const auto* kernel = static_cast<const tsr_kernel*>(inner.api);
  bool same_device = false;
  for (const int32_t* own = static_cast<const tsr_kernel*>(component.api)->device_types; *own != 0; ++own) {
    for (const int32_t* type = kernel->device_types; *type != 0; ++type) same_device |= *type == *own;
  }
  return same_device && serves(*kernel, TSR_COMPUTE_FUSED);
}

}  // namespace tessera::plugin

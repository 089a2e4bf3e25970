#include "plugin/interfaces.h"

#include <cstddef>
#include <cstring>
#include <span>

#include "tessera/abi/collective.h"
#include "tessera/abi/device.h"
#include "tessera/abi/kernel.h"
#include "tessera/abi/module.h"
#include "tessera/abi/optimizer.h"
#include "tessera/abi/sharder.h"
#include "tessera/error.h"

namespace tessera::plugin {
namespace {

// A pointer that must be there.
struct Member {
  const char* name;
  size_t offset;
};
struct Interface {
  const char* kind;
  std::span<const Member> members;
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
constexpr Member kKernel[] = {TESSERA_MEMBER(tsr_kernel, compute_kernels),
                              TESSERA_MEMBER(tsr_kernel, device_types),
                              TESSERA_MEMBER(tsr_kernel, supports),
                              TESSERA_MEMBER(tsr_kernel, open),
                              TESSERA_MEMBER(tsr_kernel, close),
                              TESSERA_MEMBER(tsr_kernel, forward),
                              TESSERA_MEMBER(tsr_kernel, release),
                              TESSERA_MEMBER(tsr_kernel, save),
                              TESSERA_MEMBER(tsr_kernel, load),
                              TESSERA_MEMBER(tsr_kernel, stats)};
constexpr Member kCollective[] = {TESSERA_MEMBER(tsr_collective, connect),
                                  TESSERA_MEMBER(tsr_collective, split),
                                  TESSERA_MEMBER(tsr_collective, rank),
                                  TESSERA_MEMBER(tsr_collective, world_size),
                                  TESSERA_MEMBER(tsr_collective, all_to_all_v),
                                  TESSERA_MEMBER(tsr_collective, all_reduce),
                                  TESSERA_MEMBER(tsr_collective, reduce_scatter_v),
                                  TESSERA_MEMBER(tsr_collective, all_gather_v),
                                  TESSERA_MEMBER(tsr_collective, broadcast),
                                  TESSERA_MEMBER(tsr_collective, barrier),
                                  TESSERA_MEMBER(tsr_collective, wait),
                                  TESSERA_MEMBER(tsr_collective, abort),
                                  TESSERA_MEMBER(tsr_collective, close)};
constexpr Member kModule[] = {TESSERA_MEMBER(tsr_module, parameter), TESSERA_MEMBER(tsr_module, output_width),
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
                              TESSERA_MEMBER(tsr_device, stats)};
#undef TESSERA_MEMBER

constexpr Interface kInterfaces[] = {{TSR_SHARDER_KIND, kSharder}, {TSR_OPTIMIZER_KIND, kOptimizer},
                                     {TSR_KERNEL_KIND, kKernel},   {TSR_COLLECTIVE_KIND, kCollective},
                                     {TSR_MODULE_KIND, kModule},   {TSR_DEVICE_KIND, kDevice}};

// `what` names the table in the sentence. All tables begin with their struct_size.
std::string missing_member(const std::string& what, const void* table, std::span<const Member> members) {
  uint32_t size = 0;
  std::memcpy(&size, table, sizeof(size));
  for (const Member& member : members) {
    if (size < member.offset + sizeof(void*)) {
      return cat(what, " has struct_size ", size, ", too small for \"", member.name, "\", which must be there");
    }
    const void* value = nullptr;
    std::memcpy(&value, static_cast<const char*>(table) + member.offset, sizeof(value));
    if (value == nullptr) return cat(what, " has NULL for \"", member.name, "\", which must be there");
  }
  return "";
}

// What the list of members cannot say.
std::string check_pairs(const std::string& what, const tsr_component& c) {
  if (c.kind == std::string_view(TSR_SHARDER_KIND)) {
    const auto* s = static_cast<const tsr_sharder*>(c.api);
    if (TSR_HAS(tsr_sharder, s, route) != TSR_HAS(tsr_sharder, s, unroute)) {
      return cat(what, " has only one of \"route\" and \"unroute\", but needs both or neither");
    }
  }
  if (c.kind == std::string_view(TSR_DEVICE_KIND)) {
    const auto* d = static_cast<const tsr_device*>(c.api);
    if (TSR_HAS(tsr_device, d, combine_rows) != TSR_HAS(tsr_device, d, split_rows)) {
      return cat(what, " has only one of \"combine_rows\" and \"split_rows\", but needs both or neither");
    }
    if (TSR_HAS(tsr_device, d, update_parameters) != TSR_HAS(tsr_device, d, binary_cross_entropy)) {
      return cat(what,
                 " has only one of \"update_parameters\" and \"binary_cross_entropy\", but needs both or neither");
    }
    const int jagged = TSR_HAS(tsr_device, d, sum_lengths) + TSR_HAS(tsr_device, d, check_bounds) +
                       TSR_HAS(tsr_device, d, permute) + TSR_HAS(tsr_device, d, bucketize);
    if (jagged != 0 && jagged != 4) {
      return cat(what, " has ", jagged, " of sum_lengths, check_bounds, permute and bucketize: give all four or none");
    }
    if (d->device_type <= 0 || d->device_type == kDLCPU) {
      return cat(what, " serves device type ", d->device_type, ", which is no device beside the CPU");
    }
  }
  return "";
}

}  // namespace

std::string check_plugin(const tsr_plugin* plugin) { return missing_member("the plugin table", plugin, kPlugin); }

std::string check_component(const tsr_component* component) {
  if (component == nullptr) return "the plugin table has a NULL component";
  std::string wrong = missing_member("a component", component, kComponent);
  if (!wrong.empty()) return wrong;
  const std::string what = cat(component->kind, " \"", component->id, "\"");
  for (const Interface& i : kInterfaces) {
    if (std::string_view(component->kind) != i.kind) continue;
    wrong = missing_member(what, component->api, i.members);
    return wrong.empty() ? check_pairs(what, *component) : wrong;
  }
  return "";
}

}  // namespace tessera::plugin

// The state that forward keeps for backward: the description of the batch's features on the device, and the results of
// backward_rows.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/views.h"
#include "kernel/config.h"
#include "kernel/memory.h"

namespace tessera::gpu {

struct Context {
  Context(sdk::Host host, DLDevice device) : features(host, device), gradients(host, device), targets(host, device) {}
  static Context& of(tsr_context* raw) { return *reinterpret_cast<Context*>(raw); }
  tsr_context* raw() { return reinterpret_cast<tsr_context*>(this); }

  // Describes the batch to the device. Unchanged descriptions are not sent again.
  void describe(const tsr_lookup& lookup, const Config& config, const DLTensor& values, Stream stream);

  DeviceScratch features;           // FeatureView[]
  std::vector<FeatureView> sent;    // content of `features`
  std::vector<FeatureView> wanted;  // scratch of describe()
  int64_t bags = 0;
  int64_t blocks = 0;       // number of blocks of the forward launch
  int64_t id_runs = 1;      // the most features that read the same position; times the ids, it bounds the entries
  bool vectors = true;      // true if all output rows can be read in vectors of four when the first one can
  DeviceScratch gradients;  // rows and values of all tables
  DeviceScratch targets;    // RunTarget[]
  std::vector<int64_t> shapes;
};

}  // namespace tessera::gpu

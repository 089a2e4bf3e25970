// The state that forward keeps for backward: the batch's features as the device reads them, and what backward_rows
// hands out.
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

  // Describes the batch to the device. What it was told before and is still true is not sent again.
  void describe(const tsr_lookup& lookup, const Config& config, const DLTensor& values, Stream stream);

  DeviceScratch features;           // FeatureView[]
  std::vector<FeatureView> sent;    // what is in it
  std::vector<FeatureView> wanted;  // scratch of describe()
  int64_t bags = 0;
  int64_t blocks = 0;       // of the forward launch
  int64_t id_runs = 1;      // features that read one position at most: bounds the entries
  bool vectors = true;      // all output rows can be read in vectors of four where the first can
  DeviceScratch gradients;  // rows and values of all tables
  DeviceScratch targets;    // RunTarget[]
  std::vector<int64_t> shapes;
};

}  // namespace tessera::gpu

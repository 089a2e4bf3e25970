// tessera/topology.h - the machines of a plan: ranks, hosts, memory, bandwidths.
//
// Sizes are bytes, bandwidths bytes per millisecond.
#pragma once

#include <dlpack/dlpack.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera {

// Bytes that a transport sends for `elements` float32 of rows, or of their gradients, between two ranks. Rows have
// `row_elements` elements (0: several widths). Null: 4 bytes each. traffic.h makes such functions for groups and
// transports.
using WireBytes = std::function<int64_t(bool gradients, int64_t elements, int64_t row_elements)>;

// Bytes on one rank or of one shard: device memory, host memory, disk. Compared in this order.
struct Storage {
  int64_t hbm = 0;
  int64_t ddr = 0;
  int64_t ssd = 0;
  auto operator<=>(const Storage&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0
  bool fits_in(const Storage& room) const { return hbm <= room.hbm && ddr <= room.ddr && ssd <= room.ssd; }
  Storage& operator+=(const Storage& other);  // saturates at the largest int64
  Storage& operator-=(const Storage& other);
  std::string str() const;  // "hbm 1.2 GiB, ddr 0 B"
};

// The device of a rank's tables, as a device component describes it (abi/draft/device.h).
struct ComputeDevice {
  std::string id = "cpu";                           // of the component: "cuda", "hip", "acme"
  int32_t type = kDLCPU;                            // DLDeviceType
  int64_t memory = 0;                               // bytes; 0: unknown
  double memory_bandwidth = 0, link_bandwidth = 0;  // bytes per millisecond; 0: unknown

  // cpu, cuda or hip, even if this host has no such device. PlannerError(kBadInput): any other id; compute_device() in
  // planner.h asks its component.
  static ComputeDevice named(const std::string& id);
};

// The machines. All ranks are alike, except for the lists. Rank r is on host r / local_world_size.
struct Topology {
  int world_size = 1;
  int local_world_size = 1;            // ranks per host; divides world_size
  std::string compute_device = "cpu";  // ComputeDevice::id
  int32_t device_type = kDLCPU;        // ComputeDevice::type
  int64_t hbm_cap = 0;                 // per rank
  int64_t ddr_cap = 137438953472;
  int64_t ssd_cap = 2199023255552;
  std::vector<int64_t> hbm_caps;      // if ranks differ: one entry per rank instead of hbm_cap
  std::vector<int64_t> ddr_caps;      // the same for ddr_cap
  std::vector<int64_t> ssd_caps;      // the same for ssd_cap
  std::string ddr_note;               // source of the ddr figure, for people; empty: the caller
  std::string ssd_note;               // the same for ssd
  double hbm_mem_bw = 963146416.128;  // this one and intra_host_bw: 0 if unknown
  double ddr_mem_bw = 54760833.024;
  double ssd_mem_bw = 104857.6;
  double hbm_to_ddr_mem_bw = 34359738.368;
  double intra_host_bw = 644245094.4;
  double inter_host_bw = 13421772.8;
  double bwd_compute_multiplier = 2;
  double weighted_feature_bwd_compute_multiplier = 1;

  // TorchRec's defaults for cpu, cuda and hip; hbm_cap is 32 GiB on these accelerators and 0 on the CPU. For other
  // devices memory and bandwidths come from their component; 0: unknown. local_world_size 0: one host.
  static Topology of(int world_size, int local_world_size = 0, const std::string& compute_device = "cpu");
  static Topology of(int world_size, int local_world_size, const ComputeDevice& device);
  // Takes one number for all ranks or one for each; empty or 0 leaves the default. PlannerError(kBadInput): otherwise.
  void set_memory_gib(const std::vector<double>& hbm, const std::vector<double>& ddr,
                      const std::vector<double>& ssd = {});
  static bool leaves_open(const std::vector<double>& gib);  // true if set_memory_gib() would leave some rank's default
  Storage memory(int rank) const;
  int hosts() const { return world_size / local_world_size; }
  bool accelerator() const { return device_type != kDLCPU; }  // rows are in hbm
  bool well_known() const;                                    // TorchRec's defaults cover such a device
  void validate() const;                                      // PlannerError(kBadInput)
};

}  // namespace tessera

#include "tessera/sharding.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "tessera/planner.h"

namespace tessera {

namespace {

int64_t saturating_sum(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_add_overflow(a, b, &out) ? INT64_MAX : out;
}

std::string bytes_text(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes > -1024 && bytes < 1024) return str_cat(bytes, " B");
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; (value >= 1024 || value <= -1024) && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  std::ostringstream out;
  out << std::setprecision(value >= 1000 ? 4 : 3) << value << ' ' << kUnits[unit];
  return out.str();
}

}  // namespace

Storage& Storage::operator+=(const Storage& other) {
  hbm = saturating_sum(hbm, other.hbm);
  ddr = saturating_sum(ddr, other.ddr);
  ssd = saturating_sum(ssd, other.ssd);
  return *this;
}

Storage& Storage::operator-=(const Storage& other) {
  hbm -= other.hbm;
  ddr -= other.ddr;
  ssd -= other.ssd;
  return *this;
}

std::string Storage::str() const {
  std::string out;
  const auto add = [&](const char* name, int64_t bytes) {
    if (bytes != 0) out += str_cat(out.empty() ? "" : ", ", bytes_text(bytes), " of ", name);
  };
  add("hbm", hbm);
  add("ddr", ddr);
  add("ssd", ssd);
  return out.empty() ? "nothing" : out;
}

ComputeDevice ComputeDevice::named(const std::string& id) {
  constexpr std::pair<const char*, int32_t> kNamed[] = {{"cpu", kDLCPU}, {"cuda", kDLCUDA}, {"hip", kDLROCM}};
  for (const auto& [name, type] : kNamed) {
    if (id == name) return {.id = id, .type = type};
  }
  throw PlannerError(
      PlannerError::Kind::kBadInput,
      str_cat("unsupported compute device \"", id, "\"; known without their device plugin are cpu, cuda and hip"));
}

Topology Topology::of(int world_size, int local_world_size, const std::string& compute_device) {
  return of(world_size, local_world_size, ComputeDevice::named(compute_device));
}

Topology Topology::of(int world_size, int local_world_size, const ComputeDevice& device) {
  Topology t;
  t.world_size = world_size;
  t.local_world_size = local_world_size == 0 ? world_size : local_world_size;
  t.compute_device = device.id;
  t.device_type = device.type;
  if (t.well_known()) {
    t.hbm_cap = t.accelerator() ? int64_t{32} << 30 : 0;
  } else {
    t.hbm_cap = device.memory;
    t.hbm_mem_bw = device.memory_bandwidth;
    t.intra_host_bw = device.link_bandwidth;
  }
  t.validate();
  return t;
}

bool Topology::well_known() const { return device_type == kDLCPU || device_type == kDLCUDA || device_type == kDLROCM; }

bool Topology::leaves_open(const std::vector<double>& gib) {
  return gib.empty() || std::find(gib.begin(), gib.end(), 0.0) != gib.end();
}

void Topology::set_memory_gib(const std::vector<double>& hbm, const std::vector<double>& ddr,
                              const std::vector<double>& ssd) {
  const auto set = [&](const char* name, const std::vector<double>& gib, int64_t& cap, std::vector<int64_t>& caps) {
    if (gib.size() > 1 && std::ssize(gib) != world_size) {
      throw PlannerError(PlannerError::Kind::kBadInput, str_cat(name, " has ", gib.size(), " numbers for ", world_size,
                                                                " ranks; give one for each or one for all"));
    }
    std::vector<int64_t> bytes;
    for (const double value : gib) {
      if (!(value >= 0 && value < 8e9)) {
        throw PlannerError(PlannerError::Kind::kBadInput,
                           str_cat(name, ": ", value, " GiB is not an amount of memory"));
      }
      bytes.push_back(value > 0 ? static_cast<int64_t>(value * (1 << 30)) : cap);
    }
    if (bytes.size() == 1) cap = bytes.front();
    if (bytes.size() > 1) caps = std::move(bytes);
  };
  set("hbm_gib", hbm, hbm_cap, hbm_caps);
  set("ddr_gib", ddr, ddr_cap, ddr_caps);
  set("ssd_gib", ssd, ssd_cap, ssd_caps);
  if (!leaves_open(ddr)) ddr_note.clear();
  if (!leaves_open(ssd)) ssd_note.clear();
}

Storage Topology::memory(int rank) const {
  const auto r = static_cast<size_t>(rank);
  return {hbm_caps.empty() ? hbm_cap : hbm_caps[r], ddr_caps.empty() ? ddr_cap : ddr_caps[r],
          ssd_caps.empty() ? ssd_cap : ssd_caps[r]};
}

void Topology::validate() const {
  const auto bad = [](const std::string& text) { throw PlannerError(PlannerError::Kind::kBadInput, text); };
  if (world_size < 1 || local_world_size < 1 || world_size % local_world_size != 0) {
    bad(str_cat("a world of ", world_size, " ranks cannot have ", local_world_size, " ranks on every host"));
  }
  const auto check_list = [&](const char* name, const std::vector<int64_t>& caps) {
    if (!caps.empty() && std::ssize(caps) != world_size) {
      bad(str_cat(name, " has ", caps.size(), " entries for ", world_size, " ranks; give one for each or one for all"));
    }
  };
  check_list("hbm per rank", hbm_caps);
  check_list("ddr per rank", ddr_caps);
  check_list("ssd per rank", ssd_caps);
  for (int r = 0; r < world_size; ++r) {
    const Storage m = memory(r);
    if (m.hbm < 0 || m.ddr < 0 || m.ssd < 0) bad(str_cat("the memory of rank ", r, " cannot be negative"));
  }
  for (const double bandwidth : {hbm_mem_bw, ddr_mem_bw, hbm_to_ddr_mem_bw, intra_host_bw, inter_host_bw}) {
    const bool unknown = bandwidth == 0 && !well_known();
    if (!(bandwidth > 0) && !unknown)
      bad(str_cat("a bandwidth of ", bandwidth, " bytes per millisecond is not positive"));
  }
}

}  // namespace tessera

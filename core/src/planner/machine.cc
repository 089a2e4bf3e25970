#include "planner/figures.h"

#include <algorithm>
#include <cmath>

#include "tessera/config.h"

namespace tessera {

namespace {

constexpr double kNs = 1e-9, kUs = 1e-6;
constexpr double kKib = 1024, kMib = 1048576;

// TorchRec's bandwidths (planner/constants.py of 1.9) in bytes per second.
constexpr double kHbmBandwidth = 963146416128.0;
constexpr double kNvlinkBandwidth = 644245094400.0;
constexpr double kNetworkBandwidth = 13421772800.0;
constexpr double kAcceleratorFlops = 20e12;
constexpr double kPerSecond = 1000;   // converts a topology's figures, which are per millisecond
constexpr double kLaunch = 10 * kUs;  // launch of a device kernel, or of a small collective

// A curve of fixed + size * per_unit, with points at multiples of `step`.
Curve line(double fixed, double per_unit, double step = 4) {
  std::vector<std::pair<double, double>> points;
  for (double size = 64; size < 1e13; size *= step) points.emplace_back(size, fixed + size * per_unit);
  return Curve(std::move(points));
}

Machine typical_cpu() {
  Machine m{
      .name = "typical 2-core cloud machine",
      .intra_host = LinkFigures{
          "tcp", 2,
          Curve({{64, 0.6 * kUs}, {2 * kKib, kUs}, {16 * kKib, 2 * kUs}, {128 * kKib, 8 * kUs}, {kMib, 110 * kUs}}),
          Curve({{64, 0.7 * kUs}, {2 * kKib, kUs}, {16 * kKib, 2 * kUs}, {128 * kKib, 10 * kUs}, {kMib, 120 * kUs}})}};
  // 10 Gbit/s Ethernet.
  m.inter_host =
      LinkFigures{"tcp", 2, Curve({{64, 40 * kUs}, {4 * kKib, 45 * kUs}, {64 * kKib, 100 * kUs}, {kMib, 1000 * kUs}}),
                  Curve({{64, 40 * kUs}, {4 * kKib, 45 * kUs}, {64 * kKib, 110 * kUs}, {kMib, 1100 * kUs}})};
  m.route = {kNs * RouteWork{760, 32, 2.5, 0.7, 7.2}};
  m.unpack = {kNs * UnpackWork{200, 8, 0.6, 0.7, 6.7}};
  m.combine = {kNs * RowsWork{0, 0, 0.5, 9.5, 0.035}};
  m.split = {kNs * RowsWork{0, 12, 0.6, 7.3, 0.018}};
  m.data_parallel = {kNs * DataParallelWork{1200, 0, 12.5, 0, 0.1, 0}};
  m.dense.layer_forward = Curve({{8.2e3, 0.93 * kUs},
                                 {1.3e5, 1.2 * kUs},
                                 {5.2e5, 2.4 * kUs},
                                 {4.2e6, 12 * kUs},
                                 {3.4e7, 92 * kUs},
                                 {1.3e8, 350 * kUs}});
  m.dense.layer_backward = Curve({{8.2e3, 1.6 * kUs},
                                  {1.3e5, 2.7 * kUs},
                                  {5.2e5, 6.3 * kUs},
                                  {4.2e6, 37 * kUs},
                                  {3.4e7, 330 * kUs},
                                  {1.3e8, 1300 * kUs}});
  m.dense.interaction_forward = Curve({{3200, 0.32 * kUs}, {2e5, 3.4 * kUs}, {3e6, 23 * kUs}, {1.2e7, 73 * kUs}});
  m.dense.interaction_backward = Curve({{3200, 0.093 * kUs}, {2e5, 0.94 * kUs}, {3e6, 12 * kUs}, {1.2e7, 30 * kUs}});
  m.dense.forward = {kNs * BesideLayersWork{0, 0, 0, 0, 0.072}};
  m.dense.backward = {kNs * BesideLayersWork{0, 0, 21, 0.85, 0.038}};
  m.dense.update = {kNs * DenseUpdateWork{440, 0, 0.12}};
  return m;
}

Machine typical_accelerator(const std::string& device, double memory_bandwidth, double link_bandwidth) {
  Machine m{.name = "TorchRec's assumptions", .device = device};
  KernelFigures kernel;
  for (const double bytes : {64.0, 1024.0}) {
    const double row = bytes / memory_bandwidth;
    kernel.rows.push_back({bytes, 256 * kMib, row, 3 * row, row, row, row});
  }
  kernel.call_forward = kernel.call_backward = kLaunch;
  m.kernels.push_back(kernel);
  m.intra_host = LinkFigures{"nccl", 8, line(2 * kLaunch, 1 / link_bandwidth), line(2 * kLaunch, 2 / link_bandwidth)};
  m.inter_host =
      LinkFigures{"nccl", 2, line(3 * kLaunch, 1 / kNetworkBandwidth), line(3 * kLaunch, 2 / kNetworkBandwidth)};
  const double byte = 1 / memory_bandwidth;
  m.route = {{.calls = kLaunch, .ids = 8 * byte, .cut_ids = 16 * byte}};
  m.unpack = {{.calls = kLaunch, .ids = 8 * byte, .uncertain_bags = 16 * byte}};
  m.combine = m.split = {{.calls = kLaunch, .uncertain_bags = 16 * byte, .bytes = 2 * byte}};
  m.data_parallel = {{.calls = kLaunch, .ids = 8 * byte, .rows = 16 * byte, .bytes = 2 * byte}};
  m.dense.update = {{.calls = kLaunch, .bytes = 2 * byte}};
  m.dense.layer_forward = line(kLaunch, 1 / kAcceleratorFlops);
  m.dense.layer_backward = line(2 * kLaunch, 2 / kAcceleratorFlops);
  m.dense.interaction_forward = line(kLaunch, 2 / kAcceleratorFlops);
  m.dense.interaction_backward = line(kLaunch, 4 / kAcceleratorFlops);
  return m;
}

// The device types that have typical figures, with the ids under which callers ask for them.
constexpr std::pair<int32_t, const char*> kTypical[] = {{kDLCPU, "cpu"}, {kDLCUDA, "cuda"}, {kDLROCM, "hip"}};

[[noreturn]] void no_figures(const std::string& device) {
  fail(Code::kFailedPrecondition, "there are no figures of the device \"", device,
       "\": give a topology file that has them, made by tessera calibrate --save");
}

double fixed_of(const Curve& curve) { return curve.points().empty() ? 0 : curve.points().front().second; }

double more_messages(double messages) { return std::max(messages - 1, -0.9); }

}  // namespace

Curve::Curve(std::vector<std::pair<double, double>> points) : points_(std::move(points)) {
  for (size_t i = 0; i < points_.size(); ++i) {
    const bool ascends = i == 0 || points_[i].first > points_[i - 1].first;
    if (!(points_[i].first > 0) || !(points_[i].second > 0) || !std::isfinite(points_[i].second) || !ascends) {
      fail(Code::kInvalidArgument, "point ", i, " of a curve is (", points_[i].first, ", ", points_[i].second,
           "): sizes must ascend, and both must be positive");
    }
  }
}

double Curve::at(double size) const {
  if (points_.empty()) return 0;
  if (size <= points_.front().first) return points_.front().second;
  const auto next = std::find_if(points_.begin(), points_.end(), [&](const auto& p) { return p.first >= size; });
  if (next == points_.end()) return points_.back().second * size / points_.back().first;
  const auto& [x1, y1] = *next;
  const auto& [x0, y0] = *std::prev(next);
  return y0 * std::pow(y1 / y0, std::log(size / x0) / std::log(x1 / x0));
}

tsr_machine KernelFigures::raw() const {
  return {sizeof(tsr_machine), 0,           static_cast<uint32_t>(rows.size()), sizeof(tsr_row_cost), rows.data(),
          run_forward,         run_backward};
}

LinkFigures LinkFigures::of_network(double bytes_per_second, double delay, double message_seconds) {
  if (!(bytes_per_second > 0 && delay >= 0 && message_seconds > 0))
    fail(Code::kInvalidArgument, "a network has a positive bandwidth and a positive time for a message");
  constexpr double kStep = 1.5;  // between points, the curve is then less than 1 % off the line
  const double fixed = delay + message_seconds;
  // A reduction is two exchanges, in each of which each of two ranks sends half of the tensor.
  return {.backend = "stated",
          .ranks = 2,
          .all_to_all = line(fixed, 1 / bytes_per_second, kStep),
          .all_reduce = line(2 * fixed, 1 / bytes_per_second, kStep),
          .delay = delay};
}

double LinkFigures::all_to_all_at(int group, double bytes) const {
  if (group <= 1) return 0;
  const double messages = static_cast<double>(group - 1) / std::max(1, ranks - 1);
  return all_to_all.at(bytes) + std::max(0.0, fixed_of(all_to_all) - delay) * more_messages(messages);
}

double LinkFigures::all_reduce_at(int group, double bytes) const {
  if (group <= 1) return 0;
  // Each rank sends 2 (n - 1) / n of the tensor, whatever the algorithm.
  const auto part = [](double n) { return (n - 1) / n; };
  const int measured = std::max(2, ranks);
  const double fixed = fixed_of(all_reduce);
  double more = fixed * more_messages(std::log2(group) / std::log2(measured));
  if (delay > 0 && group > measured) {
    const double messages = static_cast<double>(group - 1) / (measured - 1);
    more = std::min(more, std::max(0.0, fixed - 2 * delay) * more_messages(messages));
  }
  return all_reduce.at(bytes * part(group) / part(measured)) + more;
}

namespace {

// Figures of a device without measurements, from the bandwidths that its component states.
Machine stated(const Topology& t) {
  if (!(t.hbm_mem_bw > 0)) no_figures(t.compute_device);
  Machine m = typical_accelerator(t.compute_device, t.hbm_mem_bw * kPerSecond,
                                  t.intra_host_bw > 0 ? t.intra_host_bw * kPerSecond : kNvlinkBandwidth);
  if (!(t.intra_host_bw > 0)) m.intra_host.reset();
  m.name = "by the bandwidths that its plugin states";
  return m;
}

}  // namespace

Machine Machine::typical(const std::string& device) {
  for (const auto& [type, id] : kTypical) {
    if (id != device) continue;
    return type == kDLCPU ? typical_cpu() : typical_accelerator(device, kHbmBandwidth, kNvlinkBandwidth);
  }
  no_figures(device);
}

Machine figures_for(const PlannerOptions& options) {
  const Topology& t = options.topology;
  const auto known = std::find_if(std::begin(kTypical), std::end(kTypical),
                                  [&](const auto& typical) { return typical.first == t.device_type; });
  Machine m = options.machine               ? *options.machine
              : known != std::end(kTypical) ? Machine::typical(known->second)
                                            : stated(t);
  if (!options.machine) m.device = t.compute_device;
  if (options.network) m.inter_host = options.network;
  m.check_fits(t.world_size, t.local_world_size, t.compute_device);
  return m;
}

std::string figures_text(const Machine& m) {
  return m.measured ? str_cat("figures measured on ", m.name)
                    : str_cat("typical figures of ", m.device, " (", m.name, ")");
}

const KernelFigures* Machine::kernel(const std::string& id) const {
  for (const KernelFigures& k : kernels) {
    if (k.kernel == id) return &k;
  }
  return nullptr;
}

void Machine::check_fits(int world_size, int local_world_size, const std::string& compute_device) const {
  if (device != compute_device) {
    fail(Code::kFailedPrecondition, "the topology file was measured on ", device, " but the plan is for ",
         compute_device, ": run tessera calibrate there");
  }
  if (local_world_size > 1 && !intra_host) {
    fail(Code::kFailedPrecondition,
         "the topology file was measured with one rank and has no figures of exchanges; "
         "for ",
         local_world_size, " ranks per host run tessera calibrate -n ", local_world_size);
  }
  if (world_size > local_world_size && !inter_host) {
    fail(Code::kFailedPrecondition,
         "the topology file was measured on one host and has no figures of exchanges between hosts; for ",
         world_size / local_world_size,
         " hosts start tessera calibrate on them with the job's launcher, or add \"inter_host\" to the file");
  }
}

Machine load_machine(const std::string& path) {
  return Machine::from_json(
      read_file(path, "cannot read the topology file ", "; tessera calibrate --save FILE makes one"), path);
}

}  // namespace tessera

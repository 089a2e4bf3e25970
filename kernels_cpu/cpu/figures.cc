#include "figures.h"

#include <iterator>

namespace tessera_cpu {
namespace {

constexpr double kNs = 1e-9;
constexpr double kKib = 1024, kMib = 1048576;

constexpr tsr_row_cost figures(double row_bytes, double reuse_bytes, double lookup_ns, double update_ns,
                               double repeat_ns, double bag_forward_ns, double bag_backward_ns) {
  return {row_bytes,       reuse_bytes,          lookup_ns * kNs,      update_ns * kNs,
          repeat_ns * kNs, bag_forward_ns * kNs, bag_backward_ns * kNs};
}

// Rounded results of `tessera calibrate -n 1`.
constexpr tsr_row_cost kRowCosts[] = {
    figures(16, 64 * kKib, 1.2, 11, 4.9, 6.9, 0.85), figures(16, kMib, 1.8, 14, 4.9, 6.9, 0.85),
    figures(16, 8 * kMib, 21, 38, 4.9, 6.9, 0.85),   figures(16, 64 * kMib, 20, 52, 4.9, 6.9, 0.85),
    figures(16, 256 * kMib, 20, 56, 4.9, 6.9, 0.85), figures(64, 64 * kKib, 0.41, 9.7, 4.6, 1, 0.84),
    figures(64, kMib, 1.1, 15, 4.6, 1, 0.84),        figures(64, 8 * kMib, 3.9, 21, 4.6, 1, 0.84),
    figures(64, 64 * kMib, 4.7, 26, 4.6, 1, 0.84),   figures(64, 256 * kMib, 5, 31, 4.6, 1, 0.84),
    figures(256, 64 * kKib, 0.67, 12, 6, 1.8, 1.1),  figures(256, kMib, 2.1, 13, 6, 1.8, 1.1),
    figures(256, 8 * kMib, 5, 15, 6, 1.8, 1.1),      figures(256, 64 * kMib, 7.4, 31, 6, 1.8, 1.1),
    figures(256, 256 * kMib, 7.7, 39, 6, 1.8, 1.1),  figures(1024, 64 * kKib, 1.9, 44, 12, 5.8, 2.5),
    figures(1024, kMib, 7.6, 34, 12, 5.8, 2.5),      figures(1024, 8 * kMib, 15, 36, 12, 5.8, 2.5),
    figures(1024, 64 * kMib, 26, 110, 12, 5.8, 2.5), figures(1024, 256 * kMib, 32, 120, 12, 5.8, 2.5),
};
constexpr tsr_machine kTypical = {
    sizeof(tsr_machine), std::size(kRowCosts), sizeof(tsr_row_cost), 0, kRowCosts, 200 * kNs, 260 * kNs};

}  // namespace

const tsr_machine& typical_figures() { return kTypical; }

}  // namespace tessera_cpu

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
    figures(16, 64 * kKib, 1.3, 15, 11, 7.6, 0.91),  figures(16, kMib, 1.8, 15, 11, 7.6, 0.91),
    figures(16, 4 * kMib, 2.4, 15, 11, 7.6, 0.91),   figures(16, 16 * kMib, 13, 17, 11, 7.6, 0.91),
    figures(16, 64 * kMib, 18, 18, 11, 7.6, 0.91),   figures(16, 256 * kMib, 19, 19, 11, 7.6, 0.91),
    figures(64, 64 * kKib, 0.43, 13, 10, 1.2, 0.9),  figures(64, kMib, 0.71, 13, 10, 1.2, 0.9),
    figures(64, 4 * kMib, 0.77, 13, 10, 1.2, 0.9),   figures(64, 16 * kMib, 1.8, 14, 10, 1.2, 0.9),
    figures(64, 64 * kMib, 2.7, 16, 10, 1.2, 0.9),   figures(64, 256 * kMib, 3.3, 16, 10, 1.2, 0.9),
    figures(256, 64 * kKib, 0.4, 16, 13, 1.9, 1.3),  figures(256, kMib, 1.8, 17, 13, 1.9, 1.3),
    figures(256, 4 * kMib, 2.7, 17, 13, 1.9, 1.3),   figures(256, 16 * kMib, 3.5, 18, 13, 1.9, 1.3),
    figures(256, 64 * kMib, 7.5, 21, 13, 1.9, 1.3),  figures(256, 256 * kMib, 8.3, 23, 13, 1.9, 1.3),
    figures(1024, 64 * kKib, 1.3, 48, 22, 6.5, 2.4), figures(1024, kMib, 7.8, 41, 22, 6.5, 2.4),
    figures(1024, 4 * kMib, 11, 41, 22, 6.5, 2.4),   figures(1024, 16 * kMib, 12, 43, 22, 6.5, 2.4),
    figures(1024, 64 * kMib, 28, 80, 22, 6.5, 2.4),  figures(1024, 256 * kMib, 34, 90, 22, 6.5, 2.4),
};
constexpr tsr_machine kTypical = {
    sizeof(tsr_machine), std::size(kRowCosts), sizeof(tsr_row_cost), 0, kRowCosts, 95 * kNs, 170 * kNs};

}  // namespace

const tsr_machine& typical_figures() { return kTypical; }

}  // namespace tessera_cpu

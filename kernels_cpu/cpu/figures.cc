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
    figures(16, 64 * kKib, 1.3, 6.8, 14, 9.3, 3.8),  figures(16, kMib, 1.9, 7.3, 14, 9.3, 3.8),
    figures(16, 4 * kMib, 2.2, 11, 14, 9.3, 3.8),    figures(16, 16 * kMib, 10, 11, 14, 9.3, 3.8),
    figures(16, 64 * kMib, 18, 12, 14, 9.3, 3.8),    figures(16, 256 * kMib, 19, 14, 14, 9.3, 3.8),
    figures(64, 64 * kKib, 0.41, 6.3, 11, 1.1, 2.6), figures(64, kMib, 0.62, 6.3, 11, 1.1, 2.6),
    figures(64, 4 * kMib, 0.67, 6.4, 11, 1.1, 2.6),  figures(64, 16 * kMib, 1.6, 9.8, 11, 1.1, 2.6),
    figures(64, 64 * kMib, 2.5, 10, 11, 1.1, 2.6),   figures(64, 256 * kMib, 3.2, 12, 11, 1.1, 2.6),
    figures(256, 64 * kKib, 0.5, 7.6, 15, 1.9, 3.3), figures(256, kMib, 1.8, 7.4, 15, 1.9, 3.3),
    figures(256, 4 * kMib, 2.6, 7.7, 15, 1.9, 3.3),  figures(256, 16 * kMib, 3.6, 11, 15, 1.9, 3.3),
    figures(256, 64 * kMib, 6.5, 13, 15, 1.9, 3.3),  figures(256, 256 * kMib, 7.3, 17, 15, 1.9, 3.3),
    figures(1024, 64 * kKib, 1.8, 49, 26, 7.9, 1.9), figures(1024, kMib, 7.3, 19, 26, 7.9, 1.9),
    figures(1024, 4 * kMib, 11, 21, 26, 7.9, 1.9),   figures(1024, 16 * kMib, 13, 26, 26, 7.9, 1.9),
    figures(1024, 64 * kMib, 28, 45, 26, 7.9, 1.9),  figures(1024, 256 * kMib, 35, 61, 26, 7.9, 1.9),
};
constexpr tsr_machine kTypical = {sizeof(tsr_machine), 0,        std::size(kRowCosts), sizeof(tsr_row_cost), kRowCosts,
                                  105 * kNs,           210 * kNs};

}  // namespace

const tsr_machine& typical_figures() { return kTypical; }

}  // namespace tessera_cpu

#include "figures.h"

#include <iterator>

namespace tessera_cpu {
namespace {

// Rounded results of `tessera calibrate`: row bytes, bytes touched between visits, lookup, update, repeat, bag forward,
// bag backward.
constexpr double kNs = 1e-9;
constexpr double kKib = 1024, kMib = 1048576;
constexpr tsr_row_cost kRowCosts[] = {
    {16, 64 * kKib, 2 * kNs, 14 * kNs, 8 * kNs, 6 * kNs, 3 * kNs},
    {16, 256 * kMib, 14 * kNs, 40 * kNs, 8 * kNs, 6 * kNs, 3 * kNs},
    {1024, 64 * kKib, 20 * kNs, 100 * kNs, 30 * kNs, 30 * kNs, 30 * kNs},
    {1024, 256 * kMib, 90 * kNs, 250 * kNs, 30 * kNs, 30 * kNs, 30 * kNs},
};
constexpr tsr_machine kTypical = {
    sizeof(tsr_machine), std::size(kRowCosts), sizeof(tsr_row_cost), 0, kRowCosts, 30 * kNs, 200 * kNs};

}  // namespace

const tsr_machine& typical_figures() { return kTypical; }

}  // namespace tessera_cpu

#include "tessera/machine.h"

#include <cmath>

#include "tessera/error.h"

namespace tessera {
namespace {

constexpr int kAttempts = 3;

std::string of_link(const char* where, const std::optional<LinkFigures>& link) {
  constexpr double kBytes = 1 << 20, kFastest = 1e-8;  // seconds: 100 TB/s
  if (!link) return "";
  if (link->all_to_all.at(kBytes) < kFastest) return str_cat("an all-to-all of 1 MiB ", where, " that takes no time");
  if (link->all_reduce.at(kBytes) < kFastest) return str_cat("an all-reduce of 1 MiB ", where, " that takes no time");
  return "";
}

std::string of_dense(const DenseFigures& dense) {
  constexpr double kWork = 1e9, kFastest = 1e-7;  // seconds: 10 Pflop/s
  if (dense.layer_forward.at(kWork) < kFastest) return "dense layers whose forward takes no time";
  if (dense.layer_backward.at(kWork) < kFastest) return "dense layers whose backward takes no time";
  return "";
}

std::string of_kernel(const KernelFigures& kernel) {
  for (const tsr_row_cost& row : kernel.rows) {
    if (row.lookup <= 0) return str_cat("lookups of kernel ", kernel.kernel, " that take no time");
    if (row.update <= 0) return str_cat("updates of kernel ", kernel.kernel, " that take no time");
  }
  return "";
}

bool loud(const Calibration& c) { return c.others && *c.others > kLoudShare; }
std::string noise_text(const Calibration& c) {
  return c.others ? str_cat("other programs used ", std::lround(100 * *c.others), " % of the processors")
                  : "the load of other programs is not known";
}

}  // namespace

std::string impossible_figure(const Machine& machine) {
  std::string wrong = of_link("inside the host", machine.intra_host);
  if (wrong.empty()) wrong = of_link("across hosts", machine.inter_host);
  if (wrong.empty()) wrong = of_dense(machine.dense);
  for (const KernelFigures& kernel : machine.kernels) {
    if (wrong.empty()) wrong = of_kernel(kernel);
  }
  return wrong;
}

Machine settled(const std::function<Calibration()>& measure, const std::function<void(const std::string&)>& say) {
  std::optional<Calibration> best;
  std::string wrong;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    Calibration c = measure();
    wrong = impossible_figure(c.machine);
    if (wrong.empty() && !loud(c)) return std::move(c.machine);
    std::string line = noise_text(c);
    if (!wrong.empty()) line += str_cat(", but the result has ", wrong);
    say(line + (attempt < kAttempts ? ": measuring again" : ""));
    if (wrong.empty() && (!best || c.others < best->others)) best = std::move(c);
  }
  if (!best) {
    fail(Code::kUnavailable, "calibrate: ", kAttempts, " attempts gave a result with ", wrong,
         ", which happens if other programs use the processors: nothing is saved; run it when the machine is idle");
  }
  say(str_cat("the figures are noisy: ", noise_text(*best), ", in the quietest of the ", kAttempts, " times"));
  return std::move(best->machine);
}

}  // namespace tessera

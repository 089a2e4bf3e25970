#include "bench/report/circumstances.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>

#include "tessera/sdk/isa.h"

namespace tessera::cli {
namespace {

// processor time below which no share is given: /proc/stat counts in hundredths of a second
constexpr double kLeastSeconds = 0.2;

struct Used {
  double all = 0, busy = 0;  // seconds over all processors
};

// Reads the columns of /proc/stat: user nice system idle iowait irq softirq steal (man proc_stat).
Used used_by_all() {
  std::ifstream file("/proc/stat");
  std::string name;
  std::array<double, 8> ticks{};
  file >> name;
  for (double& t : ticks) file >> t;
  if (!file || name != "cpu") return {};
  Used used;
  for (size_t i = 0; i < ticks.size(); ++i) {
    used.all += ticks[i];
    if (i != 3 && i != 4) used.busy += ticks[i];
  }
  const auto per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return {used.all / per_second, used.busy / per_second};
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// The instruction set that the CPU kernels use here; they refuse to run if a forced one is missing.
std::string isa_name() {
  if (!sdk::forced_isa().empty()) return std::string(sdk::forced_isa());
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  if (avx2) return avx512 ? "avx512" : "avx2";
#endif
  return "portable";
}

}  // namespace

double used_by_us() {
  double seconds = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    ::getrusage(who, &usage);
    for (const timeval& t : {usage.ru_utime, usage.ru_stime}) {
      seconds += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    }
  }
  return seconds;
}

Line machine_record() {
  cpu_set_t allowed;
  const int processors = ::sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
  const double bytes = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  return {{"cpu", cpu_model()},
          {"processors", processors},
          {"memory_gib", static_cast<int64_t>(std::llround(bytes / (int64_t{1} << 30)))},
          {"isa", isa_name()},
          {"isa_forced", !sdk::forced_isa().empty()}};
}

Noise::Noise() : own_(used_by_us()) {
  const Used used = used_by_all();
  all_ = used.all;
  busy_ = used.busy;
}

std::optional<double> Noise::share() const {
  const Used used = used_by_all();
  if (all_ == 0 || used.all - all_ < kLeastSeconds) return std::nullopt;
  const double others = (used.busy - busy_) - (used_by_us() - own_);
  return std::clamp(others / (used.all - all_), 0.0, 1.0);
}

}  // namespace tessera::cli

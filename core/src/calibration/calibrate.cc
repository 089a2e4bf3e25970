#include <fstream>

#include "calibration/parts.h"

namespace tessera {
namespace {

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace

Machine calibrate(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group,
                  const CalibrationOptions& options) {
  const Trials trials(*group, {options.quick ? 0.01 : 0.04, 5});
  const auto say = [&](const char* part) {
    if (options.say) options.say(part);
  };
  Machine m = Machine::typical("cpu");
  m.name = processor_name();
  m.measured = true;
  m.ranks = group->world_size();
  m.threads = runtime.threads();
  m.intra_host.reset();
  m.inter_host.reset();
  say("lookups and updates");
  m.kernels = {measure_kernel(runtime, options, trials)};
  say("dense layers");
  if (const auto dense = measure_dense(runtime, trials)) m.dense = *dense;
  const int local = group->local_world_size(), hosts = group->world_size() / local;
  if (group->world_size() > 1) say("exchanges");
  const auto host = group->split(group->rank() / local);
  if (local > 1) m.intra_host = measure_link(*host, trials);
  if (hosts > 1) {
    const auto across = group->split(group->rank() % local);
    m.inter_host = measure_link(*across, trials);
    m.inter_host->delay = measure_delay(*across, trials, *m.inter_host);
  }
  say("steps");
  measure_steps(runtime, host, trials, &m);
  group->barrier("calibrated");
  return m;
}

}  // namespace tessera

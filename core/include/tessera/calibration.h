// tessera/calibration.h - what the parts of a step cost on this machine, measured: figures for the planner's cost model
// (docs/calibration.md). `tessera calibrate` starts ranks, calls this and saves what it gives.
//
//   const Machine machine = calibrate(runtime, group, {});
//   std::ofstream("topology.json") << machine.json();      // or PlannerOptions::machine = machine
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tessera/machine.h"
#include "tessera/process_group.h"
#include "tessera/runtime.h"

namespace tessera {

struct CalibrationOptions {
  std::string kernel = "auto";  // kernel plugin's id
  bool quick = false;           // fewer sizes and samples: seconds instead of a minute, rougher figures
  // Called before each part, on every rank: "lookups and updates".
  std::function<void(const std::string& part)> say = nullptr;
};

// Lookups, updates, exchanges, dense layers and the core's own work around them, in the mean of the group's ranks,
// which are as many for each host as the jobs will have, with the runtime's threads. Nothing else should run meanwhile:
// see impossible_figure() and settled(). Collective.
Machine calibrate(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group,
                  const CalibrationOptions& options);

// The first figure that no machine can have, in words: exchanges, products or rows that take no time, which is what a
// fit makes of times that other programs have torn. "" where there is none.
std::string impossible_figure(const Machine& machine);

// From this share of the processors' time on, what other programs use makes figures noisy.
inline constexpr double kLoudShare = 0.1;

struct Calibration {
  Machine machine;
  std::optional<double> others;  // share of the processors' time that other programs used meanwhile, where known
};

// Measures until nothing else ran and the figures can be, at most three times; `say` gets a line each time it is not
// so. Then the quietest possible figures, with a line that says how loud it was. kUnavailable where none can be.
Machine settled(const std::function<Calibration()>& measure, const std::function<void(const std::string&)>& say);

}  // namespace tessera

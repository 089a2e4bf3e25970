// tessera/calibration.h - measures what the stages of a step cost on this machine, for the planner's cost model
// (docs/calibration.md). `tessera calibrate` starts ranks, calls this and saves the result.
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
  bool quick = false;           // fewer sizes and samples: takes seconds instead of a minute, less exact
  // Called before each part of the measurement, on every rank: "lookups and updates".
  std::function<void(const std::string& part)> say = nullptr;
};

// Measures lookups, updates, exchanges, dense layers and the core's own work around them, as the mean over the group's
// ranks. Each host should have as many ranks as the jobs will have. It uses the runtime's threads. Nothing else should
// run meanwhile: see impossible_figure() and settled(). Collective.
Machine calibrate(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group,
                  const CalibrationOptions& options);

// Describes the first figure that no machine can have: exchanges, products or rows that take no time. Such fits result
// from times that other programs have disturbed. "": there is none.
std::string impossible_figure(const Machine& machine);

// If other programs use this share of the processors' time or more, figures are noisy.
inline constexpr double kLoudShare = 0.1;

struct Calibration {
  Machine machine;
  std::optional<double> others;  // share of the processors' time that other programs used meanwhile; unset: not known
};

// Measures until nothing else ran and the figures are possible, at most three times. `say` gets a line about each
// failed attempt. After three attempts it returns the quietest possible figures, and `say` gets a line about the noise.
// kUnavailable: no attempt gave possible figures.
Machine settled(const std::function<Calibration()>& measure, const std::function<void(const std::string&)>& say);

}  // namespace tessera

// tessera/machine.h - costs of a training step's stages on a machine, for the planner's cost model
// (docs/calibration.md): measured and stored in a topology file, or typical figures without a measurement.
//
//   PlannerOptions options;
//   options.machine = load_machine("machine.json");       // written by `tessera calibrate`
//   options.machine = calibrate(runtime, group, {});      // or measured here, by the ranks of `group`
//
// Times are in seconds, sizes in bytes. Figures are for one rank while all ranks of its host work.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/abi/draft/cost.h"
#include "tessera/error.h"

namespace tessera {

class ProcessGroup;
class Runtime;

// The amount of work in each stage of a training step is counted in the units that determine its time; each unit has a
// cost in seconds.

// A unit of a stage's work. `key` with "_ns" is its name in a topology file (docs/calibration.md).
template <class Work>
struct WorkUnit {
  const char* key;
  double Work::*count;
};

// A struct of counts that also lists them.
template <class T>
concept StageWork = requires {
  { T::units()[0] } -> std::convertible_to<WorkUnit<T>>;
};

// `calls` counts calls of the stage. A piece is an id block: the ids of a feature on their way between two ranks.

// Distributes ids to the ranks that hold their rows.
struct RouteWork {
  double calls = 0, pieces = 0, bags = 0;
  double ids = 0;      // ids that all go to one rank
  double cut_ids = 0;  // ids that are distributed by row
  static constexpr auto units() {
    return std::to_array<WorkUnit<RouteWork>>({{"call", &RouteWork::calls},
                                               {"piece", &RouteWork::pieces},
                                               {"bag", &RouteWork::bags},
                                               {"id", &RouteWork::ids},
                                               {"cut_id", &RouteWork::cut_ids}});
  }
};

// Prepares the ranks' messages for the kernels.
struct UnpackWork {
  double calls = 0, pieces = 0, bags = 0, ids = 0;
  double uncertain_bags = 0;  // bags that may or may not have ids in a part of the rows
  static constexpr auto units() {
    return std::to_array<WorkUnit<UnpackWork>>({{"call", &UnpackWork::calls},
                                                {"piece", &UnpackWork::pieces},
                                                {"bag", &UnpackWork::bags},
                                                {"id", &UnpackWork::ids},
                                                {"uncertain_bag", &UnpackWork::uncertain_bags}});
  }
};

// Turns received rows into the output (combine), and its gradient into rows (split).
struct RowsWork {
  double calls = 0, pieces = 0;
  double bags = 0;  // for sequences: rows
  double uncertain_bags = 0, bytes = 0;
  static constexpr auto units() {
    return std::to_array<WorkUnit<RowsWork>>({{"call", &RowsWork::calls},
                                              {"piece", &RowsWork::pieces},
                                              {"bag", &RowsWork::bags},
                                              {"uncertain_bag", &RowsWork::uncertain_bags},
                                              {"byte", &RowsWork::bytes}});
  }
};

// Sums gradients of data-parallel tables over ranks and applies them.
struct DataParallelWork {
  double calls = 0, tables = 0;
  double touched_rows = 0;  // rows with a gradient on any rank
  double ids = 0;           // ids of this rank
  double rows = 0;          // all rows of the tables
  double bytes = 0;         // bytes of the gradients of touched rows
  static constexpr auto units() {
    return std::to_array<WorkUnit<DataParallelWork>>({{"call", &DataParallelWork::calls},
                                                      {"table", &DataParallelWork::tables},
                                                      {"touched_row", &DataParallelWork::touched_rows},
                                                      {"id", &DataParallelWork::ids},
                                                      {"row", &DataParallelWork::rows},
                                                      {"byte", &DataParallelWork::bytes}});
  }
};

// Work of the dense part beside its layers: the loss, and values that are written and read again.
struct BesideLayersWork {
  double calls = 0;
  double layers = 0;  // includes interactions
  double samples = 0;
  double vector_pairs = 0;  // samples * vectors^2 of an interaction
  double bytes = 0;         // bytes of the layers' values
  static constexpr auto units() {
    return std::to_array<WorkUnit<BesideLayersWork>>({{"call", &BesideLayersWork::calls},
                                                      {"layer", &BesideLayersWork::layers},
                                                      {"sample", &BesideLayersWork::samples},
                                                      {"vector_pair", &BesideLayersWork::vector_pairs},
                                                      {"byte", &BesideLayersWork::bytes}});
  }
};

// The optimizer's step over the dense parameters.
struct DenseUpdateWork {
  double calls = 0, tensors = 0;
  double bytes = 0;  // bytes of the parameters
  static constexpr auto units() {
    return std::to_array<WorkUnit<DenseUpdateWork>>(
        {{"call", &DenseUpdateWork::calls}, {"tensor", &DenseUpdateWork::tensors}, {"byte", &DenseUpdateWork::bytes}});
  }
};

template <StageWork Work>
Work& operator+=(Work& a, const Work& b) {
  for (const auto& unit : Work::units()) a.*unit.count += b.*unit.count;
  return a;
}
template <StageWork Work>
Work operator*(double times, Work work) {
  for (const auto& unit : Work::units()) work.*unit.count *= times;
  return work;
}

// The cost of a stage: seconds per unit.
template <StageWork Work>
struct StageFigures {
  Work seconds = {};
  double of(const Work& work) const {
    double sum = 0;
    for (const auto& unit : Work::units()) sum += seconds.*unit.count * (work.*unit.count);
    return sum;
  }
};

// Seconds over a size. Between points it interpolates in logarithms. Below the first point it is constant, and above
// the last one proportional to the size.
class Curve {
 public:
  Curve() = default;
  // kInvalidArgument: sizes are not positive and ascending, or times are not positive.
  explicit Curve(std::vector<std::pair<double, double>> points);
  double at(double size) const;  // 0 if there are no points
  const std::vector<std::pair<double, double>>& points() const { return points_; }
  bool operator==(const Curve&) const = default;

 private:
  std::vector<std::pair<double, double>> points_;
};

// Costs of one kernel plugin's lookups and updates, which its estimate function gets (abi/kernel.h).
struct KernelFigures {
  std::string kernel;  // plugin id
  std::vector<tsr_row_cost> rows;
  double run_forward = 0, run_backward = 0;    // for each run of bags in a call
  double call_forward = 0, call_backward = 0;  // for each call
  tsr_machine raw() const;                     // points into this object
};

// Collectives among the ranks of one host, or among one rank of each host.
struct LinkFigures {
  std::string backend;  // plugin id
  int ranks = 2;        // number of ranks measured together
  Curve all_to_all;     // over the bytes that one rank sends
  Curve all_reduce;     // over the bytes of the tensor
  double wait = 0;      // seconds that ranks with equal work wait for each other, per second of work
  // Seconds that a message is on its way, in which others can also be; part of the curves' first points. The rest of
  // these points is the ranks' own time for their messages. These are the latency and the overhead of LogP (Culler et
  // al., 1993). 0: not known, and each message counts all of the first point.
  double delay = 0;
  // A network between hosts as its makers state it: a rank sends `bytes_per_second`, a message arrives `delay` later,
  // and it takes its ranks `message_seconds`. kInvalidArgument: not positive, except that the delay may be 0.
  static LinkFigures of_network(double bytes_per_second, double delay, double message_seconds);
  // Scales to other group sizes: messages take as long as measured, but their number changes.
  double all_to_all_at(int group, double bytes) const;
  // A reduction has two exchanges, of parts and of their sums. Large groups send fewer messages in more rounds, if that
  // takes less time.
  double all_reduce_at(int group, double bytes) const;
};

struct DenseFigures {
  Curve layer_forward, layer_backward;               // over the multiply-adds of one layer for the whole batch
  Curve interaction_forward, interaction_backward;   // over batch * vectors^2 * dim
  StageFigures<BesideLayersWork> forward, backward;  // of a step, in addition to these curves
  StageFigures<DenseUpdateWork> update;
};

struct Machine {
  std::string name;            // for people: the processor
  std::string device = "cpu";  // id of its component
  bool measured = false;       // false: typical figures
  int ranks = 1, threads = 1;  // in the measurement; threads per rank
  std::vector<KernelFigures> kernels;
  std::optional<LinkFigures> intra_host, inter_host;
  // The core's own work before and after the exchanges.
  StageFigures<RouteWork> route;
  StageFigures<UnpackWork> unpack;
  StageFigures<RowsWork> combine, split;
  StageFigures<DataParallelWork> data_parallel;
  DenseFigures dense;

  // cpu: a 2-core cloud machine. cuda and hip: TorchRec's bandwidths and links. kFailedPrecondition: any other device,
  // because there are no figures of it.
  static Machine typical(const std::string& device);
  const KernelFigures* kernel(const std::string& id) const;  // nullptr: not measured
  // kFailedPrecondition, with advice: these figures do not apply to such a job.
  void check_fits(int world_size, int local_world_size, const std::string& compute_device) const;

  std::string json() const;  // the file format: docs/calibration.md
  // kInvalidArgument: names the error; `source` is the file's name in it.
  static Machine from_json(const std::string& text, const std::string& source);
};

Machine load_machine(const std::string& path);  // kNotFound; as from_json

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

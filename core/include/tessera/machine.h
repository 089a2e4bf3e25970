// tessera/machine.h - costs of a training step's stages on a machine: measured by `tessera calibrate` and stored in a
// topology file (docs/calibration.md), or typical figures if nobody has measured.
//
//   PlannerOptions options;
//   options.machine = load_machine("machine.json");
//
// Times are in seconds, sizes in bytes. Figures are for one rank while all ranks of its host work.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/abi/draft/cost.h"
#include "tessera/error.h"
#include "tessera/stage_work.h"

namespace tessera {

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
  // A network between hosts as its makers state it: a rank sends `bytes_per_second`, and a message takes
  // `message_seconds` beside. kInvalidArgument: not positive.
  static LinkFigures of_network(double bytes_per_second, double message_seconds);
  // Scales to other group sizes: messages take as long as measured, but their number changes.
  double all_to_all_at(int group, double bytes) const;
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
  // because nobody has measured it.
  static Machine typical(const std::string& device);
  const KernelFigures* kernel(const std::string& id) const;  // nullptr: not measured
  // kFailedPrecondition, with advice: these figures do not apply to such a job.
  void check_fits(int world_size, int local_world_size, const std::string& compute_device) const;

  std::string json() const;  // the file format: docs/calibration.md
  // kInvalidArgument: names the error; `source` is the file's name in it.
  static Machine from_json(const std::string& text, const std::string& source);
};

Machine load_machine(const std::string& path);  // kNotFound; as from_json

}  // namespace tessera

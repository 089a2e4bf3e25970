// tessera/machine.h - what the parts of a training step cost on a machine: measured by `tessera calibrate` and kept in
// a topology file (docs/calibration.md), or typical figures where nobody has measured.
//
//   PlannerOptions options;
//   options.machine = load_machine("machine.json");
//
// Times are seconds, sizes bytes. Figures hold for one rank with all ranks of its host at work.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/abi/kernel.h"
#include "tessera/error.h"
#include "tessera/stage_work.h"

namespace tessera {

// Seconds over a size. Between points straight in logarithms; below the first point its time; above the last one in
// proportion to the size.
class Curve {
 public:
  Curve() = default;
  // Sizes positive and ascending, times positive: kInvalidArgument.
  explicit Curve(std::vector<std::pair<double, double>> points);
  double at(double size) const;  // 0 without points
  const std::vector<std::pair<double, double>>& points() const { return points_; }
  bool operator==(const Curve&) const = default;

 private:
  std::vector<std::pair<double, double>> points_;
};

// One kernel plugin's lookups and updates: what its estimate slot is given (abi/kernel.h).
struct KernelFigures {
  std::string kernel;  // plugin id
  std::vector<tsr_row_cost> rows;
  double run_forward = 0, run_backward = 0;    // for each run of bags of a call
  double call_forward = 0, call_backward = 0;  // for each call
  tsr_machine raw() const;                     // points into this object
};

// Collectives among the ranks of one host, or among one rank of each host.
struct LinkFigures {
  std::string backend;  // plugin id
  int ranks = 2;        // that were measured together
  Curve all_to_all;     // over the bytes that one rank sends
  Curve all_reduce;     // over the bytes of the tensor
  double wait = 0;      // that ranks with equal work wait for each other, for each second of their work
  // For a group of other size: messages take as long as measured, and there are more or fewer of them.
  double all_to_all_at(int group, double bytes) const;
  double all_reduce_at(int group, double bytes) const;
};

struct DenseFigures {
  Curve layer_forward, layer_backward;  // over the multiplications and additions of one layer, batch and all
  Curve interaction_forward, interaction_backward;   // over batch * vectors^2 * dim
  StageFigures<BesideLayersWork> forward, backward;  // of a step, beside these curves
  StageFigures<DenseUpdateWork> update;
};

struct Machine {
  std::string name;            // for people: the processor
  std::string device = "cpu";  // id of its part
  bool measured = false;       // false: typical figures
  int ranks = 1, threads = 1;  // that were at work, threads per rank
  std::vector<KernelFigures> kernels;
  std::optional<LinkFigures> intra_host, inter_host;
  // The core's own work on both sides of the exchanges.
  StageFigures<RouteWork> route;
  StageFigures<UnpackWork> unpack;
  StageFigures<RowsWork> combine, split;
  StageFigures<DataParallelWork> data_parallel;
  DenseFigures dense;

  // A 2-core cloud machine for cpu; for cuda and hip bandwidths and links as TorchRec assumes them. kFailedPrecondition
  // for any other device: nobody has measured it.
  static Machine typical(const std::string& device);
  const KernelFigures* kernel(const std::string& id) const;  // nullptr: not measured
  // kFailedPrecondition, with what to do, where these figures are not for such a job.
  void check_fits(int world_size, int local_world_size, const std::string& compute_device) const;

  std::string json() const;  // the file format: docs/calibration.md
  // kInvalidArgument names what is wrong; `source` stands for the file's name.
  static Machine from_json(const std::string& text, const std::string& source);
};

Machine load_machine(const std::string& path);  // kNotFound; as from_json

}  // namespace tessera

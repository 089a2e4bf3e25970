// Measures the stages of a step inside steps. A single rank trains small models. Caches and branch predictors are then
// as the rest of the step leaves them. These costs replace those that were measured in loops.
#include <cmath>
#include <map>
#include <numeric>

#include "calibration/parts.h"
#include "calibration/synthetic_step.h"

namespace tessera {
namespace {

using Combine = ParameterSharding::Combine;

constexpr int kBatches = 24;

struct StepShape {
  SyntheticModel model;
  int64_t pieces = 1;  // row shards of each table
};

// The shapes have many and few tables, narrow and wide rows, short and long bags, rows in near and in far caches.
std::vector<StepShape> step_shapes() {
  return {{{1, 4096, 16, 1024, 1, 0, {16}}, 1},      {{1, 4096, 128, 1024, 2, 0, {64}}, 1},
          {{2, 4096, 16, 512, 16, 0, {16}}, 1},      {{4, 4096, 16, 16, 1, 0, {32}}, 1},
          {{26, 10000, 16, 64, 1, 0, {64}}, 1},      {{48, 2000, 16, 128, 1, 0, {32}}, 1},
          {{10, 1000, 16, 64, 1, 0, {64, 32}}, 1},   {{16, 4096, 32, 256, 4, 0, {32}}, 1},
          {{3, 200000, 64, 512, 12, 0, {64}}, 1},    {{4, 100000, 32, 128, 20, 1.1, {32}}, 1},
          {{2, 100000, 128, 256, 10, 1.2, {64}}, 1}, {{1, 4096, 16, 1024, 1, 0, {16}}, 2},
          {{1, 4096, 16, 512, 16, 0, {16}}, 2},      {{32, 4096, 16, 32, 2, 0, {16}}, 2},
          {{8, 4096, 64, 256, 10, 0, {64}}, 2}};
}
std::vector<StepShape> data_parallel_shapes() {
  return {{{1, 256, 16, 64, 1, 0, {16}}},   {{1, 8192, 16, 64, 1, 0, {16}}},    {{1, 65536, 16, 512, 4, 0, {16}}},
          {{8, 4096, 32, 128, 2, 0, {32}}}, {{16, 16384, 16, 128, 1, 0, {32}}}, {{32, 2000, 16, 128, 1, 0, {16}}}};
}

// Either data-parallel tables, or tables with `pieces` row shards, which go to the ranks in turn.
struct StepLayout {
  int64_t pieces = 1;
  int ranks = 1;
  bool data_parallel = false;
};
EmbeddingModuleShardingPlan plan_of(const std::vector<EmbeddingBagConfig>& tables, const StepLayout& layout) {
  EmbeddingModuleShardingPlan plan;
  int64_t next = 0;
  for (const EmbeddingBagConfig& t : tables) {
    ParameterSharding cut;
    cut.sharding_type = layout.data_parallel ? "data_parallel" : "row_wise";
    cut.compute_kernel = layout.data_parallel ? "dense" : "fused";
    cut.combine = layout.data_parallel ? Combine::kDataParallel : layout.pieces > 1 ? Combine::kSum : Combine::kConcat;
    for (int64_t p = 0; p < layout.pieces; ++p) {
      const int64_t first = t.num_embeddings * p / layout.pieces, last = t.num_embeddings * (p + 1) / layout.pieces;
      cut.shards.push_back({last - first, t.embedding_dim, first, 0, static_cast<int>(next++ % layout.ranks)});
    }
    plan.add(t.name, std::move(cut));
  }
  return plan;
}

// The figures of one shape, as means over the ranks: seconds of each stage, and the core's work.
struct StepTrial {
  double step = 0;
  std::map<std::string, double> measured, predicted;
  RankWork work;
};

class StepTrials {
 public:
  // `group` has the ranks of one host, or only this rank.
  StepTrials(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group, const Trials& trials)
      : runtime_(runtime), group_(group), trials_(trials) {}

  int ranks() const { return group_->world_size(); }
  StepPrediction predicted(const SyntheticStep& step, const StepLayout& layout) const {
    return step.predicted(runtime_, step.plan_of(plan_of(step.module().tables, layout)));
  }
  StepTrial run(const SyntheticStep& step, const StepLayout& layout) const {
    const std::string& kernel = step.planner().machine->kernels[0].kernel;
    const auto trainer = step.trainer(runtime_, group_, kernel, step.plan_of(plan_of(step.module().tables, layout)));
    const std::vector<Batch> batches = step.batches(trials_.rank(), kBatches);
    for (const Batch& b : batches) trainer->step(b);  // touches the optimizer states for the first time
    size_t next = 0;
    const auto one_step = [&] {
      trainer->reset_stages();
      trainer->step(batches[next++ % batches.size()]);
      std::vector<double> out;
      for (const auto& [name, seconds] : trainer->stages()) out.push_back(seconds);
      return out;
    };
    const std::vector<double> times = ranks() == 1 ? trials_.times(one_step) : trials_.times_together(one_step);
    StepTrial out;
    size_t i = 0;
    for (const auto& [name, unused] : trainer->stages()) out.step += out.measured[name] = times[i++];
    const StepPrediction prediction = predicted(step, layout);
    for (const StageSeconds& rank : prediction.stages) {
      for (const auto& [name, seconds] : rank) out.predicted[name] += seconds / ranks();
    }
    for (const RankWork& rank : prediction.work) {
      const double part = 1.0 / ranks();
      out.work.route += part * rank.route;
      out.work.unpack += part * rank.unpack;
      out.work.combine += part * rank.combine;
      out.work.split += part * rank.split;
      out.work.data_parallel += part * rank.data_parallel;
    }
    return out;
  }

 private:
  const Runtime& runtime_;
  std::shared_ptr<ProcessGroup> group_;
  const Trials& trials_;
};

template <StageWork Work>
std::vector<double> counts(const Work& work) {
  std::vector<double> out;
  for (const auto& unit : Work::units()) out.push_back(work.*unit.count);
  return out;
}
// Takes the figures from the end of a solution.
template <StageWork Work>
StageFigures<Work> figures_of(const std::vector<double>& solution) {
  StageFigures<Work> out;
  auto x = solution.end() - std::ssize(Work::units());
  for (const auto& unit : Work::units()) out.seconds.*unit.count = *x++;
  return out;
}

// The lines of a least-squares problem. An error counts in proportion to the stage's time, or to a small part of its
// step's time if that is more. Small stages matter little to the time of a step.
struct Fit {
  std::vector<std::vector<double>> work;
  std::vector<double> seconds, scale;
  template <StageWork Work>
  void add_stage(const Work& w, double measured, double step) {
    add(counts(w), measured, step);
  }
  void add(std::vector<double> line, double measured, double step) {
    constexpr double kSmallPart = 0.02;
    work.push_back(std::move(line));
    seconds.push_back(measured);
    scale.push_back(std::max(measured, kSmallPart * step));
  }
  // If errors were only in proportion to the measured time, all figures would be too low: a value can be too low by at
  // most 100 %, but too high by any factor. The geometric mean of measured and fitted time prefers neither.
  std::vector<double> solved() const {
    std::vector<double> x = fit_nonnegative(work, seconds, scale);
    for (int round = 0; round < 3; ++round) {
      std::vector<double> both = scale;
      for (size_t i = 0; i < both.size(); ++i) {
        const double fitted = std::inner_product(x.begin(), x.end(), work[i].begin(), 0.0);
        both[i] = std::sqrt(scale[i] * std::max(fitted, scale[i] / 4));
      }
      x = fit_nonnegative(work, seconds, both);
    }
    return x;
  }
  // Returns the figures of the stage whose work is at the end of the lines.
  template <StageWork Work>
  StageFigures<Work> figures() const {
    return figures_of<Work>(solved());
  }
};

// Everything that steps with sharded tables tell.
struct StepFits {
  Fit route, unpack, combine, split, lookup, update, dense_forward, dense_backward, dense_update;

  // On a single rank, exchanges are the rank's work with its own ids. With several ranks, other costs prevail.
  void add_exchanges(const StepTrial& t) { unpack.add_stage(t.work.unpack, t.measured.at("exchange ids"), t.step); }

  void add_work(const SyntheticStep& step, const StepTrial& t) {
    route.add_stage(t.work.route, t.measured.at("route"), t.step);
    if (t.work.combine.pieces > 0) {
      combine.add_stage(t.work.combine, t.measured.at("combine"), t.step);
      split.add_stage(t.work.split, t.measured.at("split"), t.step);
    }
    const KernelFigures& kernel = step.planner().machine->kernels[0];
    const double runs = t.work.unpack.pieces;
    lookup.add({1, runs, t.predicted.at("lookup") - kernel.call_forward - runs * kernel.run_forward},
               t.measured.at("lookup"), t.step);
    update.add({1, runs, t.predicted.at("table update") - kernel.call_backward - runs * kernel.run_backward},
               t.measured.at("table update"), t.step);
    add_dense(step.dense(), static_cast<double>(step.model().batch), t, step.planner().machine->dense);
  }

 private:
  void add_dense(const DenseWork& dense, double batch, const StepTrial& t, const DenseFigures& figures) {
    const auto line = [&](const Curve& layer, const Curve& interaction) {
      std::vector<double> out = counts(dense.beside_layers(batch));
      out.insert(out.begin(), {dense.layer_seconds(layer, batch), dense.interaction_seconds(interaction, batch)});
      return out;
    };
    dense_forward.add(line(figures.layer_forward, figures.interaction_forward), t.measured.at("dense forward"), t.step);
    dense_backward.add(line(figures.layer_backward, figures.interaction_backward), t.measured.at("dense backward"),
                       t.step);
    dense_update.add_stage(dense.update(), t.measured.at("dense update"), t.step);
  }
};

Curve scaled(const Curve& curve, double factor) {
  auto points = curve.points();
  for (auto& [size, seconds] : points) seconds = std::max(seconds * factor, 1e-12);
  return Curve(std::move(points));
}

// Corrects a dense stage: a factor for layers and one for interactions, and the figures of the other work.
StageFigures<BesideLayersWork> correct(const Fit& fit, Curve* layer, Curve* interaction) {
  const std::vector<double> x = fit.solved();
  *layer = scaled(*layer, x[0]);
  *interaction = scaled(*interaction, x[1]);
  return figures_of<BesideLayersWork>(x);
}

void correct(const StepFits& fits, Machine* machine) {
  machine->route = fits.route.figures<RouteWork>();
  machine->unpack = fits.unpack.figures<UnpackWork>();
  machine->combine = fits.combine.figures<RowsWork>();
  machine->split = fits.split.figures<RowsWork>();
  KernelFigures& k = machine->kernels[0];
  const std::vector<double> lookup = fits.lookup.solved(), update = fits.update.solved();
  k.call_forward = lookup[0];
  k.call_backward = update[0];
  k.run_forward = lookup[1];
  k.run_backward = update[1];
  for (tsr_row_cost& row : k.rows) {
    for (double* x : {&row.lookup, &row.bag_forward}) *x *= lookup[2];
    for (double* x : {&row.update, &row.repeat, &row.bag_backward}) *x *= update[2];
  }
  DenseFigures& d = machine->dense;
  d.forward = correct(fits.dense_forward, &d.layer_forward, &d.interaction_forward);
  d.backward = correct(fits.dense_backward, &d.layer_backward, &d.interaction_backward);
  d.update = fits.dense_update.figures<DenseUpdateWork>();
}

void measure_data_parallel(const StepTrials& alone, Machine* machine) {
  Fit fit;
  for (const StepShape& s : data_parallel_shapes()) {
    const SyntheticStep step(s.model, 1, *machine);
    const StepTrial t = alone.run(step, {.data_parallel = true});
    const double kernel = t.predicted.at("data parallel") - machine->data_parallel.of(t.work.data_parallel);
    const double all = t.measured.at("data parallel");
    fit.add_stage(t.work.data_parallel, std::max(0.1 * all, all - kernel), t.step);
  }
  machine->data_parallel = fit.figures<DataParallelWork>();
}

// Measures exchanges inside a step, in which ranks do not arrive together and come from other work.
void measure_waiting(const StepTrials& together, const std::vector<std::pair<StepShape, StepTrial>>& trials,
                     Machine* machine) {
  Fit fit;
  for (const auto& [shape, trial] : trials) {
    const SyntheticStep step(shape.model, together.ranks(), *machine);
    const StepPrediction p = together.predicted(step, {shape.pieces, together.ranks()});
    const double work = p.seconds - p.exchanges - p.waiting;
    fit.add({p.exchanges, work}, std::max(p.exchanges, trial.step - work), trial.step);
  }
  const std::vector<double> x = fit.solved();
  LinkFigures& link = *machine->intra_host;
  link.all_to_all = scaled(link.all_to_all, x[0]);
  link.all_reduce = scaled(link.all_reduce, x[0]);
  link.wait = x[1];
}

}  // namespace

void measure_steps(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& host, const Trials& trials,
                   Machine* machine) {
  const StepTrials alone(runtime, ProcessGroup::connect(runtime, RankEnvironment{}, {}), trials);
  const StepTrials together(runtime, host, trials);
  const int ranks = host->world_size();
  StepFits fits;
  std::vector<std::pair<StepShape, StepTrial>> seen;
  for (const StepShape& s : step_shapes()) {
    const SyntheticStep step(s.model, 1, *machine);
    const StepTrial t = alone.run(step, {s.pieces});
    fits.add_exchanges(t);
    if (ranks == 1) fits.add_work(step, t);
  }
  for (StepShape s : ranks > 1 ? step_shapes() : std::vector<StepShape>()) {
    if (s.pieces > 1) s.pieces = ranks;
    const SyntheticStep step(s.model, ranks, *machine);
    seen.emplace_back(s, together.run(step, {s.pieces, ranks}));
    fits.add_work(step, seen.back().second);
  }
  correct(fits, machine);
  measure_data_parallel(alone, machine);
  if (ranks > 1) measure_waiting(together, seen, machine);
}

}  // namespace tessera

#include "planner/default_cost_model.h"

#include <algorithm>
#include <cmath>

#include "planner/step_costs.h"

namespace tessera {

namespace {

constexpr double kMilliseconds = 1000;

// Bytes that leave a rank, by link.
struct Sent {
  double in_host = 0, across_hosts = 0;
};

class DefaultModel : public CostModel {
 public:
  DefaultModel(const Runtime& runtime, const PlannerOptions& options, const std::vector<TableAndConstraints>& tables)
      : topology_(options.topology),
        batch_size_(static_cast<double>(options.batch_size)),
        machine_(options.machine ? *options.machine : Machine::typical(topology_.compute_device)),
        costs_(runtime, options.kernel, machine_) {
    machine_.check_fits(topology_.world_size, topology_.local_world_size, topology_.compute_device);
    if (machine_.intra_host) in_host_byte_ = byte_seconds(machine_.intra_host->all_to_all);
    if (machine_.inter_host) across_hosts_byte_ = byte_seconds(machine_.inter_host->all_to_all);
    if (machine_.intra_host) reduce_byte_ = byte_seconds(machine_.intra_host->all_reduce);
    if (topology_.hosts() > 1) reduce_byte_ = byte_seconds(machine_.inter_host->all_reduce);
    // The mean rank: every table in equal parts on all of them.
    const double world = topology_.world_size;
    for (const TableAndConstraints& t : tables) {
      const TableLoad load = table_load(*t.table, *t.constraints, batch_size_);
      for (const PopularityBand& band : load.bands) {
        reuse_.add_rows(band.rows / world, load.row_bytes(), load.rate(band, world));
      }
      reuse_.add_every_step(load.work.ids * 3 * 8 + load.work.outputs * load.row_bytes() * 4);
    }
  }

  Storage storage(const PricedShard& s) const override {
    Storage out = torchrec::shard_storage(s.layout, s.kernel, s.work, topology_, s.rows, s.cols);
    if (s.kernel.infers) return out;
    const PieceCost cost = piece(s);
    const double rows = static_cast<double>(s.rows) * static_cast<double>(s.cols * s.work.element_bytes);
    const int64_t state = to_bytes(std::max(0.0, cost.held_bytes - rows));
    (topology_.accelerator() && !s.kernel.in_host_memory ? out.hbm : out.ddr) += state;
    return out;
  }

  Perf perf(const PricedShard& s) const override {
    const PieceCost cost = piece(s);
    // Figures are those of rows in the device's own memory.
    const double slower =
        topology_.accelerator() ? topology_.hbm_mem_bw / torchrec::kernel_bandwidth(s.kernel, topology_) : 1.0;
    Perf out;
    out.fwd_compute = cost.forward * slower + (s.kernel.replicas ? 0 : machine_.unpack.of(cost.unpack));
    out.bwd_compute = cost.backward * slower;
    if (s.kernel.replicas) {
      const TableLoad load = load_of(s);
      const double world = topology_.world_size, marks = costs_.replica_marks(load);
      if (topology_.world_size > 1) {
        out.bwd_comms =
            costs_.replica_bytes(load, world) * reduce_byte_ +
            seconds({marks * (topology_.local_world_size - 1), marks * (world - topology_.local_world_size)});
      }
      out.bwd_compute += machine_.replica.of(costs_.replica(load, world));
    } else {
      const Sent rows = rows_sent(s, cost);
      out.bwd_comms = seconds(rows);
      // Ids come from everybody; what an owner receives the homes have sent.
      const double ids = seconds({cost.ids_bytes * (topology_.local_world_size - 1),
                                  cost.ids_bytes * (topology_.world_size - topology_.local_world_size)});
      out.fwd_comms = out.bwd_comms + ids;
      out.input_dist_comms = ids * kMilliseconds;
    }
    if (!s.kernel.replicas) add_home(s, out);
    if (s.kernel.infers) out.bwd_compute = out.bwd_comms = 0;
    for (double* part : {&out.fwd_compute, &out.bwd_compute, &out.fwd_comms, &out.bwd_comms}) *part *= kMilliseconds;
    return out;
  }

 private:
  // What the ranks that ask have to do for the table falls on all of them, wherever its pieces are. Loads are kept by
  // rank and shard, so each piece carries an equal part of it.
  void add_home(const PricedShard& s, Perf& perf) const {
    const double col_pieces = std::max<double>(1, std::round(static_cast<double>(s.work.cols) / s.cols));
    const double row_pieces = std::max<double>(1, std::round(static_cast<double>(s.pieces) / col_pieces));
    const HomeWork work = costs_.home(load_of(s), row_pieces, col_pieces);
    const double part = topology_.world_size / static_cast<double>(std::max<int64_t>(1, s.pieces));
    perf.fwd_compute += part * (machine_.route.of(work.route) + machine_.combine.of(work.rows));
    perf.bwd_compute += part * machine_.split.of(work.rows);
  }

  // What one more byte costs in an exchange of usual size.
  static double byte_seconds(const Curve& curve) {
    constexpr double kUsual = 1 << 20;
    return std::max(0.0, curve.at(kUsual) - curve.at(64)) / kUsual;
  }

  static double row_share(const PricedShard& s) {
    return static_cast<double>(s.rows) / static_cast<double>(std::max<int64_t>(1, s.work.rows));
  }

  TableLoad load_of(const PricedShard& s) const { return table_load(s.table, s.constraints, batch_size_); }

  PieceCost piece(const PricedShard& s) const {
    const double homes = s.kernel.replicas ? 1 : topology_.world_size;
    return costs_.piece(load_of(s), {row_share(s), s.cols, s.kernel.compute_kernel}, homes, reuse_);
  }

  double seconds(const Sent& sent) const {
    return sent.in_host * in_host_byte_ + sent.across_hosts * across_hosts_byte_;
  }

  // Rows of one shard on their way to all homes. Where they are summed inside the host, every local rank collects
  // those for its own and for the same ranks elsewhere, and one row per bag crosses.
  Sent rows_sent(const PricedShard& s, const PieceCost& cost) const {
    const double world = topology_.world_size, local = topology_.local_world_size;
    if (s.layout.exchange == torchrec::Exchange::kInHostThenAcross && topology_.hosts() > 1) {
      const TableLoad load = load_of(s);
      const ExpectedPiece of_host = expected_piece(load.slot(), local * row_share(s), !s.work.pooled);
      const double summed = load.features * of_host.rows * static_cast<double>(s.cols) * sizeof(float);
      return {cost.rows_bytes * world * (local - 1) / local, summed * (world - local) / local};
    }
    return {cost.rows_bytes * (local - 1), cost.rows_bytes * (world - local)};
  }

  const Topology& topology_;
  double batch_size_;
  Machine machine_;
  StepCosts costs_;
  ReuseModel reuse_;
  double in_host_byte_ = 0, across_hosts_byte_ = 0, reduce_byte_ = 0;
};

}  // namespace

std::unique_ptr<CostModel> make_default_cost_model(const Runtime& runtime, const PlannerOptions& options,
                                                   const std::vector<TableAndConstraints>& tables) {
  return std::make_unique<DefaultModel>(runtime, options, tables);
}

}  // namespace tessera

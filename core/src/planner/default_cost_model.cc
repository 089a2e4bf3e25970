#include "planner/default_cost_model.h"

#include <algorithm>
#include <cmath>

#include "planner/figures.h"
#include "planner/step_costs.h"

namespace tessera {

namespace {

constexpr double kMilliseconds = 1000;

// Bytes that leave a rank, by kind of link.
struct Sent {
  double in_host = 0, across_hosts = 0;
};

class DefaultModel : public CostModel {
 public:
  DefaultModel(const PlannerOptions& options, ComputeKernels& kernels, const std::vector<PricedTable>& tables)
      : topology_(options.topology), wire_(options.wire), machine_(figures_for(options)), costs_(kernels, machine_) {
    if (machine_.intra_host) in_host_byte_ = byte_seconds(machine_.intra_host->all_to_all);
    if (machine_.inter_host) across_hosts_byte_ = byte_seconds(machine_.inter_host->all_to_all);
    if (machine_.intra_host) reduce_byte_ = byte_seconds(machine_.intra_host->all_reduce);
    if (topology_.hosts() > 1) reduce_byte_ = byte_seconds(machine_.inter_host->all_reduce);
    // Caches are modelled for an average rank, which has an equal part of every table.
    const double world = topology_.world_size;
    for (const PricedTable& t : tables) {
      const TableLoad& load =
          loads_.emplace_back(table_load(t.table, *t.constraints, static_cast<double>(options.batch_size)));
      for (const PopularityBand& band : load.bands) {
        reuse_.add_rows(band.rows / world, load.row_bytes(), load.rate(band, world));
      }
      reuse_.add_every_step(load.work.ids * 3 * 8 + load.work.outputs * load.row_bytes() * 4);
    }
  }

  ShardCost cost(const PricedShard& s) const override {
    const double homes = data_parallel(s) ? 1 : topology_.world_size;
    try {
      const PieceCost piece = costs_.piece(loads_[s.table], {row_share(s), s.cols, s.kernel}, homes, reuse_);
      return {storage(s, piece), perf(s, piece), ""};
    } catch (const Error& e) {
      if (e.code() != Code::kUnimplemented && e.code() != Code::kInvalidArgument) throw;
      return {{}, {}, e.what()};
    }
  }
  std::string figures() const override { return figures_text(machine_); }

 private:
  static bool data_parallel(const PricedShard& s) { return s.combine == ParameterSharding::Combine::kDataParallel; }

  // Rows and states count where the kernel keeps them. Ids and output rows of a step count as the device's memory.
  Storage storage(const PricedShard& s, const PieceCost& piece) const {
    const int64_t host = to_bytes(piece.host_bytes), disk = to_bytes(piece.storage_bytes);
    int64_t device = std::max<int64_t>(0, to_bytes(piece.held_bytes) - host - disk);
    Storage out{0, host, disk};
    if (s.rows > 0) {
      const Workload& work = loads_[s.table].work;
      const double homes = data_parallel(s) ? 1 : topology_.world_size;
      const double ids = work.ids * row_share(s) * homes, outputs = work.pooled ? work.outputs * homes : ids;
      device += to_bytes(std::ceil(ids * sizeof(int64_t)));
      device += to_bytes(std::ceil(outputs * static_cast<double>(s.cols * work.element_bytes)));
    }
    return out += topology_.accelerator() ? Storage{device, 0, 0} : Storage{0, device, 0};
  }

  Perf perf(const PricedShard& s, const PieceCost& cost) const {
    const TableLoad& load = loads_[s.table];
    Perf out{.fwd_compute = cost.forward + (data_parallel(s) ? 0 : machine_.unpack.of(cost.unpack)),
             .bwd_compute = cost.backward,
             .storage_reads = cost.storage_reads};
    if (data_parallel(s)) {
      const double world = topology_.world_size, marks = costs_.data_parallel_marks(load, row_share(s));
      if (topology_.world_size > 1) {
        out.bwd_comms =
            costs_.data_parallel_bytes(load, row_share(s), world) * reduce_byte_ +
            seconds({marks * (topology_.local_world_size - 1), marks * (world - topology_.local_world_size)});
      }
      out.bwd_compute += machine_.data_parallel.of(costs_.data_parallel(load, row_share(s), world));
    } else {
      const double rows = seconds(rows_sent(s, cost));
      out.bwd_comms = rows * on_wire(s, true);
      // An owner receives ids from every home, as many bytes as the homes send.
      const double ids = seconds({cost.ids_bytes * (topology_.local_world_size - 1),
                                  cost.ids_bytes * (topology_.world_size - topology_.local_world_size)});
      out.fwd_comms = rows * on_wire(s, false) + ids;
      out.input_dist_comms = ids * kMilliseconds;
    }
    if (!data_parallel(s)) add_home(s, out);
    if (s.kernel.infers) out.bwd_compute = out.bwd_comms = 0;
    for (double* part : {&out.fwd_compute, &out.bwd_compute, &out.fwd_comms, &out.bwd_comms}) *part *= kMilliseconds;
    return out;
  }

  // Adds the work of the homes, which all ranks have, wherever the table's pieces are. Costs are kept per shard, so
  // each piece gets an equal part of it.
  void add_home(const PricedShard& s, Perf& perf) const {
    const double col_pieces =
        std::max<double>(1, std::round(static_cast<double>(loads_[s.table].work.cols) / static_cast<double>(s.cols)));
    const double row_pieces = std::max<double>(1, std::round(static_cast<double>(s.pieces) / col_pieces));
    const HomeWork work = costs_.home(loads_[s.table], row_pieces, col_pieces);
    const double part = topology_.world_size / static_cast<double>(std::max<int64_t>(1, s.pieces));
    perf.fwd_compute += part * (machine_.route.of(work.route) + machine_.combine.of(work.rows));
    perf.bwd_compute += part * machine_.split.of(work.rows);
  }

  // The seconds that one more byte takes in an exchange of usual size.
  static double byte_seconds(const Curve& curve) {
    constexpr double kUsual = 1 << 20;
    return std::max(0.0, curve.at(kUsual) - curve.at(64)) / kUsual;
  }

  double row_share(const PricedShard& s) const {
    return static_cast<double>(s.rows) / static_cast<double>(std::max<int64_t>(1, loads_[s.table].work.rows));
  }

  // Bytes that the transport sends for a shard's rows, or for their gradients, relative to float32.
  double on_wire(const PricedShard& s, bool gradients) const {
    const int64_t cols = std::max<int64_t>(1, s.cols), elements = 1024 * cols;
    return static_cast<double>(bytes_on_wire(wire_, gradients, elements, cols)) /
           static_cast<double>(bytes_on_wire(nullptr, gradients, elements, cols));
  }

  double seconds(const Sent& sent) const {
    return sent.in_host * in_host_byte_ + sent.across_hosts * across_hosts_byte_;
  }

  // The bytes of one shard's rows to all homes. If they are summed inside the host, each local rank collects the rows
  // for itself and for the ranks of its local index on other hosts, and then sends one row per bag across.
  Sent rows_sent(const PricedShard& s, const PieceCost& cost) const {
    const double world = topology_.world_size, local = topology_.local_world_size;
    if (s.combine == ParameterSharding::Combine::kHostSum && topology_.hosts() > 1) {
      const TableLoad& load = loads_[s.table];
      const ExpectedIdBlock of_host = expected_id_block(load.table_feature(), local * row_share(s), !load.work.pooled);
      const double summed = load.features * of_host.rows * static_cast<double>(s.cols) * sizeof(float);
      return {cost.rows_bytes * world * (local - 1) / local, summed * (world - local) / local};
    }
    return {cost.rows_bytes * (local - 1), cost.rows_bytes * (world - local)};
  }

  const Topology& topology_;
  const WireBytes& wire_;
  Machine machine_;
  StepCosts costs_;
  std::vector<TableLoad> loads_;  // one per table
  ReuseModel reuse_;
  double in_host_byte_ = 0, across_hosts_byte_ = 0, reduce_byte_ = 0;
};

}  // namespace

std::unique_ptr<CostModel> make_default_cost_model(const PlannerOptions& options, ComputeKernels& kernels,
                                                   const std::vector<PricedTable>& tables) {
  return std::make_unique<DefaultModel>(options, kernels, tables);
}

}  // namespace tessera

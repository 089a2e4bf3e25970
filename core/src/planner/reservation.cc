#include "planner/reservation.h"

#include <algorithm>
#include <cmath>

#include "planner/workload.h"
#include "wiring/messages.h"

namespace tessera {

namespace {

constexpr int64_t kInputCopies = 20;  // copies of a batch that exist at once
constexpr int64_t kDenseCopies = 6;   // parameters, gradients, optimizer states, buckets

Storage on_device(int64_t bytes, const Topology& topology) {
  return topology.accelerator() ? Storage{bytes, 0, 0} : Storage{0, bytes, 0};
}

int64_t saturating_product(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? INT64_MAX : out;
}

Storage least_of(const std::vector<Storage>& ranks) {
  Storage out = ranks.front();
  for (const Storage& s : ranks) out = {std::min(out.hbm, s.hbm), std::min(out.ddr, s.ddr), std::min(out.ssd, s.ssd)};
  return out;
}

Storage least_hbm(const Topology& topology) {
  int64_t least = topology.memory(0).hbm;
  for (int r = 1; r < topology.world_size; ++r) least = std::min(least, topology.memory(r).hbm);
  return {least, 0, 0};
}

int64_t most_ddr(const Topology& topology) {
  int64_t most = 0;
  for (int r = 0; r < topology.world_size; ++r) most = std::max(most, topology.memory(r).ddr);
  return most;
}

}  // namespace

ReservedStorage reserve_storage(const std::vector<PlannerModule>& modules, const std::vector<PlannedTable>& tables,
                                const PlannerOptions& options) {
  const Topology& topology = options.topology;
  const double percentage = options.storage_reservation.percentage;
  if (!(percentage >= 0 && percentage <= 1)) {
    throw PlannerError(PlannerError::Kind::kBadInput,
                       str_cat("storage reservation of ", percentage, " is not between 0 and 1"));
  }
  double ids = 0;
  for (const PlannedTable& t : tables) {
    const ParameterConstraints& c = t.constraints;
    for (size_t i = 0; i < c.pooling_factors.size(); ++i) {
      ids +=
          c.pooling_factors[i] * (c.batch_sizes.empty() ? static_cast<double>(options.batch_size) : c.batch_sizes[i]);
    }
  }
  ReservedStorage out;
  out.kjt =
      on_device(saturating_product(kInputCopies, to_bytes(std::ceil(static_cast<double>(kIdBytes) * ids))), topology);
  for (int r = 0; r < topology.world_size; ++r) {
    const Storage all = topology.memory(r);
    out.per_rank.push_back({to_bytes((1 - percentage) * static_cast<double>(all.hbm)), all.ddr, all.ssd});
  }
  if (options.storage_reservation.kind == StorageReservation::Kind::kFixedPercentage) {
    out.available = least_of(out.per_rank);
    return out;
  }

  int64_t dense = 0;
  for (const PlannerModule& m : modules) dense += m.kind == PlannerModule::Kind::kDense ? m.dense_bytes : 0;
  out.dense = on_device(saturating_product(kDenseCopies, dense), topology);
  for (Storage& s : out.per_rank) (s -= *out.dense) -= out.kjt;
  out.available = least_of(out.per_rank);
  if (out.available.hbm < 0) {
    throw PlannerError(
        PlannerError::Kind::kInsufficientStorage,
        str_cat("nothing is left for tables: of ", least_hbm(topology).str(), " per rank, ", 100 * percentage,
                " % are set aside, dense parameters take ", out.dense->str(), " and the input ", out.kjt.str(),
                "; set less aside, reduce the batch of ", options.batch_size, ", or use devices with more memory"));
  }
  // TorchRec's planner checks only hbm, and then tries every proposal in vain.
  const bool room = std::any_of(out.per_rank.begin(), out.per_rank.end(), [](const Storage& s) { return s.ddr > 0; });
  if (!room && !topology.accelerator() && !options.torchrec_limits) {
    throw PlannerError(PlannerError::Kind::kInsufficientStorage,
                       str_cat("nothing is left for tables: of ", Storage{0, most_ddr(topology), 0}.str(),
                               " per rank, dense parameters take ", out.dense->str(), " and the input ", out.kjt.str(),
                               "; reduce the batch of ", options.batch_size, " per rank, or give more memory"));
  }
  return out;
}

ReservedStorage reserve_storage(const std::vector<PlannerModule>& modules, const PlannerOptions& options) {
  return reserve_storage(modules, tables_in_search_order(modules, options), options);
}

}  // namespace tessera

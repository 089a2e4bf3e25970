#include "planner/reservation.h"

#include <cmath>

#include "planner/cost_model.h"

namespace tessera {

namespace {

constexpr double kIdBytes = 8;
constexpr int64_t kInputCopies = 20;  // of a batch that are alive at once
constexpr int64_t kDenseCopies = 6;   // parameters, gradients, optimizer states, buckets

Storage on_device(int64_t bytes, const Topology& topology) {
  return topology.accelerator() ? Storage{bytes, 0, 0} : Storage{0, bytes, 0};
}

int64_t saturating_product(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? INT64_MAX : out;
}

}  // namespace

ReservedStorage reserve_storage(const std::vector<PlannerModule>& modules, const std::vector<PlannedTable>& tables,
                                const PlannerOptions& options) {
  const Topology& topology = options.topology;
  const double percentage = options.storage_reservation.percentage;
  if (!(percentage >= 0 && percentage <= 1)) {
    throw PlannerError(PlannerError::Kind::kBadInput,
                       cat("storage reservation of ", percentage, " is not between 0 and 1"));
  }
  double ids = 0;
  for (const PlannedTable& t : tables) {
    const ParameterConstraints& c = *t.constraints;
    for (size_t i = 0; i < c.pooling_factors.size(); ++i) {
      ids +=
          c.pooling_factors[i] * (c.batch_sizes.empty() ? static_cast<double>(options.batch_size) : c.batch_sizes[i]);
    }
  }
  ReservedStorage out;
  out.kjt = on_device(saturating_product(kInputCopies, to_bytes(std::ceil(kIdBytes * ids))), topology);
  out.available = {to_bytes((1 - percentage) * static_cast<double>(topology.hbm_cap)), topology.ddr_cap,
                   topology.ssd_cap};
  if (options.storage_reservation.kind == StorageReservation::Kind::kFixedPercentage) return out;

  int64_t dense = 0;
  for (const PlannerModule& m : modules) dense += m.kind == PlannerModule::Kind::kDense ? m.dense_bytes : 0;
  out.dense = on_device(saturating_product(kDenseCopies, dense), topology);
  out.available -= *out.dense;
  out.available -= out.kjt;
  if (out.available.hbm < 0) {
    throw PlannerError(
        PlannerError::Kind::kInsufficientStorage,
        cat("nothing is left for tables: of ", Storage{topology.hbm_cap, 0, 0}.str(), " per rank, ", 100 * percentage,
            " % are set aside, dense parameters take ", out.dense->str(), " and the input ", out.kjt.str(),
            "; set less aside, reduce the batch of ", options.batch_size, ", or use devices with more memory"));
  }
  return out;
}

}  // namespace tessera

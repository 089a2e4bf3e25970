// The ids that data-parallel tables look up: those of their features in the rank's own batch, where the tables are.
#pragma once

#include <cstdint>
#include <memory>

#include "distributed/checked_batch.h"
#include "distributed/row_executor.h"
#include "modules/lookup_view.h"
#include "tessera/device.h"
#include "wiring/wiring.h"

namespace tessera {

class DataParallelInput {
 public:
  virtual ~DataParallelInput() = default;
  // Takes a step's batch, which lives as long as this is asked for it.
  virtual void take(const Wiring& wiring, const CheckedBatch& batch, bool weighted, RowExecutor& executor) = 0;
  virtual LookupView view() const = 0;  // as a kernel takes it
  virtual int64_t first_offset(size_t table_feature) const = 0;
};

// `stream` null: in host memory, the batch itself.
std::unique_ptr<DataParallelInput> data_parallel_input(const DeviceStreamPtr& stream);

}  // namespace tessera

// The ids that data-parallel tables look up: those of the rank's own batch, copied to the tables' device if they are on
// one.
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
  // Takes a step's batch, which must live until the last view() of this step.
  virtual void take(const Wiring& wiring, const CheckedBatch& batch, bool weighted, RowExecutor& executor) = 0;
  virtual LookupView view() const = 0;  // in the form that a kernel takes
  virtual int64_t first_offset(size_t table_feature) const = 0;
};

// `stream` null: the tables are in host memory, and the batch is used as it is.
std::unique_ptr<DataParallelInput> data_parallel_input(const DeviceStreamPtr& stream);

}  // namespace tessera

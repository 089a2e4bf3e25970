#include "distributed/step.h"

namespace tessera {

LookupView owner_batch(const Step& step) {
  const ReceivedBatch& in = step.received;
  if (const DeviceStep* on = step.device.get()) {
    return {on->ids.tensor().first({in.num_ids}), on->offsets.tensor().first({in.num_offsets}),
            in.weighted ? on->weights.tensor().first({in.num_ids}) : Tensor()};
  }
  return {in.ids.tensor().first({in.num_ids}), in.offsets.tensor().first({in.num_offsets}),
          in.weighted ? in.weights.tensor().first({in.num_ids}) : Tensor(),
          step.calls.output_rows.tensor().first({in.num_offsets})};
}

}  // namespace tessera

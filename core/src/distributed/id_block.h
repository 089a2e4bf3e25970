// The ids that one home sends to one owner along an id route in a step.
#pragma once

#include <cstdint>

namespace tessera {

struct IdBlock {
  int64_t bags = 0;       // samples, empty bags included
  int64_t full_bags = 0;  // bags that have ids here
  int64_t ids = 0;
  int64_t first_bag = 0;  // index of its first length in the payload
  // Index of its first id. At the home: in the payload for the owner, or in RoutedBatch::replicated_ids. At the owner:
  // in ReceivedBatch::ids.
  int64_t first_id = 0;
};

}  // namespace tessera

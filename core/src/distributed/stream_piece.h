// The part of a batch that one home sends to one owner along a stream.
#pragma once

#include <cstdint>

namespace tessera {

struct StreamPiece {
  int64_t bags = 0;       // samples, empty bags included
  int64_t full_bags = 0;  // bags that have ids here
  int64_t ids = 0;
  int64_t first_bag = 0;  // of its lengths among those of the payload
  int64_t first_id =
      0;  // home: in the payload for the owner, or in RoutedBatch::kept_ids; owner: in ReceivedBatch::ids
};

}  // namespace tessera

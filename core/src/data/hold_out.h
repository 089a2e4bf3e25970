// Holds out a part of the training samples for validation.
#pragma once

#include <cstdint>
#include <utility>

#include "tessera/config.h"
#include "tessera/data.h"

namespace tessera::data {

struct HoldOut {
  double fraction = 0;  // of the samples, in [0, 1)
  bool last = false;    // the last samples of the file; else random ones, chosen by `seed` and the sample's number
  uint64_t seed = 1;
  double first = 0;  // of random samples, the part of them that begins here: [first, first + fraction) of 1

  static HoldOut of(const Config& config);  // from the config's `validation`
  // True if this sample of `samples` is held out. For random ones of streamed samples, the block decides instead.
  bool takes(int64_t sample, int64_t samples, int64_t block, bool streamed) const;
};

// Returns {training part, held-out part}, both in file order. Meanwhile all samples are in memory twice.
std::pair<ExamplesPtr, ExamplesPtr> hold_out(const Examples& examples, const HoldOut& options);

// Does the same. Random samples of a stream are whole blocks.
std::pair<Samples, Samples> hold_out(const Samples& samples, const HoldOut& options);

}  // namespace tessera::data

// A part of the training samples that is kept for validation.
#pragma once

#include <cstdint>
#include <utility>

#include "tessera/config.h"
#include "tessera/data.h"

namespace tessera::data {

struct HoldOut {
  double fraction = 0;  // of the samples, in [0, 1)
  bool last = false;    // the last ones of the file; otherwise random ones, which `seed` and the sample's number name
  uint64_t seed = 1;

  static HoldOut of(const Config& config);  // as `validation` says
  // Whether it is kept back, of so many samples: the sample of that number, or, of samples that are streamed, the
  // block, where random ones are meant.
  bool takes(int64_t sample, int64_t samples, int64_t block, bool streamed) const;
};

// {what is trained on, what is kept back}, both in the order of the file. While it works, the samples are in memory
// twice.
std::pair<ExamplesPtr, ExamplesPtr> hold_out(const Examples& examples, const HoldOut& options);

// The same; of samples that are streamed, random ones are whole blocks.
std::pair<Samples, Samples> hold_out(const Samples& samples, const HoldOut& options);

}  // namespace tessera::data

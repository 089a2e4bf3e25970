#include "data/hold_out.h"

#include <algorithm>
#include <cmath>

#include "data/examples.h"
#include "data/sample_stream.h"
#include "tessera/sdk/random.h"

namespace tessera::data {
HoldOut HoldOut::of(const Config& config) {
  const ValidationConfig& v = config.validation;
  const auto seed = static_cast<uint64_t>(config.job.seed);
  if (v.folds > 0) {
    const double share = 1 / static_cast<double>(v.folds);
    return {share, false, seed, share * static_cast<double>(std::max<int64_t>(v.fold, 0))};
  }
  const double fraction = v.split == "data" ? 0 : v.fraction;  // the reader's own rows are no training rows
  return {fraction, v.split == "last", seed};
}

bool HoldOut::takes(int64_t sample, int64_t samples, int64_t block, bool streamed) const {
  if (last) return sample >= samples - std::llround(fraction * static_cast<double>(samples));
  const double place = sdk::Random(sdk::combine(seed, static_cast<uint64_t>(streamed ? block : sample))).uniform();
  return place >= first && place < first + fraction;
}

std::pair<ExamplesPtr, ExamplesPtr> hold_out(const Examples& examples, const HoldOut& options) {
  const auto num_dense = static_cast<size_t>(examples.num_dense());
  auto trained = std::make_shared<Examples>(num_dense, examples.columns(), examples.label_form());
  auto kept = std::make_shared<Examples>(num_dense, examples.columns(), examples.label_form());
  for (int64_t i = 0; i < examples.size(); ++i)
    (options.takes(i, examples.size(), 0, false) ? *kept : *trained).add_sample(examples, i);
  trained->note_bad_id(examples.bad_id());
  trained->shrink_to_fit();
  kept->shrink_to_fit();
  return {std::move(trained), std::move(kept)};
}

std::pair<Samples, Samples> hold_out(const Samples& samples, const HoldOut& options) {
  if (samples.kept) return hold_out(*samples.kept, options);
  const SampleStream& stream = *samples.streamed;
  std::vector<BlockPiece> trained, kept;
  int64_t before = 0;
  for (const BlockPiece& p : stream.pieces()) {
    int64_t cut = 0;  // training rows come first
    for (int64_t sample = before; cut < p.rows; ++cut) {
      if (!stream.takes(p, cut)) continue;  // a row of the test part
      if (options.takes(sample++, stream.size(), p.block, true)) break;
    }
    if (cut > 0) trained.push_back({p.block, p.first, cut});
    if (cut < p.rows) kept.push_back({p.block, p.first + cut, p.rows - cut});
    before += p.samples;
  }
  std::pair<Samples, Samples> out;
  out.first.streamed = stream.with(std::move(trained));
  out.second.streamed = stream.with(std::move(kept));
  return out;
}

}  // namespace tessera::data

namespace tessera {

std::pair<Samples, Samples> hold_out(const Config& config, const Dataset& data) {
  const ValidationConfig& v = config.validation;
  if (!data.train || (v.fraction == 0 && v.folds == 0)) return {data.train, {}};
  if (v.split != "data") return data::hold_out(data.train, data::HoldOut::of(config));
  return {data.train,
          data::hold_out(data.validation, {v.fraction, false, static_cast<uint64_t>(config.job.seed)}).second};
}

}  // namespace tessera

#include "data/hold_out.h"

#include <algorithm>
#include <cmath>

#include "data/examples.h"
#include "data/random.h"
#include "data/sample_stream.h"

namespace tessera::data {
namespace {

template <class Id>
void add_bags(const Examples& from, int64_t sample, Examples& to) {
  const Id* ids = from.ids<Id>(sample);
  const int32_t* lengths = from.lengths(sample);
  for (int64_t column = 0; column < from.num_columns(); ++column) {
    for (int32_t n = lengths ? lengths[column] : 1; n > 0; --n) to.add_id(*ids++);
    to.end_bag();
  }
}

void add(const Examples& from, int64_t sample, Examples& to) {
  to.begin_sample(from.label(sample));
  for (int64_t i = 0; i < from.num_dense(); ++i) to.add_dense(from.dense(sample)[i]);
  from.wide() ? add_bags<int64_t>(from, sample, to) : add_bags<int32_t>(from, sample, to);
  to.end_sample();
}

}  // namespace

std::pair<ExamplesPtr, ExamplesPtr> hold_out(const Examples& examples, const HoldOut& options) {
  const auto num_dense = static_cast<size_t>(examples.num_dense());
  auto trained = std::make_shared<Examples>(num_dense, examples.columns());
  auto kept = std::make_shared<Examples>(num_dense, examples.columns());
  const auto first_kept = examples.size() - std::llround(options.fraction * static_cast<double>(examples.size()));
  for (int64_t i = 0; i < examples.size(); ++i) {
    const bool back = options.last
                          ? i >= first_kept
                          : Random(combine(options.seed, static_cast<uint64_t>(i))).uniform() < options.fraction;
    add(examples, i, back ? *kept : *trained);
  }
  trained->note_bad_id(examples.bad_id());
  trained->shrink_to_fit();
  kept->shrink_to_fit();
  return {std::move(trained), std::move(kept)};
}

std::pair<Samples, Samples> hold_out(const Samples& samples, const HoldOut& options) {
  if (samples.kept) return hold_out(*samples.kept, options);
  const SampleStream& stream = *samples.streamed;
  std::vector<BlockPiece> trained, kept;
  const int64_t first_kept = stream.size() - std::llround(options.fraction * static_cast<double>(stream.size()));
  int64_t before = 0;
  for (const BlockPiece& p : stream.pieces()) {
    const bool back = Random(combine(options.seed, static_cast<uint64_t>(p.block))).uniform() < options.fraction;
    const int64_t cut = options.last ? std::clamp(first_kept - before, int64_t{0}, p.rows) : back ? 0 : p.rows;
    if (cut > 0) trained.push_back({p.block, p.first, cut});
    if (cut < p.rows) kept.push_back({p.block, p.first + cut, p.rows - cut});
    before += p.rows;
  }
  std::pair<Samples, Samples> out;
  out.first.streamed = stream.with(std::move(trained));
  out.second.streamed = stream.with(std::move(kept));
  return out;
}

}  // namespace tessera::data

#include "data/hold_out.h"

#include <cmath>

#include "data/examples.h"
#include "data/random.h"

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

}  // namespace tessera::data

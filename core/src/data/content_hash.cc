#include "data/content_hash.h"

#include "data/examples.h"
#include "data/sample_stream.h"
#include "data/xxh64.h"

namespace tessera::data {

uint64_t Examples::hash() const {
  const auto of = [](const auto* from, int64_t count, uint64_t seed) {
    return xxh64(from, static_cast<size_t>(count) * sizeof(*from), seed);
  };
  uint64_t out = of(starts_.data(), std::ssize(starts_), static_cast<uint64_t>(samples_));
  if (!wide_) return of(bytes_.data(), std::ssize(bytes_), out);
  const int64_t before_ids = values_bytes() + (single_ ? 0 : 4 * num_columns());
  for (int64_t sample = 0; sample < samples_; ++sample) {  // skips the bytes that align ids
    out = of(place(sample), before_ids, out);
    out = of(place(sample) + head_, num_ids(sample) * id_bytes(), out);
  }
  return out;
}

uint64_t SampleStream::hash() const {
  constexpr int64_t kSome = 8192;
  uint64_t out = 0;
  for (const BlockPiece& piece : pieces_) {
    const FileBlock& block = files_->part->blocks()[static_cast<size_t>(piece.block)];
    for (const int64_t number : {block.file, block.first_row, block.rows, block.bytes, piece.first, piece.rows})
      out = xxh64(&number, sizeof(number), out);
  }
  return some(kSome)->hash() ^ out;
}

uint64_t content_hash(const Samples& samples) {
  return samples.kept ? samples.kept->hash() : samples.streamed ? samples.streamed->hash() : 0;
}

}  // namespace tessera::data

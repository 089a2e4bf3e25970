#include "tiled_softmax.h"

#include <memory>

#include "weights.h"

namespace tessera_dense {
namespace {

// 128 KB of logits: half of a small second-level cache.
constexpr int64_t kRowsOfTile = 128, kCandidatesOfTile = 256;
constexpr int64_t kLeastPart = 128, kMostParts = 16;
constexpr int64_t kProductsWorthParts = 32 << 20;  // multiply-adds
constexpr int64_t kPartialValues = 4 << 20;        // values of partial gradients of states in memory at once
using TileOfLogits = float[kRowsOfTile * kCandidatesOfTile];

// Divides the candidates into up to `most` parts. Each has sums of its own, so that threads can share the work.
struct Parts {
  int64_t size, count;

  Parts(const Compared& c, int64_t most) : size(std::max<int64_t>(c.candidates, 1)) {
    if (c.products() > kProductsWorthParts) size = std::max(kLeastPart, (c.candidates + most - 1) / most);
    count = (c.candidates + size - 1) / size;
  }
};

// A sum of exp(z), represented as exp(largest) * sum.
struct SumOfExp {
  float largest = -INFINITY;
  double sum = 0;

  void add(const Loops& loops, int64_t n, const float* z) {
    const float here = loops.of_rows->largest(n, z), before = largest;
    if (here == -INFINITY) return;
    largest = std::max(before, here);
    const double shift = std::exp(static_cast<double>(std::min(before, here) - largest));
    const double fresh = loops.of_rows->sum_exp(n, z, here);
    sum = here > before ? sum * shift + fresh : sum + fresh * shift;
  }
  double log() const { return sum == 0 ? -INFINITY : static_cast<double>(largest) + std::log(sum); }
};

// Calls body(begin, size) for consecutive pieces of [first, last), each of at most `most`.
template <class Body>
void in_pieces(int64_t first, int64_t last, int64_t most, const Body& body) {
  for (; first < last; first += most) body(first, std::min(most, last - first));
}

}  // namespace

void TiledSoftmax::logits(const Compared& c, const Tile& tile, float* z) const {
  multiply({'N', 'T', tile.rows, tile.candidates, c.width, c.scale, c.states + tile.row * c.width, c.width,
            c.candidate_rows + tile.candidate * c.width, c.width, 0, z, tile.candidates});
  if (c.log_q == nullptr) return;
  for (int64_t i = 0; i < tile.rows; ++i)
    loops_.of_rows->add_scaled(tile.candidates, -1, c.log_q + tile.candidate, z + i * tile.candidates);
}

void TiledSoftmax::sum_up(const Compared& c, double* log_sums) const {
  const int64_t blocks = (c.rows + kRowsOfTile - 1) / kRowsOfTile;
  const Parts parts(c, std::max<int64_t>(1, kMostParts / std::max<int64_t>(1, blocks)));
  std::vector<SumOfExp> sums(static_cast<size_t>(parts.count * c.rows));
  one_by_one(host_, parts.count * blocks, c.products() > kProductsWorthAThread, [&](int64_t k) {
    const OneThread alone;
    const int64_t part = k / blocks, row = k % blocks * kRowsOfTile, rows = std::min(kRowsOfTile, c.rows - row);
    SumOfExp* own = sums.data() + part * c.rows + row;
    alignas(64) TileOfLogits z;
    const auto add = [&](int64_t candidate, int64_t count) {
      logits(c, {row, rows, candidate, count}, z);
      for (int64_t i = 0; i < rows; ++i) {
        float* of_row = z + i * count;
        c.left_out->each(c.first_row + row + i, candidate, candidate + count,
                         [&](int64_t at) { of_row[at] = -INFINITY; });
        own[i].add(loops_, count, of_row);
      }
    };
    in_pieces(part * parts.size, std::min(c.candidates, (part + 1) * parts.size), kCandidatesOfTile, add);
  });
  std::fill_n(log_sums, c.rows, -INFINITY);
  for (int64_t part = 0; part < parts.count; ++part) {
    for (int64_t i = 0; i < c.rows; ++i)
      log_sums[i] = log_of_sum(log_sums[i], sums[static_cast<size_t>(part * c.rows + i)].log());
  }
}

void TiledSoftmax::gradients(const Compared& c, const Tile& tile, const float* factors, const double* log_sums,
                             float* z) const {
  logits(c, tile, z);
  for (int64_t i = 0; i < tile.rows; ++i, z += tile.candidates) {
    const int64_t row = tile.row + i;
    const auto shift = static_cast<float>(log_sums[row]);
    const double rounded = static_cast<double>(shift) - log_sums[row];
    loops_.of_rows->scaled_exp(tile.candidates, z, shift, factors[row] * static_cast<float>(std::exp(rounded)), z);
    c.left_out->each(c.first_row + row, tile.candidate, tile.candidate + tile.candidates,
                     [&](int64_t at) { z[at] = 0; });
  }
}

void TiledSoftmax::backward(const Compared& c, const float* factors, const double* log_sums, float* grad_states,
                            float* grad_candidates) const {
  const Parts parts(c, kMostParts);
  if (parts.count == 0) return (void)std::fill_n(grad_states, c.rows * c.width, 0.0f);
  const int64_t at_once = std::max(kRowsOfTile, kPartialValues / (parts.count * std::max<int64_t>(c.width, 1)));
  const auto partial =
      std::make_unique_for_overwrite<float[]>(static_cast<size_t>(parts.count * std::min(at_once, c.rows) * c.width));
  in_pieces(0, c.rows, at_once, [&](int64_t from, int64_t count) {
    const int64_t values = count * c.width;
    one_by_one(host_, parts.count, parts.count > 1, [&](int64_t part) {
      const OneThread alone;
      const int64_t begin = part * parts.size;
      float* own = partial.get() + part * values;
      alignas(64) TileOfLogits z;
      in_pieces(begin, std::min(c.candidates, begin + parts.size), kCandidatesOfTile, [&](int64_t at, int64_t width) {
        in_pieces(from, from + count, kRowsOfTile, [&](int64_t row, int64_t rows) {
          gradients(c, {row, rows, at, width}, factors, log_sums, z);
          multiply({'N', 'N', rows, c.width, width, 1, z, width, c.candidate_rows + at * c.width, c.width,
                    at == begin ? 0.0f : 1.0f, own + (row - from) * c.width, c.width});
          if (grad_candidates != nullptr)
            multiply({'T', 'N', width, c.width, rows, 1, z, width, c.states + row * c.width, c.width, 1,
                      grad_candidates + at * c.width, c.width});
        });
      });
    });
    float* out = grad_states + from * c.width;
    std::copy_n(partial.get(), values, out);
    for (int64_t part = 1; part < parts.count; ++part) loops_.add(values, partial.get() + part * values, out);
  });
}

}  // namespace tessera_dense

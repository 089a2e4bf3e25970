#include "dense/product.h"

#include <algorithm>

#include "gpu/columns.h"

namespace tessera::gpu {
namespace {

// Each block computes a tile of c, and each thread kSide * kSide of its elements. k advances in steps of kStep through
// shared memory.
constexpr int kTile = 64;
constexpr int kSide = 4;
constexpr int kStep = 16;
constexpr int kAcross = kTile / kSide;
constexpr int kPitch = kTile + 4;  // rows begin in different banks, and at a multiple of 16 bytes
static_assert(kAcross * kAcross == kBlockThreads);

constexpr int64_t kPiece = 256;         // the shortest piece of k that is worth a block
constexpr int64_t kWantedBlocks = 264;  // blocks that keep a GPU busy

// Loads one operand of a step: element (i, k) of the tile, with i along the tile. Neighbouring threads read
// neighbouring memory.
template <bool kInnerFirst>
GPU_DEVICE void load_tile(const float* from, int64_t first, int64_t count, int64_t k_first, int64_t k_end,
                          int64_t k_count, float* tile) {
  for (int e = static_cast<int>(threadIdx.x); e < kTile * kStep; e += kBlockThreads) {
    const int i = kInnerFirst ? e / kStep : e % kTile;
    const int k = kInnerFirst ? e % kStep : e / kTile;
    const int64_t row = first + i;
    const int64_t inner = k_first + k;
    const bool inside = row < count && inner < k_end;
    tile[k * kPitch + i] = !inside ? 0.0f : kInnerFirst ? from[row * k_count + inner] : from[inner * count + row];
  }
}

template <bool kATransposed, bool kBTransposed>
GPU_GLOBAL void GPU_LAUNCH_BOUNDS_OF(kBlockThreads, 2) product_kernel(Product p, int64_t piece, float* pieces) {
  GPU_SHARED(float, a_tile, kStep* kPitch);
  GPU_SHARED(float, b_tile, kStep* kPitch);
  const int64_t m_first = int64_t{blockIdx.x} * kTile;
  const int64_t n_first = int64_t{blockIdx.y} * kTile;
  const int64_t k_first = int64_t{blockIdx.z} * piece;
  const int64_t k_end = k_first + piece < p.k ? k_first + piece : p.k;
  const int row = static_cast<int>(threadIdx.x) / kAcross * kSide;
  const int column = static_cast<int>(threadIdx.x) % kAcross * kSide;
  float sum[kSide][kSide] = {};
  for (int64_t k = k_first; k < k_end; k += kStep) {
    load_tile<!kATransposed>(p.a, m_first, p.m, k, k_end, p.k, a_tile);
    load_tile<kBTransposed>(p.b, n_first, p.n, k, k_end, p.k, b_tile);
    sync_block();
    GPU_UNROLL
    for (int s = 0; s < kStep; ++s) {
      float a[kSide];
      float b[kSide];
      GPU_UNROLL
      for (int i = 0; i < kSide; ++i) a[i] = a_tile[s * kPitch + row + i];
      GPU_UNROLL
      for (int i = 0; i < kSide; ++i) b[i] = b_tile[s * kPitch + column + i];
      GPU_UNROLL
      for (int i = 0; i < kSide; ++i) {
        GPU_UNROLL
        for (int j = 0; j < kSide; ++j) sum[i][j] += a[i] * b[j];
      }
    }
    sync_block();
  }
  float* out = pieces == nullptr ? p.c : pieces + int64_t{blockIdx.z} * p.m * p.n;
  GPU_UNROLL
  for (int i = 0; i < kSide; ++i) {
    GPU_UNROLL
    for (int j = 0; j < kSide; ++j) {
      const int64_t r = m_first + row + i;
      const int64_t c = n_first + column + j;
      if (r >= p.m || c >= p.n) continue;
      float value = sum[i][j];
      if (pieces == nullptr) {
        if (p.bias != nullptr) value += p.bias[c];
        if (p.relu && value < 0) value = 0;
        if (p.add) value += out[r * p.n + c];
      }
      out[r * p.n + c] = value;
    }
  }
}

// Completes product_kernel: adds the pieces in order.
GPU_GLOBAL void GPU_LAUNCH_BOUNDS(kBlockThreads) add_pieces_kernel(Product p, int64_t count, const float* pieces) {
  const int64_t n = p.m * p.n;
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < n; i += int64_t{gridDim.x} * kBlockThreads) {
    float value = 0;
    for (int64_t piece = 0; piece < count; ++piece) value += pieces[piece * n + i];
    if (p.bias != nullptr) value += p.bias[i % p.n];
    if (p.relu && value < 0) value = 0;
    p.c[i] = p.add ? p.c[i] + value : value;
  }
}

int64_t tiles_of(int64_t n) { return (n + kTile - 1) / kTile; }

// The number of pieces into which k is divided.
int64_t pieces_of(const Product& p) {
  const int64_t tiles = std::max<int64_t>(1, tiles_of(p.m) * tiles_of(p.n));
  return std::clamp<int64_t>(std::min(p.k / kPiece, kWantedBlocks / tiles), 1, 1024);
}

// ---- sums over rows ----

constexpr int kSumColumns = 32;
constexpr int kSumRows = kBlockThreads / kSumColumns;
constexpr int64_t kRowsOfBlock = 256;

GPU_GLOBAL void GPU_LAUNCH_BOUNDS(kBlockThreads) mask_and_sum_kernel(MaskAndSum m, float* pieces) {
  GPU_SHARED(float, sums, kBlockThreads);
  const int64_t column = int64_t{blockIdx.x} * kSumColumns + threadIdx.x % kSumColumns;
  const int64_t first = int64_t{blockIdx.y} * kRowsOfBlock + threadIdx.x / kSumColumns;
  const int64_t end = first + kRowsOfBlock < m.rows ? (int64_t{blockIdx.y} + 1) * kRowsOfBlock : m.rows;
  float sum = 0;
  if (column < m.columns) {
    for (int64_t r = first; r < end; r += kSumRows) {
      const int64_t i = r * m.columns + column;
      float d = m.dy[i];
      if (m.y != nullptr) {
        d = m.y[i] <= 0 ? 0.0f : d;
        m.dz[i] = d;
      }
      sum += d;
    }
  }
  sums[threadIdx.x] = sum;
  sync_block();
  if (threadIdx.x >= kSumColumns || column >= m.columns) return;
  for (int r = 1; r < kSumRows; ++r) sum += sums[r * kSumColumns + threadIdx.x];
  if (pieces != nullptr) {
    pieces[int64_t{blockIdx.y} * m.columns + column] = sum;
  } else {
    m.sums[column] += sum;
  }
}

int64_t row_blocks_of(const MaskAndSum& m) { return (m.rows + kRowsOfBlock - 1) / kRowsOfBlock; }

void add_pieces(const Product& p, int64_t count, const float* pieces, Stream stream) {
  const int64_t blocks = (p.m * p.n + kBlockThreads - 1) / kBlockThreads;
  GPU_LAUNCH(add_pieces_kernel, dim3(static_cast<unsigned>(std::min<int64_t>(blocks, 1024))), dim3(kBlockThreads), 0,
             stream, p, count, pieces);
}

}  // namespace

int64_t product_scratch(const Product& p) {
  const int64_t pieces = pieces_of(p);
  return pieces == 1 ? 0 : pieces * p.m * p.n;
}

void multiply(const Product& p, float* scratch, Stream stream) {
  if (p.m == 0 || p.n == 0) return;
  const int64_t pieces = pieces_of(p);
  const int64_t piece = std::max<int64_t>(1, (p.k + pieces - 1) / pieces);
  float* parts = pieces == 1 ? nullptr : scratch;
  const dim3 grid(static_cast<unsigned>(tiles_of(p.m)), static_cast<unsigned>(tiles_of(p.n)),
                  static_cast<unsigned>(pieces));
  const dim3 block(kBlockThreads);
  if (p.a_transposed && p.b_transposed) {
    GPU_LAUNCH((product_kernel<true, true>), grid, block, 0, stream, p, piece, parts);
  } else if (p.a_transposed) {
    GPU_LAUNCH((product_kernel<true, false>), grid, block, 0, stream, p, piece, parts);
  } else if (p.b_transposed) {
    GPU_LAUNCH((product_kernel<false, true>), grid, block, 0, stream, p, piece, parts);
  } else {
    GPU_LAUNCH((product_kernel<false, false>), grid, block, 0, stream, p, piece, parts);
  }
  if (parts != nullptr) add_pieces(p, pieces, parts, stream);
}

int64_t mask_scratch(const MaskAndSum& m) { return row_blocks_of(m) > 1 ? row_blocks_of(m) * m.columns : 0; }

void mask_and_sum(const MaskAndSum& m, float* scratch, Stream stream) {
  const int64_t blocks = row_blocks_of(m);
  if (blocks == 0 || m.columns == 0) return;
  const dim3 grid(static_cast<unsigned>((m.columns + kSumColumns - 1) / kSumColumns), static_cast<unsigned>(blocks));
  float* pieces = blocks > 1 ? scratch : nullptr;
  GPU_LAUNCH(mask_and_sum_kernel, grid, dim3(kBlockThreads), 0, stream, m, pieces);
  if (pieces == nullptr) return;
  Product sums{1, m.columns, 0, nullptr, nullptr, m.sums};
  sums.add = true;
  add_pieces(sums, blocks, pieces, stream);
}

}  // namespace tessera::gpu

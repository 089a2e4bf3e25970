// The machine's random-gather limit as a subject of `bench lookup`.
#include <algorithm>
#include <utility>

#include "bench/lookup_gather.h"
#include "bench/lookup_subject.h"
#include "tessera/sdk/random.h"

namespace tessera::cli {
namespace {

constexpr int64_t kRowsPerPiece = 1024;

// Floats per row; a quantized row counts its bytes, rounded up.
int64_t floats_of(const LookupShape& shape) { return (shape.row_bytes() + 3) / 4; }

// Whole numbers from -8 to 7: float32 sums of them are exact in any order.
void fill_with_small_integers(Tensor& table, uint64_t seed) {
  sdk::Random random(seed);
  uint64_t bits = 0;
  int64_t i = 0;
  for (float& value : table.span<float>()) {
    if (i++ % 16 == 0) bits = random.bits();
    value = static_cast<float>(static_cast<int>(bits & 15) - 8);
    bits >>= 4;
  }
}

// Tables in the same kind of memory as the kernels' tables, and the row that each lookup of each batch reads.
class Gather {
 public:
  Gather(const Runtime& runtime, const LookupShape& shape, const LookupBatches& batches)
      : runtime_(runtime), dim_(floats_of(shape)), count_(shape.lookups()) {
    for (int64_t t = 0; t < shape.tables; ++t) {
      tables_.push_back(Tensor::empty({shape.rows, dim_}));
      fill_with_small_integers(tables_.back(), static_cast<uint64_t>(t));
    }
    const int64_t per_table = shape.batch * shape.pooling;
    for (const auto& batch : batches) {
      std::vector<const float*> rows;
      rows.reserve(static_cast<size_t>(count_ + kMaxGatherAhead));
      for (int64_t i = 0; i < count_; ++i) {
        rows.push_back(tables_[static_cast<size_t>(i / per_table)].data<float>() + batch->ids()[i] * dim_);
      }
      rows.resize(rows.size() + kMaxGatherAhead, rows.back());
      rows_.push_back(std::move(rows));
    }
    // Uses more pieces than threads, so that a thread that starts late leaves its share to the others. Each piece is
    // worth a hand-over.
    const int64_t most = runtime.threads() == 1 ? 1 : 8 * runtime.threads();
    sums_.resize(static_cast<size_t>(std::clamp<int64_t>(count_ / kRowsPerPiece, 1, most)));
  }

  double sum(size_t batch, const GatherWay& way) {
    const auto pieces = static_cast<int64_t>(sums_.size());
    runtime_.parallel_for(pieces, [&](int64_t piece) {
      const int64_t begin = count_ * piece / pieces, end = count_ * (piece + 1) / pieces;
      sums_[static_cast<size_t>(piece)] = way.run(rows_[batch].data() + begin, end - begin, way.ahead, dim_);
    });
    double total = 0;
    for (double s : sums_) total += s;
    return total;
  }

  // Checks that every way adds up every value of every row.
  bool reads_all(const std::vector<GatherWay>& ways) {
    double expected = 0;
    for (int64_t i = 0; i < count_; ++i) {
      for (int64_t d = 0; d < dim_; ++d) expected += static_cast<double>(rows_[0][static_cast<size_t>(i)][d]);
    }
    return std::all_of(ways.begin(), ways.end(), [&](const GatherWay& way) { return sum(0, way) == expected; });
  }

 private:
  const Runtime& runtime_;
  int64_t dim_, count_;
  std::vector<Tensor> tables_;
  std::vector<std::vector<const float*>> rows_;  // per batch, with kMaxGatherAhead extra entries at the end
  std::vector<double> sums_;                     // sum of each piece
};

}  // namespace

LookupSubject limit_subject(const Runtime& runtime, const LookupShape& shape, const LookupBatches& batches) {
  const auto gather = std::make_shared<Gather>(runtime, shape, batches);
  LookupSubject subject;
  subject.kernel = "limit";
  subject.pass = LookupPass::kLimit;
  subject.bytes = static_cast<double>(shape.lookups() * shape.row_bytes());
  const std::vector<GatherWay> ways = gather_ways(floats_of(shape));
  subject.verified = gather->reads_all(ways);
  for (const GatherWay& how : ways) {
    LookupWay way;
    way.run = [gather, how](size_t b) { gather->sum(b, how); };
    way.ahead = how.ahead;
    way.hint = how.hint;
    subject.ways.push_back(std::move(way));
  }
  return subject;
}

}  // namespace tessera::cli

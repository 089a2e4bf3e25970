#include "retrieval/approximate_index.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "tessera/abi/draft/index.h"
#include "tessera/calls.h"
#include "tessera/error.h"

namespace tessera::retrieval {
namespace {

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::string text_of(const IndexFigures& f) {
  char text[160];
  std::snprintf(text, sizeof(text),
                "the index finds %.1f %% of the %lld best items (%lld items as queries), in %.3g ms instead of %.3g ms",
                std::floor(1000 * f.recall) / 10, static_cast<long long>(f.k), static_cast<long long>(f.queries),
                f.index_ms, f.exact_ms);
  return text;
}

ApproximateIndex::ApproximateIndex(const Runtime& runtime, const std::string& name, const Tensor& vectors)
    : index_(runtime.create(TSR_INDEX_KIND, name)) {
  const tsr_index_items items{sizeof(items), 0, vectors.size(0), vectors.size(1), vectors.data<float>()};
  AbiError error;
  const plugin::CallScope call(*index_, "build");
  error.check(index_->api<tsr_index>().build(index_->self(), &items, error.out()), index_->id());
}

bool ApproximateIndex::search(const ItemIndex& exact, std::span<const float> query, int64_t k, Scratch& scratch,
                              std::span<int32_t> items, std::span<float> scores) const {
  if (!std::all_of(query.begin(), query.end(), [](float x) { return std::isfinite(x); })) return false;
  scratch.rows.resize(static_cast<size_t>(k));
  const tsr_index_search asked{sizeof(asked), 0, 1, k, query.data(), scratch.rows.data()};
  AbiError error;
  {
    const plugin::CallScope call(*index_, "search");
    error.check(index_->api<tsr_index>().search(index_->self(), &asked, error.out()), index_->id());
  }
  scratch.sorted.clear();
  for (const int64_t row : scratch.rows) {
    if (row == -1) return false;
    if (row < 0 || row >= exact.items())
      fail(Code::kInternal, "the index \"", index_->id(), "\" answers with row ", row, ", but there are ",
           exact.items(), " items");
    scratch.sorted.push_back(static_cast<int32_t>(row));
  }
  std::sort(scratch.sorted.begin(), scratch.sorted.end());
  const auto twice = std::adjacent_find(scratch.sorted.begin(), scratch.sorted.end());
  if (twice != scratch.sorted.end())
    fail(Code::kInternal, "the index \"", index_->id(), "\" answers with row ", *twice, " twice");
  exact.order(query, scratch.sorted, scratch.search, items, scores);
  return true;
}

IndexFigures ApproximateIndex::compared(const ItemIndex& exact, const Tensor& vectors, int64_t k,
                                        int64_t queries) const {
  const auto best = static_cast<size_t>(k), dim = static_cast<size_t>(exact.dim());
  IndexFigures out{.k = k, .queries = std::min(queries, exact.items())};
  Scratch scratch;
  std::vector<int32_t> items(best);
  std::vector<float> wanted(best), scores(best);
  int64_t found = 0;
  for (int64_t q = 0; q < out.queries; ++q) {
    const auto row = static_cast<size_t>(q * exact.items() / out.queries);
    const std::span<const float> query = vectors.span<float>().subspan(row * dim, dim);
    auto start = std::chrono::steady_clock::now();
    exact.search(query, k, scratch.search, items, wanted);
    out.exact_ms += milliseconds_since(start);
    start = std::chrono::steady_clock::now();
    if (!search(exact, query, k, scratch, items, scores)) scores = wanted;  // such a query is searched exactly
    out.index_ms += milliseconds_since(start);
    found += std::count_if(scores.begin(), scores.end(), [&](float score) { return score >= wanted.back(); });
  }
  out.recall = static_cast<double>(found) / static_cast<double>(out.queries * k);
  out.exact_ms /= static_cast<double>(out.queries);
  out.index_ms /= static_cast<double>(out.queries);
  return out;
}

}  // namespace tessera::retrieval

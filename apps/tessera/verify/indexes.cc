// Checks indexes: rows that are items, the same in every search, thread and batch of queries.
#include <algorithm>
#include <cstdint>

#include "tessera/abi/draft/index.h"
#include "verify/check.h"
#include "verify/threads.h"

namespace tessera::cli::verify {
namespace {

using Rows = std::vector<int64_t>;

std::vector<float> some_vectors(Random& random, int64_t count, int64_t dim) {
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(count * dim));
  for (float& x : out) x = normal(random);
  return out;
}

// An index of random items.
struct BuiltIndex {
  BuiltIndex(Subject& s, int64_t items, int64_t width)
      : subject(s), part(s.make()), api(part.api<tsr_index>()), count(items), dim(width) {
    Random random = subject.random();
    const std::vector<float> vectors = some_vectors(random, count, dim);  // gone after the call, as the contract says
    const tsr_index_items given{sizeof(given), 0, count, dim, vectors.data()};
    subject.asks(str_cat("build of ", count, " items of ", dim, " values"),
                 [&](tsr_error* err) { return api.build(part.self(), &given, err); });
  }
  Rows search(std::span<const float> queries, int64_t k, bool tell = true) const {
    constexpr int64_t kBehind = -77777;
    const auto n = static_cast<int64_t>(queries.size()) / dim;
    Rows rows(static_cast<size_t>(n * k) + 1, kBehind);
    const tsr_index_search asked{sizeof(asked), 0, n, k, queries.data(), rows.data()};
    if (tell) subject.doing(str_cat("search of ", n, " queries for ", k, " items"));
    Call call;
    const tsr_code code = api.search(part.self(), &asked, call.out());
    call.succeeds(code, "search");
    require(rows.back() == kBehind, "search writes past its ", n, " x ", k, " rows");
    rows.pop_back();
    return rows;
  }
  // One query's rows.
  void check(Rows rows) const {
    const auto end = std::find(rows.begin(), rows.end(), -1);
    for (auto row = rows.begin(); row != rows.end(); ++row) {
      require(row < end ? *row >= 0 && *row < count : *row == -1, "search gives row ", *row,
              row < end ? str_cat(" of ", count, " items") : std::string(" after a -1"));
    }
    std::sort(rows.begin(), end);
    const auto twice = std::adjacent_find(rows.begin(), end);
    require(twice == end, "search gives row ", twice == end ? 0 : *twice, " twice");
  }
  Subject& subject;
  Made part;
  const tsr_index& api;
  const int64_t count, dim;
};

void check_index_rows(Subject& subject) {
  for (const auto& [items, dim] : {std::pair<int64_t, int64_t>{1, 1}, {7, 3}, {900, 16}}) {
    const BuiltIndex index(subject, items, dim);
    Random random = subject.random(1);
    const std::vector<float> queries = some_vectors(random, 9, dim);
    for (const int64_t k : {int64_t{1}, std::min<int64_t>(items, 10), items}) {
      const Rows together = index.search(queries, k);
      require(index.search(queries, k) == together, "a second search gives other rows than the first");
      for (size_t q = 0; q < 9; ++q) {
        const auto at = together.begin() + static_cast<int64_t>(q) * k;
        const Rows mine(at, at + k);
        index.check(mine);
        const auto width = static_cast<size_t>(dim);
        require(index.search(std::span(queries).subspan(q * width, width), k) == mine,
                "a query finds other rows alone than beside others");
      }
    }
  }
}

void check_index_refusals(Subject& subject) {
  const BuiltIndex index(subject, 20, 4);
  const std::vector<float> query(4, 1.0f);
  Rows rows(20);
  tsr_index_search asked{sizeof(asked), 1u << 31, 1, 5, query.data(), rows.data()};
  subject.doing("search");
  Call call;
  call.fails(index.api.search(index.part.self(), &asked, call.out()),
             "search with an unknown flag that must be understood");
  const Made empty = subject.make();
  asked.flags = 0;
  subject.doing("search before build");
  Call early;
  early.fails(empty.api<tsr_index>().search(empty.self(), &asked, early.out()), "search before build");
}

void check_index_threads(Subject& subject) {
  const BuiltIndex index(subject, 900, 16);
  Random random = subject.random(2);
  const std::vector<float> queries = some_vectors(random, 20, 16);
  const Rows want = index.search(queries, 10);
  subject.doing("search on four threads at once");
  on_four_threads([&](int) {
    for (int i = 0; i < 100; ++i)
      require(index.search(queries, 10, false) == want, "on several threads at once it finds other rows than alone");
  });
}

}  // namespace

std::span<const Check> index_checks() {
  static constexpr const char* kKind = TSR_INDEX_KIND;
  static constexpr const char* kSearch = "abi/draft/index.h, tsr_index::search";
  static constexpr Check kChecks[] = {
      {"index.rows", 3, kKind, kSearch, 60, check_index_rows},
      {"index.refusals", 4, kKind, kSearch, 20, check_index_refusals},
      {"index.threads", 5, kKind, kSearch, 60, check_index_threads},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify

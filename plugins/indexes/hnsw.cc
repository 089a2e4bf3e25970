// "hnsw": hierarchical navigable small worlds (Malkov and Yashunin, arXiv 1603.09320), by hnswlib.
// Its own vector code is left out, because its prefetches read beyond the end of a list.
#define NO_MANUAL_VECTORIZATION
#include <hnswlib/hnswlib.h>

#include <algorithm>
#include <memory>

#include "tessera/sdk/draft/index.h"

namespace {

using namespace tessera::sdk;

// The negative dot product as a distance. Sums of kSums values each let the compiler use vectors.
class DotProducts : public hnswlib::SpaceInterface<float> {
 public:
  explicit DotProducts(size_t dim) : dim_(dim) {}
  size_t get_data_size() override { return dim_ * sizeof(float); }
  hnswlib::DISTFUNC<float> get_dist_func() override { return &distance; }
  void* get_dist_func_param() override { return &dim_; }

 private:
  static float distance(const void* left, const void* right, const void* width) {
    constexpr size_t kSums = 16;
    const auto* const a = static_cast<const float*>(left);
    const auto* const b = static_cast<const float*>(right);
    const size_t dim = *static_cast<const size_t*>(width);
    float sums[kSums] = {}, sum = 0;
    size_t i = 0;
    for (; i + kSums <= dim; i += kSums) {
      for (size_t s = 0; s < kSums; ++s) sums[s] += a[i + s] * b[i + s];
    }
    for (; i < dim; ++i) sum += a[i] * b[i];
    for (const float part : sums) sum += part;
    return -sum;
  }
  size_t dim_;
};

class Hnsw : public Index {
 public:
  explicit Hnsw(Options& options)
      : m_(within(options, "m", 16, 2, 512)),
        ef_construction_(within(options, "ef_construction", 200, 1, 100000)),
        ef_search_(within(options, "ef_search", 100, 1, int64_t{1} << 24)),
        seed_(within(options, "seed", 100, 0, INT32_MAX)) {}

  // Items are added one by one on one thread, so the same items and options make the same graph.
  void build(std::span<const float> vectors, int64_t dim) override {
    const auto width = static_cast<size_t>(dim), items = vectors.size() / width;
    auto space = std::make_unique<DotProducts>(width);
    auto graph = std::make_unique<Graph>(space.get(), items, m_, ef_construction_, seed_);
    for (size_t i = 0; i < items; ++i) graph->addPoint(vectors.data() + i * width, i);
    graph->setEf(ef_search_);
    space_ = std::move(space);
    graph_ = std::move(graph);
  }

  void find(std::span<const float> query, std::span<int64_t> rows) const override {
    auto found = graph_->searchKnn(query.data(), rows.size());
    for (size_t i = found.size(); i-- > 0; found.pop()) rows[i] = static_cast<int64_t>(found.top().second);
  }

 private:
  using Graph = hnswlib::HierarchicalNSW<float>;

  static size_t within(Options& options, const char* name, int64_t otherwise, int64_t least, int64_t most) {
    const int64_t value = options.integer(name, otherwise);
    if (value < least || value > most)
      fail(TSR_INVALID_ARGUMENT, "option \"", name, "\" must be ", least, " to ", most, ", not ", value);
    return static_cast<size_t>(value);
  }

  size_t m_, ef_construction_, ef_search_, seed_;
  std::unique_ptr<DotProducts> space_;  // outlives the graph, which points into it
  std::unique_ptr<Graph> graph_;
};

}  // namespace

TESSERA_PLUGIN("tessera-hnsw", "1.0.0",
               component<Hnsw>({.id = "hnsw", .version = "1.0.0", .about = "graph of near items, by hnswlib"}));

// Memory runs out in a step: for every k, the k-th allocation of a rank fails. The rank reports it and the others hear
// of it; nothing is lost, and later steps work.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "sharded.h"
#include "spawn.h"
#include "tessera/sharded_modules.h"

namespace {

std::atomic<int64_t> left{-1};  // allocations that succeed before one fails; below 0: all succeed
std::atomic<int64_t> in_use{0};

void* allocate(size_t n, size_t alignment) {
  if (left.load(std::memory_order_relaxed) >= 0 && left-- == 0) throw std::bad_alloc();
  void* p = alignment > alignof(std::max_align_t)
                ? std::aligned_alloc(alignment, (n + alignment - 1) / alignment * alignment)
                : std::malloc(n == 0 ? 1 : n);
  if (p == nullptr) throw std::bad_alloc();
  ++in_use;
  return p;
}
void release(void* p) noexcept {
  if (p != nullptr) --in_use;
  std::free(p);
}

}  // namespace

void* operator new(size_t n) { return allocate(n, 1); }
void* operator new[](size_t n) { return allocate(n, 1); }
void* operator new(size_t n, std::align_val_t a) { return allocate(n, static_cast<size_t>(a)); }
void* operator new[](size_t n, std::align_val_t a) { return allocate(n, static_cast<size_t>(a)); }
void* operator new(size_t n, const std::nothrow_t&) noexcept {
  try {
    return allocate(n, 1);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, size_t) noexcept { release(p); }
void operator delete[](void* p, size_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { release(p); }

namespace tessera {
namespace {

constexpr int64_t kRows = 40, kDim = 8, kSamples = 6;
const std::vector<std::string> kTypes = {"table_wise", "row_wise", "column_wise", "data_parallel"};

std::vector<EmbeddingBagConfig> tables() {
  std::vector<EmbeddingBagConfig> out;
  for (const std::string& type : kTypes) {
    EmbeddingBagConfig t{.name = type,
                         .num_embeddings = kRows,
                         .embedding_dim = kDim,
                         .feature_names = {"a feature whose name has no room inside a string: " + type},
                         .pooling = type == "row_wise" ? PoolingType::kMean : PoolingType::kSum};
    out.push_back(t);
  }
  return out;
}

ShardedEmbeddingBagCollection module_of(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group) {
  const auto plan =
      test::plan_of(runtime, tables(), Topology::of(group->world_size(), group->local_world_size(), "cpu"));
  const ShardedModuleOptions options{.optimizer = {"exact_rowwise_adagrad", R"({"learning_rate": 0.1})", 0}};
  return EmbeddingBagCollectionSharder(runtime, options).shard(tables(), plan, group);
}

KeyedJaggedTensor batch_of(int rank) {
  return test::bags_of(
      tables(), kSamples, [&](int64_t, int64_t b) { return (b + rank) % 3; },
      [&](int64_t, int64_t b, int64_t i) { return (b * 7 + i * 11 + rank) % kRows; });
}

// Runs a first step in which the k-th allocation fails. Returns the error, or "" if all went well.
std::string step(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group, int64_t k, bool* came) {
  auto module = module_of(runtime, group);
  const KeyedJaggedTensor batch = batch_of(group->rank());
  Tensor grad = Tensor::empty({kSamples, std::ssize(kTypes) * kDim});
  grad.fill(0.01);
  std::string said;
  left = k;
  try {
    auto out = module.forward(batch).wait();
    module.backward(out, grad);
  } catch (const std::bad_alloc&) {
    said = "no memory";
  } catch (const Error& e) {
    said = *e.what() == '\0' ? "an error without a word" : e.what();
  }
  *came = k >= 0 && left < 0;
  left = -1;
  return said;
}

std::string one_rank(const RankEnvironment& where) {
  const Runtime runtime;
  const auto group = ProcessGroup::connect(runtime, where);
  bool came = false;
  for (int i = 0; i < 2; ++i) step(runtime, group, -1, &came);  // makes allocations that are kept forever
  std::string wrong;
  came = true;
  int64_t k = 0;
  for (; came && wrong.empty(); ++k) {
    step(runtime, group, k, &came);  // also those that are kept of a failure
    const int64_t before = in_use;
    if (const std::string said = step(runtime, group, k, &came);
        came == said.empty() || said.find("std::") != std::string::npos)
      wrong = str_cat("allocation ", k, came ? " failed" : " was there", ", and it said: ", said);
    if (wrong.empty() && in_use != before)
      wrong = str_cat("allocation ", k, " failed, and ", in_use - before, " are lost");
  }
  if (const std::string said = step(runtime, group, -1, &came); !said.empty()) wrong += "; then: " + said;
  return k < 50 ? str_cat(wrong, "; it ended at ", k) : wrong;
}

// Memory of rank 0 runs out; rank 1 hears of it, or was already done.
std::string two_ranks(const RankEnvironment& where, int64_t every) {
  const Runtime runtime;
  const auto world = ProcessGroup::connect(runtime, where, {.backend = "tcp", .timeout_s = 30});
  std::string wrong;
  int64_t heard = 0;
  Tensor going_on = Tensor::from<int32_t>({1});
  for (int64_t k = 0; going_on.data<int32_t>()[0] != 0; k += every) {
    const auto start = std::chrono::steady_clock::now();
    bool came = false;
    std::string said;
    {
      const auto group = world->split(0);
      said = step(runtime, group, where.rank == 0 ? k : -1, &came);
    }
    heard += !said.empty();
    if ((where.rank == 0 && came == said.empty()) || said.find("std::") != std::string::npos)
      wrong += str_cat("allocation ", k, ": ", said, "\n");
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(15))
      wrong += str_cat("allocation ", k, ": late\n");
    going_on.data<int32_t>()[0] = where.rank == 0 && came && wrong.empty();
    world->all_reduce(going_on, ReduceOp::kMax).wait();
  }
  return heard > 0 ? wrong : wrong + "it never ran out";
}

std::string in_ranks(int world, const std::function<std::string(const RankEnvironment&)>& body) {
  std::string all;
  for (const std::string& text : cli::run_in_ranks(world, world, 300, body)) all += text;
  return all;
}

TEST(Shortage, InAStepOfOneRankIsSaidAndNothingIsLost) { EXPECT_EQ(in_ranks(1, one_rank), ""); }

TEST(Shortage, OfOneRankIsHeardByTheOther) {
  EXPECT_EQ(in_ranks(2, [](const RankEnvironment& r) { return two_ranks(r, 17); }), "");
}

}  // namespace
}  // namespace tessera

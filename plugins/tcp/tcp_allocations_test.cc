// After the first operations of a kind, nothing is allocated.
#include <cstdlib>
#include <new>

#include "testing.h"

namespace {

thread_local int64_t allocations = 0;

void* counted(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t bytes) { return counted(bytes); }
void* operator new[](size_t bytes) { return counted(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }

namespace tessera::tcp {
namespace {

// Runs every operation once, with `count` elements per rank, two operations in flight.
struct Exchange {
  sdk::Group& group;
  int64_t each;
  size_t world = static_cast<size_t>(group.world_size()), n = static_cast<size_t>(each);
  std::vector<float> one = std::vector<float>(n), all = std::vector<float>(n * world), other = all;
  std::vector<int64_t> counts = std::vector<int64_t>(world, each);
  View<float> one_view{one}, all_view{all}, other_view{other};

  void run() {
    sdk::Work* first = group.all_to_all_v(all_view, counts, other_view, counts, call("rows"));
    sdk::Work* second = group.broadcast(one_view, 1, call());
    finish(first);
    finish(second);
    finish(group.all_reduce(all_view, TSR_REDUCE_SUM, call()));
    finish(group.reduce_scatter_v(other_view, counts, one_view, TSR_REDUCE_MAX, call()));
    finish(group.all_gather_v(one_view, all_view, counts, call()));
    finish(group.barrier(call()));
  }
};

TEST(Allocations, NoneInASteadyState) {
  for (const char* options : {"{}", R"({"single_copy": false})", R"({"shm": false})"}) {
    with_groups(
        3,
        [&](sdk::Group& group) {
          for (const int64_t each : {100, 20000, 300000}) {
            Exchange exchange{group, each};
            exchange.run();
            const int64_t before = allocations;
            for (int i = 0; i < 5; ++i) exchange.run();
            EXPECT_EQ(allocations, before) << options << ", " << each << " elements";
          }
        },
        options);
  }
}

}  // namespace
}  // namespace tessera::tcp

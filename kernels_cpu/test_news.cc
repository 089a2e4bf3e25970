// The test program's operator new, which counts calls. Plugins also use it, because the program exports it. It has a
// file of its own, so that the compiler does not see that it is malloc.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> g_news{0};
std::atomic<int64_t> g_bytes{0};
}  // namespace

namespace tessera_cpu::test {
int64_t news_so_far() { return g_news; }
int64_t bytes_asked_so_far() { return g_bytes; }
}  // namespace tessera_cpu::test

void* operator new(size_t size) {
  ++g_news;
  g_bytes += static_cast<int64_t>(size);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

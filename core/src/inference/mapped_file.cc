#include "inference/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "checkpoint/files.h"
#include "tessera/predictor.h"

namespace tessera::inference {
namespace {

// Addresses of mapped files, global because a signal handler reads them. Files beyond this number are not guarded.
struct Range {
  std::atomic<uintptr_t> begin{0}, end{0};  // 0: free; end is set last and cleared first
};
constinit std::array<Range, 4096> g_ranges{};
constinit std::atomic<uint64_t> g_lost{0};
struct sigaction g_before {};

Range* guard(const void* at, size_t bytes) {
  for (Range& range : g_ranges) {
    uintptr_t none = 0;
    if (!range.begin.compare_exchange_strong(none, reinterpret_cast<uintptr_t>(at))) continue;
    range.end = reinterpret_cast<uintptr_t>(at) + bytes;
    return &range;
  }
  return nullptr;
}
void release(Range* range) {
  if (range == nullptr) return;
  range->end = 0;
  range->begin = 0;
}

// Maps zeros over the lost page, and returns to the code that read it.
void on_lost_page(int, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (const Range& range : g_ranges) {
    if (at < range.begin || at >= range.end) continue;
    char* const begin = static_cast<char*>(info->si_addr) - at % page;
    constexpr int kAccess = PROT_READ | PROT_WRITE;  // for private mappings
    if (::mmap(begin, page, kAccess, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) break;
    ++g_lost;
    return;
  }
  ::sigaction(SIGBUS, &g_before, nullptr);  // not ours
  ::raise(SIGBUS);
}

}  // namespace

uint64_t lost_pages() { return g_lost; }

MappedFile::MappedFile(const std::string& path, Access access) {
  const checkpoint::Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0) checkpoint::fail_with(errno, "open", path);
  if (!S_ISREG(info.st_mode)) fail(Code::kUnavailable, "cannot open ", path, ": it is not a file");
  size_ = info.st_size;
  if (size_ == 0) fail(Code::kDataLoss, path, " is empty");
  const auto bytes = static_cast<size_t>(size_);
  const bool own = access == kPrivate;
  void* const at =
      ::mmap(nullptr, bytes, PROT_READ | (own ? PROT_WRITE : 0), own ? MAP_PRIVATE : MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) checkpoint::fail_with(errno, "map", path);
  memory_ = std::shared_ptr<void>(at, [bytes, range = guard(at, bytes)](void* p) {
    release(range);
    ::munmap(p, bytes);
  });
}

Tensor MappedFile::view(int64_t offset, const std::vector<int64_t>& shape, DType dtype) const {
  Tensor out = Tensor::borrow(static_cast<char*>(memory_.get()) + offset, shape, dtype, memory_);
  TESSERA_CHECK(offset >= 0 && offset + out.bytes() <= size_, "a view beyond the end of a file");
  return out;
}

}  // namespace tessera::inference

void tessera::survive_lost_pages() {
  struct sigaction action {};
  action.sa_sigaction = inference::on_lost_page;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, &inference::g_before);
}

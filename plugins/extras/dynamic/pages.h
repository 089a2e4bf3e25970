// Memory that starts as zeros. The system provides it page by page, when a page is first touched.
#pragma once

#include <sys/mman.h>
#include <tessera/sdk/error.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace extras {

// Pages are obtained each when it is touched, or all at once. The latter is for memory that is touched in random order:
// the first steps would otherwise wait for every page. Pages beyond kMostAtOnce bytes are always obtained when touched.
enum class Touched { kInTurn, kAtOnce };

template <class T>
class Pages {
 public:
  Pages() = default;
  explicit Pages(uint64_t elements, Touched touched = Touched::kInTurn) {
    if (elements == 0) return;
    // From half a huge page on, uses whole huge pages, aligned to their size. Otherwise a lookup mostly waits for
    // address translation.
    const uint64_t wanted = elements * sizeof(T);
    const bool huge = wanted >= kHugePage / 2;
    bytes_ = huge ? (wanted + 2 * kHugePage - 1) / kHugePage * kHugePage : wanted;
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
      tessera::sdk::fail(TSR_RESOURCE_EXHAUSTED, "there are no ", std::exchange(bytes_, 0),
                         " bytes of addresses: give the table fewer rows");
    }
    mapped_ = at;
    if (huge) {
      if (touched == Touched::kAtOnce) madvise(at, bytes_, MADV_HUGEPAGE);  // only a hint: 4 KiB pages also work
      size_t room = bytes_;
      std::align(kHugePage, wanted, at, room);
    }
    data_ = static_cast<T*>(at);
    if (touched == Touched::kAtOnce && wanted <= kMostAtOnce) {
      for (uint64_t i = 0; i < wanted; i += 4096) static_cast<volatile char*>(at)[i] = 0;
    }
  }
  ~Pages() {
    if (mapped_ != nullptr) munmap(mapped_, bytes_);
  }
  Pages(Pages&& other) noexcept { swap(other); }
  Pages& operator=(Pages&& other) noexcept {
    Pages(std::move(other)).swap(*this);
    return *this;
  }

  // Call if this many elements are used, or will be. With `soon`, their memory is obtained in huge pages. Otherwise a
  // step would wait longer for a huge page than for small ones, so the kernel is asked to join small pages later.
  void use(uint64_t elements, bool soon) {
    if (bytes_ < kHugePage) return;
    const uint64_t used = elements * sizeof(T), whole = (used + (soon ? kHugePage - 1 : 0)) / kHugePage * kHugePage;
    if (whole <= joined_) return;
    madvise(reinterpret_cast<char*>(data_) + joined_, whole - joined_, MADV_HUGEPAGE);
    joined_ = whole;
  }
  T* data() const { return data_; }
  T& operator[](uint64_t i) const { return data_[i]; }

 private:
  static constexpr uint64_t kHugePage = 2 << 20;
  static constexpr uint64_t kMostAtOnce = uint64_t{512} << 20;

  void swap(Pages& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(mapped_, other.mapped_);
    std::swap(bytes_, other.bytes_);
    std::swap(joined_, other.joined_);
  }
  T* data_ = nullptr;
  void* mapped_ = nullptr;  // mapping that contains data_
  uint64_t bytes_ = 0;      // size of that mapping
  uint64_t joined_ = 0;     // bytes of data_ with huge pages
};

}  // namespace extras

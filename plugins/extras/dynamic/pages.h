// Memory that starts as zeros and is taken from the machine page by page, when it is first touched.
#pragma once

#include <sys/mman.h>
#include <tessera/sdk/error.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace extras {

// When pages are taken: each when it is touched, or, where that is in no order and the first steps would wait for all
// of them, at once. Those of more than kMostAtOnce bytes come in turn.
enum class Touched { kInTurn, kAtOnce };

template <class T>
class Pages {
 public:
  Pages() = default;
  explicit Pages(uint64_t elements, Touched touched = Touched::kInTurn) {
    if (elements == 0) return;
    // From half a huge page on, whole ones that begin where such a page does: else a lookup mostly waits for the
    // translation of addresses.
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
      if (touched == Touched::kAtOnce) madvise(at, bytes_, MADV_HUGEPAGE);  // a hint: 4 KiB pages serve, too
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

  // So many elements are in use, or will be: `soon` takes their memory in huge pages. Otherwise a step would wait for
  // these longer than for small ones, and the kernel is told to join them when they are there.
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
  void* mapped_ = nullptr;  // what data_ lies in
  uint64_t bytes_ = 0;      // of that
  uint64_t joined_ = 0;     // of data_, that huge pages are for
};

}  // namespace extras

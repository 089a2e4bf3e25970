// Memory that starts as zeros and is taken from the machine page by page, when it is first touched.
#pragma once

#include <sys/mman.h>
#include <tessera/sdk/error.h>

#include <cstdint>
#include <utility>

namespace flagships {

template <class T>
class Pages {
 public:
  Pages() = default;
  explicit Pages(uint64_t elements) : bytes_(elements * sizeof(T)) {
    if (bytes_ == 0) return;
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
      tessera::sdk::fail(TSR_RESOURCE_EXHAUSTED, "there are no ", std::exchange(bytes_, 0),
                         " bytes of addresses: give the table fewer rows");
    }
    data_ = static_cast<T*>(at);
    constexpr uint64_t kHugePage = 2 << 20;
    if (bytes_ >= kHugePage) madvise(at, bytes_, MADV_HUGEPAGE);  // a hint: 4 KiB pages serve, too
  }
  ~Pages() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Pages(Pages&& other) noexcept { swap(other); }
  Pages& operator=(Pages&& other) noexcept {
    Pages(std::move(other)).swap(*this);
    return *this;
  }

  T* data() const { return data_; }
  T& operator[](uint64_t i) const { return data_[i]; }

 private:
  void swap(Pages& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  T* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace flagships

// A pool of objects that threads borrow. It makes one if all are in use, and keeps them for later.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tessera::inference {

template <class T>
class Pool {
 public:
  explicit Pool(std::function<std::unique_ptr<T>()> make) : make_(std::move(make)) {}

  class Lease {
   public:
    Lease(Pool& pool, std::unique_ptr<T> object) : pool_(pool), object_(std::move(object)) {}
    ~Lease() { pool_.give_back(std::move(object_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    T& operator*() const { return *object_; }
    T* operator->() const { return object_.get(); }

   private:
    Pool& pool_;
    std::unique_ptr<T> object_;
  };

  // [any-thread] Allocates only if more threads borrow at once than ever before.
  Lease take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<T> last = std::move(free_.back());
        free_.pop_back();
        return Lease(*this, std::move(last));
      }
      free_.reserve(++made_);  // so that returning an object never allocates
    }
    return Lease(*this, make_());
  }

 private:
  void give_back(std::unique_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(object));
  }

  std::function<std::unique_ptr<T>()> make_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> free_;  // the last used one is last, because its memory is warm
  size_t made_ = 0;
};

}  // namespace tessera::inference

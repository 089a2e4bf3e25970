// emulator/memory.h - device memory that cannot be touched outside its life; pinned host memory. Internal to the
// emulator.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace emulator {

// Its own pages, between others that cannot be touched. Life: reserved -> usable -> gone.
class Allocation {
 public:
  explicit Allocation(size_t bytes);  // throws std::bad_alloc
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  char* begin() const { return begin_; }
  size_t bytes() const { return bytes_; }
  enum class Life { kReserved, kUsable, kGone };
  Life life() const { return life_; }
  void make_usable();    // filled with 0xA5
  bool make_unusable();  // returns false if bytes after its end have been written
  void open() const;     // for every thread of the process, while it is usable
  void close() const;
  int device = 0;

 private:
  char* begin_;
  size_t bytes_;
  size_t mapped_;
  std::atomic<Life> life_ = Life::kReserved;
};

// All allocations of the process.
class Memory {
 public:
  // From now on, a segmentation fault in this memory is explained before the program ends. AddressSanitizer's own
  // report is better.
  void explain_faults();

  enum class Place { kPageable, kPinned, kDevice };

  // Encloses the device's work. Outside it, if `guarded`, no thread can touch device memory, because the host could
  // not.
  void begin_work(bool guarded);
  void end_work(bool guarded);

  std::shared_ptr<Allocation> allocate(size_t bytes, int device, size_t limit);  // NULL if beyond the limit
  // NULL if it is not the begin of a live allocation
  std::shared_ptr<Allocation> release(void* memory);
  void retire(std::shared_ptr<Allocation> gone);  // its addresses are not reused soon
  size_t used(int device) const;

  void* allocate_pinned(size_t bytes);
  bool free_pinned(void* memory);

  // The kind of memory at [memory, memory + bytes). `wrong` gets one sentence if it cannot be copied from or to.
  Place place(const void* memory, size_t bytes, std::string* wrong) const;
  // Called in the handler of a fault at this address; returns a sentence, or NULL.
  const char* explain(const void* address) const;

 private:
  mutable std::mutex mutex_;
  int working_ = 0;
  std::map<const char*, std::shared_ptr<Allocation>> live_;     // live as seen by the host's calls
  std::map<const char*, std::shared_ptr<Allocation>> present_;  // present until their free is reached in its stream
  std::map<const char*, size_t> pinned_;
  std::map<int, size_t> used_;
  std::deque<std::shared_ptr<Allocation>> retired_;
};

}  // namespace emulator

// Arrow's C data and C stream interfaces (https://arrow.apache.org/docs/format/CDataInterface.html): the structs,
// copied as the specification intends. They are a stable ABI: a producer needs no header of ours, and we need none of
// its headers.
#pragma once

#include <cstdint>

extern "C" {

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};

#endif  // ARROW_C_DATA_INTERFACE

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};

#endif  // ARROW_C_STREAM_INTERFACE

}  // extern "C"

namespace tessera_readers {

// Releases an object that a producer handed over.
template <class T>
class ArrowOwner {
 public:
  ArrowOwner() = default;
  ~ArrowOwner() { reset(); }
  ArrowOwner(const ArrowOwner&) = delete;
  ArrowOwner& operator=(const ArrowOwner&) = delete;

  T* operator->() { return &raw_; }
  T& operator*() { return raw_; }
  const T& operator*() const { return raw_; }
  // For a producer to fill; must be empty.
  T* out() {
    reset();
    return &raw_;
  }
  explicit operator bool() const { return raw_.release != nullptr; }
  void reset() {
    if (raw_.release != nullptr) raw_.release(&raw_);
    raw_ = {};
  }

 private:
  T raw_{};
};

}  // namespace tessera_readers

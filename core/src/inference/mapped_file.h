// Files mapped into memory, shared and read-only, or private: nothing is read before it is touched, and pages of a
// private one are copied when they are written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/tensor.h"

namespace tessera::inference {

class MappedFile {
 public:
  enum Access { kShared, kPrivate };
  // Errors as checkpoint/files.h says; an empty file is kDataLoss.
  explicit MappedFile(const std::string& path, Access access = kShared);
  int64_t size() const { return size_; }
  const void* data() const { return memory_.get(); }
  // Bytes from `offset` on as a tensor, which keeps the mapping alive. The caller has compared it with size().
  Tensor view(int64_t offset, const std::vector<int64_t>& shape, DType dtype) const;

 private:
  std::shared_ptr<void> memory_;
  int64_t size_ = 0;
};

// Pages that were lost after survive_lost_pages(), in this process.
uint64_t lost_pages();

}  // namespace tessera::inference

// Maps files into memory, shared and read-only, or private. Pages are read when they are touched; a private mapping
// copies pages that are written.
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
  // Errors are those of checkpoint/files.h; an empty file is kDataLoss.
  explicit MappedFile(const std::string& path, Access access = kShared);
  int64_t size() const { return size_; }
  const void* data() const { return memory_.get(); }
  // The bytes from `offset` on as a tensor that keeps the mapping alive. The caller has checked size().
  Tensor view(int64_t offset, const std::vector<int64_t>& shape, DType dtype) const;

 private:
  std::shared_ptr<void> memory_;
  int64_t size_ = 0;
};

// Number of pages lost in this process since survive_lost_pages().
uint64_t lost_pages();

}  // namespace tessera::inference

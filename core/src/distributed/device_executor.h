// Rows on a device: what it needs of a step is copied there, and its lists of indices move the rows.
#pragma once

#include "distributed/row_executor.h"

namespace tessera {

class DeviceExecutor final : public RowExecutor {
 public:
  explicit DeviceExecutor(const DeviceStreamPtr& stream);

  std::unique_ptr<RowMover> mover(bool repeating) override;
  void wait() override { uploaded_.wait(); }
  Tensor upload(const Buffer& from, Buffer& there, int64_t n) override;
  Tensor bring(const Tensor& gradient) override;
  Tensor bring(std::span<const Piece> pieces, int64_t elements) override;
  void record() { uploaded_.record(); }  // behind what the host must not write before it was read

 private:
  DeviceStreamPtr stream_;
  Buffer staged_{DType::kFloat32}, gradient_{DType::kFloat32};
  DeviceStream::Event uploaded_;
};

// Pieces in one tensor of host memory.
void put_together(std::span<const RowExecutor::Piece> pieces, const Tensor& to);

}  // namespace tessera

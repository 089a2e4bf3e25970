// Moves rows on a device. It copies what a step needs to the device, and moves the rows by lists of indices there.
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
  void record() { uploaded_.record(); }  // marks in the stream that the host may overwrite what was uploaded so far

 private:
  DeviceStreamPtr stream_;
  Buffer staged_{DType::kFloat32}, gradient_{DType::kFloat32};
  DeviceStream::Event uploaded_;
};

// Copies pieces into one tensor of host memory.
void put_together(std::span<const RowExecutor::Piece> pieces, const Tensor& to);

}  // namespace tessera

// Helpers for tests of tessera.h: check return values, and make tensors.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/tessera_draft.h"

namespace tessera::test {

// The code and sentence of the last call.
struct Error : tsr_error {
  Error() : tsr_error TSR_ERROR_INIT {}
};
#define OK(call)                            \
  do {                                      \
    Error err;                              \
    ASSERT_EQ(call, TSR_OK) << err.message; \
  } while (0)
#define REFUSED(wanted, sentence, call)                     \
  do {                                                      \
    Error err;                                              \
    EXPECT_EQ(call, wanted) << err.message;                 \
    EXPECT_EQ(err.code, wanted);                            \
    EXPECT_THAT(err.message, testing::HasSubstr(sentence)); \
  } while (0)

// Outside the range from which the system assigns ports.
inline int32_t free_port() {
  std::random_device random;
  while (true) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(20000 + random() % 12000));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int tried = socket(AF_INET, SOCK_STREAM, 0);
    const bool is_free = bind(tried, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) == 0;
    close(tried);
    if (is_free) return ntohs(at.sin_port);
  }
}

// A vector as a DLTensor.
template <class T>
class View {
 public:
  View(std::vector<T>& data, std::vector<int64_t> shape) : shape_(std::move(shape)) {
    const DLDataType type{static_cast<uint8_t>(std::is_floating_point_v<T> ? kDLFloat : kDLInt), 8 * sizeof(T), 1};
    tensor = {data.data(), {kDLCPU, 0}, static_cast<int32_t>(shape_.size()), type, shape_.data(), nullptr, 0};
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  DLTensor* operator&() { return &tensor; }
  DLTensor tensor;

 private:
  std::vector<int64_t> shape_;
};

// A batch for infer.h in compact tensors over the caller's vectors.
class ModelBatch {
 public:
  ModelBatch(std::vector<std::vector<int64_t>>& values, std::vector<std::vector<int32_t>>& lengths,
             std::vector<float>& dense, int64_t batch)
      : dense_(dense, {batch, std::ssize(dense) / std::max<int64_t>(1, batch)}) {
    for (size_t f = 0; f < values.size(); ++f) {
      values_.push_back(std::make_unique<View<int64_t>>(values[f], std::vector<int64_t>{std::ssize(values[f])}));
      lengths_.push_back(std::make_unique<View<int32_t>>(lengths[f], std::vector<int64_t>{batch}));
      of_values_.push_back(&*values_.back());
      of_lengths_.push_back(&*lengths_.back());
    }
    raw = {sizeof(raw), static_cast<uint32_t>(values.size()), &dense_, of_values_.data(), of_lengths_.data(), nullptr};
  }
  tsr_model_input raw;

 private:
  View<float> dense_;
  std::vector<std::unique_ptr<View<int64_t>>> values_;
  std::vector<std::unique_ptr<View<int32_t>>> lengths_;
  std::vector<const DLTensor*> of_values_, of_lengths_;
};

}  // namespace tessera::test

// Translates between the structs of endpoints (abi/draft/endpoint.h) and the service's questions and outcomes. Tensors
// are views on both ways: nothing is copied but what a model needs.
#pragma once

#include <vector>

#include "serve/service.h"
#include "serve/tensor_request.h"
#include "tessera/abi/draft/endpoint.h"

namespace tessera::serve {

// A request as a question. Both are views of the struct's memory.
class EndpointQuestion {
 public:
  // Throws Refused for a call or a flag that this server does not know.
  explicit EndpointQuestion(const tsr_endpoint_request& given);
  EndpointQuestion(const EndpointQuestion&) = delete;
  EndpointQuestion& operator=(const EndpointQuestion&) = delete;

  const Question& question() const { return question_; }

 private:
  const tsr_endpoint_request request_;
  Question question_;
};

// An outcome as an answer. The struct is a view of both.
class EndpointAnswer {
 public:
  explicit EndpointAnswer(const Outcome& outcome);
  EndpointAnswer(const EndpointAnswer&) = delete;
  EndpointAnswer& operator=(const EndpointAnswer&) = delete;

  const tsr_endpoint_response& response() const { return response_; }

 private:
  void add(const Inferred& inferred);

  std::vector<AnsweredOutput> outputs_;
  std::vector<std::vector<int64_t>> items_;
  std::vector<DLTensor> tensors_;
  std::vector<tsr_endpoint_tensor> structs_;
  tsr_endpoint_response response_{};
};

// The answer if there is no memory for another one.
extern const tsr_endpoint_response kNoMemory;

}  // namespace tessera::serve

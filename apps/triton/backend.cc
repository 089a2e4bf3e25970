// The functions that Triton calls: models and instances come and go, and requests are answered together.
#include <chrono>
#include <cstring>
#include <optional>

#include "batch.h"
#include "model.h"
#include "triton.h"

namespace tessera_triton {
namespace {

uint64_t now_ns() {  // of CLOCK_MONOTONIC, as Triton wants it
  return static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

// Nanoseconds at which a group of requests began, was joined, was predicted.
struct Times {
  uint64_t begin = 0, joined = 0, predicted = 0;
};

// A request, with its samples or the reason why it has none.
struct Asked {
  TRITONBACKEND_Request* request = nullptr;
  std::optional<Samples> samples;
  std::optional<Failure> failure;
  std::vector<std::vector<float>> values;  // of each output of the model
};

template <class Body>
std::optional<Failure> failure_of(const Body& body) {
  try {
    body();
    return std::nullopt;
  } catch (const Failure& e) {
    return e;
  } catch (const std::exception& e) {
    return Failure(TRITONSERVER_ERROR_INTERNAL, e.what());
  }
}

// Predicts all samples together. If that fails, each request is predicted by itself, so that only those that are wrong
// get an error.
void predict(const Model& model, std::vector<Asked>& all) {
  Samples together(model);
  for (const Asked& one : all) {
    if (one.samples) together.append(*one.samples);
  }
  std::vector<std::vector<float>> values;
  if (failure_of([&] { values = together.predict(); })) {
    for (Asked& one : all) {
      if (one.samples) one.failure = failure_of([&] { one.values = one.samples->predict(); });
    }
    return;
  }
  std::vector<size_t> at(values.size(), 0);
  for (Asked& one : all) {
    if (!one.samples) continue;
    for (size_t o = 0; o < values.size(); ++o) {
      const size_t size = static_cast<size_t>(one.samples->count() * model.outputs()[o].width);
      one.values.emplace_back(values[o].begin() + static_cast<std::ptrdiff_t>(at[o]),
                              values[o].begin() + static_cast<std::ptrdiff_t>(at[o] + size));
      at[o] += size;
    }
  }
}

void write(const Model& model, const Asked& one, size_t output, TRITONBACKEND_Response* response) {
  const Output& o = model.outputs()[output];
  const int64_t shape[] = {one.samples->count(), o.width};
  TRITONBACKEND_Output* to = nullptr;
  check(TRITONBACKEND_ResponseOutput(response, &to, o.name.c_str(), TRITONSERVER_TYPE_FP32, shape, 2));
  const size_t bytes = one.values[output].size() * sizeof(float);
  void* buffer = nullptr;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t device = 0;
  check(TRITONBACKEND_OutputBuffer(to, &buffer, bytes, &memory, &device));
  if (memory == TRITONSERVER_MEMORY_GPU)
    refuse("the output \"", o.name, "\" is wanted in the memory of a GPU, and the backend tessera writes host memory");
  if (bytes > 0) std::memcpy(buffer, one.values[output].data(), bytes);
}

// Writes the outputs that the request names; all if it names none.
void write_outputs(const Model& model, const Asked& one, TRITONBACKEND_Response* response) {
  uint32_t count = 0;
  check(TRITONBACKEND_RequestOutputCount(one.request, &count));
  for (size_t o = 0; count == 0 && o < model.outputs().size(); ++o) write(model, one, o, response);
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    check(TRITONBACKEND_RequestOutputName(one.request, i, &name));
    size_t o = 0;
    while (o < model.outputs().size() && model.outputs()[o].name != name) ++o;
    if (o == model.outputs().size()) refuse("the output \"", name, "\" is no head of the model");
    write(model, one, o, response);
  }
}

// Answers and releases a request, whatever fails.
void answer(const Model& model, Asked& one, TRITONBACKEND_ModelInstance* instance, const Times& times) {
  TRITONBACKEND_Response* response = nullptr;
  if (TRITONSERVER_Error* failed = TRITONBACKEND_ResponseNew(&response, one.request)) {
    ignore(TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, __FILE__, __LINE__, TRITONSERVER_ErrorMessage(failed)));
    ignore(failed);
    response = nullptr;
  }
  if (response != nullptr && !one.failure) one.failure = failure_of([&] { write_outputs(model, one, response); });
  if (response != nullptr) {
    TRITONSERVER_Error* const error = one.failure ? one.failure->error() : nullptr;
    ignore(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
    ignore(error);
  }
  ignore(TRITONBACKEND_ModelInstanceReportStatistics(instance, one.request, response != nullptr && !one.failure,
                                                     times.begin, times.joined, times.predicted, now_ns()));
  ignore(TRITONBACKEND_RequestRelease(one.request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

const Model& model_of(TRITONBACKEND_ModelInstance* instance) {
  TRITONBACKEND_Model* model = nullptr;
  void* state = nullptr;
  check(TRITONBACKEND_ModelInstanceModel(instance, &model));
  check(TRITONBACKEND_ModelState(model, &state));
  return *static_cast<const Model*>(state);
}

void execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, uint32_t count) {
  const Model& model = model_of(instance);
  Times times{now_ns()};
  std::vector<Asked> all(count);
  // From here on nothing throws: the requests are the backend's to answer.
  for (uint32_t r = 0; r < count; ++r) {
    Asked& one = all[r];
    one.request = requests[r];
    one.failure = failure_of([&] { one.samples.emplace(Samples::of(model, one.request)); });
  }
  times.joined = now_ns();
  if (const auto failure = failure_of([&] { predict(model, all); })) {
    for (Asked& one : all) one.failure = one.failure ? one.failure : failure;
  }
  times.predicted = now_ns();
  int64_t samples = 0;
  for (Asked& one : all) {
    if (!one.failure) samples += one.samples->count();
    answer(model, one, instance, times);
  }
  if (samples > 0)
    ignore(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, static_cast<uint64_t>(samples), times.begin,
                                                            times.joined, times.predicted, now_ns()));
}

}  // namespace
}  // namespace tessera_triton

using namespace tessera_triton;

extern "C" {

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* /*backend*/) {
  return guarded([] {
    uint32_t major = 0, minor = 0;
    check(TRITONBACKEND_ApiVersion(&major, &minor));
    if (major != TRITONBACKEND_API_VERSION_MAJOR || minor < TRITONBACKEND_API_VERSION_MINOR)
      throw Failure(TRITONSERVER_ERROR_UNSUPPORTED,
                    joined("the backend tessera was built for version ", TRITONBACKEND_API_VERSION_MAJOR, ".",
                           TRITONBACKEND_API_VERSION_MINOR, " of Triton's backends, and this server has ", major, ".",
                           minor, ": build it with this server's headers"));
  });
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend* /*backend*/,
                                                                          TRITONBACKEND_BackendAttribute* attributes) {
  return TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(attributes, TRITONSERVER_INSTANCEGROUPKIND_CPU, 0,
                                                                 nullptr, 0);
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  return guarded([&] {
    auto opened = std::make_unique<Model>(model);
    check(TRITONBACKEND_ModelSetState(model, opened.get()));
    (void)opened.release();
  });
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return guarded([&] {
    void* state = nullptr;
    check(TRITONBACKEND_ModelState(model, &state));
    delete static_cast<Model*>(state);
  });
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  return guarded([&] {
    TRITONSERVER_InstanceGroupKind kind{};
    check(TRITONBACKEND_ModelInstanceKind(instance, &kind));
    if (kind == TRITONSERVER_INSTANCEGROUPKIND_GPU)
      refuse("the backend tessera predicts on processors: write instance_group [ { kind: KIND_CPU } ] in config.pbtxt");
    (void)model_of(instance);
  });
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* /*instance*/) {
  return nullptr;
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                                                           TRITONBACKEND_Request** requests,
                                                                           const uint32_t request_count) {
  return guarded([&] { execute(instance, requests, request_count); });
}

}  // extern "C"

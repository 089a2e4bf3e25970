// A server with Triton's C API for tests: it has the functions that the backend calls, and keeps what it is told.
#pragma once

#include <triton/core/tritonbackend.h>
#include <triton/core/tritonserver.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

// The structs that Triton's headers leave to the server.
struct TRITONSERVER_Error {
  TRITONSERVER_Error_Code code;
  std::string text;
};
struct TRITONSERVER_Message {
  std::string json;
};
struct TRITONBACKEND_Model {
  std::string repository, config, set_config;
  uint64_t version = 1;
  bool auto_complete = false;
  void* state = nullptr;
};
struct TRITONBACKEND_ModelInstance {
  TRITONBACKEND_Model* model = nullptr;
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_CPU;
  int successes = 0, failures = 0;
  uint64_t batch = 0;  // samples of the last batch
};
struct TRITONBACKEND_Input {
  std::string name;
  TRITONSERVER_DataType type;
  std::vector<int64_t> shape;
  std::vector<std::string> buffers;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
};
struct TRITONBACKEND_Output {
  std::string name;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  std::vector<int64_t> shape;
  std::vector<float> values;
};
struct TRITONBACKEND_Response {
  std::map<std::string, TRITONBACKEND_Output> outputs;
  std::string error;
  bool sent = false;
  TRITONBACKEND_Request* request = nullptr;
};
struct TRITONBACKEND_Request {
  std::vector<TRITONBACKEND_Input> inputs;
  std::vector<std::string> outputs;
  TRITONBACKEND_Response response;
  TRITONSERVER_MemoryType output_memory = TRITONSERVER_MEMORY_CPU;
  int released = 0;

  template <class T>
  TRITONBACKEND_Request& add(const std::string& name, TRITONSERVER_DataType type, std::vector<int64_t> shape,
                             const std::vector<T>& values) {
    const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    const size_t half = bytes.size() / 2;  // Triton may hand an input out in several buffers
    inputs.push_back({name, type, std::move(shape), {bytes.substr(0, half), bytes.substr(half)}});
    return *this;
  }
};

namespace stand_in {
inline int live_errors = 0;
inline uint32_t api_minor = TRITONBACKEND_API_VERSION_MINOR;
}  // namespace stand_in

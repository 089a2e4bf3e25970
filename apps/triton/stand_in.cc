#include "stand_in.h"

namespace {

TRITONSERVER_Error* missing(const std::string& text) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, text.c_str());
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* msg) {
  ++stand_in::live_errors;
  return new TRITONSERVER_Error{code, msg};
}
void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) {
  --stand_in::live_errors;
  delete error;
}
TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error* error) { return error->code; }
const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) { return error->text.c_str(); }
TRITONSERVER_Error* TRITONSERVER_LogMessage(TRITONSERVER_LogLevel, const char*, const int, const char*) {
  return nullptr;
}
const char* TRITONSERVER_DataTypeString(TRITONSERVER_DataType type) {
  return type == TRITONSERVER_TYPE_INT64   ? "INT64"
         : type == TRITONSERVER_TYPE_INT32 ? "INT32"
         : type == TRITONSERVER_TYPE_FP32  ? "FP32"
                                           : "FP64";
}
uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType type) {
  return type == TRITONSERVER_TYPE_INT32 || type == TRITONSERVER_TYPE_FP32 ? 4 : 8;
}
TRITONSERVER_Error* TRITONSERVER_MessageNewFromSerializedJson(TRITONSERVER_Message** message, const char* base,
                                                              size_t size) {
  *message = new TRITONSERVER_Message{std::string(base, size)};
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_MessageDelete(TRITONSERVER_Message* message) {
  delete message;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message* message, const char** base,
                                                        size_t* size) {
  *base = message->json.data(), *size = message->json.size();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ApiVersion(uint32_t* major, uint32_t* minor) {
  *major = TRITONBACKEND_API_VERSION_MAJOR, *minor = stand_in::api_minor;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(TRITONBACKEND_BackendAttribute*,
                                                                            const TRITONSERVER_InstanceGroupKind,
                                                                            const uint64_t, const uint64_t*,
                                                                            const uint64_t) {
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelRepository(TRITONBACKEND_Model* model, TRITONBACKEND_ArtifactType* type,
                                                  const char** location) {
  *type = TRITONBACKEND_ARTIFACT_FILESYSTEM, *location = model->repository.c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelVersion(TRITONBACKEND_Model* model, uint64_t* version) {
  *version = model->version;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelConfig(TRITONBACKEND_Model* model, const uint32_t,
                                              TRITONSERVER_Message** config) {
  *config = new TRITONSERVER_Message{model->config};
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelAutoCompleteConfig(TRITONBACKEND_Model* model, bool* complete) {
  *complete = model->auto_complete;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model* model, const uint32_t,
                                                 TRITONSERVER_Message* config) {
  model->set_config = config->json;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelState(TRITONBACKEND_Model* model, void** state) {
  *state = model->state;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelSetState(TRITONBACKEND_Model* model, void* state) {
  model->state = state;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceKind(TRITONBACKEND_ModelInstance* instance,
                                                    TRITONSERVER_InstanceGroupKind* kind) {
  *kind = instance->kind;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance* instance,
                                                     TRITONBACKEND_Model** model) {
  *model = instance->model;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(TRITONBACKEND_ModelInstance* instance,
                                                                TRITONBACKEND_Request*, const bool success,
                                                                const uint64_t a, const uint64_t b, const uint64_t c,
                                                                const uint64_t d) {
  ++(success && a <= b && b <= c && c <= d ? instance->successes : instance->failures);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(TRITONBACKEND_ModelInstance* instance,
                                                                     const uint64_t samples, const uint64_t,
                                                                     const uint64_t, const uint64_t, const uint64_t) {
  instance->batch = samples;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request* request, uint32_t* count) {
  *count = static_cast<uint32_t>(request->inputs.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestInputName(TRITONBACKEND_Request* request, const uint32_t i,
                                                   const char** name) {
  *name = request->inputs.at(i).name.c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request* request, const uint32_t i,
                                                      TRITONBACKEND_Input** input) {
  *input = &request->inputs.at(i);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_InputProperties(TRITONBACKEND_Input* input, const char** name,
                                                  TRITONSERVER_DataType* type, const int64_t** shape, uint32_t* dims,
                                                  uint64_t* size, uint32_t* buffers) {
  *name = input->name.c_str(), *type = input->type, *shape = input->shape.data();
  *dims = static_cast<uint32_t>(input->shape.size()), *buffers = static_cast<uint32_t>(input->buffers.size());
  *size = 0;
  for (const std::string& buffer : input->buffers) *size += buffer.size();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_InputBuffer(TRITONBACKEND_Input* input, const uint32_t i, const void** buffer,
                                              uint64_t* size, TRITONSERVER_MemoryType* memory, int64_t* id) {
  *buffer = input->buffers.at(i).data(), *size = input->buffers.at(i).size();
  *memory = input->memory, *id = 0;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request* request, uint32_t* count) {
  *count = static_cast<uint32_t>(request->outputs.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request* request, const uint32_t i,
                                                    const char** name) {
  *name = request->outputs.at(i).c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request, uint32_t flags) {
  if (flags != TRITONSERVER_REQUEST_RELEASE_ALL) return missing("release all of it");
  ++request->released;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseNew(TRITONBACKEND_Response** response, TRITONBACKEND_Request* request) {
  *response = &request->response;
  (*response)->request = request;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response* response, TRITONBACKEND_Output** output,
                                                 const char* name, const TRITONSERVER_DataType type,
                                                 const int64_t* shape, const uint32_t dims) {
  if (type != TRITONSERVER_TYPE_FP32) return missing("scores are FP32");
  TRITONBACKEND_Output& out = response->outputs[name];
  out.name = name, out.shape.assign(shape, shape + dims), out.memory = response->request->output_memory;
  *output = &out;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output* output, void** buffer, const uint64_t size,
                                               TRITONSERVER_MemoryType* memory, int64_t* id) {
  output->values.resize(size / sizeof(float));
  *buffer = output->values.data(), *memory = output->memory, *id = 0;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseSend(TRITONBACKEND_Response* response, const uint32_t flags,
                                               TRITONSERVER_Error* error) {
  if (flags != TRITONSERVER_RESPONSE_COMPLETE_FINAL || response->sent || response->request->released != 0)
    return missing("a response is sent once, before its request is released");
  response->sent = true;
  if (error != nullptr) response->error = error->text;
  return nullptr;
}

}  // extern "C"

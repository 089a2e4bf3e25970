/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/endpoint.h - tessera.endpoint/draft-2: another protocol for the clients of a server.
 *
 *   1. The server creates the endpoint and calls start(). The endpoint listens, and returns the URL for clients.
 *   2. A client wants predictions. The endpoint describes the request's tensors, which stay in its own memory, and
 *      calls server->handle() with TSR_ENDPOINT_INFER, from any thread. The server reads the tensors before handle()
 *      returns, and the call does not wait for the answer.
 *   3. The server calls the given respond() exactly once, during handle() or later. The endpoint copies the answer's
 *      tensors into a message of its protocol, and sends it to the client.
 *   4. A client asks something else, such as the metadata of a model. The same functions serve it, without tensors. The
 *      answer is a code, and for some calls a text.
 *   5. The server calls stop(). The endpoint takes no new requests, waits for the answers that are due, and returns.
 *   6. The server destroys the endpoint.
 *
 * The requests are those of the Open Inference Protocol (docs/serving.md): a model has a name and a version, and its
 * inputs and outputs are tensors with names. An endpoint translates its protocol into such requests, and knows no
 * model. The server makes all checks and messages, and keeps all limits and counts. `tessera serve` itself speaks HTTP.
 */
#ifndef TESSERA_ABI_DRAFT_ENDPOINT_H_
#define TESSERA_ABI_DRAFT_ENDPOINT_H_

#include "tessera/abi/plugin.h"
#include "tessera/abi/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_ENDPOINT_KIND "tessera.endpoint/draft-2"

/* The calls of the protocol and of its model repository. The server answers any other number with TSR_UNIMPLEMENTED. */
enum {
  TSR_ENDPOINT_INFER = 0,           /* predictions of a model; the only call with tensors */
  TSR_ENDPOINT_SERVER_LIVE = 1,     /* always TSR_OK */
  TSR_ENDPOINT_SERVER_READY = 2,    /* TSR_UNAVAILABLE if no model can answer, or if the server ends */
  TSR_ENDPOINT_MODEL_READY = 3,     /* TSR_UNAVAILABLE if the model cannot answer */
  TSR_ENDPOINT_SERVER_METADATA = 4, /* text: name, version and extensions */
  TSR_ENDPOINT_MODEL_METADATA = 5,  /* text: versions, and the names, types and shapes of inputs and outputs */
  TSR_ENDPOINT_INDEX = 6,           /* text: a list of models, with version, state and reason of each */
  TSR_ENDPOINT_LOAD = 7,            /* loads a model again; only for clients on this host */
  TSR_ENDPOINT_UNLOAD = 8           /* takes a model out of service; only for clients on this host */
};

/* Flags of a request. */
#define TSR_ENDPOINT_LOCAL UINT32_C(1)        /* the client is on this host, and does not forward for another client */
#define TSR_ENDPOINT_LOADED UINT32_C(0x10000) /* TSR_ENDPOINT_INDEX: only models that are loaded */

/* Flag of an answer: the same request may succeed a second later. */
#define TSR_ENDPOINT_RETRY UINT32_C(1)

/* Code of an answer: the request lacks the server's token. It has gRPC's number, like all codes. */
#define TSR_ENDPOINT_UNAUTHENTICATED 16

/* Data types of tensors are those of the protocol: BOOL, INT8 to INT64, UINT8 to UINT64, FP16, BF16, FP32, FP64, with 1
 * lane. Two of them need a definition in terms of DLPack 0.6:
 *   BOOL:  code TSR_ENDPOINT_BOOL, 8 bits; an element is 0 or 1.
 *   BYTES: code kDLOpaqueHandle, 128 bits; an element is a tsr_endpoint_text. */
#define TSR_ENDPOINT_BOOL 6u

/* An element of a BYTES tensor; its bytes may be anywhere in host memory. `bytes` is NULL for a missing value. */
typedef struct tsr_endpoint_text {
  const char* bytes;
  int64_t size;
} tsr_endpoint_text;

/* An input or an output. Missing values of numbers are NaN. */
typedef struct tsr_endpoint_tensor {
  uint32_t struct_size;
  uint32_t flags;         /* none is defined: 0 */
  const char* name;       /* "dense", "film.values" */
  const DLTensor* tensor; /* in host memory, compact and row-major */
  /* Size of the tensor's data. The shape usually comes from the client, so the server refuses a tensor whose shape
   * needs another size, and reads no further than this one. */
  int64_t bytes;
} tsr_endpoint_tensor;

/* A client's request. Everything belongs to the endpoint and is valid while handle() runs. Strings are never NULL.
 * Except for the first six members, everything is for TSR_ENDPOINT_INFER. */
typedef struct tsr_endpoint_request {
  uint32_t struct_size;
  uint32_t flags;            /* TSR_ENDPOINT_LOCAL, TSR_ENDPOINT_LOADED */
  const char* authorization; /* "Bearer TOKEN", as the client sent it; "": it sent none */
  const char* model;         /* name of the model, in calls that have one; otherwise "" */
  const char* version;       /* "": the server chooses */
  int32_t call;              /* TSR_ENDPOINT_INFER, ... */
  uint32_t input_stride;     /* bytes from one input to the next */
  int64_t inputs;            /* number of inputs */
  const tsr_endpoint_tensor* input;
  int64_t outputs;           /* number of outputs that the client names; 0: it wants all */
  const char* const* output; /* their names */
  const char* id;            /* the answer repeats it */
  int64_t timeout_us;        /* microseconds that the client waits, which shorten the server's deadline; 0: unknown */
} tsr_endpoint_request;

/* The server's answer. Everything belongs to the server and is valid during the call. Strings are never NULL. */
typedef struct tsr_endpoint_response {
  uint32_t struct_size;
  uint32_t flags;         /* TSR_ENDPOINT_RETRY */
  tsr_code code;          /* TSR_OK, or why there is no answer */
  uint32_t output_stride; /* bytes from one output to the next */
  const char* message;    /* one sentence, if the code is not TSR_OK; otherwise "" */
  const char* text;       /* JSON, as it is over HTTP, for calls that have a text; otherwise "" */
  /* The rest is for TSR_ENDPOINT_INFER: model, version and id of the answer, and the outputs in the order in which the
   * request names them, or else in the model's order. */
  const char* model;
  const char* version;
  const char* id;
  int64_t outputs; /* number of outputs */
  const tsr_endpoint_tensor* output;
} tsr_endpoint_response;

/* The endpoint's function for an answer. The server calls it exactly once for a request, during handle() or later from
 * one of its own threads. The call comes at most slightly after the server's deadline. It must not block or throw. */
typedef void (*tsr_endpoint_respond)(void* context, const tsr_endpoint_response* response);

/* The server, as an endpoint sees it. It is valid until stop() has returned. */
typedef struct tsr_endpoint_server {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  void* self;     /* first argument of handle() */
  /* [any-thread] Takes a request, and does not wait for the answer. `context` is handed to respond(). */
  void (*handle)(void* self, const tsr_endpoint_request* request, tsr_endpoint_respond respond, void* context);
  const char* host;       /* numeric address to listen at, unless the endpoint's options name another one */
  const char* tls_cert;   /* path of a PEM file with the certificate chain; NULL, like tls_key: no TLS */
  const char* tls_key;    /* path of a PEM file with the private key */
  int64_t max_body_bytes; /* bytes of one request; the endpoint refuses larger ones */
  int64_t max_bytes;      /* bytes of all requests under way together */
} tsr_endpoint_server;

/* The functions of an endpoint. */
typedef struct tsr_endpoint {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */

  /* [serial] Listens, and hands clients' requests to the server from now on. `url` is the address for clients
   * ("grpc://127.0.0.1:8001"); the endpoint owns it until it is destroyed. Errors: TSR_INVALID_ARGUMENT;
   * TSR_UNAVAILABLE if the address is in use. */
  tsr_code (*start)(void* self, const tsr_endpoint_server* server, const char** url, tsr_error* err);
  /* [serial] Takes no new requests, and returns after the pending ones are answered. Afterwards the endpoint neither
   * calls handle() nor uses anything of the server. It is called once, if start() succeeded. */
  tsr_code (*stop)(void* self, tsr_error* err);
} tsr_endpoint;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_ENDPOINT_H_ */

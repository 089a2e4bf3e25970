/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/endpoint.h - tessera.endpoint/draft-1: another way for clients to ask a server.
 *
 * `tessera serve` speaks HTTP. An endpoint listens for clients that speak something else: it says what they ask as the
 * Open Inference Protocol says it over HTTP (method, path, body; docs/serving.md), and what the server answers in the
 * clients' words. So an endpoint knows no model, and every check and every sentence is the server's.
 *
 *   create -> start -> (the server's handle, any number of times, from any threads) -> stop -> destroy
 */
#ifndef TESSERA_ABI_DRAFT_ENDPOINT_H_
#define TESSERA_ABI_DRAFT_ENDPOINT_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_ENDPOINT_KIND "tessera.endpoint/draft-1"

/* Flags of a request. */
#define TSR_ENDPOINT_LOCAL UINT32_C(1) /* from this host, and not handed on for somebody else */

/* A client's request. Everything belongs to the endpoint and is valid while handle() runs. Texts end with NUL; none is
 * NULL. */
typedef struct tsr_endpoint_request {
  uint32_t struct_size;
  uint32_t flags;            /* TSR_ENDPOINT_LOCAL */
  const char* method;        /* "GET", "POST" */
  const char* target;        /* "/v2/models/films/infer" */
  const char* authorization; /* "Bearer TOKEN", as the client shows it; "": it shows none */
  const void* body;          /* may be NULL with 0 bytes */
  int64_t body_bytes;
  int64_t json_bytes; /* so many of the body's are JSON, tensors follow (binary-tensor extension); -1: all */
} tsr_endpoint_request;

/* The server's answer. Everything belongs to the server and is valid during the call. */
typedef struct tsr_endpoint_response {
  uint32_t struct_size;
  uint32_t flags;   /* none is defined: 0 */
  int32_t status;   /* HTTP's: 200, 400, ... Unless 200 the body is {"error": "one sentence"} */
  int32_t reserved; /* 0 */
  const void* body;
  int64_t body_bytes;
  int64_t json_bytes; /* as in a request */
} tsr_endpoint_response;

/* Called exactly once for a request, within handle() or by a thread of the server's later, at most a little later than
 * the server's deadline. Must not wait for anything, and not throw. */
typedef void (*tsr_endpoint_respond)(void* context, const tsr_endpoint_response* response);

/* The server, as an endpoint sees it. Lives until stop() has returned. */
typedef struct tsr_endpoint_server {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */
  void* self;
  /* [any-thread] Does not wait for the answer. */
  void (*handle)(void* self, const tsr_endpoint_request* request, tsr_endpoint_respond respond, void* context);
  const char* host;     /* a numeric address to listen at, unless the endpoint's options say another */
  const char* tls_cert; /* a PEM file with the chain, as tls_key; both NULL: without TLS */
  const char* tls_key;
  int64_t max_body_bytes; /* of one request; more are refused */
  int64_t max_bytes;      /* of all requests under way */
} tsr_endpoint_server;

typedef struct tsr_endpoint {
  uint32_t struct_size;
  uint32_t flags; /* none is defined: 0 */

  /* Listens and hands over what clients ask, from now on. `url`: what clients use ("grpc://127.0.0.1:8001"), the
   * endpoint's until it is destroyed. Errors: TSR_INVALID_ARGUMENT, TSR_UNAVAILABLE where the address is in use. */
  tsr_code (*start)(void* self, const tsr_endpoint_server* server, const char** url, tsr_error* err);
  /* Takes no new requests, and returns when those that it has are answered: handle() is not called any more, and
   * nothing of the server's is used. Called once, if start() was right. */
  tsr_code (*stop)(void* self, tsr_error* err);
} tsr_endpoint;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_DRAFT_ENDPOINT_H_ */

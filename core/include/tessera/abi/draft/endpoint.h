/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/draft/endpoint.h - tessera.endpoint/draft-1: another protocol for the clients of a server.
 *
 *   1. The server creates the endpoint and calls start(). The endpoint listens, and returns the URL for clients.
 *   2. When a client asks, the endpoint translates the request to HTTP's terms and calls server->handle(), from any
 *      thread. The call does not wait for the answer.
 *   3. The server calls the given respond() exactly once, during handle() or later. The endpoint translates the answer
 *      and sends it to the client.
 *   4. The server calls stop(). The endpoint takes no new requests, waits for the answers that are due, and returns.
 *   5. The server destroys the endpoint.
 *
 * `tessera serve` itself speaks HTTP. An endpoint speaks another protocol, and expresses its requests in the Open
 * Inference Protocol over HTTP (method, path, body; docs/serving.md). So an endpoint knows no model, and all checks and
 * messages are the server's.
 */
#ifndef TESSERA_ABI_DRAFT_ENDPOINT_H_
#define TESSERA_ABI_DRAFT_ENDPOINT_H_

#include "tessera/abi/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_ENDPOINT_KIND "tessera.endpoint/draft-1"

/* Flags of a request. */
#define TSR_ENDPOINT_LOCAL UINT32_C(1) /* the client is on this host, and does not forward for another one */

/* A client's request. Everything belongs to the endpoint and is valid while handle() runs. Strings are NUL-terminated
 * and never NULL. */
typedef struct tsr_endpoint_request {
  uint32_t struct_size;
  uint32_t flags;            /* TSR_ENDPOINT_LOCAL */
  const char* method;        /* "GET", "POST" */
  const char* target;        /* "/v2/models/films/infer" */
  const char* authorization; /* "Bearer TOKEN", as the client sent it; "": it sent none */
  const void* body;          /* may be NULL if body_bytes is 0 */
  int64_t body_bytes;
  int64_t json_bytes; /* length of the JSON at the body's start, if tensors follow it as bytes; -1: all is JSON */
} tsr_endpoint_request;

/* The server's answer. Everything belongs to the server and is valid during the call. */
typedef struct tsr_endpoint_response {
  uint32_t struct_size;
  uint32_t flags;   /* none is defined: 0 */
  int32_t status;   /* HTTP status: 200, 400, ... If it is not 200, the body is {"error": "one sentence"} */
  int32_t reserved; /* 0 */
  const void* body;
  int64_t body_bytes;
  int64_t json_bytes; /* the same as in a request */
} tsr_endpoint_response;

/* The endpoint's function for an answer. The server calls it exactly once for a request, during handle() or later from
 * one of its own threads. That is at most slightly after the server's deadline. It must not block or throw. */
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
  int64_t max_body_bytes; /* bound of one request's body; larger ones are refused */
  int64_t max_bytes;      /* bound of all requests under way together */
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

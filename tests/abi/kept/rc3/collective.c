/* Kept: a transport in C11 that wraps another one and passes everything on. */
#include <stdlib.h>
#include <string.h>

#include "tessera/abi/collective.h"

typedef struct pipe {
  const tsr_instance* inner;
} pipe;
struct tsr_group {
  const tsr_collective* api;
  tsr_group* inner;
};
struct tsr_work {
  const tsr_collective* api;
  tsr_work* inner;
};

static tsr_code refuse(tsr_error* err, tsr_code code, const char* text) {
  const size_t head = offsetof(tsr_error, message);
  if (err->struct_size > head) strncpy(err->message, text, err->struct_size - head - 1);
  if (TSR_FITS(tsr_error, err, code)) err->code = code;
  return code;
}

static tsr_code create(const tsr_component* component, const tsr_host* host, const char* options,
                       const tsr_instance* inner, void** self, tsr_error* err) {
  pipe* p;
  (void)component;
  (void)host;
  if (strcmp(options, "{}") != 0) return refuse(err, TSR_INVALID_ARGUMENT, "kept.pipe: there are no options");
  if (inner == NULL) return refuse(err, TSR_INVALID_ARGUMENT, "kept.pipe works through another one");
  if ((((const tsr_collective*)inner->component->api)->flags & TSR_MUST_UNDERSTAND & ~TSR_COLLECTIVE_WRAPS) != 0)
    return refuse(err, TSR_UNIMPLEMENTED, "kept.pipe: the wrapped transport has unknown flags");
  p = malloc(sizeof *p);
  if (p == NULL) return refuse(err, TSR_RESOURCE_EXHAUSTED, "kept.pipe: out of memory");
  p->inner = inner;
  *self = p;
  return TSR_OK;
}
static void destroy(void* self) { free(self); }

static const tsr_collective* api_of(const pipe* p) { return p->inner->component->api; }

static tsr_code describe(void* self, tsr_collective_info* out, tsr_error* err) {
  const pipe* p = self;
  tsr_collective_info info;
  tsr_code code;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  code = api_of(p)->describe(p->inner->self, &info, err);
  if (code != TSR_OK) return code;
  /* Flags that it does not know are not passed on. */
  if (TSR_FITS(tsr_collective_info, out, device_types)) out->device_types = info.device_types;
  if (TSR_FITS(tsr_collective_info, out, reducible)) out->reducible = info.reducible;
  if (TSR_FITS(tsr_collective_info, out, num_reducible)) out->num_reducible = info.num_reducible;
  return TSR_OK;
}

static tsr_code wrapped(const tsr_collective* api, tsr_group* inner, tsr_group** out, tsr_error* err) {
  *out = malloc(sizeof **out);
  if (*out == NULL) {
    api->close(inner);
    return refuse(err, TSR_RESOURCE_EXHAUSTED, "kept.pipe: out of memory");
  }
  (*out)->api = api;
  (*out)->inner = inner;
  return TSR_OK;
}
static tsr_code connect(void* self, const tsr_rendezvous* where, tsr_group** group, tsr_error* err) {
  const pipe* p = self;
  tsr_group* inner = NULL;
  const tsr_code code = api_of(p)->connect(p->inner->self, where, &inner, err);
  return code == TSR_OK ? wrapped(api_of(p), inner, group, err) : code;
}
static tsr_code split(tsr_group* g, int32_t color, int32_t key, const tsr_collective_call* call, tsr_group** child,
                      tsr_error* err) {
  tsr_group* inner = NULL;
  const tsr_code code = g->api->split(g->inner, color, key, call, &inner, err);
  *child = NULL;
  return code == TSR_OK && inner != NULL ? wrapped(g->api, inner, child, err) : code;
}
static int32_t rank(const tsr_group* g) { return g->api->rank(g->inner); }
static int32_t world_size(const tsr_group* g) { return g->api->world_size(g->inner); }

/* Allocates first, because an operation that has started must be waited for. */
static tsr_code prepare(tsr_group* g, tsr_work** work, tsr_error* err) {
  *work = malloc(sizeof **work);
  if (*work == NULL) return refuse(err, TSR_RESOURCE_EXHAUSTED, "kept.pipe: out of memory");
  (*work)->api = g->api;
  return TSR_OK;
}
static tsr_code started(tsr_code code, tsr_work** work) {
  if (code != TSR_OK) free(*work);
  return code;
}
static tsr_code all_to_all_v(tsr_group* g, const DLTensor* send, const int64_t* send_counts, const DLTensor* recv,
                             const int64_t* recv_counts, const tsr_collective_call* call, tsr_work** work,
                             tsr_error* err) {
  const tsr_code code = prepare(g, work, err);
  if (code != TSR_OK) return code;
  return started(g->api->all_to_all_v(g->inner, send, send_counts, recv, recv_counts, call, &(*work)->inner, err),
                 work);
}
static tsr_code all_reduce(tsr_group* g, const DLTensor* inout, int32_t op, const tsr_collective_call* call,
                           tsr_work** work, tsr_error* err) {
  const tsr_code code = prepare(g, work, err);
  if (code != TSR_OK) return code;
  return started(g->api->all_reduce(g->inner, inout, op, call, &(*work)->inner, err), work);
}
static tsr_code reduce_scatter_v(tsr_group* g, const DLTensor* send, const int64_t* counts, const DLTensor* recv,
                                 int32_t op, const tsr_collective_call* call, tsr_work** work, tsr_error* err) {
  const tsr_code code = prepare(g, work, err);
  if (code != TSR_OK) return code;
  return started(g->api->reduce_scatter_v(g->inner, send, counts, recv, op, call, &(*work)->inner, err), work);
}
static tsr_code all_gather_v(tsr_group* g, const DLTensor* send, const DLTensor* recv, const int64_t* counts,
                             const tsr_collective_call* call, tsr_work** work, tsr_error* err) {
  const tsr_code code = prepare(g, work, err);
  if (code != TSR_OK) return code;
  return started(g->api->all_gather_v(g->inner, send, recv, counts, call, &(*work)->inner, err), work);
}
static tsr_code broadcast(tsr_group* g, const DLTensor* inout, int32_t root, const tsr_collective_call* call,
                          tsr_work** work, tsr_error* err) {
  const tsr_code code = prepare(g, work, err);
  if (code != TSR_OK) return code;
  return started(g->api->broadcast(g->inner, inout, root, call, &(*work)->inner, err), work);
}
static tsr_code barrier(tsr_group* g, const tsr_collective_call* call, tsr_work** work, tsr_error* err) {
  const tsr_code code = prepare(g, work, err);
  if (code != TSR_OK) return code;
  return started(g->api->barrier(g->inner, call, &(*work)->inner, err), work);
}
static tsr_code wait(tsr_work* work, tsr_error* err) {
  const tsr_code code = work->api->wait(work->inner, err);
  free(work);
  return code;
}
static void abort_group(tsr_group* g, const char* reason) { g->api->abort(g->inner, reason); }
static void close_group(tsr_group* g) {
  g->api->close(g->inner);
  free(g);
}

/* Leaves the optional slots out. */
static const tsr_collective table = {sizeof(tsr_collective),
                                     TSR_COLLECTIVE_WRAPS,
                                     describe,
                                     connect,
                                     split,
                                     rank,
                                     world_size,
                                     all_to_all_v,
                                     all_reduce,
                                     reduce_scatter_v,
                                     all_gather_v,
                                     broadcast,
                                     barrier,
                                     wait,
                                     abort_group,
                                     close_group,
                                     NULL,
                                     NULL,
                                     NULL,
                                     NULL};
static const tsr_component kept = {sizeof(tsr_component),
                                   -100,
                                   "kept.pipe",
                                   TSR_COLLECTIVE_KIND,
                                   "1.0",
                                   "hands everything on",
                                   &table,
                                   NULL,
                                   create,
                                   destroy,
                                   NULL,
                                   NULL};
static const tsr_component* const components[] = {&kept};
static const tsr_plugin plugin = {sizeof(tsr_plugin), TSR_ABI_MAJOR, TSR_ABI_EPOCH, TSR_ABI_MINOR, 0, 1,
                                  "kept-collective",  "1.0",         "rc3",         components};

TSR_NOTE(0, TSR_COLLECTIVE_KIND " kept.pipe 1.0\n");

const tsr_plugin* tessera_plugin_v1(const tsr_host* host, tsr_error* err) {
  (void)host;
  (void)err;
  return &plugin;
}

/* Kept: an optimizer in C11. Heavy-ball SGD, m = 0.5 m + g, w -= lr m; m starts at 0, or at the option "start". */
#include <stdlib.h>
#include <string.h>

#include "tessera/abi/optimizer.h"

typedef struct ball {
  double learning_rate, start;
} ball;

static tsr_code refuse(tsr_error* err, tsr_code code, const char* text) {
  const size_t head = offsetof(tsr_error, message);
  if (err->struct_size > head) strncpy(err->message, text, err->struct_size - head - 1);
  if (TSR_FITS(tsr_error, err, code)) err->code = code;
  return code;
}

/* {"key":number,...} with the keys below. */
static int read_options(const char* at, ball* out) {
  if (*at++ != '{') return 0;
  while (*at == ' ' || *at == ',' || *at == '"') {
    char* end = NULL;
    double* to = NULL;
    at += strspn(at, " ,");
    if (strncmp(at, "\"learning_rate\"", 15) == 0)
      to = &out->learning_rate, at += 15;
    else if (strncmp(at, "\"start\"", 7) == 0)
      to = &out->start, at += 7;
    else
      return 0;
    at += strspn(at, " :");
    *to = strtod(at, &end);
    if (end == at || *to < 0) return 0;
    at = end;
  }
  return *at == '}';
}

static tsr_code create(const tsr_component* component, const tsr_host* host, const char* options,
                       const tsr_instance* inner, void** self, tsr_error* err) {
  ball* b = malloc(sizeof *b);
  (void)component;
  (void)host;
  (void)inner;
  if (b == NULL) return refuse(err, TSR_RESOURCE_EXHAUSTED, "kept.ball: out of memory");
  b->learning_rate = 0.1;
  b->start = 0;
  if (!read_options(options, b)) {
    free(b);
    return refuse(err, TSR_INVALID_ARGUMENT, "kept.ball: options are learning_rate and start, 0 or more");
  }
  *self = b;
  return TSR_OK;
}

static void destroy(void* self) { free(self); }

static tsr_code state(void* self, uint32_t i, tsr_state* out, tsr_error* err) {
  const ball* b = self;
  if (i > 0) return refuse(err, TSR_OUT_OF_RANGE, "kept.ball: there is one state");
  if (TSR_FITS(tsr_state, out, kind)) out->kind = TSR_STATE_PER_ELEMENT;
  if (TSR_FITS(tsr_state, out, dtype)) {
    out->dtype.code = kDLFloat;
    out->dtype.bits = 32;
    out->dtype.lanes = 1;
  }
  if (TSR_FITS(tsr_state, out, start)) out->start = b->start;
  if (TSR_FITS(tsr_state, out, name)) out->name = "ball";
  return TSR_OK;
}

static double learning_rate(void* self) { return ((const ball*)self)->learning_rate; }

static void update_row(void* self, const tsr_update* update, int64_t dim, float* weight, const float* grad,
                       float* const* states) {
  (void)self;
  for (int64_t d = 0; d < dim; ++d) {
    states[0][d] = 0.5f * states[0][d] + grad[d];
    weight[d] -= (float)update->learning_rate * states[0][d];
  }
}

static const tsr_optimizer table = {sizeof(tsr_optimizer), 0, state, learning_rate, update_row, NULL, NULL};
static const tsr_component kept = {sizeof(tsr_component),
                                   0,
                                   "kept.ball",
                                   TSR_OPTIMIZER_KIND,
                                   "1.0",
                                   "heavy-ball SGD",
                                   &table,
                                   NULL,
                                   create,
                                   destroy,
                                   NULL,
                                   NULL};
static const tsr_component* const components[] = {&kept};
static const tsr_plugin plugin = {sizeof(tsr_plugin), TSR_ABI_MAJOR, TSR_ABI_EPOCH, TSR_ABI_MINOR, 0, 1,
                                  "kept-optimizer",   "1.0",         "rc3",         components};

TSR_NOTE(0, TSR_OPTIMIZER_KIND " kept.ball 1.0\n");

const tsr_plugin* tessera_plugin_v1(const tsr_host* host, tsr_error* err) {
  (void)host;
  (void)err;
  return &plugin;
}

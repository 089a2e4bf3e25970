/* Kept: a kernel in C11, in plain loops. float32 rows, SUM and MEAN, the update inside backward; no options. */
#include <stdlib.h>
#include <string.h>

#include "tessera/abi/kernel.h"

enum { kMostTables = 64, kMostStates = 4 };

typedef struct shard {
  int64_t rows, dim;
  float *weights, *gradient; /* [rows, dim] */
  unsigned char* touched;    /* [rows] */
  float* states[kMostStates];
} shard;
typedef struct instance {
  uint32_t num_tables, num_states;
  const tsr_instance* optimizer;
  float most; /* of a gradient; 0: any */
  int32_t kinds[kMostStates];
  uint64_t lookups[kMostTables];
  shard shards[kMostTables];
} instance;

static tsr_code refuse(tsr_error* err, tsr_code code, const char* text) {
  const size_t head = offsetof(tsr_error, message);
  if (err->struct_size > head) strncpy(err->message, text, err->struct_size - head - 1);
  if (TSR_FITS(tsr_error, err, code)) err->code = code;
  return code;
}

static const void* element(const void* first, uint32_t stride, uint32_t i) {
  return (const char*)first + (size_t)stride * i;
}
static const tsr_kernel_table* table_of(const tsr_kernel_config* c, uint32_t i) {
  return element(c->tables, c->table_stride, i);
}
static int is_float(DLDataType type) { return type.code == kDLFloat && type.bits == 32 && type.lanes == 1; }
static char* raw(const DLTensor* t) { return (char*)t->data + t->byte_offset; }
static int64_t integer(const DLTensor* t, int64_t i) {
  return t->dtype.bits == 64 ? ((const int64_t*)raw(t))[i] : ((const int32_t*)raw(t))[i];
}
static const tsr_optimizer* api_of(const tsr_instance* optimizer) { return optimizer->component->api; }
static int64_t width(const instance* k, const shard* s, uint32_t state) {
  return k->kinds[state] == TSR_STATE_PER_ROW ? 1 : s->dim;
}

/* The number of states of the config's optimizer, or -1 if they are not kept here. */
static int states_of(const tsr_instance* optimizer, tsr_state* out) {
  uint32_t n = 0;
  if (optimizer == NULL) return 0;
  if ((api_of(optimizer)->flags & TSR_MUST_UNDERSTAND) != 0) return -1;
  if (!TSR_HAS(tsr_optimizer, api_of(optimizer), state)) return 0;
  for (;; ++n) {
    tsr_error err = TSR_ERROR_INIT;
    tsr_state state;
    memset(&state, 0, sizeof state);
    state.struct_size = sizeof state;
    if (api_of(optimizer)->state(optimizer->self, n, &state, &err) != TSR_OK) return (int)n;
    if (n == kMostStates || !is_float(state.dtype) || state.kind > TSR_STATE_PER_ELEMENT) return -1;
    if ((state.flags & TSR_MUST_UNDERSTAND) != 0) return -1;
    out[n] = state;
  }
}

static tsr_code supports(void* self, const tsr_kernel_config* c, tsr_error* why) {
  tsr_state states[kMostStates];
  uint32_t flags = c->flags;
  (void)self;
  if (strcmp(c->compute_kernel, TSR_COMPUTE_FUSED) != 0)
    return refuse(why, TSR_UNIMPLEMENTED, "kept.loops: the only compute kernel is fused");
  for (uint32_t i = 0; i < c->num_tables; ++i) {
    const char* options = table_of(c, i)->options;
    flags |= table_of(c, i)->flags;
    if (options != NULL && strcmp(options, "{}") != 0)
      return refuse(why, TSR_INVALID_ARGUMENT, "kept.loops: tables have no options");
    if ((table_of(c, i)->poolings & (1u << TSR_POOLING_MAX)) != 0)
      return refuse(why, TSR_UNIMPLEMENTED, "kept.loops: there is no MAX pooling");
  }
  if ((flags & TSR_MUST_UNDERSTAND) != 0) return refuse(why, TSR_UNIMPLEMENTED, "kept.loops: unknown flags");
  if (c->num_tables > kMostTables) return refuse(why, TSR_UNIMPLEMENTED, "kept.loops: at most 64 tables");
  if (!is_float(c->weight_dtype) || !is_float(c->output_dtype))
    return refuse(why, TSR_UNIMPLEMENTED, "kept.loops: rows and outputs are float32");
  if (TSR_HAS(tsr_kernel_config, c, row_format))
    return refuse(why, TSR_UNIMPLEMENTED, "kept.loops: rows are plain values");
  if (c->device.device_type != kDLCPU) return refuse(why, TSR_UNIMPLEMENTED, "kept.loops: host memory alone");
  if (states_of(c->optimizer, states) < 0)
    return refuse(why, TSR_UNIMPLEMENTED, "kept.loops: at most 4 float32 states per row or element");
  return TSR_OK;
}

static void close_instance(void* p) {
  instance* k = p;
  for (uint32_t t = 0; t < k->num_tables; ++t) {
    shard* s = &k->shards[t];
    free(s->weights);
    free(s->gradient);
    free(s->touched);
    for (uint32_t i = 0; i < k->num_states; ++i) free(s->states[i]);
  }
  free(k);
}

static float* filled(int64_t n, float value) {
  float* out = malloc(sizeof *out * (size_t)(n > 0 ? n : 1));
  for (int64_t i = 0; out != NULL && i < n; ++i) out[i] = value;
  return out;
}

static tsr_code open(void* self, const tsr_kernel_config* c, void** out, tsr_error* err) {
  tsr_state states[kMostStates];
  instance* k;
  tsr_code code = supports(self, c, err);
  if (code != TSR_OK) return code;
  k = calloc(1, sizeof *k);
  if (k == NULL) return refuse(err, TSR_RESOURCE_EXHAUSTED, "kept.loops: out of memory");
  k->num_tables = c->num_tables;
  k->num_states = (uint32_t)states_of(c->optimizer, states);
  k->optimizer = c->optimizer;
  k->most = (float)c->max_gradient;
  for (uint32_t i = 0; i < k->num_states; ++i) k->kinds[i] = states[i].kind;
  for (uint32_t t = 0; t < c->num_tables; ++t) {
    shard* s = &k->shards[t];
    int all = 1;
    s->rows = table_of(c, t)->rows;
    s->dim = table_of(c, t)->dim;
    s->weights = filled(s->rows * s->dim, 0);
    s->gradient = filled(s->rows * s->dim, 0);
    s->touched = calloc((size_t)s->rows + 1, 1);
    for (uint32_t i = 0; i < k->num_states; ++i) {
      s->states[i] = filled(s->rows * width(k, s, i), (float)states[i].start);
      all = all && s->states[i] != NULL;
    }
    if (all && s->weights != NULL && s->gradient != NULL && s->touched != NULL) continue;
    close_instance(k);
    return refuse(err, TSR_RESOURCE_EXHAUSTED, "kept.loops: out of memory");
  }
  *out = k;
  return TSR_OK;
}

/* Calls `each` for every id of a feature with its position, its place in the output, and its share of the bag. */
typedef void visit(instance* k, const tsr_lookup* lookup, const tsr_lookup_feature* f, int64_t p, int64_t place,
                   float part, const tsr_backward* args, float* out);
static void for_each_id(instance* k, const tsr_lookup* lookup, const tsr_lookup_feature* f, visit* each,
                        const tsr_backward* args, float* out) {
  const int64_t first = integer(lookup->offsets, f->first_offset);
  for (int64_t b = 0; b < f->bags; ++b) {
    const int64_t begin = integer(lookup->offsets, f->first_offset + b);
    const int64_t end = integer(lookup->offsets, f->first_offset + b + 1);
    for (int64_t p = begin; p < end; ++p) {
      const int64_t line = f->pooling == TSR_POOLING_NONE ? p - first : b;
      const float part = f->pooling == TSR_POOLING_MEAN ? 1.0f / (float)(end - begin) : 1.0f;
      each(k, lookup, f, p, f->output_offset + line * f->output_stride, part, args, out);
    }
  }
}
static float weight_of(const tsr_lookup* lookup, int64_t p) {
  return lookup->weights == NULL ? 1.0f : ((const float*)raw(lookup->weights))[p];
}

static void add_row(instance* k, const tsr_lookup* lookup, const tsr_lookup_feature* f, int64_t p, int64_t place,
                    float part, const tsr_backward* args, float* out) {
  const shard* s = &k->shards[f->table];
  const float* row = s->weights + integer(lookup->ids, p) * s->dim;
  (void)args;
  if (f->pooling == TSR_POOLING_NONE) memset(out + place, 0, sizeof *out * (size_t)s->dim);
  for (int64_t d = 0; d < s->dim; ++d) out[place + d] += part * weight_of(lookup, p) * row[d];
  ++k->lookups[f->table];
}

static tsr_code forward(void* p, const tsr_lookup* lookup, const DLTensor* output, tsr_stream stream,
                        tsr_context** context, tsr_error* err) {
  instance* k = p;
  float* out = (float*)raw(output);
  (void)stream;
  if ((lookup->flags & TSR_MUST_UNDERSTAND & ~(uint32_t)TSR_LOOKUP_READ_ONLY) != 0)
    return refuse(err, TSR_UNIMPLEMENTED, "kept.loops: unknown flags of a lookup");
  for (uint32_t i = 0; i < lookup->num_features; ++i) {
    const tsr_lookup_feature* f = element(lookup->features, lookup->feature_stride, i);
    if (f->pooling == TSR_POOLING_MAX) return refuse(err, TSR_UNIMPLEMENTED, "kept.loops: there is no MAX pooling");
    for (int64_t b = 0; f->pooling != TSR_POOLING_NONE && b < f->bags; ++b)
      memset(out + f->output_offset + b * f->output_stride, 0, sizeof *out * (size_t)k->shards[f->table].dim);
    for_each_id(k, lookup, f, add_row, NULL, out);
  }
  if (context != NULL) *context = (tsr_context*)k; /* backward needs the lookup alone */
  return TSR_OK;
}
static void release(void* p, tsr_context* context) {
  (void)p;
  (void)context;
}

static void add_gradient(instance* k, const tsr_lookup* lookup, const tsr_lookup_feature* f, int64_t p, int64_t place,
                         float part, const tsr_backward* args, float* out) {
  shard* s = &k->shards[f->table];
  const int64_t row = integer(lookup->ids, p);
  const float* grad = (const float*)raw(args->grad_output) + place;
  float of_weight = 0;
  (void)out;
  s->touched[row] = 1;
  for (int64_t d = 0; d < s->dim; ++d) {
    float g = (float)args->grad_scale * grad[d];
    if (k->most > 0) g = g > k->most ? k->most : g < -k->most ? -k->most : g;
    s->gradient[row * s->dim + d] += part * weight_of(lookup, p) * g;
    of_weight += part * g * s->weights[row * s->dim + d];
  }
  if (args->grad_weights != NULL) ((float*)raw(args->grad_weights))[p] = of_weight;
}

static tsr_code backward(void* p, tsr_context* context, const tsr_backward* args, tsr_stream stream, tsr_error* err) {
  instance* k = p;
  (void)context;
  (void)stream;
  if (((args->flags | args->update->flags) & TSR_MUST_UNDERSTAND) != 0)
    return refuse(err, TSR_UNIMPLEMENTED, "kept.loops: unknown flags");
  for (uint32_t i = 0; i < args->lookup->num_features; ++i)
    for_each_id(k, args->lookup, element(args->lookup->features, args->lookup->feature_stride, i), add_gradient, args,
                NULL);
  for (uint32_t t = 0; t < k->num_tables; ++t) {
    shard* s = &k->shards[t];
    for (int64_t row = 0; row < s->rows; ++row) {
      float* states[kMostStates];
      if (!s->touched[row]) continue;
      for (uint32_t i = 0; i < k->num_states; ++i) states[i] = s->states[i] + row * width(k, s, i);
      api_of(k->optimizer)
          ->update_row(k->optimizer->self, args->update, s->dim, s->weights + row * s->dim, s->gradient + row * s->dim,
                       states);
      memset(s->gradient + row * s->dim, 0, sizeof *s->gradient * (size_t)s->dim);
      s->touched[row] = 0;
    }
  }
  return TSR_OK;
}

static void copy_row(const instance* k, const shard* s, int64_t row, const tsr_rows* rows, int64_t at, int out) {
  float* weights = (float*)raw(rows->weights) + at * s->dim;
  float* own = s->weights + row * s->dim;
  memcpy(out ? weights : own, out ? own : weights, sizeof(float) * (size_t)s->dim);
  for (uint32_t i = 0; i < rows->num_states && i < k->num_states; ++i) {
    const int64_t n = width(k, s, i);
    float* state = (float*)raw(rows->states[i]) + at * n;
    float* kept = s->states[i] + row * n;
    memcpy(out ? state : kept, out ? kept : state, sizeof(float) * (size_t)n);
  }
}
static tsr_code export_rows(void* p, uint32_t table, uint64_t* cursor, tsr_rows* rows, tsr_error* err) {
  instance* k = p;
  const shard* s = &k->shards[table];
  const int64_t room = rows->ids->shape[0];
  if ((rows->flags & TSR_MUST_UNDERSTAND) != 0) return refuse(err, TSR_UNIMPLEMENTED, "kept.loops: unknown flags");
  rows->count = 0;
  for (; rows->count < room && (int64_t)*cursor < s->rows; ++*cursor, ++rows->count) {
    ((int64_t*)raw(rows->ids))[rows->count] = (int64_t)*cursor;
    copy_row(k, s, (int64_t)*cursor, rows, rows->count, 1);
  }
  return TSR_OK;
}
static tsr_code read_rows(void* p, uint32_t table, tsr_rows* rows, tsr_error* err) {
  instance* k = p;
  if ((rows->flags & TSR_MUST_UNDERSTAND) != 0) return refuse(err, TSR_UNIMPLEMENTED, "kept.loops: unknown flags");
  for (int64_t i = 0; i < rows->count; ++i) copy_row(k, &k->shards[table], integer(rows->ids, i), rows, i, 1);
  return TSR_OK;
}
static tsr_code import_rows(void* p, uint32_t table, const tsr_rows* rows, tsr_error* err) {
  instance* k = p;
  if ((rows->flags & TSR_MUST_UNDERSTAND) != 0) return refuse(err, TSR_UNIMPLEMENTED, "kept.loops: unknown flags");
  for (int64_t i = 0; i < rows->count; ++i) copy_row(k, &k->shards[table], integer(rows->ids, i), rows, i, 0);
  return TSR_OK;
}

static tsr_code stats(void* p, uint32_t table, tsr_kernel_stats* out, tsr_error* err) {
  instance* k = p;
  const shard* s = &k->shards[table];
  uint64_t states = 0;
  (void)err;
  for (uint32_t i = 0; i < k->num_states; ++i) states += sizeof(float) * (uint64_t)(s->rows * width(k, s, i));
  if (TSR_FITS(tsr_kernel_stats, out, weight_bytes)) out->weight_bytes = sizeof(float) * (uint64_t)(s->rows * s->dim);
  if (TSR_FITS(tsr_kernel_stats, out, state_bytes)) out->state_bytes = states;
  if (TSR_FITS(tsr_kernel_stats, out, lookups)) out->lookups = k->lookups[table];
  if (TSR_FITS(tsr_kernel_stats, out, rows_in_use)) out->rows_in_use = (uint64_t)s->rows;
  if (TSR_FITS(tsr_kernel_stats, out, hits)) out->hits = k->lookups[table];
  return TSR_OK;
}

static tsr_code create(const tsr_component* component, const tsr_host* host, const char* options,
                       const tsr_instance* inner, void** self, tsr_error* err) {
  static int object;
  (void)component;
  (void)host;
  (void)inner;
  if (strcmp(options, "{}") != 0) return refuse(err, TSR_INVALID_ARGUMENT, "kept.loops: there are no options");
  *self = &object;
  return TSR_OK;
}
static void destroy(void* self) { (void)self; }

static const char* const compute_kernels[] = {TSR_COMPUTE_FUSED, NULL};
static const int32_t device_types[] = {kDLCPU, 0};
static const tsr_kernel table = {sizeof(tsr_kernel), 0,           compute_kernels, device_types, supports, open,
                                 close_instance,     forward,     backward,        NULL,         NULL,     release,
                                 export_rows,        import_rows, stats,           NULL,         read_rows};
static const tsr_component kept = {sizeof(tsr_component),
                                   -100,
                                   "kept.loops",
                                   TSR_KERNEL_KIND,
                                   "1.0",
                                   "plain loops",
                                   &table,
                                   NULL,
                                   create,
                                   destroy,
                                   NULL,
                                   NULL};
static const tsr_component* const components[] = {&kept};
static const tsr_plugin plugin = {sizeof(tsr_plugin), TSR_ABI_MAJOR, TSR_ABI_EPOCH, TSR_ABI_MINOR, 0, 1,
                                  "kept-kernel",      "1.0",         "rc3",         components};

TSR_NOTE(0, TSR_KERNEL_KIND " kept.loops 1.0\n");

const tsr_plugin* tessera_plugin_v1(const tsr_host* host, tsr_error* err) {
  (void)host;
  (void)err;
  return &plugin;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A bridge to another language, in C11: four optimizers and one probe, one create and one table of functions for all of
 * them. tsr_component::data says what each one is: here a formula in reverse Polish notation, which a bridge to a real
 * language would replace by a handle of an object there. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tessera/abi/optimizer.h"

/* One letter a step: w weight, g gradient, m state, r rate; * + - / s (sign) q (root) work on the stack; W and M
 * take its top as the new weight or state; 1 to 9 are tenths. */
typedef struct script {
  const char* code;
  int has_state;
} script;

typedef struct object {
  const script* what;
  double rate;
} object;

enum { DEPTH = 8 };

static tsr_code refuse(tsr_error* err, tsr_code code, const char* format, ...) {
  char text[200];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return tsr_refuse(err, code, text);
}

/* Returns how many values the step takes and gives. Returns 0 for an unknown letter. */
static int effect(char step, int* takes, int* gives) {
  *takes = strchr("+-*/", step) ? 2 : strchr("sqWM", step) ? 1 : 0;
  *gives = strchr("WM", step) ? 0 : 1;
  return step != '\0' && strchr("wgmr+-*/sqWM123456789", step) != NULL;
}

static tsr_code probe(const tsr_component* component, const tsr_host* host, tsr_error* why) {
  const script* what = component->data;
  int depth = 0;
  (void)host;
  for (const char* at = what->code; *at != '\0'; ++at) {
    int takes, gives;
    if (!effect(*at, &takes, &gives))
      return refuse(why, TSR_UNAVAILABLE, "%s: the formula has the step \"%c\", which this bridge does not know",
                    component->id, *at);
    if (depth < takes || depth - takes + gives > DEPTH)
      return refuse(why, TSR_UNAVAILABLE, "%s: the formula takes too many or too few values", component->id);
    depth += gives - takes;
  }
  return depth == 0 ? TSR_OK : refuse(why, TSR_UNAVAILABLE, "%s: the formula leaves values over", component->id);
}

/* Reads {} or {"learning_rate": number}. */
static int read_rate(const char* at, double* rate) {
  static const char key[] = "\"learning_rate\"";
  at += strspn(at, " {");
  if (strncmp(at, key, sizeof key - 1) == 0) {
    char* end = NULL;
    at += sizeof key - 1;
    at += strspn(at, " :");
    *rate = strtod(at, &end);
    if (end == at || !(*rate >= 0)) return 0;
    at = end;
  }
  at += strspn(at, " ");
  return at[0] == '}' && at[1] == '\0';
}

static tsr_code create(const tsr_component* component, const tsr_host* host, const char* options,
                       const tsr_instance* inner, void** self, tsr_error* err) {
  double rate = 0.01;
  object* made;
  (void)host;
  (void)inner;
  if (!read_rate(options, &rate))
    return refuse(err, TSR_INVALID_ARGUMENT, "%s: the only option is \"learning_rate\", a number of 0 or more",
                  component->id);
  made = malloc(sizeof *made);
  if (made == NULL) return refuse(err, TSR_RESOURCE_EXHAUSTED, "%s: out of memory", component->id);
  made->what = component->data;
  made->rate = rate;
  *self = made;
  return TSR_OK;
}

static void destroy(void* self) { free(self); }

static tsr_code state(void* self, uint32_t i, tsr_state* out, tsr_error* err) {
  const object* o = self;
  if (i >= (uint32_t)o->what->has_state) return refuse(err, TSR_OUT_OF_RANGE, "there are no more states");
  if (TSR_FITS(tsr_state, out, kind)) out->kind = TSR_STATE_PER_ELEMENT;
  if (TSR_FITS(tsr_state, out, dtype)) {
    const DLDataType float32 = {kDLFloat, 32, 1};
    out->dtype = float32;
  }
  if (TSR_FITS(tsr_state, out, name)) out->name = "momentum1";
  return TSR_OK;
}

static double learning_rate(void* self) { return ((const object*)self)->rate; }

static void one_element(const char* code, float rate, float* w, float g, float* m) {
  float stack[DEPTH];
  int n = 0;
  for (; *code != '\0'; ++code) {
    switch (*code) {
      case 'w':
        stack[n++] = *w;
        break;
      case 'g':
        stack[n++] = g;
        break;
      case 'm':
        stack[n++] = *m;
        break;
      case 'r':
        stack[n++] = rate;
        break;
      case '+':
        --n, stack[n - 1] += stack[n];
        break;
      case '-':
        --n, stack[n - 1] -= stack[n];
        break;
      case '*':
        --n, stack[n - 1] *= stack[n];
        break;
      case '/':
        --n, stack[n - 1] /= stack[n];
        break;
      case 's':
        stack[n - 1] = (float)((stack[n - 1] > 0) - (stack[n - 1] < 0));
        break;
      case 'q':
        stack[n - 1] = sqrtf(stack[n - 1]);
        break;
      case 'W':
        *w = stack[--n];
        break;
      case 'M':
        *m = stack[--n];
        break;
      default:
        stack[n++] = (float)(*code - '0') / 10.0f;
        break;
    }
  }
}

static void update_row(void* self, const tsr_update* update, int64_t dim, float* weight, const float* grad,
                       float* const* states) {
  const script* what = ((const object*)self)->what;
  for (int64_t d = 0; d < dim; ++d) {
    float none = 0;
    one_element(what->code, (float)update->learning_rate, weight + d, grad[d], what->has_state ? states[0] + d : &none);
  }
}

static const tsr_optimizer table = {
    .struct_size = sizeof(tsr_optimizer), .state = state, .learning_rate = learning_rate, .update_row = update_row};

static const script sgd = {"wrg*-W", 0}, sign = {"wrgs*-W", 0}, adagrad = {"mgg*+Mwrg*m1+q/-W", 1},
                    broken = {"wrg*-", 0};

#define COMPONENT(NAME, SCRIPT, ABOUT)                                                                            \
  {                                                                                                               \
    .struct_size = sizeof(tsr_component), .id = NAME, .kind = TSR_OPTIMIZER_KIND, .version = "1", .about = ABOUT, \
    .api = &table, .probe = probe, .create = create, .destroy = destroy, .data = &SCRIPT                          \
  }
static const tsr_component components[] = {
    COMPONENT("bridge.sgd", sgd, "w -= rate g"),
    COMPONENT("bridge.sign", sign, "w -= rate sign(g)"),
    COMPONENT("bridge.adagrad", adagrad, "m += g g, w -= rate g / root(m + 0.1)"),
    COMPONENT("bridge.broken", broken, "a formula that leaves a value over, which only its own probe refuses"),
};
static const tsr_component* const all[] = {&components[0], &components[1], &components[2], &components[3]};
static const tsr_plugin plugin = {.struct_size = sizeof(tsr_plugin),
                                  .abi_major = TSR_ABI_MAJOR,
                                  .epoch = TSR_ABI_EPOCH,
                                  .abi_minor = TSR_ABI_MINOR,
                                  .num_components = 4,
                                  .name = "bridge",
                                  .version = "1",
                                  .build = __VERSION__,
                                  .components = all};
TSR_NOTE(0, TSR_OPTIMIZER_KIND " bridge.sgd 1\n" TSR_OPTIMIZER_KIND " bridge.sign 1\n" TSR_OPTIMIZER_KIND
                               " bridge.adagrad 1\n" TSR_OPTIMIZER_KIND " bridge.broken 1\n");

const tsr_plugin* tessera_plugin_v1(const tsr_host* host, tsr_error* err) {
  (void)host;
  (void)err;
  return &plugin;
}

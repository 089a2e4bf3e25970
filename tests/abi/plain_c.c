/* A sharder in plain C11, without the SDK: the whole table on one rank, or the option "copies": true on every rank. */
#include <stdlib.h>
#include <string.h>

#include "tessera/abi/sharder.h"

typedef struct whole {
  int copies;
} whole;

static tsr_code propose(void* self, const tsr_table* table, const tsr_topology* topology,
                        const tsr_constraints* constraints, const tsr_layout_sink* sink, tsr_error* err) {
  const whole* w = self;
  const uint32_t n = w->copies ? topology->world_size : 1;
  tsr_rectangle* rectangles;
  tsr_layout_part part = {0};
  tsr_layout layout = {0};
  tsr_code code;
  if (((table->flags | topology->flags | constraints->flags | sink->flags) & TSR_MUST_UNDERSTAND) != 0) {
    return tsr_refuse(err, TSR_UNIMPLEMENTED, "whole: a flag asks for something that it does not know");
  }
  rectangles = calloc(n, sizeof *rectangles);
  if (rectangles == NULL) return tsr_refuse(err, TSR_RESOURCE_EXHAUSTED, "whole: out of memory");
  for (uint32_t i = 0; i < n; ++i) {
    rectangles[i].rows = table->rows;
    rectangles[i].cols = table->cols;
  }
  part.struct_size = sizeof part;
  part.placement = w->copies ? TSR_PLACE_EVERY_RANK : TSR_PLACE_ANY_RANK;
  part.combine = w->copies ? TSR_COMBINE_REPLICA : TSR_COMBINE_CONCAT;
  part.num_rectangles = n;
  part.rectangle_stride = sizeof *rectangles;
  part.rectangles = rectangles;
  layout.struct_size = sizeof layout;
  layout.num_parts = 1;
  layout.part_stride = sizeof part;
  layout.parts = &part;
  code = sink->add(sink, &layout, err);
  free(rectangles);
  return code;
}

static tsr_code create(const tsr_component* component, const tsr_host* host, const char* options,
                       const tsr_instance* inner, void** self, tsr_error* err) {
  whole* w;
  (void)component;
  if (inner != NULL) return tsr_refuse(err, TSR_INVALID_ARGUMENT, "whole: wraps nothing");
  if (strcmp(options, "{}") != 0 && strcmp(options, "{\"copies\":true}") != 0) {
    return tsr_refuse(err, TSR_INVALID_ARGUMENT, "whole: the only options are {} and {\"copies\":true}");
  }
  w = malloc(sizeof *w);
  if (w == NULL) return tsr_refuse(err, TSR_RESOURCE_EXHAUSTED, "whole: out of memory");
  w->copies = options[1] != '}';
  host->log(host, TSR_LOG_DEBUG, "whole: created");
  *self = w;
  return TSR_OK;
}

static void destroy(void* self) { free(self); }

static const tsr_sharder sharder = {sizeof(tsr_sharder), 0, propose, NULL, NULL};
static const tsr_component whole_component = {sizeof(tsr_component),
                                              7,
                                              "c.whole",
                                              TSR_SHARDER_KIND,
                                              "1.0",
                                              "the whole table on one rank",
                                              &sharder,
                                              NULL,
                                              create,
                                              destroy,
                                              NULL,
                                              NULL};
static const tsr_component* const components[] = {&whole_component};
static const tsr_plugin plugin = {
    sizeof(tsr_plugin), TSR_ABI_MAJOR, TSR_ABI_EPOCH, TSR_ABI_MINOR, 0, 1, "whole", "1.0", "C11", components};

TSR_NOTE(0, TSR_SHARDER_KIND " c.whole 1.0\n");

const tsr_plugin* tessera_plugin_v1(const tsr_host* host, tsr_error* err) {
  (void)host;
  (void)err;
  return &plugin;
}

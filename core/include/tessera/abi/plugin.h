/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/plugin.h - the entry of a plugin, its components, and the note that lists it without running it. */
#ifndef TESSERA_ABI_PLUGIN_H_
#define TESSERA_ABI_PLUGIN_H_

#include "tessera/abi/host.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_component tsr_component;

/* A created component: the table of functions and the object to hand to them. */
typedef struct tsr_instance {
  const tsr_component* component;
  void* self;
} tsr_instance;

/* One thing that a plugin provides. Everything pointed to is static: it lives as long as the process. */
struct tsr_component {
  uint32_t struct_size;
  /* Which of several usable components of a kind serves "auto": the highest; equal ones by id. */
  int32_t priority;
  const char* id;      /* "row_wise", "tcp", "acme.stripe": unique within its kind; [a-z0-9_.-] */
  const char* kind;    /* an interface with its revision: TSR_SHARDER_KIND, ... */
  const char* version; /* of the component, for people */
  const char* about;   /* one line for people */
  const void* api;     /* the interface's table: tsr_sharder, tsr_kernel, ... according to `kind` */

  /* [any-thread] Can this component run on this machine? TSR_OK, or a code with the reason in `why`. Cheap; optional
   * (absent: yes). */
  tsr_code (*probe)(const tsr_host* host, tsr_error* why);

  /* [any-thread] Makes an object. `options` is a JSON object ("{}" for none); an unknown key is TSR_INVALID_ARGUMENT.
   * `inner` is the part that this one wraps when backends are stacked ("codec:int8(tcp)"), otherwise NULL; it outlives
   * the new object. On success *self may be NULL if the component needs no object. */
  tsr_code (*create)(const tsr_host* host, const char* options, const tsr_instance* inner, void** self, tsr_error* err);
  /* [serial] Joins every thread that the object started. Called once for each successful create. */
  void (*destroy)(void* self);

  /* [any-thread] The table of a further interface that the object has, or NULL: how drafts are tried without a slot in
   * an interface that will be frozen. `id` has its revision, "tessera.kernel.prefetch/draft-1"; abi/draft/README.md
   * lists them. The table lives as long as the object. A part that wraps another one answers for ids that it knows, and
   * never hands on others: it cannot know what they would have to become. Optional. */
  const void* (*extension)(void* self, const char* id);
};

typedef struct tsr_plugin {
  uint32_t struct_size;
  uint32_t abi_minor;      /* the minor it was compiled with: for people, never a reason to refuse */
  uint32_t min_host_minor; /* the least core minor it can work with; the only minor that may refuse it */
  uint32_t num_components;
  const char* name;
  const char* version;
  const char* build;                      /* compiler and such, for people */
  const tsr_component* const* components; /* num_components pointers */
} tsr_plugin;

/* The one exported symbol of a plugin. [any-thread] Returns the same table at every call and does no other work. NULL
 * with `err` filled when the plugin refuses this host. `host` lives as long as the process. */
#define TSR_ENTRY_SYMBOL "tessera_plugin_v1"
typedef const tsr_plugin* (*tsr_entry)(const tsr_host* host, tsr_error* err);

/* The ELF note `.note.tessera` (owner "TESSERA", type 1): what the plugin holds, readable without running it. Behind
 * this head stands the manifest, which is the rest of the descriptor: NUL-terminated text with a line for each
 * component, "kind id version\n"; further words of a line are left to later versions. Order and words equal the
 * component table's; a plugin whose table and note disagree is rejected. A file may have several notes, of a plugin
 * that serves several majors: a host takes the one of its own major and epoch. ELF only: other systems will have the
 * same bytes under a data symbol. */
#define TSR_NOTE_SECTION ".note.tessera"
#define TSR_NOTE_OWNER "TESSERA"
#define TSR_NOTE_TYPE 1u
typedef struct tsr_note {
  uint32_t owner_size; /* 8 */
  uint32_t desc_size;  /* bytes from abi_major to the end of the manifest */
  uint32_t type;
  char owner[8];
  uint32_t abi_major;
  uint32_t abi_minor;
  uint32_t min_host_minor;
  uint32_t epoch; /* TSR_ABI_EPOCH */
} tsr_note;
#define TSR_NOTE_DESC_HEAD 16u /* bytes of the descriptor before the manifest */

/* `manifest_text` is a literal. */
#define TSR_NOTE(min_host_minor, manifest_text)                                                                  \
  __attribute__((used, aligned(4), section(TSR_NOTE_SECTION))) static const struct {                             \
    tsr_note head;                                                                                               \
    char manifest[(sizeof(manifest_text) + 3) / 4 * 4];                                                          \
  } tessera_note = {{8, TSR_NOTE_DESC_HEAD + (sizeof(manifest_text) + 3) / 4 * 4, TSR_NOTE_TYPE, TSR_NOTE_OWNER, \
                     TSR_ABI_MAJOR, TSR_ABI_MINOR, min_host_minor, TSR_ABI_EPOCH},                               \
                    manifest_text}

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TESSERA_ABI_PLUGIN_H_ */

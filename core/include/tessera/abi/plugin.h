/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/plugin.h - a plugin's entry, its components, and the note that lists them without running any code.
 *
 *   1. The host finds a shared library in its search path and reads the ELF note. It runs none of the library's code.
 *   2. When a component is first needed, the host opens the library, which it never closes. It calls the entry once
 *      and checks that the returned table has the same components as the note.
 *   3. It calls probe(), if there is one. If probe() fails, the component is listed as unusable, with the reason.
 *   4. It calls create() with JSON options and gets an object. It may create several objects, also at the same time.
 *      One function may serve several components: probe() and create() get the component that they are called for.
 *   5. It calls the functions of the interface in `api`, each with the object. It may ask extension() for drafts.
 *   6. It calls destroy() after everything that was made from the object is closed.
 */
#ifndef TESSERA_ABI_PLUGIN_H_
#define TESSERA_ABI_PLUGIN_H_

#include "tessera/abi/host.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_component tsr_component;

/* A created component: its description, and the object that its functions take as `self`. */
typedef struct tsr_instance {
  const tsr_component* component;
  void* self; /* NULL if the component needs no object */
} tsr_instance;

/* One implementation of an interface. All pointers are to static memory, which lives as long as the process. */
struct tsr_component {
  uint32_t struct_size;
  /* "auto" chooses the usable component of the kind with the highest priority. Equal priorities go by id. */
  int32_t priority;
  const char* id;      /* "row_wise", "tcp", "acme.stripe": unique within its kind; [a-z0-9_.-] */
  const char* kind;    /* the interface with its revision: TSR_SHARDER_KIND, ... */
  const char* version; /* the component's version, for people: printable ASCII without spaces */
  const char* about;   /* one line of text, for people */
  const void* api;     /* the interface's table, according to `kind`: tsr_sharder, tsr_kernel, ... */

  /* [any-thread] Optional. Returns TSR_OK if this component can run on this machine. Otherwise returns a code, with the
   * reason in `why`. It must be cheap. A component without probe() can always run. */
  tsr_code (*probe)(const tsr_component* component, const tsr_host* host, tsr_error* why);

  /* [any-thread] Makes an object of `component`, which is this struct. The caller owns the object and ends it with
   * destroy(). *self may stay NULL if the component needs no object. `options` is a JSON object, "{}" if there are
   * none; create() refuses an unknown key with TSR_INVALID_ARGUMENT. `inner` is the component that this one wraps, as
   * in "codec:int8(tcp)". It outlives the new object. It is NULL if nothing is wrapped. */
  tsr_code (*create)(const tsr_component* component, const tsr_host* host, const char* options,
                     const tsr_instance* inner, void** self, tsr_error* err);
  /* [serial] Frees the object, after joining every thread that the object started. It is called once for each
   * successful create(). */
  void (*destroy)(void* self);

  /* [any-thread] Optional. Returns the table of another interface that the object has, or NULL. Drafts are tried this
   * way before they become part of a frozen interface. `id` includes the revision, "tessera.kernel.prefetch/draft-2";
   * abi/draft/README.md lists the ids. The table lives as long as the object. It begins with its struct_size and its
   * flags, both uint32_t, so that the caller can check the flags of any extension.
   * A component that wraps another one answers only for ids that it knows. It must not forward other ids to the wrapped
   * component, whose tables would work on the wrong objects. */
  const void* (*extension)(void* self, const char* id);

  /* For the plugin's own use, such as a bridge to another language that has one probe() and one create() for all of its
   * components. The host does not read it. */
  const void* data;
};

/* The table that the entry returns. It and everything that it points to live as long as the process. The host reads
 * abi_major and epoch first. If they differ from its own, it refuses the plugin, even one that is linked into the
 * program. Both members keep their offsets in every major. */
typedef struct tsr_plugin {
  uint32_t struct_size;
  uint32_t abi_major;      /* TSR_ABI_MAJOR */
  uint32_t epoch;          /* TSR_ABI_EPOCH */
  uint32_t abi_minor;      /* the minor that it was compiled with: for people, never a reason to refuse */
  uint32_t min_host_minor; /* the smallest core minor that it can work with; an older core refuses it */
  uint32_t num_components;
  const char* name;
  const char* version;
  const char* build;                      /* the compiler and its options, for people */
  const tsr_component* const* components; /* [num_components] */
} tsr_plugin;

/* The one exported symbol of a plugin. [any-thread] Returns the same table in every call and does no other work.
 * Returns NULL and fills `err` if the plugin refuses this host. `host` lives as long as the process. */
#define TSR_ENTRY_SYMBOL "tessera_plugin_v1"
typedef const tsr_plugin* (*tsr_entry)(const tsr_host* host, tsr_error* err);
TSR_EXPORT const tsr_plugin* tessera_plugin_v1(const tsr_host* host, tsr_error* err);

/* The ELF note `.note.tessera` (owner "TESSERA", type 1) lists a plugin's components without running its code. tsr_note
 * is its head. The rest of the descriptor is the manifest: NUL-terminated text with one line "kind id version\n" for
 * each component. The three words are printable ASCII without spaces. Additional words of a line are reserved for later
 * versions.
 * Line i has the kind, id and version of component i. The host rejects a plugin whose note and table differ. A plugin
 * that serves several majors has several notes, and a host takes the one of its own major and epoch. The note exists
 * only on ELF systems. On other systems, the reserved symbol `tessera_note_v1` will be data with the same bytes. */
#define TSR_NOTE_SECTION ".note.tessera"
#define TSR_NOTE_OWNER "TESSERA"
#define TSR_NOTE_TYPE 1u
typedef struct tsr_note {
  uint32_t owner_size;     /* 8 */
  uint32_t desc_size;      /* bytes from abi_major to the end of the manifest */
  uint32_t type;           /* TSR_NOTE_TYPE */
  char owner[8];           /* TSR_NOTE_OWNER, with its NUL */
  uint32_t abi_major;      /* TSR_ABI_MAJOR */
  uint32_t abi_minor;      /* TSR_ABI_MINOR */
  uint32_t min_host_minor; /* the same as tsr_plugin::min_host_minor */
  uint32_t epoch;          /* TSR_ABI_EPOCH */
} tsr_note;
#define TSR_NOTE_DESC_HEAD 16u /* bytes of the descriptor before the manifest */

/* Defines the note; a plugin uses this macro once. `manifest_text` is a string literal. */
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

// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/plugin.h - turns C++ classes into a plugin. Begin here; then read the header of your interface.
//
//   class Stripe : public tessera::sdk::Sharder { ... };
//   TESSERA_PLUGIN("acme-stripe", "1.0.0",
//                  tessera::sdk::component<Stripe>({.id = "acme.stripe", .version = "1.0.0", .about = "one line"}));
//
// A class becomes a component if it derives from an interface's base (sharder.h, kernel.h, optimizer.h, collective.h,
// module.h). It may have one of these constructors, which throw Failure if options are wrong:
//   C(const Setup&)   needs the host, its options, or the component that it wraps
//   C(Options&)       needs its options
//   C()               takes no options: any option is refused
// A class that cannot run everywhere has `static void probe(tessera::sdk::Host)`, which throws Failure with the reason.
// A class with more interfaces than its kind's (abi/draft/) has `const void* extension(std::string_view id)`, which
// returns NULL for an unknown id. An interface's base may itself answer for some ids. TESSERA_PLUGIN occurs once, at
// namespace scope in one source file of the plugin.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>

#include "tessera/abi/plugin.h"
#include "tessera/sdk/error.h"
#include "tessera/sdk/host.h"
#include "tessera/sdk/options.h"

namespace tessera::sdk {
inline namespace v1 {

// The environment that a component is created in.
struct Setup {
  Host host;
  Options& options;
  const tsr_instance* inner;  // the component to wrap, or NULL. Outlives the new object
};

// How a component describes itself. All texts are literals.
struct About {
  const char* id;        // unique within its kind: letters a-z, digits, _ . -
  const char* version;   // of the component
  const char* about;     // one line
  int32_t priority = 0;  // the usable one with the highest priority serves "auto"
};

namespace detail {

template <class C>
std::unique_ptr<C> make(const Setup& setup) {
  if constexpr (std::is_constructible_v<C, const Setup&>) {
    return std::make_unique<C>(setup);
  } else if constexpr (std::is_constructible_v<C, Options&>) {
    return std::make_unique<C>(setup.options);
  } else {
    return std::make_unique<C>();
  }
}

template <class C>
tsr_code probe(const tsr_component*, const tsr_host* host, tsr_error* why) noexcept {
  return guard(why, [&] { C::probe(Host(host)); });
}

template <class C>
tsr_code create(const tsr_component*, const tsr_host* host, const char* text, const tsr_instance* inner, void** self,
                tsr_error* err) noexcept {
  return guard(err, [&] {
    Options options(text == nullptr ? "{}" : text);
    std::unique_ptr<C> object = make<C>(Setup{Host(host), options, inner});
    options.finish();
    *self = object.release();
  });
}

template <class C>
void destroy(void* self) noexcept {
  delete static_cast<C*>(self);
}

template <class C>
const void* extension(void* self, const char* id) noexcept {
  const void* table = nullptr;
  (void)guard(nullptr, [&] {
    if constexpr (requires { C::template base_extension<C>(id); }) table = C::template base_extension<C>(id);
    if constexpr (requires(C object) { object.extension(std::string_view(id)); }) {
      if (table == nullptr) table = static_cast<C*>(self)->extension(id);
    }
  });
  return table;
}

template <class C>
constexpr auto probe_slot() -> tsr_code (*)(const tsr_component*, const tsr_host*, tsr_error*) {
  if constexpr (requires(Host host) { C::probe(host); }) {
    return &probe<C>;
  } else {
    return nullptr;
  }
}

template <class C>
constexpr auto extension_slot() -> const void* (*)(void*, const char*) {
  if constexpr (
      requires(C object, std::string_view id) { object.extension(id); } ||
      requires(std::string_view id) { C::template base_extension<C>(id); }) {
    return &extension<C>;
  } else {
    return nullptr;
  }
}

constexpr bool valid_id(std::string_view id) {
  for (char c : id) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-')) return false;
  }
  return !id.empty();
}

// A word of the note's manifest.
constexpr bool valid_word(std::string_view word) {
  for (char c : word) {
    if (c <= ' ' || c > '~') return false;
  }
  return !word.empty();
}

// It is called only during compilation, where the compiler's message shows the text.
inline void refuse_to_compile(const char*) {}

template <size_t N>
constexpr void check(const tsr_component (&components)[N]) {
  for (size_t i = 0; i < N; ++i) {
    if (!valid_id(components[i].id)) refuse_to_compile("an id has letters a-z, digits, _ . - only");
    if (!valid_word(components[i].version)) refuse_to_compile("a version has printable ASCII without spaces only");
    for (size_t k = 0; k < i; ++k) {
      if (std::string_view(components[i].id) == components[k].id &&
          std::string_view(components[i].kind) == components[k].kind) {
        refuse_to_compile("two components have the same kind and id");
      }
    }
  }
}

// The manifest in the ELF note, made from the table itself, so that the two always agree.
template <size_t N>
constexpr size_t manifest_room(const tsr_component (&components)[N]) {
  check(components);
  size_t size = 1;  // for the NUL
  for (const tsr_component& c : components)
    size += std::string_view(c.kind).size() + std::string_view(c.id).size() + std::string_view(c.version).size() + 3;
  return (size + 3) / 4 * 4;
}

template <size_t Room>
struct Note {
  tsr_note head;
  char manifest[Room];
};

template <size_t Room, size_t N>
constexpr Note<Room> make_note(const tsr_component (&components)[N], uint32_t min_host_minor) {
  Note<Room> note{{8, TSR_NOTE_DESC_HEAD + Room, TSR_NOTE_TYPE, TSR_NOTE_OWNER, TSR_ABI_MAJOR, TSR_ABI_MINOR,
                   min_host_minor, TSR_ABI_EPOCH},
                  {}};
  size_t end = 0;
  const auto put = [&](const char* text, char separator) {
    for (; *text != '\0'; ++text) note.manifest[end++] = *text;
    note.manifest[end++] = separator;
  };
  for (const tsr_component& c : components) {
    put(c.kind, ' ');
    put(c.id, ' ');
    put(c.version, '\n');
  }
  return note;
}

template <size_t N>
constexpr std::array<const tsr_component*, N> pointers(const tsr_component (&components)[N]) {
  std::array<const tsr_component*, N> out{};
  for (size_t i = 0; i < N; ++i) out[i] = &components[i];
  return out;
}

// True if C overrides a virtual function of its interface's base. An optional function exists only then.
template <class Mine, class Base>
constexpr bool overrides(Mine, Base) {
  return !std::is_same_v<Mine, Base>;
}

}  // namespace detail

// Makes the component of class C.
template <class C>
constexpr tsr_component component(const About& about) {
  return {sizeof(tsr_component),
          about.priority,
          about.id,
          C::kKind,
          about.version,
          about.about,
          &C::template table<C>,
          detail::probe_slot<C>(),
          &detail::create<C>,
          &detail::destroy<C>,
          detail::extension_slot<C>(),
          nullptr};
}

// Returns the table of another interface of a component that another plugin made; NULL: it has none. T is the struct of
// `id`. Throws Failure if the table has a flag that must be understood and is not in `known`.
template <class T>
const T* extension_of(const tsr_instance& part, const char* id, uint32_t known = 0) {
  if (!TSR_HAS(tsr_component, part.component, extension)) return nullptr;
  const auto* table = static_cast<const T*>(part.component->extension(part.self, id));
  if (table != nullptr && TSR_FITS(T, table, flags)) check_flags(table->flags, known, id);
  return table;
}

}  // namespace v1
}  // namespace tessera::sdk

// TESSERA_PLUGIN("name", "version", component<A>({...}), component<B>({...}), ...);
// Components may have different kinds. The entry function, its tables and the ELF note all come from this list.
#define TESSERA_PLUGIN(name, version, ...) TESSERA_PLUGIN_FOR(0, name, version, __VA_ARGS__)

// Does the same for a plugin that needs at least this minor version of the core's ABI.
#define TESSERA_PLUGIN_FOR(min_host_minor, name, version, ...)                                                         \
  namespace {                                                                                                          \
  constexpr tsr_component tessera_components[] = {__VA_ARGS__};                                                        \
  constexpr auto tessera_component_pointers = ::tessera::sdk::detail::pointers(tessera_components);                    \
  constexpr tsr_plugin tessera_plugin_table = {sizeof(tsr_plugin),                                                     \
                                               TSR_ABI_MAJOR,                                                          \
                                               TSR_ABI_EPOCH,                                                          \
                                               TSR_ABI_MINOR,                                                          \
                                               min_host_minor,                                                         \
                                               static_cast<uint32_t>(tessera_component_pointers.size()),               \
                                               name,                                                                   \
                                               version,                                                                \
                                               __VERSION__,                                                            \
                                               tessera_component_pointers.data()};                                     \
  __attribute__((used, aligned(4), section(TSR_NOTE_SECTION))) constexpr auto tessera_note =                           \
      ::tessera::sdk::detail::make_note<::tessera::sdk::detail::manifest_room(tessera_components)>(tessera_components, \
                                                                                                   min_host_minor);    \
  }                                                                                                                    \
  extern "C" TSR_EXPORT const tsr_plugin* tessera_plugin_v1(const tsr_host*, tsr_error*) {                             \
    return &tessera_plugin_table;                                                                                      \
  }                                                                                                                    \
  static_assert(TSR_ABI_MAJOR == 1, "the entry symbol carries the major")

// A sharder plugin with the fault that BAD_PLUGINS_VARIANT names. "none" has none; "other" has none either, but another
// id.
#include <fcntl.h>
#include <unistd.h>

#include <cfenv>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "tessera/abi/sharder.h"

namespace {

constexpr bool is(std::string_view variant) { return variant == BAD_PLUGINS_VARIANT; }

// `value`, or NULL if this variant is named.
template <class T>
constexpr T unless(std::string_view variant, T value) {
  return is(variant) ? nullptr : value;
}

void say(tsr_error* err, const char* text) { std::strcpy(err->message, text); }
void say_without_end(tsr_error* err) { std::memset(err->message, 'x', sizeof(err->message)); }

tsr_code propose(void*, const tsr_table*, const tsr_topology*, const tsr_constraints*, const tsr_layout_sink*,
                 tsr_error*) {
  return TSR_OK;
}

tsr_code route(void*, const tsr_route*, tsr_error*) { return TSR_OK; }

tsr_code create(const tsr_component*, const tsr_host*, const char*, const tsr_instance*, void** self, tsr_error* err) {
  if (is("endless_create")) return say_without_end(err), TSR_INTERNAL;
  if (is("throwing_create")) throw std::runtime_error("from create");
  *self = nullptr;
  return TSR_OK;
}

void destroy(void*) {}

tsr_code probe(const tsr_component*, const tsr_host*, tsr_error* why) {
  if (is("throwing_probe")) throw 42;
  if (is("endless_probe")) return say_without_end(why), TSR_UNAVAILABLE;
  if (!is("failing_probe")) return TSR_OK;
  say(why, "this machine has no quantum unit");
  return TSR_UNAVAILABLE;
}

constexpr tsr_sharder kApi = {is("short_api") ? 8 : sizeof(tsr_sharder), is("unknown_flags") ? 0x40000003u : 0u,
                              unless("null_slot", &propose), is("one_route") ? &route : nullptr, nullptr};

constexpr tsr_component kComponent = {sizeof(tsr_component),
                                      0,
                                      unless("null_id", is("other") ? "other" : "bad"),
                                      TSR_SHARDER_KIND,
                                      is("spaced_version") ? "1.0 beta" : "1.0",
                                      "for tests",
                                      unless("null_api", &kApi),
                                      &probe,
                                      unless("null_create", &create),
                                      &destroy};

constexpr const tsr_component* kComponents[] = {unless("null_component", &kComponent)};

[[maybe_unused]] constexpr tsr_plugin kPlugin = {is("zero_struct_size") ? 0 : sizeof(tsr_plugin),
                                                 TSR_ABI_MAJOR,
                                                 is("table_epoch") ? TSR_ABI_EPOCH - 1 : TSR_ABI_EPOCH,
                                                 TSR_ABI_MINOR,
                                                 is("table_min_host_minor") ? 1 : 0,
                                                 1,
                                                 "bad",
                                                 "1.0",
                                                 "tests",
                                                 kComponents};

#if !defined(BAD_PLUGINS_WITHOUT_NOTE)
struct Note {
  tsr_note head;
  char manifest[128];
};
constexpr Note make_note() {
  Note note{{8, TSR_NOTE_DESC_HEAD + sizeof(note.manifest), TSR_NOTE_TYPE, TSR_NOTE_OWNER,
             is("abi_major") ? 2u : TSR_ABI_MAJOR, TSR_ABI_MINOR, is("min_host_minor") ? 99u : 0u,
             is("epoch") ? 0u : TSR_ABI_EPOCH},
            {}};
  size_t end = 0;
  const auto put = [&](std::string_view line) {
    for (char c : line) note.manifest[end++] = c;
  };
  put(is("other") ? "tessera.sharder/1 other " : "tessera.sharder/1 bad ");
  put(is("note_version") ? "2.0\n" : "1.0\n");
  if (is("note_count")) put("tessera.sharder/1 more 1.0\n");
  if (is("duplicate_ids")) put("tessera.sharder/1 bad 1.0\n");
  return note;
}
__attribute__((used, aligned(4), section(TSR_NOTE_SECTION))) constexpr Note kNote = make_note();
#endif

// Does what a library linked with -ffast-math does, and more.
[[maybe_unused]] void change_process() {
  std::fesetround(FE_UPWARD);
  std::setlocale(LC_ALL, "C.UTF-8");
  if (::chdir("/proc") != 0) throw std::runtime_error("no /proc");
  std::signal(SIGUSR2, SIG_IGN);
}

// Appends to the file that a test names: a 'c' when the library is opened, an 'e' when its entry is called.
void count(char what) {
  const char* path = std::getenv("BAD_PLUGINS_COUNTS");
  const int fd = path == nullptr ? -1 : ::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return;
  if (::write(fd, &what, 1) != 1) std::abort();
  ::close(fd);
}

struct Constructed {
  Constructed() {
    count('c');
    if (is("slow_constructor")) ::usleep(300'000);
    if (is("starting_a_thread")) {
      std::thread([] {
        for (;;) ::pause();
      }).detach();
    }
    while (is("endless_constructor")) ::pause();
    if (is("changes_process")) change_process();
    if (is("crashing_constructor")) raise(SIGSEGV);
    if (is("exiting_constructor")) std::exit(0);
    if (is("mistaken_for_good") && std::getenv("BAD_PLUGINS_THROWS") != nullptr) throw std::runtime_error("changed");
    if (is("throwing_constructor")) throw std::runtime_error("from a static initialiser");
  }
};
[[maybe_unused]] const Constructed kConstructed;

}  // namespace

#if !defined(BAD_PLUGINS_WITHOUT_ENTRY)
const tsr_plugin* tessera_plugin_v1(const tsr_host*, tsr_error* err) {
  count('e');
  if (is("throwing_entry")) throw std::runtime_error("from the entry");
  if (is("refusing_entry")) say(err, "it needs a licence");
  if (is("endless_entry")) say_without_end(err);
  return is("refusing_entry") || is("endless_entry") || is("null_table") ? nullptr : &kPlugin;
}
#endif

#if defined(BAD_PLUGINS_WITH_SDK_SYMBOL)
// A function of the SDK, as it is in a plugin whose compiler or linker was told to export everything.
namespace tessera::sdk {
TSR_EXPORT void forgotten();
void forgotten() {}
}  // namespace tessera::sdk
#endif

#if defined(BAD_PLUGINS_WITH_MISSING_SYMBOL)
extern "C" void tessera_nobody_defines_this();
extern "C" __attribute__((visibility("default"))) void tessera_calls_it() { tessera_nobody_defines_this(); }
#endif

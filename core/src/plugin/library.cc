#include "plugin/library.h"

#include <dlfcn.h>
#include <link.h>

#include <exception>
#include <string_view>

#include "plugin/calls.h"
#include "plugin/interfaces.h"
#include "plugin/process_state.h"
#include "plugin/trial.h"
#include "tessera/error.h"

namespace tessera::plugin {
namespace {

// Opens a library for the life of the process. Its code must stay, because its threads, atexit handlers and
// thread-local destructors may run at any time. null: dlerror() has the reason.
// The C library declares that dlopen does not throw, but a plugin's static initialisers may. If the compiler saw which
// function is called, such an exception would end the process.
void* open_forever(const char* path) {
  void* (*volatile const open)(const char*, int) = &::dlopen;
  return open(path, RTLD_NOW | RTLD_LOCAL);
}

// True if the symbol is in this library itself, not in one that it depends on.
bool is_own(void* handle, const void* symbol) {
  link_map* library = nullptr;
  link_map* owner = nullptr;
  Dl_info info{};
  return ::dlinfo(handle, RTLD_DI_LINKMAP, &library) == 0 &&
         ::dladdr1(symbol, &info, reinterpret_cast<void**>(&owner), RTLD_DL_LINKMAP) != 0 && library == owner;
}

}  // namespace

Library::Library(std::string path)
    : path_(std::move(path)),
      file_(std::in_place, path_),
      note_(parse_elf_note(file_->size(),
                           [&](uint64_t offset, void* out, uint64_t size) { file_->read(offset, out, size); })),
      distrust_(file_->distrust()) {}

std::vector<ManifestLine> Library::refused_components(const std::string& path) {
  try {
    const PluginFile file(path);
    return plugin::refused_components(file.size(),
                                      [&](uint64_t offset, void* out, uint64_t size) { file.read(offset, out, size); });
  } catch (const Error&) {
    return {};
  }
}

const Library::Verdict& Library::open(const tsr_host* host, First first) {
  if (!opened_) {
    opened_ = true;
    if (first == First::kInAChild) {
      const CallScope call({nullptr, "a plugin's file that is being opened"}, path_);
      const TrialEnd end = tried_in_a_child([&] {
        const Verdict verdict = open_caught(host);
        return TrialEnd{verdict.reason, verdict.well_formed};
      });
      verdict_ = {end.reason, end.harmless, {}};
    }
    if (verdict_.reason.empty()) {
      const ProcessState before;
      verdict_ = open_caught(host);
      verdict_.changed = before.restore();
    }
    file_.reset();
  }
  return verdict_;
}

Library::Verdict Library::open_caught(const tsr_host* host) {
  try {
    return open_once(host);
  } catch (const std::exception& e) {
    return {str_cat("threw an exception when it was opened: ", e.what()), false, {}};
  } catch (...) {
    return {"threw an exception when it was opened", false, {}};
  }
}

Library::Verdict Library::open_once(const tsr_host* host) {
  if (std::string why = file_->changed(); !why.empty()) return {why, true, {}};
  const CallScope call({nullptr, "a plugin's file that is being opened"}, path_);
  void* handle = open_forever(path_.c_str());
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return {str_cat("cannot be opened: ", why != nullptr ? why : "the system does not say why"), true, {}};
  }
  void* symbol = ::dlsym(handle, TSR_ENTRY_SYMBOL);
  if (symbol == nullptr) return {"has a Tessera note, but no symbol " TSR_ENTRY_SYMBOL, false, {}};
  if (!is_own(handle, symbol)) {
    return {
        "has no symbol " TSR_ENTRY_SYMBOL " of its own: the one found belongs to a library that it links", false, {}};
  }
  AbiError refusal;
  try {
    plugin_ = reinterpret_cast<tsr_entry>(symbol)(host, refusal.out());
  } catch (...) {
    return {TSR_ENTRY_SYMBOL " threw an exception, which no plugin may do", false, {}};
  }
  if (plugin_ == nullptr) {
    const std::string_view said = refusal.said();
    return {str_cat("refuses this core: ", said.empty() ? "it gives no reason" : said), true, {}};
  }
  return {check_tables(), false, {}};
}

std::string Library::check_tables() const {
  if (std::string wrong = check_plugin(plugin_); !wrong.empty()) return wrong;
  if (plugin_->min_host_minor != note_.min_host_minor) {
    return str_cat("has a note that needs core minor ", note_.min_host_minor, ", but a table that needs ",
                   plugin_->min_host_minor);
  }
  if (plugin_->num_components != note_.components.size()) {
    return str_cat("has ", note_.components.size(), " components in its note, but ", plugin_->num_components,
                   " in its table");
  }
  for (size_t i = 0; i < note_.components.size(); ++i) {
    const tsr_component* c = plugin_->components[i];
    if (std::string wrong = check_component(c); !wrong.empty()) return wrong;
    const ManifestLine& line = note_.components[i];
    if (ManifestLine{c->kind, c->id, c->version} != line) {
      return str_cat("has \"", line.kind, " ", line.id, " ", line.version, "\" in its note, but \"", c->kind, " ",
                     c->id, " ", c->version, "\" in its table");
    }
  }
  return "";
}

}  // namespace tessera::plugin

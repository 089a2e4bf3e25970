#include "plugin/library.h"

#include <dlfcn.h>

#include <boost/dll/runtime_symbol_info.hpp>
#include <chrono>
#include <exception>
#include <string_view>
#include <type_traits>

#include "plugin/interfaces.h"
#include "plugin/kept_verdict.h"
#include "plugin/process_state.h"
#include "tessera/calls.h"
#include "tessera/error.h"

namespace tessera::plugin {
namespace {

namespace dll = boost::dll;

// RTLD_NODELETE keeps the code, because its threads, atexit handlers and thread-local destructors may run at any time.
// Boost has no name for this flag and passes it on.
constexpr auto kForEver =
    static_cast<dll::load_mode::type>(dll::load_mode::rtld_now | dll::load_mode::rtld_local | RTLD_NODELETE);

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

const Library::Verdict& Library::open(const tsr_host* host, const Trials* trials) {
  if (opened_) return verdict_;
  opened_ = true;
  if (trials != nullptr) {
    const TrialEnd end = try_first(host, *trials);
    verdict_.reason = end.reason;
    verdict_.well_formed = end.harmless;
    verdict_.threads = end.threads;
  }
  if (verdict_.reason.empty()) {
    const ProcessState before;
    const int threads = verdict_.threads;
    verdict_ = open_caught(host);
    verdict_.changed = before.restore();
    verdict_.threads = threads;
  }
  file_.reset();
  return verdict_;
}

TrialEnd Library::try_first(const tsr_host* host, const Trials& trials) {
  const CallScope call({nullptr, "a plugin's file that is being opened"}, path_);
  const KeptVerdict kept(trials.kept_in, path_, *file_);
  if (std::optional<TrialEnd> end = kept.find()) {
    if (!end->reason.empty())
      end->reason += str_cat(", as an earlier start found (delete ", kept.path(), " to try it again)");
    return *end;
  }
  // The ranks of a host come here together, and one of them is enough.
  const KeptVerdict::Lock lock = kept.lock(std::chrono::seconds(trials.longest_s + 5));
  if (const std::optional<TrialEnd> end = kept.find()) return *end;
  TrialEnd end = tried_in_a_child(
      [&] {
        const Verdict verdict = open_caught(host);
        TrialEnd said{.reason = verdict.reason, .harmless = verdict.well_formed};
        return said;
      },
      trials.longest_s);
  std::erase(end.libraries, path_);
  kept.keep(end);
  return end;
}

Library::Verdict Library::open_caught(const tsr_host* host) {
  try {
    return open_once(host);
  } catch (const std::exception& e) {
    return {str_cat("threw an exception when it was opened: ", e.what()), false};
  } catch (...) {
    return {"threw an exception when it was opened", false};
  }
}

Library::Verdict Library::open_once(const tsr_host* host) {
  if (std::string why = file_->changed(); !why.empty()) return {why, true};
  const CallScope call({nullptr, "a plugin's file that is being opened"}, path_);
  dll::fs::error_code error;
  library_.load(path_, kForEver, error);
  if (error) {
    const char* why = ::dlerror();
    return {str_cat("cannot be opened: ", why != nullptr ? why : "the system does not say why"), true};
  }
  if (!library_.has(TSR_ENTRY_SYMBOL)) return {"has a Tessera note, but no symbol " TSR_ENTRY_SYMBOL, false};
  const auto& entry = library_.get<std::remove_pointer_t<tsr_entry>>(TSR_ENTRY_SYMBOL);
  if (dll::symbol_location(entry, error) != library_.location(error)) {
    return {"has no symbol " TSR_ENTRY_SYMBOL " of its own: the one found belongs to a library that it links", false};
  }
  AbiError refusal;
  try {
    plugin_ = entry(host, refusal.out());
  } catch (...) {
    return {TSR_ENTRY_SYMBOL " threw an exception, which no plugin may do", false};
  }
  if (plugin_ == nullptr) {
    const std::string_view said = refusal.said();
    return {str_cat("refuses this core: ", said.empty() ? "it gives no reason" : said), true};
  }
  return {check_tables(), false};
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

#include "tessera/runtime.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "plugin/environment.h"
#include "plugin/host.h"
#include "plugin/interfaces.h"
#include "plugin/library.h"
#include "plugin/search_path.h"
#include "tessera/abi/collective.h"
#include "tessera/abi/draft/device.h"
#include "tessera/abi/kernel.h"
#include "tessera/calls.h"
#include "tessera/sdk/nearest.h"

namespace tessera {
namespace {

constexpr const char* kAuto = "auto";
constexpr const char* kOnlyAsked = "was probed, but another one is used";

uint32_t thread_count(int threads) {
  if (threads < 0) fail(Code::kInvalidArgument, "the number of threads is ", threads, ", but cannot be negative");
  return threads > 0 ? static_cast<uint32_t>(threads) : std::max(1u, std::thread::hardware_concurrency());
}

std::string quoted(const std::string& word) { return '"' + word + '"'; }

// One of three: a component that a file announced; a component of the program itself (library null, component set); or
// a file that announced none (both null).
struct Candidate {
  LoadEntry entry;
  plugin::Library* library = nullptr;
  size_t index = 0;                          // index of the component in the library
  const tsr_component* component = nullptr;  // set after the library was opened
  tsr_code code = TSR_OK;                    // the result of its probe
  bool installed = false;                    // its file is in the folder that belongs to this library

  bool rejected() const { return entry.state == LoadEntry::State::kRejected; }
  bool usable() const { return !rejected() && entry.state != LoadEntry::State::kUnusable; }
  bool is(const std::string& kind) const { return entry.kind == kind; }
  std::string line() const { return str_cat(to_string(entry.state), ": ", entry.path, ": ", entry.reason); }
};

}  // namespace

struct Runtime::Impl {
  Impl(RuntimeOptions options, const plugin::Environment& environment)
      : host(thread_count(options.threads), environment.log_level, std::move(options.log)),
        trials{environment.cache, environment.trial_s} {
    for (const tsr_plugin* held : options.plugins) add_held(held);
    discover(plugin::search_path({options.plugin_path, environment.plugin_path, options.default_path}),
             environment.trust_all);
    for (const std::string& id : options.require) require(id);
  }

  void discover(const plugin::SearchPath& path, bool trust_all);
  void add_held(const tsr_plugin* held);
  void add_file(const std::string& path, bool trust_all, bool installed);
  void add_refused(const std::string& path, const std::string& reason);
  std::string shadowed_by(const plugin::ManifestLine& line) const;
  void require(const std::string& id);
  void make_ready(Candidate* c);
  void probe(Candidate* c);
  Candidate* named(const std::string& kind, const std::string& id);
  Candidate* best(const std::string& kind, const std::function<bool(const tsr_component&)>& suits = {});
  Candidate* pick(const std::string& kind, const std::string& id);
  void mark(Candidate* c, LoadEntry::State state, const char* reason);
  std::vector<std::string> ids(const std::string& kind) const;
  std::string lines_of(const std::string& kind, const std::string& id) const;

  plugin::Host host;
  const plugin::Trials trials;
  mutable std::mutex mutex;  // guards everything below, after construction
  std::vector<std::string> searched;
  std::vector<std::unique_ptr<plugin::Library>> libraries;
  std::vector<Candidate> candidates;  // their number and order never change
};

void Runtime::Impl::discover(const plugin::SearchPath& path, bool trust_all) {
  for (const plugin::SearchPath::Directory& d : path.directories) {
    searched.push_back(d.problem.empty() ? d.path : d.path + " (" + d.problem + ")");
    if (!d.problem.empty()) {
      if (d.path != plugin::default_plugin_directory())
        host.log(TSR_LOG_WARNING, str_cat("the plugin directory ", d.path, " ", d.problem, ", so nothing is loaded ",
                                          "from it: correct plugins.path or TESSERA_PLUGIN_PATH")
                                      .c_str());
      continue;
    }
    for (const std::string& file : plugin::plugin_files(d.path)) add_file(file, trust_all, d.installed);
  }
}

// Adds a plugin of the program itself, which needs neither trust nor opening.
void Runtime::Impl::add_held(const tsr_plugin* held) {
  if (held == nullptr) fail(Code::kInvalidArgument, "a plugin of the program itself is NULL");
  const auto refuse = [](const std::string& name, const std::string& wrong) {
    if (!wrong.empty()) fail(Code::kInvalidArgument, "the program's own plugin", name, ": ", wrong);
  };
  refuse("", plugin::check_plugin(held));
  const std::string name = str_cat(" \"", held->name, '"');
  if (held->min_host_minor > TSR_ABI_MINOR)
    refuse(name, str_cat("needs core minor ", held->min_host_minor, ", and this one is ", TSR_ABI_MINOR));
  for (uint32_t i = 0; i < held->num_components; ++i) {
    refuse(name, plugin::check_component(held->components[i]));
    Candidate c{.component = held->components[i]};
    const plugin::ManifestLine line{c.component->kind, c.component->id, c.component->version};
    c.entry = {str_cat("the program's own ", held->name),
               line.id,
               line.kind,
               line.version,
               str_cat(TSR_ABI_MAJOR, ".", held->abi_minor),
               LoadEntry::State::kAvailable,
               {}};
    refuse(name, shadowed_by(line).empty() ? "" : str_cat(line.kind, " \"", line.id, "\" ", shadowed_by(line)));
    probe(&c);
    candidates.push_back(std::move(c));
  }
}

// Adds a file that is not a usable plugin, with the components that it lists.
void Runtime::Impl::add_refused(const std::string& path, const std::string& reason) {
  std::vector<plugin::ManifestLine> lines = plugin::Library::refused_components(path);
  if (lines.empty()) lines.emplace_back();
  for (const plugin::ManifestLine& line : lines) {
    Candidate& c = candidates.emplace_back();
    c.entry.path = path;
    c.entry.id = line.id;
    c.entry.kind = line.kind;
    c.entry.version = line.version;
    c.entry.reason = reason;
  }
  host.log(TSR_LOG_INFO, str_cat(path, " is not a usable plugin: it ", reason).c_str());
}

void Runtime::Impl::add_file(const std::string& path, bool trust_all, bool installed) {
  const auto same = [&](const Candidate& c) { return c.entry.path == path; };
  if (std::any_of(candidates.begin(), candidates.end(), same)) return;
  std::unique_ptr<plugin::Library> library;
  try {
    library = std::make_unique<plugin::Library>(path);
  } catch (const Error& e) {
    return add_refused(path, e.what());
  }
  std::string distrust = library->distrust();
  if (!distrust.empty() && trust_all) {
    host.log(TSR_LOG_WARNING,
             str_cat(path, " is accepted because TESSERA_TRUST_ALL is 1, although ", distrust).c_str());
    distrust.clear();
  }
  const plugin::ElfNote& note = library->note();
  for (size_t i = 0; i < note.components.size(); ++i) {
    const plugin::ManifestLine& line = note.components[i];
    Candidate c;
    c.entry = {path, line.id, line.kind, line.version, str_cat(note.abi_major, ".", note.abi_minor), {}, {}};
    c.library = library.get();
    c.index = i;
    c.installed = installed;
    const std::string first = shadowed_by(line);
    if (installed && !first.empty()) {
      host.log(TSR_LOG_WARNING,
               str_cat("the installed ", line.kind, " \"", line.id, "\" is not used, because it ", first).c_str());
    }
    c.entry.reason = distrust.empty() ? first : "is not trusted: " + distrust;
    c.entry.state = c.entry.reason.empty() ? LoadEntry::State::kAvailable : LoadEntry::State::kRejected;
    candidates.push_back(std::move(c));
  }
  libraries.push_back(std::move(library));
}

std::string Runtime::Impl::shadowed_by(const plugin::ManifestLine& line) const {
  for (const Candidate& c : candidates) {
    if (!c.rejected() && c.is(line.kind) && c.entry.id == line.id) {
      return str_cat("has the same kind and id as ", c.entry.path, ", which comes first in the search path");
    }
  }
  return "";
}

void Runtime::Impl::require(const std::string& id) {
  bool found = false;
  for (Candidate& c : candidates) {
    if (c.entry.id != id) continue;
    if (!c.rejected()) make_ready(&c);
    if (!c.usable()) continue;
    found = true;
  }
  if (found) return;
  const std::string lines = lines_of("", id);
  if (!lines.empty()) fail(Code::kFailedPrecondition, "the required plugin \"", id, "\" is ", lines);
  fail(Code::kNotFound, "the required plugin \"", id,
       "\" is not found: name its folder in [plugins] path, or leave it out of "
       "plugins.require; searched ",
       sdk::joined(searched));
}

// Opens the candidate's library and probes the component, so that its state is final. The caller has the lock.
void Runtime::Impl::make_ready(Candidate* c) {
  if (!c->usable() || c->component != nullptr) return;
  const plugin::Library::Verdict& verdict = c->library->open(host.table(), c->installed ? nullptr : &trials);
  if (verdict.reason.empty()) {
    std::string& said = c->entry.reason;
    if (!verdict.changed.empty())
      said = str_cat("changed ", verdict.changed, " of the process when it was opened, which was put back");
    if (verdict.threads > 0)
      said += str_cat(said.empty() ? "" : ", and ", "started ", verdict.threads,
                      verdict.threads == 1 ? " thread" : " threads", " when it was opened");
    if (!said.empty()) host.log(TSR_LOG_WARNING, str_cat(c->entry.path, " ", said).c_str());
    c->component = c->library->component(c->index);
    probe(c);
    return;
  }
  for (Candidate& other : candidates) {
    if (other.library != c->library || !other.usable()) continue;
    other.entry.state = verdict.well_formed ? LoadEntry::State::kUnusable : LoadEntry::State::kRejected;
    other.entry.reason = verdict.reason;
    other.code = TSR_UNAVAILABLE;
  }
  // Installed plugins that lack a library are no news: a machine without GPUs has them.
  const bool usual = verdict.well_formed && c->installed;
  const int32_t level = usual ? TSR_LOG_INFO : TSR_LOG_WARNING;
  host.log(level, str_cat(c->entry.path, " ", verdict.reason, usual ? "" : ", and is not used").c_str());
}

void Runtime::Impl::probe(Candidate* c) {
  if (!TSR_HAS(tsr_component, c->component, probe)) return;
  AbiError why;
  const plugin::CallScope call({c->component, "probe"});
  try {
    c->code = c->component->probe(c->component, host.table(), why.out());
  } catch (...) {
    c->entry.state = LoadEntry::State::kRejected;
    c->entry.reason = "has a probe that threw an exception, which no plugin may do";
    return;
  }
  if (c->code == TSR_OK) return;
  c->entry.state = LoadEntry::State::kUnusable;
  c->entry.reason = why.said().empty() ? str_cat("its probe failed with code ", c->code) : std::string(why.said());
}

std::vector<std::string> Runtime::Impl::ids(const std::string& kind) const {
  std::vector<std::string> out;
  for (const Candidate& c : candidates) {
    if (c.is(kind) && !c.rejected()) out.push_back(c.entry.id);
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Returns "rejected: /path: reason" for every candidate of the kind and id that cannot be used, separated by "; ". ""
// stands for any kind or id.
std::string Runtime::Impl::lines_of(const std::string& kind, const std::string& id) const {
  std::string out;
  for (const Candidate& c : candidates) {
    if (c.usable() || (!kind.empty() && !c.is(kind)) || (!id.empty() && c.entry.id != id)) continue;
    out += (out.empty() ? "" : "; ") + c.line();
  }
  return out;
}

Candidate* Runtime::Impl::named(const std::string& kind, const std::string& id) {
  for (Candidate& c : candidates) {
    if (!c.is(kind) || c.entry.id != id || c.rejected()) continue;
    make_ready(&c);
    if (c.entry.state == LoadEntry::State::kUnusable) {
      fail(static_cast<Code>(c.code), kind, " \"", id, "\" is ", c.line());
    }
    if (c.usable()) return &c;
  }
  if (const std::string lines = lines_of(kind, id); !lines.empty()) {
    fail(Code::kNotFound, kind, " \"", id, "\" is ", lines);
  }
  const std::vector<std::string> known = ids(kind);
  if (known.empty())
    fail(Code::kNotFound, "no plugin provides ", kind, " \"", id, "\": name its folder in [plugins] path; searched ",
         sdk::joined(searched));
  fail(Code::kNotFound, "no plugin provides ", kind, " \"", id, '"', sdk::nearest_text(id, known), ", and there are ",
       sdk::joined(known, quoted), "; others are in plugins whose folder [plugins] path has to name");
}

Candidate* Runtime::Impl::best(const std::string& kind, const std::function<bool(const tsr_component&)>& suits) {
  Candidate* best = nullptr;
  for (Candidate& c : candidates) {
    if (!c.is(kind)) continue;
    make_ready(&c);
    if (!c.usable() || (suits && !suits(*c.component))) continue;
    const bool better = best == nullptr || c.component->priority > best->component->priority ||
                        (c.component->priority == best->component->priority && c.entry.id < best->entry.id);
    if (better) best = &c;
  }
  if (best != nullptr || suits) return best;
  const std::string lines = lines_of(kind, "");
  fail(Code::kNotFound, "no plugin provides a usable ", kind,
       lines.empty() ? ": name a plugin's folder in [plugins] path; searched " : ": ",
       lines.empty() ? sdk::joined(searched) : lines);
}

Candidate* Runtime::Impl::pick(const std::string& kind, const std::string& id) {
  return id == kAuto ? best(kind) : named(kind, id);
}

void Runtime::Impl::mark(Candidate* c, LoadEntry::State state, const char* reason) {
  const std::lock_guard lock(mutex);
  if (c->entry.state == LoadEntry::State::kChosen) return;  // a chosen component stays chosen
  if (c->entry.reason.empty() || c->entry.reason == kOnlyAsked) c->entry.reason = reason;
  c->entry.state = state;
}

Runtime::Runtime(RuntimeOptions options)
    : impl_(std::make_unique<Impl>(std::move(options), plugin::read_environment())) {}
Runtime::~Runtime() = default;

ComponentPtr Runtime::create(const std::string& kind, const std::string& id, const std::string& options) const {
  return make(kind, id, options, LoadEntry::State::kChosen);
}

ComponentPtr Runtime::ask(const std::string& kind, const std::string& id, const std::string& options) const {
  return make(kind, id, options, LoadEntry::State::kAsked);
}

// Returns the component that a wrapper wraps if the config names none; "" if it is no wrapper.
std::string Runtime::wrapped_by(const tsr_component& outer) const {
  if (!plugin::wraps(outer)) return "";
  std::string id = find(outer.kind, [&](const tsr_component& c) { return plugin::can_wrap(outer, c); });
  if (id.empty())
    fail(Code::kNotFound, outer.kind, " \"", outer.id,
         "\" wraps another component of its kind, but no other can be used here: see tessera plugins");
  return id;
}

ComponentPtr Runtime::make(const std::string& kind, const std::string& id, const std::string& options,
                           LoadEntry::State becomes) const {
  const ComponentName spec = parse_component_name(id);
  const std::string own_options = all_options(options, spec);
  Candidate* chosen = nullptr;
  {
    const std::lock_guard lock(impl_->mutex);
    chosen = impl_->pick(kind, spec.id);
  }
  const bool says_so = kind == TSR_COLLECTIVE_KIND || kind == TSR_KERNEL_KIND;  // other kinds have no flag for it
  if (!spec.inner.empty() && says_so && !plugin::wraps(*chosen->component)) {
    fail(Code::kInvalidArgument, kind, " \"", chosen->entry.id, "\" wraps no other, so \"", spec.inner,
         "\" would never be used: leave the parentheses out");
  }
  const std::string wrapped = spec.inner.empty() ? wrapped_by(*chosen->component) : spec.inner;
  const ComponentPtr inner = wrapped.empty() ? nullptr : make(kind, wrapped, "{}", becomes);
  if (kind == TSR_DEVICE_KIND) {
    const std::lock_guard lock(impl_->mutex);
    if (ComponentPtr attached = impl_->host.attached_device(chosen->entry.id)) return attached;
  }
  const tsr_component* component = chosen->component;
  std::string name = chosen->entry.id;
  if (!spec.name.empty()) name += ":" + spec.name;
  if (inner) name += "(" + inner->id() + ")";
  tsr_instance raw{component, nullptr};
  AbiError error;
  tsr_code code = TSR_OK;
  const plugin::CallScope call({component, "create"});
  try {
    code = component->create(component, impl_->host.table(), own_options.c_str(), inner ? inner->raw() : nullptr,
                             &raw.self, error.out());
  } catch (...) {
    fail(Code::kInternal, name, ": create threw an exception, which no plugin may do");
  }
  error.check(code, name);
  impl_->mark(chosen, becomes,
              becomes == LoadEntry::State::kAsked ? kOnlyAsked
              : spec.id == kAuto                  ? "highest priority of its kind"
                                                  : "asked for by name");
  ComponentPtr part(new Component(std::move(name), own_options, raw, inner));
  if (kind == TSR_DEVICE_KIND) {
    const std::lock_guard lock(impl_->mutex);
    if (!impl_->host.attach_device(part))
      fail(Code::kFailedPrecondition, "device plugin \"", part->id(), "\" serves DLPack device type ",
           part->api<tsr_device>().device_type, ", which another component of this process serves already");
  }
  return part;
}

const tsr_component& Runtime::component(const std::string& kind, const std::string& id) const {
  const std::lock_guard lock(impl_->mutex);
  return *impl_->pick(kind, parse_component_name(id).id)->component;
}

std::vector<std::string> Runtime::ids(const std::string& kind) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->ids(kind);
}

bool Runtime::has(const std::string& kind, const std::string& id) const {
  const std::vector<std::string> all = ids(kind);
  return std::find(all.begin(), all.end(), id) != all.end();
}

std::string Runtime::find(const std::string& kind, const std::function<bool(const tsr_component&)>& suits) const {
  const std::lock_guard lock(impl_->mutex);
  const Candidate* found = impl_->best(kind, suits);
  return found ? found->entry.id : "";
}

LoadReport Runtime::report() const {
  const std::lock_guard lock(impl_->mutex);
  LoadReport out{.searched = impl_->searched};
  for (const Candidate& c : impl_->candidates) out.entries.push_back(c.entry);
  return out;
}

void Runtime::open_all() const {
  const std::lock_guard lock(impl_->mutex);
  for (Candidate& c : impl_->candidates) impl_->make_ready(&c);
}

const tsr_host* Runtime::host() const { return impl_->host.table(); }
int Runtime::threads() const { return static_cast<int>(impl_->host.pool().threads()); }
void Runtime::set_threads(int threads) { impl_->host.pool().resize(thread_count(threads)); }

void Runtime::parallel_for(int64_t n, const std::function<void(int64_t)>& body) const {
  struct Shared {
    const std::function<void(int64_t)>& body;
    std::atomic<bool> failed{false};
    std::exception_ptr first;
  } shared{body, {false}, nullptr};
  const auto one = [](void* ctx, uint64_t i) {
    Shared& s = *static_cast<Shared*>(ctx);
    if (s.failed.load(std::memory_order_relaxed)) return;
    try {
      s.body(static_cast<int64_t>(i));
    } catch (...) {
      if (!s.failed.exchange(true)) s.first = std::current_exception();
    }
  };
  impl_->host.pool().run(static_cast<uint64_t>(std::max<int64_t>(n, 0)), one, &shared);
  if (shared.first) std::rethrow_exception(shared.first);
}

Component::Component(std::string id, std::string options, tsr_instance raw, std::shared_ptr<const Component> inner)
    : id_(std::move(id)), options_(std::move(options)), raw_(raw), inner_(std::move(inner)) {}

const void* Component::find_extension(const char* id) const {
  if (!TSR_HAS(tsr_component, raw_.component, extension)) return nullptr;
  const void* table = nullptr;
  {
    const plugin::CallScope call(*this, "extension");
    try {
      table = raw_.component->extension(raw_.self, id);
    } catch (...) {
      fail(Code::kInternal, id_, ": extension threw an exception, which no plugin may do");
    }
  }
  // No draft has a must-understand flag that this core knows.
  const std::string wrong = table == nullptr ? "" : plugin::unknown_flags(str_cat(id_, ": ", id), table);
  if (!wrong.empty()) fail(Code::kUnimplemented, wrong);
  return table;
}

Component::~Component() {
  const plugin::CallScope call(*this, "destroy");
  try {
    raw_.component->destroy(raw_.self);
  } catch (...) {
    // No plugin may throw here. If one does, its object leaks and the process lives on.
  }
}

}  // namespace tessera

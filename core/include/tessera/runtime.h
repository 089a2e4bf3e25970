// tessera/runtime.h - finds plugins, checks them, opens them, and creates components from them.
//
//   Runtime runtime({.plugin_path = {"/opt/acme/tessera"}, .require = {"acme.stripe"}});
//   auto tcp = runtime.create(TSR_COLLECTIVE_KIND, "tcp");
//
// A Runtime is an object, not a global; there may be several. The set of plugins is fixed when the constructor returns.
// A plugin's library is opened when one of its components is first requested, and is never closed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/abi/host.h"
#include "tessera/abi/plugin.h"
#include "tessera/error.h"

namespace tessera {

// One line of the load report: a component, or a file without any usable one.
struct LoadEntry {
  enum class State {
    kChosen,     // it was requested and created
    kAsked,      // created to ask about its abilities; something else was chosen
    kAvailable,  // usable, not requested
    kUnusable,   // a valid plugin that cannot run here; its probe says why
    kRejected,   // not a plugin, or one that this core refuses
  };
  std::string path;     // absolute
  std::string id;       // empty: the whole file was rejected
  std::string kind;     // "tessera.sharder/1"
  std::string version;  // of the component
  std::string abi;      // "1.0": the plugin's ABI at compile time; empty: unknown
  State state = State::kRejected;
  std::string reason;  // one sentence; empty for kAvailable unless opening the file changed the process
};
const char* to_string(LoadEntry::State state);

// The plugins that were found, in search path order, then by file name.
struct LoadReport {
  std::vector<std::string> searched;  // directories, in order; a missing one is listed with the reason
  std::vector<LoadEntry> entries;
  std::string text() const;  // the table printed by `tessera plugins`
  std::string json() const;  // {"searched": [...], "plugins": [{...}]}
};

// A created component. The last handle destroys the object. It keeps alive what it wraps.
class Component {
 public:
  ~Component();
  Component(const Component&) = delete;
  Component& operator=(const Component&) = delete;
  const std::string& id() const { return id_; }
  const std::string& options() const { return options_; }  // the JSON that it was created with
  const tsr_instance* raw() const { return &raw_; }
  void* self() const { return raw_.self; }
  // The interface's function table. Api must be the struct of the requested kind.
  template <class Api>
  const Api& api() const {
    return *static_cast<const Api*>(raw_.component->api);
  }
  // The function table of another interface (abi/draft/) by its id with revision; null: the object has none.
  template <class Api>
  const Api* extension(const char* id) const {
    return static_cast<const Api*>(find_extension(id));
  }

 private:
  friend class Runtime;
  Component(std::string id, std::string options, tsr_instance raw, std::shared_ptr<const Component> inner);
  const void* find_extension(const char* id) const;
  std::string id_;
  std::string options_;
  tsr_instance raw_;
  std::shared_ptr<const Component> inner_;
};
using ComponentPtr = std::shared_ptr<const Component>;

// A component's name as configs have it, which may wrap another one and have options: "tcp", "codec:int8(tcp)",
// "trace(tcp?shm=false&spin_us=20)". Runtime::create() explains it.
struct ComponentName {
  std::string id;
  std::string name;            // the text after the colon; empty: none
  std::string options = "{}";  // the text after the question mark, as a JSON object
  std::string inner;           // the text in parentheses, which is a component's name itself; empty: none
};
// Parses the outermost level and checks all levels, of which there may be 8. kInvalidArgument: the message names the
// text and its error.
ComponentName parse_component_name(std::string_view text);
// Returns `options` (a JSON object) with the options of the name added, and "name" if it has one. kInvalidArgument:
// `options` is no JSON object, or already has one of them.
std::string all_options(const std::string& options, const ComponentName& part);

struct RuntimeOptions {
  // Absolute directories that are searched first, in order (config: plugins.path). TESSERA_PLUGIN_PATH comes next (only
  // absolute entries; ignored with raised privileges), then plugins-1 beside the library or program.
  std::vector<std::string> plugin_path;
  std::vector<std::string> require;  // ids of components that must be usable, else Error (config: plugins.require)
  bool default_path = true;          // false: only plugin_path
  int threads = 1;                   // of parallel_for; 0: one per core
  // Plugins that are part of the program, found before all files. Their tables must live as long as the process.
  // kInvalidArgument: a table violates abi/plugin.h, or two plugins have components of one name.
  std::vector<const tsr_plugin*> plugins = {};
  // Receives log lines of core and plugins (level: TSR_LOG_*), up to TESSERA_LOG; null: they go to standard error. Any
  // thread may call it while the Runtime lives. It must not throw.
  std::function<void(int32_t level, const char* text)> log = nullptr;
};

class Runtime {
 public:
  explicit Runtime(RuntimeOptions options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Creates a component by kind and id. `options` is a JSON object. id "auto" stands for the usable component with the
  // highest priority.
  //
  // "outer:name(inner)" is a stack: inner is created first and given to `outer`, whose options get {"name": "name"}.
  // "outer(inner)" does the same without a name. A wrapper alone (TSR_COLLECTIVE_WRAPS, TSR_KERNEL_WRAPS) gets the best
  // inner component that fits. Options may follow an id: "tcp?shm=false&spin_us=20".
  //
  // A device component (abi/draft/device.h) is created only once: it then serves memory of its device type, and later
  // calls return it, whatever their options. kNotFound: lists the existing ids, and the load report's line if the id
  // was rejected. Other errors are those of probe or create. [any-thread]
  ComponentPtr create(const std::string& kind, const std::string& id, const std::string& options = "{}") const;
  // Does the same for a candidate. The report then says that it was asked, not that it was chosen.
  ComponentPtr ask(const std::string& kind, const std::string& id, const std::string& options = "{}") const;

  // The outermost component that create() would use. Errors are those of create(). [any-thread]
  const tsr_component& component(const std::string& kind, const std::string& id) const;

  // Ids of a kind, ascending, without those rejected before opening. [any-thread]
  std::vector<std::string> ids(const std::string& kind) const;
  bool has(const std::string& kind, const std::string& id) const;
  // The id of the usable component of a kind that `suits` accepts and that has the highest priority; "": none. Opens
  // and probes all of the kind. [any-thread]
  std::string find(const std::string& kind, const std::function<bool(const tsr_component&)>& suits) const;

  // The current report. open_all() first opens and probes everything, so that every line has its final state.
  LoadReport report() const;
  void open_all() const;

  const tsr_host* host() const;
  int threads() const;
  void set_threads(int threads);  // 0: one per core. Not while parallel_for runs.
  // Calls body(i) for i in [0, n) on threads() threads. An exception ends the loop and is thrown here. [any-thread]
  void parallel_for(int64_t n, const std::function<void(int64_t)>& body) const;

 private:
  struct Impl;
  std::string wrapped_by(const tsr_component& outer) const;
  ComponentPtr make(const std::string& kind, const std::string& id, const std::string& options,
                    LoadEntry::State becomes) const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera

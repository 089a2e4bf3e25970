// tessera/runtime.h - discovers plugins, checks them, opens them, and makes parts out of them.
//
//   Runtime runtime({.plugin_path = {"/opt/acme/tessera"}, .require = {"acme.stripe"}});
//   auto tcp = runtime.create(TSR_COLLECTIVE_KIND, "tcp");
//
// A Runtime is an object, not a global: two may live side by side. What it found is fixed when the constructor returns;
// a plugin's library is opened when one of its components is first asked for, and is never closed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/abi/host.h"
#include "tessera/abi/plugin.h"
#include "tessera/error.h"

namespace tessera {

// One line of the load report: a component, or a file that holds none that could be used.
struct LoadEntry {
  enum class State {
    kChosen,     // somebody asked for it, and it was created
    kAsked,      // created to hear what it can; something else was taken
    kAvailable,  // usable, not asked for
    kUnusable,   // a good plugin that cannot run here: its probe says why
    kRejected,   // not a plugin, or one that this core refuses
  };
  std::string path;     // absolute
  std::string id;       // empty for a file rejected as a whole
  std::string kind;     // "tessera.sharder/1"
  std::string version;  // of the component
  std::string abi;      // "1.0": what the plugin was compiled with; empty where unknown
  State state = State::kRejected;
  std::string reason;  // one sentence; empty for kAvailable, but where opening the file changed the process
};
const char* to_string(LoadEntry::State state);

// The plugins that were found, in the order of the search path, then by file name.
struct LoadReport {
  std::vector<std::string> searched;  // directories, in order; one that does not exist is named with the reason
  std::vector<LoadEntry> entries;
  std::string text() const;  // the table that `tessera plugins` prints
  std::string json() const;  // {"searched": [...], "plugins": [{...}]}
};

// A created component. Destroys the object when the last handle goes; keeps alive what it wraps.
class Component {
 public:
  ~Component();
  Component(const Component&) = delete;
  Component& operator=(const Component&) = delete;
  const std::string& id() const { return id_; }
  const std::string& options() const { return options_; }  // the JSON it was created with
  const tsr_instance* raw() const { return &raw_; }
  void* self() const { return raw_.self; }
  // The interface's table. Api must be the struct of the kind that was asked for.
  template <class Api>
  const Api& api() const {
    return *static_cast<const Api*>(raw_.component->api);
  }
  // The table of a further interface (abi/draft/) by its id with revision; null where the object has none.
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

struct RuntimeOptions {
  // Directories searched first, in order (config: plugins.path). Absolute. Then come TESSERA_PLUGIN_PATH (absolute
  // entries only, ignored when privileges were raised), and plugins-1 beside the library or program.
  std::vector<std::string> plugin_path;
  std::vector<std::string> require;  // component ids that must be usable (config: plugins.require), else Error
  bool default_path = true;          // false: only plugin_path
  int threads = 1;                   // of parallel_for; 0: one per core
  // Plugins that the program holds itself, found before all files. Their tables live as long as the process, as those
  // of a file do. kInvalidArgument: a table is not what abi/plugin.h says, or two have components of one name.
  std::vector<const tsr_plugin*> plugins = {};
  // Takes the lines that core and plugins log (level: TSR_LOG_*), up to TESSERA_LOG; null: they go to standard error.
  // Called by any thread, not any more when the Runtime has gone; must not throw.
  std::function<void(int32_t level, const char* text)> log = nullptr;
};

class Runtime {
 public:
  explicit Runtime(RuntimeOptions options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // A part by kind and id. `options` is a JSON object. id "auto": the usable component with the highest priority.
  // "outer:name(inner)" stacks: inner is created first and handed to `outer`, with options {"name": "name"} added;
  // "outer(inner)" likewise; "outer" alone, of one that works around another (TSR_COLLECTIVE_WRAPS, TSR_KERNEL_WRAPS),
  // gets the best one that it can. Options may stand behind an id, too: "tcp?shm=false&spin_us=20". Errors: kNotFound
  // with the ids that exist and the load report's line where the id was rejected; what probe or create said. A device
  // part (abi/device.h) is made once: from then on it serves the host's memory of its device type, and the same one is
  // returned, whatever the options. [any-thread]
  ComponentPtr create(const std::string& kind, const std::string& id, const std::string& options = "{}") const;
  // The same, of a candidate: the report says that it was asked, not that it was chosen.
  ComponentPtr ask(const std::string& kind, const std::string& id, const std::string& options = "{}") const;

  // The outermost component that create() would make a part of, before it does. Errors as create(). [any-thread]
  const tsr_component& component(const std::string& kind, const std::string& id) const;

  // Ids of a kind, without those rejected before opening; ascending. [any-thread]
  std::vector<std::string> ids(const std::string& kind) const;
  bool has(const std::string& kind, const std::string& id) const;
  // The id of the usable component of a kind that `suits` and has the highest priority; "" where there is none. Opens
  // and probes all of the kind. [any-thread]
  std::string find(const std::string& kind, const std::function<bool(const tsr_component&)>& suits) const;

  // The report as it stands. open_all() first opens and probes everything, so that every line has its final state.
  LoadReport report() const;
  void open_all() const;

  const tsr_host* host() const;
  int threads() const;
  void set_threads(int threads);  // 0: one per core. Not while parallel_for runs.
  // body(i) for i in [0, n) on threads() threads. An exception ends the loop and is thrown here. [any-thread]
  void parallel_for(int64_t n, const std::function<void(int64_t)>& body) const;

 private:
  struct Impl;
  std::string wrapped_by(const tsr_component& outer) const;
  ComponentPtr make(const std::string& kind, const std::string& id, const std::string& options,
                    LoadEntry::State becomes) const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera

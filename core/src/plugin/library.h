// One plugin file. Its note is read when it is found. It is opened when it is first needed, and never closed.
#pragma once

// Boost.DLL uses std::filesystem, because Debian's static libboost_filesystem cannot be part of a shared library.
#define BOOST_DLL_USE_STD_FS
#include <boost/dll/shared_library.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plugin/elf_note.h"
#include "plugin/plugin_file.h"
#include "plugin/trial.h"
#include "tessera/abi/plugin.h"

namespace tessera::plugin {

// How files are tried in a child process before this process opens them.
struct Trials {
  std::string kept_in;  // absolute folder of the verdicts; "": none is kept
  int longest_s = 60;   // a plugin with large libraries on a busy machine takes seconds
};

class Library {
 public:
  // Reads the note and runs none of the file's code. Errors are those of PluginFile and parse_elf_note.
  explicit Library(std::string path);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const std::string& path() const { return path_; }
  const ElfNote& note() const { return note_; }
  const std::string& distrust() const { return distrust_; }  // PluginFile::distrust
  // The components listed by a file that the constructor refused, if it lists any.
  static std::vector<ManifestLine> refused_components(const std::string& path);

  struct Verdict {
    std::string reason;  // "" if the plugin can be used
    // it breaks no rule, but cannot run here (such as when a library that it needs is missing)
    bool well_formed = false;
    std::string changed = {};  // the state of the process that it changed (ProcessState) and that was restored
    int threads = 0;           // threads that it started in its trial
  };
  // Opens the file, calls its entry once, and checks the result against the note. A second call returns the same
  // verdict. With `trials` a child process does so first, unless its verdict is kept, and this process opens only what
  // the child could open. Without, or if the child was mistaken, an exception of a static initializer ends the process:
  // it would leave the C library's loader locked. [serial]
  const Verdict& open(const tsr_host* host, const Trials* trials = nullptr);

  // Component i of the note. It may be called only if open() gave no reason.
  const tsr_component* component(size_t i) const { return plugin_->components[i]; }

 private:
  TrialEnd try_first(const tsr_host* host, const Trials& trials);
  Verdict open_once(const tsr_host* host);
  Verdict open_caught(const tsr_host* host);
  std::string check_tables() const;

  std::string path_;
  std::optional<PluginFile> file_;  // until the library is opened
  ElfNote note_;
  std::string distrust_;
  bool opened_ = false;
  Verdict verdict_;
  boost::dll::shared_library library_;
  const tsr_plugin* plugin_ = nullptr;
};

}  // namespace tessera::plugin

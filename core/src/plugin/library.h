// One plugin file. Its note is read when it is found. It is opened when it is first needed, and never closed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plugin/elf_note.h"
#include "plugin/plugin_file.h"
#include "tessera/abi/plugin.h"

namespace tessera::plugin {

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
    std::string changed;  // the state of the process that it changed (ProcessState) and that was restored
  };
  enum class First { kHere, kInAChild };
  // Opens the file, calls its entry once, and checks the result against the note. A second call returns the same
  // verdict. With kInAChild a child process does so first, and this process opens only what it could open: an exception
  // of a static initializer leaves the C library's lock of its loader held, and others crash, exit or never end.
  // [serial]
  const Verdict& open(const tsr_host* host, First first = First::kHere);

  // Component i of the note. It may be called only if open() gave no reason.
  const tsr_component* component(size_t i) const { return plugin_->components[i]; }

 private:
  Verdict open_once(const tsr_host* host);
  Verdict open_caught(const tsr_host* host);
  std::string check_tables() const;

  std::string path_;
  std::optional<PluginFile> file_;  // until the library is opened
  ElfNote note_;
  std::string distrust_;
  bool opened_ = false;
  Verdict verdict_;
  const tsr_plugin* plugin_ = nullptr;
};

}  // namespace tessera::plugin

// One plugin file: noted when found, opened when first needed, never closed.
#pragma once

#include <optional>
#include <string>

#include "plugin/elf_note.h"
#include "plugin/plugin_file.h"
#include "tessera/abi/plugin.h"

namespace tessera::plugin {

class Library {
 public:
  // Reads the note; runs nothing. kInvalidArgument as PluginFile and parse_elf_note.
  explicit Library(std::string path);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const std::string& path() const { return path_; }
  const ElfNote& note() const { return note_; }
  const std::string& distrust() const { return distrust_; }  // PluginFile::distrust

  struct Verdict {
    std::string reason;        // "" when the plugin can be used
    bool well_formed = false;  // it cannot run here (a library it needs is missing), but breaks no rule
    std::string changed;       // what it changed of the process (ProcessState), and was put back
  };
  // Opens the file, calls its entry once, and checks what that returned against the note. A second call repeats the
  // first one's answer. [serial]
  const Verdict& open(const tsr_host* host);

  // Component i of the note. Only after open() gave no reason.
  const tsr_component* component(size_t i) const { return plugin_->components[i]; }

 private:
  Verdict open_once(const tsr_host* host);
  std::string check_tables() const;

  std::string path_;
  std::optional<PluginFile> file_;  // until it was opened
  ElfNote note_;
  std::string distrust_;
  bool opened_ = false;
  Verdict verdict_;
  const tsr_plugin* plugin_ = nullptr;
};

}  // namespace tessera::plugin

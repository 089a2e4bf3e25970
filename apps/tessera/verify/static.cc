// Level 1: what the file says about itself, without running its code.
#include <elf.h>

#include <algorithm>

#include "plugin/plugin_file.h"
#include "tessera/abi/collective.h"
#include "tessera/abi/draft/device.h"
#include "tessera/abi/draft/endpoint.h"
#include "tessera/abi/draft/index.h"
#include "tessera/abi/draft/metric.h"
#include "tessera/abi/draft/reader.h"
#include "tessera/abi/kernel.h"
#include "tessera/abi/module.h"
#include "tessera/abi/optimizer.h"
#include "tessera/abi/sharder.h"
#include "verify/check.h"

namespace tessera::cli::verify {
namespace {

constexpr const char* kLinking = "docs/ABI.md, The rules";

// The dynamic symbols and flags of a file. parse_elf_note has already checked that its segments lie inside it.
class DynamicSection {
 public:
  explicit DynamicSection(const plugin::PluginFile& file) : file_(file) {
    const auto header = at<Elf64_Ehdr>(0);
    for (uint16_t i = 0; i < header.e_phnum; ++i)
      segments_.push_back(at<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr)));
    for (const Elf64_Phdr& s : segments_) {
      if (s.p_type == PT_GNU_STACK) executable_stack_ = (s.p_flags & PF_X) != 0;
      if (s.p_type != PT_DYNAMIC) continue;
      for (uint64_t i = 0; i + sizeof(Elf64_Dyn) <= s.p_filesz; i += sizeof(Elf64_Dyn)) {
        const auto entry = at<Elf64_Dyn>(s.p_offset + i);
        if (entry.d_tag == DT_SYMTAB) symbols_ = entry.d_un.d_ptr;
        if (entry.d_tag == DT_STRTAB) strings_ = entry.d_un.d_ptr;
        if (entry.d_tag == DT_FLAGS_1) flags_1_ = entry.d_un.d_val;
      }
    }
    read_symbols(header);
  }
  const std::vector<std::string>& exported() const { return exported_; }
  // A symbol that the whole process shares, whatever dlopen is told; "": it has none.
  const std::string& unique() const { return unique_; }
  bool stays_loaded() const { return (flags_1_ & DF_1_NODELETE) != 0; }
  bool executable_stack() const { return executable_stack_; }

 private:
  template <class T>
  T at(uint64_t offset) const {
    if (offset > file_.size() || sizeof(T) > file_.size() - offset)
      broken("its ELF headers lead beyond the file's end");
    T out;
    file_.read(offset, &out, sizeof(T));
    return out;
  }
  uint64_t offset_of(uint64_t address) const {
    for (const Elf64_Phdr& s : segments_) {
      if (s.p_type == PT_LOAD && address >= s.p_vaddr && address < s.p_vaddr + s.p_filesz)
        return address - s.p_vaddr + s.p_offset;
    }
    broken("its ELF headers name an address that no segment has");
  }
  std::string text(uint64_t offset) const {
    std::string out;
    for (char c = at<char>(offset); c != '\0' && out.size() < 400; c = at<char>(++offset)) out += c;
    return out;
  }
  // The number of symbols is in the section headers. A file may lack these, but linkers write them.
  void read_symbols(const Elf64_Ehdr& header) {
    for (uint16_t i = 0; i < header.e_shnum; ++i) {
      const auto section = at<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr));
      if (section.sh_type != SHT_DYNSYM || symbols_ == 0 || strings_ == 0) continue;
      for (uint64_t k = 0; k + sizeof(Elf64_Sym) <= section.sh_size; k += sizeof(Elf64_Sym)) {
        const auto symbol = at<Elf64_Sym>(section.sh_offset + k);
        const auto binding = ELF64_ST_BIND(symbol.st_info);
        const bool visible = binding == STB_GLOBAL || binding == STB_WEAK || binding == STB_GNU_UNIQUE;
        if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS || !visible) continue;
        exported_.push_back(text(offset_of(strings_) + symbol.st_name));
        if (binding == STB_GNU_UNIQUE && unique_.empty()) unique_ = exported_.back();
      }
    }
  }

  const plugin::PluginFile& file_;
  std::vector<Elf64_Phdr> segments_;
  uint64_t symbols_ = 0, strings_ = 0, flags_1_ = 0;
  bool executable_stack_ = false;
  std::vector<std::string> exported_;
  std::string unique_;
};

void check_static_note(Subject& subject) {
  try {
    const plugin::Library library(subject.what().path);
  } catch (const Error& e) {
    broken(e.what());
  }
}

void check_static_trust(Subject& subject) {
  const plugin::PluginFile file(subject.what().path);
  if (!file.distrust().empty()) throw Warning("no job would load it here: " + file.distrust());
}

void check_static_entry_symbol(Subject& subject) {
  const plugin::PluginFile file(subject.what().path);
  const DynamicSection elf(file);
  bool entry = false;
  std::string other;
  size_t others = 0;
  for (const std::string& name : elf.exported()) {
    if (name == TSR_ENTRY_SYMBOL) {
      entry = true;
    } else if (others++ == 0) {
      other = name;
    }
  }
  require(entry, "it has a Tessera note, but no symbol " TSR_ENTRY_SYMBOL);
  constexpr const char* kHide = ": link with a version script that hides all but the entry, as tessera_add_plugin does";
  require(elf.unique().empty(), "it exports ", elf.unique(),
          ", of which a process has only one (STB_GNU_UNIQUE), so that plugins use each other's", kHide);
  const auto of_sdk = std::find_if(elf.exported().begin(), elf.exported().end(),
                                   [](const std::string& name) { return name.find("7tessera3sdk") != name.npos; });
  if (of_sdk != elf.exported().end())
    broken("it exports ", *of_sdk, " of the SDK, which a plugin with another version of the SDK would use", kHide);
  if (others > 0) {
    throw Warning(str_cat("it exports ", others, " further symbol", others == 1 ? "" : "s", " (", other,
                          "), which another library may also have: link with a version script that hides all but "
                          "the entry, as tessera_add_plugin does"));
  }
}

void check_static_linking(Subject& subject) {
  const plugin::PluginFile file(subject.what().path);
  const DynamicSection elf(file);
  if (elf.executable_stack()) throw Warning("it asks for a stack that can be executed, which dlopen gives the program");
  if (!elf.stays_loaded()) {
    throw Warning(
        "it may be unloaded, while its threads and thread-local destructors still run: link with -Wl,-z,nodelete");
  }
}

void check_static_manifest(Subject& subject) {
  constexpr std::string_view kKinds[] = {TSR_SHARDER_KIND,  TSR_OPTIMIZER_KIND, TSR_KERNEL_KIND, TSR_COLLECTIVE_KIND,
                                         TSR_MODULE_KIND,   TSR_DEVICE_KIND,    TSR_READER_KIND, TSR_METRIC_KIND,
                                         TSR_ENDPOINT_KIND, TSR_INDEX_KIND};
  const plugin::Library library(subject.what().path);
  for (const plugin::ManifestLine& line : library.note().components) {
    if (std::find(std::begin(kKinds), std::end(kKinds), line.kind) == std::end(kKinds))
      throw Warning(
          str_cat("\"", line.id, "\" is a ", line.kind, ", which this core does not know: it will not be used"));
  }
}

}  // namespace

std::span<const Check> static_checks() {
  static constexpr Check kChecks[] = {
      {"static.note", 1, "", "abi/plugin.h, tsr_note", 10, check_static_note, Check::kFile},
      {"static.trust", 1, "", kLinking, 10, check_static_trust},
      {"static.symbols", 1, "", kLinking, 10, check_static_entry_symbol},
      {"static.linking", 1, "", kLinking, 10, check_static_linking},
      {"static.manifest", 1, "", "abi/plugin.h, tsr_note", 10, check_static_manifest},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify

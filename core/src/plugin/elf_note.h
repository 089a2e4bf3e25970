// The list of a plugin's components, read from its file without running any of its code.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::plugin {

struct ManifestLine {
  std::string kind;
  std::string id;
  std::string version;
  bool operator==(const ManifestLine&) const = default;
};

struct ElfNote {
  uint32_t abi_major = 0;
  uint32_t abi_minor = 0;
  uint32_t min_host_minor = 0;
  std::vector<ManifestLine> components;  // at least one, no two with the same kind and id
};

// Copies [offset, offset + size) of the file to `out`. It is called only for ranges inside the file.
using ReadAt = std::function<void(uint64_t offset, void* out, uint64_t size)>;

// Parses a file of `file_size` bytes. Every offset and size in it is checked before use. The loadable segments must lie
// inside the file, so that the loader cannot read beyond its end. kInvalidArgument: this machine or this core cannot
// load the file as a plugin. The message is one sentence without the path.
ElfNote parse_elf_note(uint64_t file_size, const ReadAt& read);

// The components that a file lists whose version this core cannot load, for messages that name it. Empty if it has no
// list that this core can read.
std::vector<ManifestLine> refused_components(uint64_t file_size, const ReadAt& read);

}  // namespace tessera::plugin

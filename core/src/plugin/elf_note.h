// The description of a plugin by itself, read out of its file without running any of it.
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

// Copies [offset, offset + size) to `out`; only called for ranges inside the file.
using ReadAt = std::function<void(uint64_t offset, void* out, uint64_t size)>;

// Parses a file of `file_size` bytes. Every offset and size in it is checked before use, and the loadable segments must
// lie inside the file, so that opening it later cannot run over its end. kInvalidArgument with one sentence (without
// the path) when it is not a plugin that this machine and this core can load.
ElfNote parse_elf_note(uint64_t file_size, const ReadAt& read);

}  // namespace tessera::plugin

// Files that claim to be plugins: nothing outside them is read, and an accepted note names its components.
#include "fuzz.h"
#include "plugin/elf_note.h"

namespace tessera::fuzz {

void fuzz_elf_note(Input input) {
  const auto read = [&](uint64_t offset, void* out, uint64_t size) {
    require(offset <= input.size() && size <= input.size() - offset, "what is read lies inside the file");
    if (size > 0) std::memcpy(out, input.data() + offset, size);
  };
  taken([&] {
    const plugin::ElfNote note = plugin::parse_elf_note(input.size(), read);
    require(!note.components.empty(), "a plugin has a component");
    for (const plugin::ManifestLine& line : note.components)
      require(!line.kind.empty() && !line.id.empty(), "a component has kind and id");
  });
}

}  // namespace tessera::fuzz

// Files of tensors: accepted tensors lie inside the file.
#include "checkpoint/safetensors.h"
#include "fuzz.h"

namespace tessera::fuzz {

void fuzz_safetensors(Input input) {
  const ScratchFile file(input);
  taken([&] {
    checkpoint::SafetensorsReader reader{checkpoint::InputFile(file.path())};
    for (const auto& [name, tensor] : reader.tensors()) {
      require(tensor.offset >= 8 && tensor.bytes() >= 0, "a tensor has a place");
      require(tensor.offset + tensor.bytes() <= reader.file().size(), "a tensor lies inside its file");
      require(!describe(tensor).empty(), "a tensor can be described");
      require(reader.read(name).shape() == tensor.shape, "a tensor is read in its shape");
    }
    checkpoint::TensorFiles files;
    files.add(std::move(reader));
  });
}

}  // namespace tessera::fuzz

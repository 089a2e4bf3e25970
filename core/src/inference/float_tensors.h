// The tensors of a float checkpoint, wherever they are: one safetensors file or several behind an index.
#pragma once

#include <map>
#include <string>

#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "inference/mapped_file.h"

namespace tessera::inference {

class FloatTensors {
 public:
  // As open_float_model() says. A checkpoint of ours is compared with its checksums.
  explicit FloatTensors(const std::string& path);

  const std::map<std::string, checkpoint::TensorFiles::Place>& all() const { return files_.tensors(); }
  Tensor read_float(const std::string& name) const;                         // a copy, float32
  Tensor read(const std::string& name) const { return files_.read(name); }  // a copy as it is stored
  // Rows [rows, dim] of a table as they lie in the file, uint8 [rows, bytes of a row], and their format; a copy in
  // float32 where the type or place in the file does not allow that.
  Tensor rows(const std::string& name, RowFormat* format) const;
  // The checkpoint's own description of its tables; nullptr: these are tensors alone.
  const checkpoint::Manifest* manifest() const { return manifest_ ? &*manifest_ : nullptr; }
  const std::string& path() const { return path_; }

 private:
  void add_file(const std::string& path) { add_file(checkpoint::InputFile(path)); }
  void add_file(checkpoint::InputFile file);
  void open_checkpoint(const std::string& directory);
  void open_index(const std::string& directory, const std::string& index);

  std::string path_;
  std::optional<checkpoint::Manifest> manifest_;
  checkpoint::TensorFiles files_;
  std::map<const checkpoint::SafetensorsReader*, MappedFile> memory_;
};

}  // namespace tessera::inference

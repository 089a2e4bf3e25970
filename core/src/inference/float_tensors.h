// The tensors of a float checkpoint: one safetensors file, several with an index, or two checkpoints, one of which has
// the rows that changed since the other.
#pragma once

#include <map>
#include <string>

#include "checkpoint/opened.h"
#include "checkpoint/safetensors.h"
#include "inference/mapped_file.h"

namespace tessera::inference {

class FloatTensors {
 public:
  // Opens `path` like open_float_model(). Tessera's own checkpoints are compared with their checksums.
  explicit FloatTensors(const std::string& path);

  // Types and shapes of whole tables. Ignore the offsets.
  const checkpoint::StoredTensors& all() const { return all_; }
  Tensor read_float(const std::string& name) const;  // a copy in float32
  Tensor read(const std::string& name) const;        // a copy in the stored type
  // Returns a table's rows as bytes in the file, uint8 [rows, bytes of a row], and their format. Returns a float32 copy
  // if the type or the alignment does not allow that. With changes, changed pages are copies; on-demand rows are always
  // copies.
  Tensor rows(const std::string& name, RowFormat* format) const;
  // The checkpoint's own description of its tables; nullptr: there are only tensors.
  const checkpoint::Manifest* manifest() const { return is_checkpoint_ ? &source_.manifest : nullptr; }
  const std::string& path() const { return path_; }

 private:
  void add_file(const std::string& path) { add_file(source_, checkpoint::InputFile(path)); }
  void add_file(checkpoint::OpenCheckpoint& to, checkpoint::InputFile file);
  checkpoint::OpenCheckpoint open_held(checkpoint::HeldCheckpoint held);
  void open_index(const std::string& directory, const std::string& index);
  Tensor bytes_of_rows(const std::string& name) const;
  void merge_changes(const checkpoint::TableEntry& table);
  Tensor put_together(const std::vector<checkpoint::TablePart>& parts) const;
  const uint8_t* in_memory(const checkpoint::TensorFiles::Place& place) const;

  std::string path_;
  bool is_checkpoint_ = false;
  checkpoint::OpenCheckpoint source_;  // if there is no checkpoint, only its files are set
  checkpoint::StoredTensors all_;
  std::map<std::string, std::vector<checkpoint::TablePart>> parts_;  // of tables with changes
  std::map<std::string, Tensor> keys_;                               // of those with on-demand rows
  std::map<const checkpoint::SafetensorsReader*, MappedFile> memory_;
};

}  // namespace tessera::inference

// The tensors of a float checkpoint, wherever they are: one safetensors file or several behind an index, or those of
// two checkpoints, of which one has the rows that changed since the other.
#pragma once

#include <map>
#include <string>

#include "checkpoint/opened.h"
#include "checkpoint/safetensors.h"
#include "inference/mapped_file.h"

namespace tessera::inference {

class FloatTensors {
 public:
  // As open_float_model() says. A checkpoint of ours is compared with its checksums.
  explicit FloatTensors(const std::string& path);

  // Types and shapes, of whole tables; offsets mean nothing.
  const checkpoint::StoredTensors& all() const { return all_; }
  Tensor read_float(const std::string& name) const;  // a copy, float32
  Tensor read(const std::string& name) const;        // a copy as it is stored
  // Rows [rows, dim] of a table as they lie in the file, uint8 [rows, bytes of a row], and their format; a copy in
  // float32 where the type or place in the file does not allow that. Of a table with changes the pages that have some
  // are copies, and where rows come on demand all are.
  Tensor rows(const std::string& name, RowFormat* format) const;
  // The checkpoint's own description of its tables; nullptr: these are tensors alone.
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
  checkpoint::OpenCheckpoint source_;  // of what is no checkpoint, files alone
  checkpoint::StoredTensors all_;
  std::map<std::string, std::vector<checkpoint::TablePart>> parts_;  // of tables with changes
  std::map<std::string, Tensor> keys_;                               // of those whose rows come on demand
  std::map<const checkpoint::SafetensorsReader*, MappedFile> memory_;
};

}  // namespace tessera::inference

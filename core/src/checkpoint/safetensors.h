// safetensors files (https://huggingface.co/docs/safetensors, "Format"): 8 bytes with the length of a JSON header, the
// header {name: {dtype, shape, data_offsets: [begin, end]}}, then the tensors without gaps, little-endian, row-major.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/files.h"
#include "tessera/tensor.h"

namespace tessera::checkpoint {

struct StoredTensor {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // in the file
  int64_t bytes() const;
  bool operator==(const StoredTensor&) const = default;
};
std::string describe(const StoredTensor& tensor);  // "float32 [1682, 16]"

using StoredTensors = std::map<std::string, StoredTensor>;

// A file of tensors whose names and shapes are known before the first value is.
class SafetensorsWriter {
 public:
  // Places the tensors (offsets given are ignored), the widest elements first, so that all are aligned.
  SafetensorsWriter(const std::string& path, StoredTensors tensors)
      : SafetensorsWriter(path, std::move(tensors), kNew) {}
  // One that another process makes of the same tensors, and this one writes some of.
  static SafetensorsWriter join(const std::string& path, StoredTensors tensors);
  bool has(const std::string& name) const { return tensors_.contains(name); }
  const StoredTensor& at(const std::string& name) const;
  void write(const std::string& name, const Tensor& value);  // whole, of the type and shape announced
  OutputFile& file() { return file_; }

 private:
  struct Laid {
    StoredTensors tensors;
    std::string header;  // with its length
    int64_t bytes = 0;   // of the file
  };
  enum Open { kNew, kJoin };
  SafetensorsWriter(const std::string& path, StoredTensors tensors, Open open)
      : SafetensorsWriter(path, lay_out(std::move(tensors)), open) {}
  SafetensorsWriter(const std::string& path, Laid laid, Open open);
  static Laid lay_out(StoredTensors tensors);

  StoredTensors tensors_;
  OutputFile file_;
};

// Believes nothing: kDataLoss names the file and what is wrong with its header.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(InputFile file);
  const StoredTensors& tensors() const { return tensors_; }
  const StoredTensor* find(const std::string& name) const;  // nullptr: not there
  Tensor read(const std::string& name) const;
  const InputFile& file() const { return file_; }

 private:
  InputFile file_;
  StoredTensors tensors_;
};

// Tensors by name, wherever they are in several files.
class TensorFiles {
 public:
  // kInvalidArgument: one of its tensors is in another file, too.
  void add(SafetensorsReader file);
  struct Place {
    const SafetensorsReader* file = nullptr;
    const StoredTensor* tensor = nullptr;
  };
  const std::map<std::string, Place>& tensors() const { return places_; }
  const Place* find(const std::string& name) const;  // nullptr: not there
  // These are there.
  const Place& at(const std::string& name) const { return places_.at(name); }
  Tensor read(const std::string& name) const { return at(name).file->read(name); }
  const std::deque<SafetensorsReader>& files() const { return files_; }

 private:
  std::deque<SafetensorsReader> files_;
  std::map<std::string, Place> places_;
};

}  // namespace tessera::checkpoint

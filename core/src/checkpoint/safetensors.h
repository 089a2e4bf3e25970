// safetensors files (https://huggingface.co/docs/safetensors, "Format"). A file begins with 8 bytes, the length of a
// JSON header. The header is {name: {dtype, shape, data_offsets: [begin, end]}}. The tensors follow without gaps,
// little-endian and row-major.
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

// Writes a file of tensors whose names and shapes are known before the values.
class SafetensorsWriter {
 public:
  // Places the tensors and ignores their offsets. The widest elements come first, so that all are aligned.
  SafetensorsWriter(const std::string& path, StoredTensors tensors)
      : SafetensorsWriter(path, std::move(tensors), kNew) {}
  // Opens a file that another process makes with the same tensors, to write some of them.
  static SafetensorsWriter join(const std::string& path, StoredTensors tensors);
  bool has(const std::string& name) const { return tensors_.contains(name); }
  const StoredTensor& at(const std::string& name) const;
  void write(const std::string& name, const Tensor& value);  // a whole tensor of the type and shape announced
  OutputFile& file() { return file_; }

 private:
  struct Laid {
    StoredTensors tensors;
    std::string header;  // includes its length
    int64_t bytes = 0;   // size of the file
  };
  enum Open { kNew, kJoin };
  SafetensorsWriter(const std::string& path, StoredTensors tensors, Open open)
      : SafetensorsWriter(path, lay_out(std::move(tensors)), open) {}
  SafetensorsWriter(const std::string& path, Laid laid, Open open);
  static Laid lay_out(StoredTensors tensors);

  StoredTensors tensors_;
  OutputFile file_;
};

// Reads an untrusted file. kDataLoss: the error names the file and what is wrong with its header.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(InputFile file);
  const StoredTensors& tensors() const { return tensors_; }
  const StoredTensor* find(const std::string& name) const;  // nullptr: none
  Tensor read(const std::string& name) const;
  const InputFile& file() const { return file_; }

 private:
  InputFile file_;
  StoredTensors tensors_;
};

// Finds tensors by name in several files.
class TensorFiles {
 public:
  // kInvalidArgument: another file also has one of its tensors.
  void add(SafetensorsReader file);
  struct Place {
    const SafetensorsReader* file = nullptr;
    const StoredTensor* tensor = nullptr;
  };
  const std::map<std::string, Place>& tensors() const { return places_; }
  const Place* find(const std::string& name) const;  // nullptr: none
  // The tensor must exist.
  const Place& at(const std::string& name) const { return places_.at(name); }
  Tensor read(const std::string& name) const { return at(name).file->read(name); }
  const std::deque<SafetensorsReader>& files() const { return files_; }

 private:
  std::deque<SafetensorsReader> files_;
  std::map<std::string, Place> places_;
};

}  // namespace tessera::checkpoint

// Scalars as an event file that stock TensorBoard reads.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace tessera {

// A file of TFRecords (length, masked CRC-32C of it, data, masked CRC-32C of it; little-endian), each a protocol buffer
// `Event` of tensorflow/core/util/event.proto with one scalar.
class EventFile {
 public:
  // Makes the directory and a new file in it, named after time and process, as TensorBoard looks for it. kUnavailable
  // where that cannot be.
  explicit EventFile(const std::string& directory);

  void add(const std::string& tag, int64_t step, double value);
  void flush() { out_.flush(); }

 private:
  void write(const std::string& event);

  std::ofstream out_;
};

}  // namespace tessera

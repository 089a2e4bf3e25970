// Writes scalars to an event file that stock TensorBoard reads.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace tessera {

// A file of TFRecords (length, its masked CRC-32C, data, its masked CRC-32C; little-endian). Each holds a protocol
// buffer `Event` of tensorflow/core/util/event.proto with one scalar.
class EventFile {
 public:
  // Makes the directory and a new file in it. The file is named after time and process, so that TensorBoard finds it.
  // kUnavailable: that failed.
  explicit EventFile(const std::string& directory);

  void add(const std::string& tag, int64_t step, double value);
  bool flush() { return static_cast<bool>(out_.flush()); }  // false: the file has not all events

 private:
  void write(const std::string& event);

  std::ofstream out_;
};

}  // namespace tessera

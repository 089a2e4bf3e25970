#include "train/event_file.h"

#include <unistd.h>

#include <boost/crc.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "tessera/error.h"

namespace tessera {
namespace {

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

template <class T>
std::string bytes_of(T value) {  // little-endian, as all supported machines are
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

std::string masked_crc(const std::string& data) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;  // CRC-32C
  crc.process_bytes(data.data(), data.size());
  const auto sum = static_cast<uint32_t>(crc.checksum());
  return bytes_of<uint32_t>(((sum >> 15) | (sum << 17)) + 0xa282ead8u);
}

// A protocol buffer's key is the field's number and its wire type.
enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string key(int field, Wire wire) { return varint(static_cast<uint64_t>(field << 3 | wire)); }
std::string text(int field, const std::string& value) { return key(field, kBytes) + varint(value.size()) + value; }

std::string event_now() { return key(1, kFixed64) + bytes_of(seconds_since_epoch()); }  // wall_time

}  // namespace

EventFile::EventFile(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  const auto now = static_cast<long long>(seconds_since_epoch());
  char host[256] = "host";
  ::gethostname(host, sizeof(host) - 1);
  const std::string path = str_cat(directory, "/events.out.tfevents.", now, ".", host, ".", ::getpid());
  out_.open(path, std::ios::binary);
  if (!out_) fail(Code::kUnavailable, "cannot write report.tensorboard to ", path);
  write(event_now() + text(3, "brain.Event:2"));  // file_version
}

void EventFile::add(const std::string& tag, int64_t step, double value) {
  const std::string scalar =
      text(1, tag) + key(2, kFixed32) + bytes_of(static_cast<float>(value));  // tag, simple_value
  write(event_now() + key(2, kVarint) + varint(static_cast<uint64_t>(step)) + text(5, text(1, scalar)));  // summary
}

void EventFile::write(const std::string& event) {
  const std::string length = bytes_of<uint64_t>(event.size());
  out_ << length << masked_crc(length) << event << masked_crc(event);
}

}  // namespace tessera

#include "message.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "tessera/abi/tensor.h"

namespace tessera::mpi {

std::string name_of(const Header& header) {
  constexpr const char* kNames[] = {"all_to_all_v", "all_reduce", "reduce_scatter_v",
                                    "all_gather_v", "broadcast",  "barrier"};
  const size_t index = static_cast<size_t>(header.kind);
  std::string text = index < std::size(kNames) ? kNames[index] : "an unknown operation";
  const std::string label = safe_text(header.label, sizeof(header.label));
  if (!label.empty()) text += " \"" + label + "\"";
  return text;
}

std::string describe(const Header& header) {
  if (header.kind == OpKind::kBarrier) return name_of(header);
  const char* type = header.dtype_code == kDLInt     ? "int"
                     : header.dtype_code == kDLUInt  ? "uint"
                     : header.dtype_code == kDLFloat ? "float"
                                                     : "type";
  constexpr const char* kReductions[] = {"sum", "max", "min"};
  std::string text = name_of(header) + " (";
  if (header.kind == OpKind::kAllReduce || header.kind == OpKind::kReduceScatter) {
    text += std::string(header.reduce < std::size(kReductions) ? kReductions[header.reduce] : "?") + " of ";
  }
  text += type + std::to_string(header.dtype_bits) + ", ";
  return text + (header.total != 0 ? std::to_string(header.total) + " bytes)"
                                   : std::to_string(header.bytes) + " bytes from this rank to that)");
}

void set_text(char* to, size_t capacity, std::string_view text) {
  const size_t size = std::min(text.size(), capacity - 1);
  if (size > 0) std::memcpy(to, text.data(), size);
  std::memset(to + size, 0, capacity - size);
}

std::string safe_text(const char* from, size_t capacity) {
  std::string text(from, strnlen(from, capacity));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

}  // namespace tessera::mpi

// The JSON of a manifest around its content, with the right checksum; otherwise every mutation would be refused there.
#pragma once

#include <zlib.h>

#include "config/json.h"
#include "fuzz.h"

namespace tessera::fuzz {

// `head` precedes the checksum. `summed_first` is what the checksum covers before the content.
inline std::string with_sum(const std::string& head, const std::string& summed_first, Input input) {
  const std::string content = config::parse_json(text_of(input), {"the content"}).dump();
  const std::string summed = summed_first + content;
  char sum[9];
  std::snprintf(sum, sizeof(sum), "%08x",
                static_cast<unsigned>(
                    ::crc32(0, reinterpret_cast<const Bytef*>(summed.data()), static_cast<uInt>(summed.size()))));
  return str_cat("{", head, R"("crc32": ")", sum, R"(", "content": )", content, "}");
}

}  // namespace tessera::fuzz

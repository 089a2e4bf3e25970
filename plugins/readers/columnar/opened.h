// Opens a file, and turns failures into messages.
#pragma once

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "columnar/source.h"
#include "tessera/sdk/error.h"

namespace tessera_readers {

inline bool begins_with(const std::string& path, std::string_view magic) {
  std::array<char, 8> first{};
  std::ifstream(path, std::ios::binary).read(first.data(), first.size());
  return std::string_view(first.data(), first.size()).starts_with(magic);
}

// Returns the result of open(); an exception becomes a sentence about the file.
template <class Open>
std::unique_ptr<ArrowSource> opened(const std::string& path, const ArrowFormat& format, const Open& open) {
  using tessera::sdk::fail;
  std::string why;
  if (const std::ifstream file(path); !file) fail(TSR_NOT_FOUND, "cannot read ", path);
  if (!begins_with(path, format.magic))
    fail(TSR_INVALID_ARGUMENT, path, " is not a ", format.what, ": it does not begin as one");
  try {
    return open();
  } catch (const tessera::sdk::Failure&) {
    throw;
  } catch (const std::exception& e) {
    why = e.what();
  }
  why.resize(std::min(why.find('\n'), why.size()));
  fail(TSR_DATA_LOSS, path, " is cut off or damaged: ", why);
}

}  // namespace tessera_readers

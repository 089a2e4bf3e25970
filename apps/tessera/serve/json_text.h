// Pieces of JSON text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tessera::serve {

// `text` as a JSON string with its quotes. Invalid UTF-8 becomes U+FFFD.
std::string json_string(std::string_view text);
// The shortest decimal that reads back as the same float; null for NaN and infinity, which JSON lacks.
void append_number(std::string& out, float value);
// A complete response on one line.
std::string json_line(const nlohmann::ordered_json& value);

}  // namespace tessera::serve

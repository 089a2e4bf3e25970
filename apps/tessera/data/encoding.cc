#include "data/encoding.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "tessera/error.h"

namespace tessera::cli {
namespace {

bool continues(unsigned char c) { return (c & 0xc0) == 0x80; }

// Bytes of the UTF-8 character that begins with `c`; 0 if none does.
size_t length_of(unsigned char c) {
  if (c < 0x80) return 1;
  if (c >= 0xc2 && c <= 0xdf) return 2;
  if (c >= 0xe0 && c <= 0xef) return 3;
  return c >= 0xf0 && c <= 0xf4 ? 4 : 0;
}

// Length of the prefix of `text` that consists of whole UTF-8 characters. `wrong` is set if invalid bytes follow;
// `longer` counts the characters of several bytes.
size_t valid_bytes(std::string_view text, bool& wrong, int64_t& longer) {
  wrong = false;
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = length_of(static_cast<unsigned char>(text[at]));
    const size_t there = std::min(length, text.size() - at);
    bool good = length > 0;
    for (size_t i = 1; i < there; ++i) good = good && continues(static_cast<unsigned char>(text[at + i]));
    if (!good) {
      wrong = true;
      return at;
    }
    if (there < length) return at;
    longer += length > 1 ? 1 : 0;
    at += length;
  }
  return at;
}

// Signs of the encoding of bytes that are not UTF-8.
struct OtherBytes {
  // Some are characters that Windows-1252 has in place of Latin-1's controls: quotes, dashes, the euro.
  bool of_windows = false;
  int64_t utf8 = 0;  // sequences that are letters in UTF-8, and that these encodings hardly ever have
};

// Looks at text that is not UTF-8, and returns the length of what it looked at: at the end of a file, all of it.
size_t look_at_other(std::string_view text, bool last, OtherBytes& out) {
  constexpr size_t kLongest = 4;
  constexpr unsigned char kFirstLetter = 0xc3, kLastLetter = 0xc5;  // these begin the accented letters of Latin
  size_t at = 0;
  while (at < text.size() && (last || text.size() - at >= kLongest)) {
    const auto c = static_cast<unsigned char>(text[at]);
    const size_t length = length_of(c);
    const bool letter = (c >= kFirstLetter && c <= kLastLetter) || length > 2;
    bool whole = letter && text.size() - at >= length;
    for (size_t i = 1; whole && i < length; ++i) whole = continues(static_cast<unsigned char>(text[at + i]));
    if (whole) ++out.utf8;
    out.of_windows = out.of_windows || (!whole && c >= 0x80 && c <= 0x9f);
    at += whole ? length : 1;
  }
  return at;
}

constexpr int64_t kSure = 3;  // characters from which on a text is UTF-8

// Latin-1 hardly ever has sequences of bytes that are UTF-8, so these come from another text.
void require_one_encoding(const std::string& path, int64_t longer, const char* where, int64_t at) {
  if (longer < kSure) return;
  fail(Code::kInvalidArgument, path, ": the byte at offset ", at, " is not UTF-8, but ", longer, " characters ", where,
       " it are: write the file in one encoding, or, to read all of it as Latin-1, name --reader ",
       "\"csv?encoding=latin-1\"");
}

// True for the first bytes of compressed files and other formats, of which a reader says what they are.
bool is_no_text(std::string_view text) {
  static constexpr std::array<std::string_view, 14> kMagic = {"\x1f\x8b",
                                                              "\x28\xb5\x2f\xfd",
                                                              "PK\3\4",
                                                              "BZh",
                                                              "\xfd"
                                                              "7zXZ",
                                                              "7z\xbc\xaf",
                                                              "PAR1",
                                                              "ARROW1",
                                                              "\x80\x04\x95",
                                                              "\x80\x05\x95",
                                                              "SQLite f",
                                                              "\x89HDF",
                                                              "\xd0\xcf\x11\xe0",
                                                              "%PDF-"};
  return std::any_of(kMagic.begin(), kMagic.end(), [&](std::string_view magic) { return text.starts_with(magic); });
}

}  // namespace

void look_at_field(std::string_view field, FieldBytes& out) {
  if (std::none_of(field.begin(), field.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; })) return;
  bool wrong = false;
  int64_t longer = 0;
  if (valid_bytes(field, wrong, longer) == field.size()) {
    out.utf8 += longer;
    return;
  }
  OtherBytes other;
  look_at_other(field, true, other);
  out.odd = true;
  out.utf8 += other.utf8;
  out.of_windows = out.of_windows || other.of_windows;
}

std::string encoding_of_fields(const std::vector<std::pair<std::string, FieldBytes>>& files) {
  const std::pair<std::string, FieldBytes>*odd = nullptr, *utf8 = nullptr;
  bool of_windows = false;
  for (const auto& file : files) {
    if (file.second.odd) odd = &file;
    if (file.second.utf8 >= kSure) utf8 = &file;
    of_windows = of_windows || file.second.of_windows;
  }
  if (odd == nullptr) return {};
  if (utf8 != nullptr)
    fail(Code::kInvalidArgument, odd->first, " has characters that are not UTF-8, but ", utf8->second.utf8, " of ",
         utf8 == odd ? "it" : utf8->first,
         " are: write all files in one encoding, or, to read all of them as Latin-1, name --reader ",
         "\"csv?encoding=latin-1\"");
  return of_windows ? "windows-1252" : "latin-1";
}

std::string encoding_of(const std::string& path) {
  constexpr size_t kChunk = size_t{1} << 20;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::vector<char> chunk(kChunk);
  bool first = true, odd = false;  // odd: some bytes are not UTF-8
  OtherBytes other;
  int64_t longer = 0, at = 0;  // characters of several bytes; offset of `text`
  while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())), file.gcount() > 0) {
    text.append(chunk.data(), static_cast<size_t>(file.gcount()));
    if (first && (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))) return "utf-16";
    if (first && is_no_text(text)) return {};
    first = false;
    if (!odd) {
      const size_t valid = valid_bytes(text, odd, longer);
      text.erase(0, valid);
      at += static_cast<int64_t>(valid);
      if (odd) require_one_encoding(path, longer, "before", at);
      if (!odd) continue;  // the beginning of a character may remain
    }
    text.erase(0, look_at_other(text, false, other));
  }
  if (!odd) return {};
  look_at_other(text, true, other);
  require_one_encoding(path, other.utf8, "after", at);
  return other.of_windows ? "windows-1252" : "latin-1";
}

}  // namespace tessera::cli

// docs/ABI.md lists the structs without a size member. contract.py checks the other rules of growth.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace {

const std::filesystem::path kSource = TESSERA_SOURCE_DIR;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

std::set<std::string> names_in(const std::string& text, const std::string& pattern) {
  const std::regex name(pattern);
  std::set<std::string> out;
  for (std::sregex_iterator at(text.begin(), text.end(), name), end; at != end; ++at) out.insert((*at)[1]);
  return out;
}

// The members of each struct of all headers, including drafts, without comments.
std::map<std::string, std::string> structs() {
  std::map<std::string, std::string> out;
  for (const auto& file : std::filesystem::recursive_directory_iterator(kSource / "core/include/tessera/abi")) {
    if (file.path().extension() != ".h") continue;
    const std::string text =
        std::regex_replace(text_of(file.path()), std::regex(R"(/\*[^*]*\*+([^/*][^*]*\*+)*/)"), "");
    const std::regex body(R"(struct (tsr_\w+) \{([^}]*)\})");
    for (std::sregex_iterator at(text.begin(), text.end(), body), end; at != end; ++at) out[(*at)[1]] = (*at)[2];
  }
  return out;
}

bool has_size(const std::string& members) { return members.find("uint32_t struct_size;") != std::string::npos; }

// The struct names that docs/ABI.md lists between two texts.
std::set<std::string> documented(const std::string& begin, const std::string& end) {
  const std::string page = text_of(kSource / "docs/ABI.md");
  const size_t from = page.find(begin);
  EXPECT_NE(from, std::string::npos) << begin;
  return names_in(page.substr(from, page.find(end, from) - from), "`(tsr_\\w+)`");
}

TEST(Structs, AreFoundAtAll) {
  EXPECT_GT(structs().size(), 40u);
  EXPECT_TRUE(has_size(structs().at("tsr_kernel_config")));
  EXPECT_FALSE(has_size(structs().at("tsr_lookup_feature")));
}

TEST(Structs, WithoutASizeAreInStridedArraysOrFrozen) {
  std::set<std::string> listed = documented("array with a stride:", "These are frozen for good");
  listed.merge(documented("frozen for good:", "* Another meaning"));
  for (const auto& [name, members] : structs()) {
    if (has_size(members)) continue;
    EXPECT_THAT(listed, testing::Contains(name)) << "docs/ABI.md, How it grows";
  }
}

// A C enum would make them signed. Flags are the constants that are written as hexadecimal numbers.
TEST(Flags, AreUnsignedMacros) {
  size_t macros = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(kSource / "core/include/tessera/abi")) {
    if (file.path().extension() != ".h") continue;
    const std::string text = text_of(file.path());
    EXPECT_THAT(names_in(text, R"((TSR_\w+) = 0x)"), testing::IsEmpty()) << file.path();
    EXPECT_THAT(names_in(text, R"(#define (TSR_\w+) 0x[0-9A-F]+(?![0-9A-Fu]))"), testing::IsEmpty()) << file.path();
    macros += names_in(text, R"(#define (TSR_\w+) 0x[0-9A-F]+u)").size();
  }
  EXPECT_GT(macros, 15u);
}

}  // namespace

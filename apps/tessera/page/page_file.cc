#include "page/page_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "command.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPlaceOfData = "<!--DATA-->";

// The page without data, which the build and the installation keep beside the program's folder.
std::string page_template() {
  const fs::path path = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "share/tessera/page.html";
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || text.str().find(kPlaceOfData) == std::string::npos)
    fail(Code::kNotFound, "pages are made from ", path.string(), ", which is missing: install Tessera again");
  return text.str();
}

}  // namespace

void add_section(PageParts* parts, const std::string& title, const std::string& about, const PageParts& content) {
  if (content.empty()) return;
  parts->push_back({{"heading", title}});
  if (!about.empty()) parts->push_back({{"text", about}});
  parts->insert(parts->end(), content.begin(), content.end());
}

std::string page_text(const std::string& title, const PageParts& parts) {
  std::string text = page_template(), data;
  const PageParts page = {{"title", title}, {"parts", parts}};
  for (const char c : page.dump(-1, ' ', false, PageParts::error_handler_t::replace)) {
    if (c == '<')
      data += "\\u003c";  // nothing in a text ends the element
    else
      data += c;
  }
  return text.replace(text.find(kPlaceOfData), kPlaceOfData.size(), data);
}

void check_writable(const std::string& path, const char* option) {
  std::error_code error;
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : ".";
  const bool exists = fs::exists(path, error);
  if (exists ? !fs::is_directory(path, error) && ::access(path.c_str(), W_OK) == 0
             : fs::is_directory(folder, error) && ::access(folder.c_str(), W_OK) == 0) {
    return;
  }
  throw UsageError(str_cat(option, ": cannot write ", path.empty() ? "a file without a name" : path,
                           ": name a file in a folder that exists and may be written"));
}

void check_page(const std::string& path) {
  check_writable(path);
  (void)page_template();
}

void write_page(const std::string& path, const std::string& title, const PageParts& parts) {
  std::ofstream file(path);
  file << page_text(title, parts) << std::flush;
  if (!file) fail(Code::kUnavailable, "cannot write ", path, ": is the disk full?");
}

}  // namespace tessera::cli

// tidy ROOT [--lines]: checks every file below ROOT that git tracks or has not seen yet. Prints "path:line: rule: text"
// for each violation and exits 1 if there is one. If ROOT is not a git checkout, exits 77 (skipped). With --lines it
// prints the sizes of the core's folders instead, so that their growth is noticed; exits 1 if it found none.
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "rules.h"

namespace {

constexpr const char* kExceptions = "tests/tidy/exceptions.txt";
constexpr int kSkipped = 77;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Paths relative to root. Empty if git does not know the folder.
std::vector<std::string> tracked_files(const std::string& root) {
  if (root.find('\'') != std::string::npos) return {};
  const std::string command =
      "git -c safe.directory='*' -C '" + root + "' ls-files --cached --others --exclude-standard 2>&1";
  struct Close {
    void operator()(std::FILE* f) const { pclose(f); }
  };
  std::unique_ptr<std::FILE, Close> pipe(popen(command.c_str(), "r"));
  std::string out;
  std::array<char, 4096> block{};
  while (pipe != nullptr) {
    const size_t n = std::fread(block.data(), 1, block.size(), pipe.get());
    if (n == 0) break;
    out.append(block.data(), n);
  }
  std::vector<std::string> paths;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (std::filesystem::is_regular_file(std::filesystem::path(root) / line)) paths.push_back(line);
  }
  return paths;
}

int print_lines(const std::map<std::string, std::string>& texts) {
  std::map<std::string, tidy::FolderLines> folders;
  for (const auto& [path, text] : texts) tidy::count_lines(path, text, folders);
  tidy::FolderLines all;
  std::cout << "lines of core/src: folder, sources, tests\n";
  for (const auto& [name, folder] : folders) {
    std::cout << "  " << std::left << std::setw(14) << name << std::right << std::setw(7) << folder.sources
              << std::setw(7) << folder.tests << '\n';
    all.sources += folder.sources;
    all.tests += folder.tests;
  }
  std::cout << "  " << std::left << std::setw(14) << "all" << std::right << std::setw(7) << all.sources << std::setw(7)
            << all.tests << '\n';
  return all.sources > 0 && all.tests > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool lines = argc == 3 && argv[2] == std::string("--lines");
  if (argc != 2 && !lines) {
    std::cerr << "usage: tidy ROOT [--lines]\n";
    return 2;
  }
  const std::string root = argv[1];
  const std::vector<std::string> paths = tracked_files(root);
  if (paths.empty()) {
    std::cout << "SKIP: git is missing, or " << root << " is not a checkout\n";
    return kSkipped;
  }
  std::map<std::string, std::string> texts;
  std::set<std::string> parts;
  for (const std::string& path : paths) {
    std::string text = read_file(std::filesystem::path(root) / path);
    if (text.find('\0') != std::string::npos) continue;  // binary: tests/abi/kept
    parts.merge(tidy::part_ids(path, text));
    texts[path] = std::move(text);
  }
  if (lines) return print_lines(texts);
  std::vector<tidy::Finding> findings;
  for (const auto& [path, text] : texts) {
    for (tidy::Finding& f : tidy::check(path, text, parts)) {
      findings.push_back(std::move(f));
    }
  }
  const std::vector<tidy::Exception> exceptions =
      tidy::parse_exceptions(kExceptions, read_file(std::filesystem::path(root) / kExceptions), findings);
  findings = tidy::apply_exceptions(std::move(findings), exceptions, kExceptions);
  for (const tidy::Finding& f : findings) {
    std::cout << f.path << ':' << f.line << ": " << f.rule << ": " << f.text << '\n';
  }
  std::cout << findings.size() << " findings in " << paths.size() << " files\n";
  return findings.empty() ? 0 : 1;
}

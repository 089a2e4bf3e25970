// tidy ROOT [--lines]: checks every file that git tracks, or has not seen yet, below ROOT. Prints "path:line: rule:
// text" for each breach and exits 1 if there is one. Where ROOT is no git checkout, exits 77: skipped. With --lines it
// prints how long the folders of the core are instead, so that their growth is seen; 1: it found none.
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

// Lists of what the rules let pass: single breaches, and the headers of core/src that programs include.
constexpr const char* kLists[] = {"tests/tidy/exceptions.txt", "tests/tidy/core_includes.txt"};
constexpr int kSkipped = 77;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Paths relative to root. Empty when git does not know the folder.
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

// Headers of core/src as an include in apps/ names them. A program's own header of the same name comes first.
std::set<std::string> core_headers(const std::map<std::string, std::string>& texts) {
  const std::string core = "core/src/";
  std::set<std::string> names;
  for (const auto& [path, text] : texts) {
    if (path.rfind(core, 0) != 0) continue;
    const std::string name = path.substr(core.size());
    if (texts.count("apps/tessera/" + name) == 0) names.insert(name);
  }
  return names;
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
  std::set<std::string> ids;
  for (const std::string& path : paths) {
    std::string text = read_file(std::filesystem::path(root) / path);
    if (text.find('\0') != std::string::npos) continue;  // no text: tests/abi/kept
    ids.merge(tidy::component_ids(path, text));
    texts[path] = std::move(text);
  }
  if (lines) return print_lines(texts);
  const std::set<std::string> headers = core_headers(texts);
  std::vector<tidy::Finding> findings;
  for (const auto& [path, text] : texts) {
    for (tidy::Finding& f : tidy::check(path, text, ids, headers)) {
      findings.push_back(std::move(f));
    }
  }
  for (const char* list : kLists) {
    const std::vector<tidy::Exception> exceptions =
        tidy::parse_exceptions(list, read_file(std::filesystem::path(root) / list), findings);
    findings = tidy::apply_exceptions(std::move(findings), exceptions, list);
  }
  for (const tidy::Finding& f : findings) {
    std::cout << f.path << ':' << f.line << ": " << f.rule << ": " << f.text << '\n';
  }
  std::cout << findings.size() << " findings in " << paths.size() << " files\n";
  return findings.empty() ? 0 : 1;
}

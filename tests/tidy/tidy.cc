// tidy ROOT: checks every file that git tracks, or has not seen yet, below ROOT. Prints "path:line: rule: text" for
// each breach and exits 1 if there is one. Where ROOT is no git checkout, exits 77: skipped.
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tidy ROOT\n";
    return 2;
  }
  const std::string root = argv[1];
  const std::vector<std::string> paths = tracked_files(root);
  if (paths.empty()) {
    std::cout << "SKIP: git is missing, or " << root << " is not a checkout\n";
    return kSkipped;
  }
  std::vector<tidy::Finding> findings;
  for (const std::string& path : paths) {
    for (tidy::Finding& f : tidy::check(path, read_file(std::filesystem::path(root) / path))) {
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

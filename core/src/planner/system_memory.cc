#include "planner/system_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "tessera/error.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, separator);) words.push_back(std::move(word));
  return words;
}

bool lists(const std::string& words, const std::string& word) {
  const std::vector<std::string> all = split(words, ',');
  return std::find(all.begin(), all.end(), word) != all.end();
}

// Returns the number after `key` in a file of lines "key number unit"; without a key, the number at the beginning of a
// line. Unset if there is none, as for "max".
std::optional<int64_t> number_in(const std::string& path, const std::string& key = "") {
  for (const std::string& line : lines_of(path)) {
    std::istringstream in(line);
    std::string word;
    int64_t value = 0;
    if ((key.empty() || (in >> word && word == key)) && in >> value) return value;
  }
  return std::nullopt;
}

// One of the two versions of control groups.
struct Version {
  const char* file_system;
  const char* controller;                 // "" if all controllers share one hierarchy
  const char *limit, *usage, *droppable;  // two files, and a key of memory.stat; each includes the groups below
};
constexpr Version kVersions[] = {
    {"cgroup", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
    {"cgroup2", "", "memory.max", "memory.current", "inactive_file"},
};

// The group of this process in one version's hierarchy; "/" is the root. Unset if it is in no group that limits memory.
std::optional<fs::path> group_of_process(const Version& version, const std::string& root) {
  for (const std::string& line : lines_of(root + "/proc/self/cgroup")) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers == version.controller || lists(controllers, version.controller)) return line.substr(second + 1);
  }
  return std::nullopt;
}

struct Mount {
  fs::path group;  // the group that is mounted at `at`
  fs::path at;
};

std::optional<Mount> mount_of(const Version& version, const std::string& root) {
  for (const std::string& line : lines_of(root + "/proc/self/mountinfo")) {
    // Words: number, parent, device, root, mount point, options..., "-", type, source, options of the file system.
    const std::vector<std::string> words = split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (dash - words.begin() < 6 || words.end() - dash < 4 || dash[1] != version.file_system) continue;
    if (*version.controller && !lists(dash[3], version.controller)) continue;
    return Mount{words[3], words[4]};
  }
  return std::nullopt;
}

// The visible directories of this process's group and of the groups around it, the innermost first.
std::vector<fs::path> groups(const Version& version, const std::string& root) {
  const std::optional<fs::path> group = group_of_process(version, root);
  const std::optional<Mount> mount = mount_of(version, root);
  if (!group || !mount) return {};
  const fs::path top = root + mount->at.native();
  // The root may be a container's own group.
  const fs::path inside = group->lexically_relative(mount->group);
  std::vector<fs::path> out{top};
  if (inside.empty() || *inside.begin() == "..") return out;
  for (const fs::path& name : inside) {
    if (name == ".") continue;
    out.insert(out.begin(), out.front() / name);
  }
  return out;
}

}  // namespace

SystemMemory system_memory(const std::string& root) {
  const auto kibibytes = [&](const char* key) { return number_in(root + "/proc/meminfo", key); };
  const std::optional<int64_t> total = kibibytes("MemTotal:");
  if (!total) fail(Code::kUnavailable, "this machine does not tell its memory: set planner.ddr_gib");
  SystemMemory out{*total * 1024, kibibytes("MemAvailable:").value_or(*total) * 1024, "this machine"};
  for (const Version& version : kVersions) {
    for (const fs::path& directory : groups(version, root)) {
      const std::optional<int64_t> limit = number_in(directory / version.limit);
      if (!limit) continue;
      out.limit = std::min(out.limit, *limit);
      const int64_t used = number_in(directory / version.usage).value_or(0) -
                           number_in(directory / "memory.stat", version.droppable).value_or(0);
      const int64_t available = std::max<int64_t>(0, *limit - std::max<int64_t>(0, used));
      if (available >= out.available) continue;
      out.available = available;
      out.bound_by = str_cat("control group ", directory.native());
    }
  }
  return out;
}

}  // namespace tessera

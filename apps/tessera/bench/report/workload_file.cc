#include "bench/report/workload_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "command.h"
#include "tessera/error.h"
#include "tessera/sdk/nearest.h"

namespace tessera::cli {
namespace {

constexpr const char* kDefaults = "defaults";

std::string where(const std::string& path, const toml::node& node) {
  return str_cat(path, ":", node.source().begin.line);
}

std::string scalar(const std::string& path, const std::string& key, const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto whole = node.value_exact<int64_t>()) return str_cat(*whole);
  if (const auto number = node.value_exact<double>()) return str_cat(*number);
  throw UsageError(where(path, node) + ": " + key + " must be a text, a number, a truth value or an array of these");
}

// The option as written on the command line; empty for a switch that is off.
std::string argument(const std::string& path, const std::string& key, const toml::node& node) {
  if (const auto on = node.value_exact<bool>()) return *on ? "--" + key : "";
  const toml::array* items = node.as_array();
  if (items == nullptr) return "--" + key + "=" + scalar(path, key, node);
  if (items->empty()) throw UsageError(where(path, node) + ": " + key + " is an empty array: name at least one");
  std::string list;
  for (const toml::node& item : *items) list += (list.empty() ? "" : ",") + scalar(path, key, item);
  return "--" + key + "=" + list;
}

bool is_given(const std::vector<std::string>& given, const std::string& key) {
  return std::any_of(given.begin(), given.end(),
                     [&](const std::string& g) { return g == "--" + key || g.starts_with("--" + key + "="); });
}

toml::table parsed_file(const std::string& path) {
  try {
    return toml::parse_file(path);
  } catch (const toml::parse_error& e) {
    const auto line = e.source().begin.line;
    throw UsageError(line > 0 ? str_cat("--workload: ", path, ":", line, ": ", e.description())
                              : str_cat("--workload: cannot read ", path, ": ", e.description()));
  }
}

class Reader {
 public:
  Reader(std::string path, const std::string& bench) : path_(std::move(path)), file_(parsed_file(path_)) {
    for (const auto& [key, node] : file_) {
      const std::string name(key.str());
      if (node.is_table()) {
        if (name != kDefaults) tables_.emplace_back(name, node.as_table());
      } else if (name != "bench") {
        throw UsageError(where(path_, node) + ": " + name + " stands outside of all workloads: put it under [" +
                         kDefaults + "] or a [NAME] of its own");
      }
    }
    const auto meant = file_["bench"].value<std::string>();
    if (!meant)
      throw UsageError("--workload: " + path_ + " does not say for which bench: add bench = \"" + bench + "\"");
    if (*meant != bench) {
      throw UsageError("--workload: " + path_ + " is for tessera bench " + *meant + ", not for " + bench);
    }
    if (tables_.empty()) throw UsageError("--workload: " + path_ + " has no workload: add a table such as [small]");
    std::sort(tables_.begin(), tables_.end(), [](const auto& a, const auto& b) {
      return a.second->source().begin.line < b.second->source().begin.line;
    });
  }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& [name, table] : tables_) out.push_back(name);
    return out;
  }

  Workload read(const std::string& name, const std::vector<std::string>& given) const {
    const auto found = std::find_if(tables_.begin(), tables_.end(), [&](const auto& t) { return t.first == name; });
    std::map<std::string, std::string> arguments;
    for (const toml::table* from : {file_[kDefaults].as_table(), found->second}) {
      if (from == nullptr) continue;
      for (const auto& [key, node] : *from)
        arguments[std::string(key.str())] = argument(path_, std::string(key.str()), node);
    }
    Workload w{name, where(path_, *found->second), {}};
    for (const auto& [key, text] : arguments) {
      if (!text.empty() && !is_given(given, key)) w.arguments.push_back(text);
    }
    return w;
  }

 private:
  std::string path_;
  toml::table file_;
  std::vector<std::pair<std::string, const toml::table*>> tables_;
};

}  // namespace

std::string bench_of_workloads(const std::string& path) {
  const auto bench = parsed_file(path)["bench"].value<std::string>();
  if (!bench) throw UsageError("--workload: " + path + " does not say for which bench: add bench = \"lookup\"");
  return *bench;
}

std::vector<Workload> load_workloads(const std::string& path, const std::string& bench, const std::string& only,
                                     const std::vector<std::string>& given) {
  const Reader reader(path, bench);
  const std::vector<std::string> names = reader.names();
  std::set<std::string> wanted;
  std::istringstream list(only);
  for (std::string name; std::getline(list, name, ',');) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw UsageError("--only: " + path + " has no workload \"" + name + "\"; it has " + sdk::joined(names));
    wanted.insert(name);
  }
  std::vector<Workload> out;
  for (const std::string& name : names) {
    if (wanted.empty() || wanted.contains(name)) out.push_back(reader.read(name, given));
  }
  return out;
}

}  // namespace tessera::cli

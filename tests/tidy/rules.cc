#include "rules.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>

namespace tidy {
namespace {

constexpr size_t kFileLines = 500;
constexpr size_t kTestFileLines = 800;
constexpr size_t kFunctionLines = 70;
constexpr size_t kLineWidth = 120;
// Lowest first: a folder includes only folders before it.
constexpr std::array<std::string_view, 16> kFolders = {
    "config", "plugin",  "sparse",     "optim",     "modules",    "wiring", "planner",     "distributed",
    "data",   "metrics", "checkpoint", "inference", "publishing", "train",  "calibration", "c"};

bool starts_with(std::string_view text, std::string_view begin) { return text.substr(0, begin.size()) == begin; }
bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}
bool contains(std::string_view text, std::string_view what) { return text.find(what) != std::string_view::npos; }
bool contains_any_case(std::string_view text, std::string_view what) {
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  return std::search(text.begin(), text.end(), what.begin(), what.end(), same) != text.end();
}
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// `name` as a whole identifier.
bool has_identifier(std::string_view code, std::string_view name) {
  for (size_t at = code.find(name); at != std::string_view::npos; at = code.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || !is_word(code[at - 1])) && (end == code.size() || !is_word(code[end]))) return true;
  }
  return false;
}

// The kind of a file, from its path.
struct Kind {
  bool cpp = false;     // C, C++ and device sources
  bool header = false;  // of these
  bool test = false;
  bool build = false;               // CMake, presets, scripts
  bool data = false;                // recorded cases, golden files: only checked for machine paths
  bool prose = false;               // Markdown
  bool core = false;                // core/src
  bool names_no_component = false;  // the core without the registry and what is TorchRec's
  bool plugin = false;              // code of a plugin
};

Kind kind_of(std::string_view path) {
  Kind k;
  for (const char* suffix : {".h", ".hpp", ".cuh"}) k.header |= ends_with(path, suffix);
  k.cpp = k.header;
  for (const char* suffix : {".cc", ".cpp", ".c", ".cu", ".hip", ".inc"}) k.cpp |= ends_with(path, suffix);
  k.test = starts_with(path, "tests/") || contains(path, "_test.") || contains(path, "/test_") ||
           contains(path, "/testing/");
  k.data = ends_with(path, ".csv") || (ends_with(path, ".json") && path != "CMakePresets.json") ||
           starts_with(path, "tests/fuzz/corpus/") || (contains(path, "/golden/") && ends_with(path, ".txt"));
  k.prose = ends_with(path, ".md") || path == "LICENSE";
  k.build = !k.cpp && !k.data && !k.prose;
  k.core = starts_with(path, "core/src/");
  k.names_no_component = (k.core && !starts_with(path, "core/src/plugin/") && !contains(path, "/torchrec/")) ||
                         (starts_with(path, "core/include/") && !contains(path, "/abi/") && !contains(path, "/sdk/"));
  k.plugin =
      starts_with(path, "plugins/") || starts_with(path, "kernels_") || starts_with(path, "sharding_strategies/");
  return k;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Columns of a line of UTF-8: bytes that do not continue a character.
size_t width(std::string_view line) {
  return static_cast<size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// Collects the findings of one file.
class Checker {
 public:
  Checker(const std::string& path, const std::string& text, const std::set<std::string>& ids,
          const std::set<std::string>& core_headers)
      : path_(path),
        text_(text),
        ids_(ids),
        core_headers_(core_headers),
        kind_(kind_of(path)),
        lines_(lines_of(text)) {}

  std::vector<Finding> run() {
    for (size_t i = 0; i < lines_.size(); ++i) check_text_line(lines_[i], i + 1);
    if (!kind_.data) check_file();
    if (kind_.cpp || ends_with(path_, ".md")) check_openers();
    if (kind_.cpp) {
      const std::string code = code_only(text_);
      const std::vector<std::string_view> code_lines = lines_of(code);
      for (size_t i = 0; i < code_lines.size(); ++i) check_code_line(code_lines[i], lines_[i], i + 1);
      for (size_t i = 0; i < lines_.size(); ++i) check_include(lines_[i], i + 1);
      check_functions();
      if (kind_.names_no_component && !kind_.test) check_component_ids();
    }
    return std::move(findings_);
  }

 private:
  void add(std::string rule, size_t line, std::string text) {
    findings_.push_back({std::move(rule), path_, line, std::move(text)});
  }

  void check_file() {
    const size_t limit = kind_.test ? kTestFileLines : kFileLines;
    if ((kind_.cpp || kind_.build) && lines_.size() > limit) {
      add("file-lines", 0,
          std::to_string(lines_.size()) + " lines, at most " + std::to_string(limit) + ": split it by subject");
    }
    if (!text_.empty() && text_.back() != '\n') add("final-newline", lines_.size(), "the last line does not end");
    // HWY_TARGET_TOGGLE: a header that Highway includes once for each instruction set.
    const bool guarded = contains(text_, "#pragma once") || contains(text_, "#ifndef ") ||
                         contains(text_, "== defined(HWY_TARGET_TOGGLE)");
    if (kind_.header && !guarded) {
      add("include-guard", 0, "a header needs #pragma once");
    }
  }

  void check_openers() {
    for (const size_t number : kind_.cpp ? fragments_in_code(lines_) : fragments_in_page(lines_)) {
      add("opener", number, "a fragment: begin with the subject of the sentence");
    }
  }

  void check_text_line(std::string_view line, size_t number) {
    check_machine_path(line, number);
    if (kind_.data) return;
    if (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r')) {
      add("trailing-space", number, "white space at the end of the line");
    }
    if (kind_.prose) return;
    if (width(line) > kLineWidth) {
      add("line-width", number, std::to_string(width(line)) + " columns, at most " + std::to_string(kLineWidth));
    }
    for (const char* mark : {"TO"
                             "DO",
                             "FIX"
                             "ME"}) {
      if (has_identifier(line, mark)) add("unfinished", number, std::string(mark) + ": finish it, or open an issue");
    }
    if (kind_.build && contains(line, "-march=native")) {
      add("march-native", number, "binaries would die on other CPUs: dispatch at run time");
    }
  }

  void check_machine_path(std::string_view line, size_t number) {
    for (const char* folder : {"work", "root", "home"}) {
      const std::string path = "/" + std::string(folder) + "/";
      for (size_t at = line.find(path); at != std::string_view::npos; at = line.find(path, at + 1)) {
        const char before = at == 0 ? ' ' : line[at - 1];
        if (is_word(before) || contains("./-}", std::string_view(&before, 1))) continue;  // in the middle of a path
        add("machine-path", number, "a path of one machine: " + path);
      }
    }
  }

  void check_code_line(std::string_view code, std::string_view line, size_t number) {
    if (!kind_.test && (has_identifier(code, "getenv") || has_identifier(code, "secure_getenv"))) {
      add("getenv", number, "environment variables are read in the files that exceptions.txt names, nowhere else");
    }
    if (kind_.core && !kind_.test) {
      for (const char* name : {"cout", "printf", "puts"}) {
        if (has_identifier(code, name))
          add("core-prints", number, std::string(name) + ": the core writes to no terminal");
      }
    }
    if (kind_.core && !kind_.test && path_ != "core/src/config/json.cc" && contains_any_case(code, "json::parse(")) {
      add("json", number, "JSON is parsed by config/json.h, which limits its size and depth");
    }
    const bool registry = starts_with(path_, "core/src/plugin/");
    if (!kind_.test && !registry && (kind_.core || starts_with(path_, "apps/"))) check_component_names(line, number);
  }

  // Some ids are words of their own: tables in host memory are on "cpu", what is empty is "none", bags are pooled by
  // "sum", collectives "concat", a learning rate's warm-up is "linear", "mse" is a metric, texts become ids by "hash",
  // columns a "cross".
  void check_component_ids() {
    static const std::set<std::string> kWords = {"cpu", "none", "sum", "concat", "linear", "mse", "hash", "cross"};
    for (const Literal& literal : literals(text_)) {
      const std::string text(literal.text);
      if (kWords.count(text) == 0 && ids_.count(text) > 0)
        add("component-id", literal.line, "\"" + text + "\" is a component: the core names none");
    }
  }

  // `if (kind == "...")` on the name of a component belongs to the registry only.
  void check_component_names(std::string_view line, size_t number) {
    for (const char* name : {"kind", "backend", "sharding_type", "sharder", "kernel", "kernel_id", "transport"}) {
      for (const char* comparison : {" == \"", "() == \"", " != \"", "() != \""}) {
        const std::string what = name + std::string(comparison);
        const size_t at = line.find(what);
        if (at == std::string_view::npos || (at > 0 && is_word(line[at - 1]))) continue;
        if (line.substr(at + what.size(), 1) == "\"") continue;  // compared with "", which names no component
        if (line.substr(at + what.size(), 5) == "auto\"") continue;
        add("component-name", number, "a decision by the name of a component: ask its interface, or the registry");
      }
    }
  }

  void check_include(std::string_view line, size_t number) {
    if (!starts_with(line, "#include ")) return;
    const size_t open = line.find_first_of("\"<");
    const size_t close = line.find_first_of("\">", open + 1);
    if (close == std::string_view::npos) return;
    const std::string_view name = line.substr(open + 1, close - open - 1);
    const std::string shown(name);
    if (kind_.plugin && !kind_.test) check_plugin_include(name, number);
    if (starts_with(path_, "core/") && !kind_.test) {
      for (const char* folder : {"plugins/", "kernels_", "sharding_strategies/", "apps/"}) {
        if (starts_with(name, folder)) add("folder", number, "the core includes " + shown + ": it knows no plugin");
      }
    }
    if (starts_with(path_, "core/include/")) {
      for (const char* device : {"cuda", "hip/", "nccl"}) {
        if (starts_with(name, device)) add("folder", number, "a public header includes " + shown);
      }
    }
    if (kind_.core) check_folder_include(name, number);
    if (starts_with(path_, "apps/") && !kind_.test && core_headers_.count(shown) > 0)
      add("core-include:" + shown, number,
          "a program includes tessera/ headers, and the few that core_includes.txt lists");
  }

  void check_plugin_include(std::string_view name, size_t number) {
    bool foreign =
        starts_with(name, "tessera/") && !starts_with(name, "tessera/abi/") && !starts_with(name, "tessera/sdk/");
    for (const std::string_view folder : kFolders) foreign |= starts_with(name, std::string(folder) + "/");
    if (foreign) {
      add("folder", number,
          "a plugin includes " + std::string(name) + ": only tessera/abi/ and tessera/sdk/ are for plugins");
    }
  }

  void check_folder_include(std::string_view name, size_t number) {
    const auto folder_of = [](std::string_view path) {
      return std::find(kFolders.begin(), kFolders.end(), path.substr(0, path.find('/')));
    };
    const auto here = folder_of(std::string_view(path_).substr(std::string_view("core/src/").size()));
    const auto there = contains(name, "/") ? folder_of(name) : kFolders.end();
    if (here == kFolders.end()) {
      add("folder", number, "not one of the core's folders");
    } else if (there != kFolders.end() && there > here) {
      add("folder", number, std::string(*here) + " includes " + std::string(name) + ", of a higher folder");
    }
  }

  void check_functions() {
    for (const Function& f : functions(text_)) {
      if (f.lines <= kFunctionLines) continue;
      add("function-lines", f.first_line,
          "a function of " + std::to_string(f.lines) + " lines, at most " + std::to_string(kFunctionLines));
    }
  }

  const std::string& path_;
  const std::string& text_;
  const std::set<std::string>& ids_;
  const std::set<std::string>& core_headers_;
  Kind kind_;
  std::vector<std::string_view> lines_;
  std::vector<Finding> findings_;
};

}  // namespace

std::set<std::string> component_ids(const std::string& path, const std::string& text) {
  std::set<std::string> ids;
  if (!kind_of(path).plugin) return ids;
  for (const std::string_view mark : {".id = \"", "define GPU_KIND_NAME \""}) {
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
      const size_t begin = at + mark.size();
      ids.insert(text.substr(begin, text.find('"', begin) - begin));
    }
  }
  return ids;
}

std::vector<Finding> check(const std::string& path, const std::string& text, const std::set<std::string>& ids,
                           const std::set<std::string>& core_headers) {
  return Checker(path, text, ids, core_headers).run();
}

void count_lines(const std::string& path, const std::string& text, std::map<std::string, FolderLines>& folders) {
  constexpr std::string_view kCore = "core/src/";
  const Kind kind = kind_of(path);
  if (!kind.core || !kind.cpp) return;
  FolderLines& folder = folders[path.substr(kCore.size(), path.find('/', kCore.size()) - kCore.size())];
  (kind.test ? folder.tests : folder.sources) += lines_of(text).size();
}

std::vector<Exception> parse_exceptions(const std::string& path, const std::string& text,
                                        std::vector<Finding>& findings) {
  std::vector<Exception> exceptions;
  size_t number = 0;
  for (const std::string_view line : lines_of(text)) {
    ++number;
    if (line.empty() || line.front() == '#') continue;
    std::istringstream in{std::string(line)};
    Exception e;
    in >> e.rule >> e.path >> std::ws;
    std::getline(in, e.reason);
    if (e.reason.empty()) {
      findings.push_back({"exceptions", path, number, "needs: rule path reason"});
    } else {
      exceptions.push_back(std::move(e));
    }
  }
  return exceptions;
}

std::vector<Finding> apply_exceptions(std::vector<Finding> findings, const std::vector<Exception>& exceptions,
                                      const std::string& exceptions_path) {
  std::vector<bool> used(exceptions.size(), false);
  std::erase_if(findings, [&](const Finding& f) {
    for (size_t i = 0; i < exceptions.size(); ++i) {
      if (exceptions[i].rule != f.rule || exceptions[i].path != f.path) continue;
      used[i] = true;
      return true;
    }
    return false;
  });
  for (size_t i = 0; i < exceptions.size(); ++i) {
    if (used[i]) continue;
    const std::string what = exceptions[i].rule + " " + exceptions[i].path;
    findings.push_back({"exceptions", exceptions_path, 0, "\"" + what + "\" is not needed: take it out"});
  }
  return findings;
}

}  // namespace tidy

#include "conformance/runner.h"

#include <fstream>
#include <optional>
#include <ostream>

#include "command.h"

namespace tessera::cli {
namespace {

OpTable ops_of(const std::string& area) {
  struct Area {
    const char* name;
    OpTable (*ops)();
  };
  constexpr Area kAreas[] = {
      {"sparse", sparse_ops},
      {"embedding_modules", embedding_module_ops},
      {"fused_optimizers", fused_optimizer_ops},
      {"optimizer_wrappers", optimizer_wrapper_ops},
      {"plans", planner_ops},
      {"planner", planner_ops},
      {"sharded_modules", sharded_module_ops},
      {"quantization", quantization_ops},
      {"inference", inference_ops},
      {"extras", extra_ops},
      {"sequences", sequence_ops},
  };
  for (const Area& a : kAreas) {
    if (area == a.name) return a.ops();
  }
  return {};
}

// Candidates: given.op; "<area>/<given.module>"; "<area>". A failure names the first.
std::vector<std::string> op_names(const std::string& area, const json& given) {
  if (const json& op = field_or_null(given, "op"); op.is_string()) return {op.get<std::string>()};
  std::vector<std::string> names;
  if (const json& module = field_or_null(given, "module"); module.is_string()) {
    names.push_back(area + "/" + module.get<std::string>());
  }
  names.push_back(area);
  return names;
}

const Op* find_op(const OpTable& ops, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (const auto found = ops.find(name); found != ops.end()) return &found->second;
  }
  return nullptr;
}

// Tolerances have these forms: "exact"; {"rtol", "atol"}; the same under "values"; {"perf_rel"} and the like, which the
// ops read themselves and which are exact here.
Checker checker_for(const json& tolerance) {
  if (!tolerance.is_object()) return {0, 0};
  const json& values = tolerance.contains("values") ? tolerance["values"] : tolerance;
  if (!values.is_object()) return {0, 0};
  return {values.value("rtol", 0.0), values.value("atol", 0.0)};
}

// Shortens "[json.exception.type_error.302] (/cases/3/given/stride) type must be number, but is null" to "given/stride:
// type must be number, but is null", because the case's name says the rest. JSON_DIAGNOSTICS adds the path.
std::string field_text(const json::exception& e) {
  std::smatch parts;
  std::string text = e.what();
  if (!std::regex_match(text, parts, std::regex(R"(\[[^\]]*\] (?:\(/cases/\d+/([^)]*)\) )?(.*))"))) return text;
  return (parts[1].length() > 0 ? parts[1].str() + ": " : "") + parts[2].str();
}

struct Outcome {
  enum { kPassed, kDiffers, kFailed, kSkipped } kind;
  std::string text;
};

Outcome run_one(const Op& op, const json& one, const Runtime& runtime, const RunOptions& options) {
  const json& tolerance = field_or_null(one, "tolerance");
  Checker check = checker_for(tolerance);
  CaseContext context{runtime, options.kernel, options.device, one["given"], one["expect"], check, tolerance};
  try {
    op(context);
  } catch (const SkipCase& skip) {
    return {Outcome::kSkipped, skip.reason};
  } catch (const Error& e) {
    // A kernel that was asked for by name and cannot serve the case is not a failure.
    if (e.code() == Code::kUnimplemented && options.kernel != "auto") return {Outcome::kSkipped, e.what()};
    return {Outcome::kDiffers, e.what()};
  } catch (const json::exception& e) {
    return {Outcome::kFailed, field_text(e)};
  } catch (const std::exception& e) {
    return {Outcome::kFailed, e.what()};
  }
  if (!check.ok()) return {Outcome::kDiffers, check.summary()};
  if (check.compared() == 0) return {Outcome::kFailed, "nothing was compared"};
  return {Outcome::kPassed, ""};
}

bool is_quirk(const json& one) {
  const json& quirk = field_or_null(one, "quirk");
  return !quirk.is_null() && quirk != json(false);
}

// If a file does not name its area, it is the area of its ops, provided that they belong to only one.
std::optional<std::string> area_by_ops(const json& cases) {
  std::optional<std::string> found;
  for (const char* area : {"sparse", "embedding_modules", "fused_optimizers", "optimizer_wrappers", "quantization"}) {
    const OpTable ops = ops_of(area);
    bool some = false, all = true;
    for (const json& one : cases) {
      const json& op = field_or_null(one["given"], "op");
      if (op == json("error")) continue;
      const bool known = op.is_string() && ops.contains(op.get<std::string>());
      some |= known;
      all &= known;
    }
    if (!some || !all) continue;
    if (found) return std::nullopt;
    found = area;
  }
  return found;
}

void check_form(const std::string& path, const json& content) {
  if (!content.is_object() || !content.contains("cases") || !content["cases"].is_array()) {
    throw UsageError(path + ": not a file of cases: it has no list \"cases\"");
  }
  size_t number = 0;
  for (const json& one : content["cases"]) {
    ++number;
    const bool named = one.is_object() && one.contains("name") && one["name"].is_string();
    const std::string who = str_cat(path, ": case ", number, named ? " (" + one["name"].get<std::string>() + ")" : "");
    if (!named) throw UsageError(who + " has no \"name\"");
    for (const char* member : {"given", "expect"}) {
      if (!field_or_null(one, member).is_object()) throw UsageError(str_cat(who, " has no object \"", member, "\""));
    }
  }
}

}  // namespace

CaseFile read_case_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UsageError("cannot read " + path);
  CaseFile file{path, "", {}};
  try {
    file.content = json::parse(in);
  } catch (const json::parse_error& e) {
    // for example "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    const std::string text = e.what();
    const size_t start = text.find("] ");
    throw UsageError(str_cat(path, " is not JSON: ", start == std::string::npos ? text : text.substr(start + 2)));
  }
  check_form(path, file.content);
  if (const json& area = field_or_null(file.content, "area"); area.is_string()) {
    file.area = area.get<std::string>();
  } else if (const auto found = area_by_ops(file.content["cases"])) {
    file.area = *found;
  } else {
    throw UsageError(path + " does not name its area, and its ops do not tell");
  }
  return file;
}

void run_cases(const CaseFile& file, const Runtime& runtime, const RunOptions& options, std::ostream& out,
               Tally& tally) {
  const OpTable ops = ops_of(file.area);
  for (const json& one : file.content["cases"]) {
    const std::string name = one["name"].get<std::string>();
    if (options.only && !std::regex_search(name, *options.only)) continue;
    const auto names = op_names(file.area, one["given"]);
    const Op* op = find_op(ops, names);
    const Outcome outcome =
        op ? run_one(*op, one, runtime, options)
           : Outcome{Outcome::kFailed, str_cat("area \"", file.area, "\" has no op \"", names[0], "\"")};
    if (outcome.kind == Outcome::kSkipped) {
      ++tally.skipped;
      out << "SKIP " << name << ": " << outcome.text << std::endl;
    } else if (outcome.kind == Outcome::kPassed) {
      ++tally.passed;
    } else if (outcome.kind == Outcome::kDiffers && is_quirk(one)) {
      ++tally.passed;
      out << "QUIRK " << name << std::endl;
    } else {
      ++tally.failed;
      out << "FAIL " << name << ": " << outcome.text << std::endl;
    }
  }
}

void expect_refusal(CaseContext& c, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error&) {
    c.check.equal("refused", true, true);
    return;
  }
  c.check.fail("refused", str_cat("nothing was refused, want ", field_or_null(c.expect, "error_class").dump()));
}

}  // namespace tessera::cli

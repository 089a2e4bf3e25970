#include "verify/report.h"

#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "tessera/error.h"

namespace tessera::cli::verify {
namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string xml(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

}  // namespace

std::string line_of(const Result& r) {
  std::string out = str_cat(to_string(r.outcome), ' ', r.check, ", ", r.component);
  if (!r.text.empty()) out += ": " + r.text;
  if (!r.rule.empty()) out += " [" + r.rule + "]";
  return out;
}

std::string summary_of(const std::vector<Result>& results) {
  std::string out;
  for (const Outcome o : {Outcome::kPassed, Outcome::kFailed, Outcome::kCrashed, Outcome::kTimedOut, Outcome::kWarned,
                          Outcome::kSkipped}) {
    int n = 0;
    for (const Result& r : results) n += r.outcome == o;
    if (n > 0) out += str_cat(out.empty() ? "" : ", ", n, ' ', lower(to_string(o)));
  }
  return out.empty() ? "nothing was run" : out;
}

std::string json_of(const Run& run) {
  nlohmann::ordered_json out{
      {"plugin", run.path}, {"level", run.level}, {"seed", run.seed}, {"results", nlohmann::ordered_json::array()}};
  for (const Result& r : run.results) {
    out["results"].push_back({{"check", r.check},
                              {"component", r.component},
                              {"level", r.level},
                              {"outcome", lower(to_string(r.outcome))},
                              {"text", r.text},
                              {"rule", r.rule},
                              {"seconds", r.seconds}});
  }
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string junit_of(const Run& run) {
  size_t failures = 0, skipped = 0;
  for (const Result& r : run.results) {
    failures += is_defect(r.outcome);
    skipped += r.outcome == Outcome::kSkipped;
  }
  std::string out =
      str_cat("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"", xml(run.path), "\" tests=\"",
              run.results.size(), "\" failures=\"", failures, "\" skipped=\"", skipped, "\">\n");
  for (const Result& r : run.results) {
    out += str_cat("  <testcase classname=\"", xml(r.component), "\" name=\"", xml(r.check), "\" time=\"", r.seconds,
                   "\">");
    if (is_defect(r.outcome)) out += str_cat("<failure message=\"", xml(r.text), "\">", xml(line_of(r)), "</failure>");
    if (r.outcome == Outcome::kSkipped) out += str_cat("<skipped message=\"", xml(r.text), "\"/>");
    if (r.outcome == Outcome::kWarned) out += str_cat("<system-out>", xml(line_of(r)), "</system-out>");
    out += "</testcase>\n";
  }
  return out + "</testsuite>\n";
}

}  // namespace tessera::cli::verify

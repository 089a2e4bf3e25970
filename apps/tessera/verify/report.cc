#include "verify/report.h"

#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/abi/collective.h"
#include "tessera/abi/draft/device.h"
#include "tessera/abi/draft/endpoint.h"
#include "tessera/abi/draft/index.h"
#include "tessera/abi/draft/metric.h"
#include "tessera/abi/draft/reader.h"
#include "tessera/abi/kernel.h"
#include "tessera/abi/module.h"
#include "tessera/abi/optimizer.h"
#include "tessera/abi/sharder.h"
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

std::string not_looked_at(const std::string& kind) {
  static constexpr std::pair<const char*, const char*> kTexts[] = {
      {TSR_SHARDER_KIND,
       "the quality of its layouts; all rows of tables of more than 4,000,000 rows, of which it looks at some"},
      {TSR_KERNEL_KIND,
       "speed, how much memory it takes, devices, tables beyond 1,048,583 rows or 1,030 columns, MAX "
       "pooling of large batches, and draft interfaces other than prefetch and changes"},
      {TSR_OPTIMIZER_KIND, "the formula, unless TorchRec has one of this name; convergence"},
      {TSR_COLLECTIVE_KIND,
       "more than 8 ranks, several hosts, speed, lost or slow links, streams of devices, and, unless it wraps another "
       "one, the number of bytes that it sends"},
      {TSR_MODULE_KIND,
       "whether forward computes what its name says, inputs that verify did not find, sums over ranks, devices"},
      {TSR_READER_KIND,
       "formats that verify cannot write, unless --input names a file; damaged files, weights, and files that change"},
      {TSR_METRIC_KIND, "the formula; groups; labels other than 0 and 1"},
      {TSR_DEVICE_KIND, "kernels' arithmetic on it (tessera.device_ops), several devices, speed"},
      {TSR_ENDPOINT_KIND, "requests of clients in its protocol, TLS, limits of bodies"},
      {TSR_INDEX_KIND, "how many of the best items it finds, which serve and predict measure; speed, memory"}};
  for (const auto& [known, text] : kTexts) {
    if (kind == known) return str_cat("not looked at (", kind, "): ", text);
  }
  return "";
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
  out["not_looked_at"] = nlohmann::ordered_json::array();
  for (const std::string& kind : run.kinds) out["not_looked_at"].push_back(not_looked_at(kind));
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

// tessera trace compare: finds where two recorded runs differ, and each one's totals. The plugin `trace` writes the
// files.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "command.h"
#include "options.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using json = nlohmann::ordered_json;

// One call of one rank, in the format of plugins/extras/trace/record.h.
struct RecordedCall {
  uint64_t number = 0;
  std::string group, operation, label, what;  // `what` has everything that must be equal
  int64_t bytes = 0;
  double seconds = 0;
  std::string sum, error;
};
using RecordedCalls = std::vector<RecordedCall>;
struct RecordedRun {
  std::string prefix;
  std::vector<RecordedCalls> ranks;  // calls in the order in which they began
};

RecordedCall call_of(const json& line) {
  RecordedCall out{.number = line.at("n"),
                   .group = line.at("group"),
                   .operation = line.at("op"),
                   .label = line.at("label"),
                   .bytes = line.at("bytes"),
                   .seconds = line.at("s"),
                   .sum = line.value("sum", ""),
                   .error = line.value("error", "")};
  const auto type = line.at("dtype").get<std::string>();
  out.what = str_cat(out.operation, " \"", out.label, "\"");
  if (!type.empty()) out.what += str_cat(" of ", out.bytes, " bytes of ", type);
  if (const auto width = line.at("row_elements").get<int64_t>(); width > 0) out.what += str_cat(" in rows of ", width);
  out.what += str_cat(", flags ", line.at("flags").get<uint32_t>(), ", site ", line.at("site").get<std::string>());
  if (const auto code = line.at("result").get<int>(); code != 0) out.what += str_cat(", which failed with code ", code);
  return out;
}

// Reads only calls with these labels; all calls if there are none.
RecordedCalls read_calls(const std::string& path, const std::vector<std::string>& labels) {
  std::ifstream file(path);
  if (!file) fail(Code::kNotFound, "cannot read ", path);
  RecordedCalls out;
  int64_t number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    if (file.eof()) break;  // a line without an end: the rank was killed while writing
    try {
      RecordedCall call = call_of(nlohmann::ordered_json::parse(text));
      const bool wanted = labels.empty() || std::find(labels.begin(), labels.end(), call.label) != labels.end();
      if (wanted) out.push_back(std::move(call));
    } catch (const nlohmann::json::exception&) {
      fail(Code::kDataLoss, path, ", line ", number, " is not a call that the transport \"trace\" has written");
    }
  }
  std::sort(out.begin(), out.end(), [](const RecordedCall& a, const RecordedCall& b) { return a.number < b.number; });
  return out;
}

RecordedRun read_run(const std::string& prefix, const std::vector<std::string>& labels) {
  RecordedRun out{prefix, {}};
  for (int rank = 0; std::filesystem::exists(str_cat(prefix, ".", rank)); ++rank)
    out.ranks.push_back(read_calls(str_cat(prefix, ".", rank), labels));
  if (out.ranks.empty())
    fail(Code::kNotFound, "there is no ", prefix, ".0: a run is the \"file\" of its transport \"trace\"");
  return out;
}

struct RunDifference {
  int rank = 0;
  uint64_t number = 0;  // number of the call in its run
  std::string text;
};

std::string difference_of(const RecordedCall* a, const RecordedCall* b) {
  if (a == nullptr) return str_cat("only the second run continues, with ", b->what);
  if (b == nullptr) return str_cat("only the first run continues, with ", a->what);
  if (a->what != b->what) return str_cat("the first run has ", a->what, ", the second ", b->what);
  if (a->error != b->error)
    return str_cat(a->what, ": the first says \"", a->error, "\", the second \"", b->error, "\"");
  if (!a->sum.empty() && !b->sum.empty() && a->sum != b->sum) return str_cat(a->what, " leaves other values");
  return "";
}

// Each group is used by one thread at a time, so calls have an order only within their group.
std::optional<RunDifference> first_difference(const RecordedCalls& a, const RecordedCalls& b, int rank) {
  std::map<std::string, std::pair<std::vector<const RecordedCall*>, std::vector<const RecordedCall*>>> groups;
  for (const RecordedCall& call : a) groups[call.group].first.push_back(&call);
  for (const RecordedCall& call : b) groups[call.group].second.push_back(&call);
  std::optional<RunDifference> first;
  for (const auto& [group, both] : groups) {
    const auto& [ours, theirs] = both;
    for (size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
      const RecordedCall* x = i < ours.size() ? ours[i] : nullptr;
      const RecordedCall* y = i < theirs.size() ? theirs[i] : nullptr;
      const std::string text = difference_of(x, y);
      if (text.empty()) continue;
      const uint64_t number = x != nullptr ? x->number : y->number;
      if (!first || number < first->number)
        first = RunDifference{rank, number, str_cat("call ", i, " of group ", group, ": ", text)};
      break;
    }
  }
  return first;
}

std::optional<RunDifference> first_difference(const RecordedRun& a, const RecordedRun& b) {
  if (a.ranks.size() != b.ranks.size())
    return RunDifference{0, 0, str_cat("the first run has ", a.ranks.size(), " ranks, the second ", b.ranks.size())};
  std::optional<RunDifference> first;
  for (size_t rank = 0; rank < a.ranks.size(); ++rank) {
    auto here = first_difference(a.ranks[rank], b.ranks[rank], static_cast<int>(rank));
    if (here && (!first || here->number < first->number)) first = std::move(here);
  }
  return first;
}

// Totals over all ranks.
struct LabelTotal {
  int64_t calls = 0, bytes = 0;
  double seconds = 0;
};
using LabelTotals = std::map<std::string, std::array<LabelTotal, 2>>;  // of both runs, by label and operation

void add_totals(const RecordedRun& run, size_t which, LabelTotals* out) {
  for (const RecordedCalls& calls : run.ranks) {
    for (const RecordedCall& call : calls) {
      LabelTotal& t = (*out)[str_cat(call.label.empty() ? "(no label)" : call.label, ", ", call.operation)][which];
      ++t.calls;
      t.bytes += call.bytes;
      t.seconds += call.seconds;
    }
  }
}

void print_comparison(const std::optional<RunDifference>& first, const LabelTotals& totals) {
  if (first)
    std::printf("first difference: rank %d, %s\n\n", first->rank, first->text.c_str());
  else
    std::printf("no difference\n\n");
  size_t widest = 20;
  for (const auto& [name, both] : totals) widest = std::max(widest, name.size());
  const int width = static_cast<int>(widest);
  std::printf("%-*s %10s %10s %14s %14s %10s %10s\n", width, "label, operation", "calls", "", "bytes", "", "seconds",
              "");
  for (const auto& [name, both] : totals) {
    std::printf("%-*s %10lld %10lld %14lld %14lld %10.4f %10.4f\n", width, name.c_str(),
                static_cast<long long>(both[0].calls), static_cast<long long>(both[1].calls),
                static_cast<long long>(both[0].bytes), static_cast<long long>(both[1].bytes), both[0].seconds,
                both[1].seconds);
  }
}

json comparison_json(const std::optional<RunDifference>& first, const LabelTotals& totals) {
  json out;
  out["first_difference"] =
      first ? json{{"rank", first->rank}, {"call", first->number}, {"text", first->text}} : json();
  out["totals"] = json::object();
  for (const auto& [name, both] : totals) {
    for (const LabelTotal& t : both)
      out["totals"][name].push_back({{"calls", t.calls}, {"bytes", t.bytes}, {"seconds", t.seconds}});
  }
  return out;
}

}  // namespace

// Returns 0 if the runs are the same, 1 if they differ.
int trace_command(const std::vector<std::string>& args) {
  std::string action;
  std::vector<std::string> runs(2), labels;
  bool as_json = false;
  Options options("trace", "compare RUN RUN [OPTIONS]",
                  "RUN is the \"file\" of the transport \"trace\" in that run. Calls that depend on time differ "
                  "between two runs: how often ranks report that they are still planning, what they measured. "
                  "--label leaves them out.");
  auto add = options.add_options();
  add("label", po::value(&labels)->composing()->value_name("LABEL"),
      "compare only these calls: rows, gradients, ids, ...; "
      "may be repeated");
  add("json", po::bool_switch(&as_json), "print one JSON object");
  options.argument("action", po::value(&action));
  options.argument("first", po::value(&runs[0]));
  options.argument("second", po::value(&runs[1]));
  if (!parse_options(args, options)) return 0;
  if (action != "compare" || runs[1].empty())
    throw UsageError("two runs are needed, as the \"file\" of their transport \"trace\": tessera trace compare A B");
  const RecordedRun a = read_run(runs[0], labels), b = read_run(runs[1], labels);
  const std::optional<RunDifference> first = first_difference(a, b);
  LabelTotals totals;
  add_totals(a, 0, &totals);
  add_totals(b, 1, &totals);
  if (as_json)
    std::cout << comparison_json(first, totals).dump(1) << '\n';
  else
    print_comparison(first, totals);
  return first ? 1 : 0;
}

}  // namespace tessera::cli

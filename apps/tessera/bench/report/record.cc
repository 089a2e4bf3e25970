#include "bench/report/record.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "bench/report/circumstances.h"
#include "bench/report/compare.h"
#include "tessera/error.h"

namespace tessera::cli {

Record::Record() : fd_(::memfd_create("tessera-bench", MFD_CLOEXEC)) {
  if (fd_ < 0) fail(Code::kUnavailable, "cannot make a file in memory: ", std::strerror(errno));
}

Record::~Record() { ::close(fd_); }

std::vector<Line> Record::lines() const {
  std::string text;
  char buffer[65536];
  for (off_t at = 0;;) {
    const ssize_t n = ::pread(fd_, buffer, sizeof(buffer), at);
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
    at += n;
  }
  std::vector<Line> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(Line::parse(line));
  return lines;
}

void append(int record, const Line& line) {
  const std::string text = line.dump() + "\n";
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(record, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(Code::kUnavailable, "cannot keep a line of the result in memory: ", std::strerror(errno));
    at += static_cast<size_t>(n);
  }
}

std::string table_text(const std::vector<Line>& rows) {
  std::string out;
  for (size_t first = 0; first < rows.size();) {
    std::vector<std::string> columns;
    for (const auto& [key, value] : rows[first].items()) {
      if (key != "bench" && !value.is_array()) columns.push_back(key);
    }
    size_t end = first;
    while (end < rows.size() && rows[end].size() == rows[first].size()) ++end;
    std::vector<std::vector<std::string>> cells{columns};
    for (size_t r = first; r < end; ++r) {
      cells.emplace_back();
      for (const std::string& column : columns) cells.back().push_back(value_text(rows[r].value(column, Line())));
    }
    for (const auto& row : cells) {
      std::string text;
      for (size_t c = 0; c < columns.size(); ++c) {
        size_t width = 0;
        for (const auto& other : cells) width = std::max(width, other[c].size());
        text += row[c] + std::string(c + 1 < columns.size() ? width - row[c].size() + 2 : 0, ' ');
      }
      out += text + '\n';
    }
    first = end;
  }
  return out;
}

std::string machine_text(const Line& run) {
  const auto known = [&](const char* key, const char* otherwise) {
    return value_text(run.value(key, Line(otherwise)));
  };
  std::string text = str_cat(known("cpu", "an unknown processor"), ", ", known("processors", "?"), " processors, ",
                             known("memory_gib", "?"), " GiB");
  if (run.contains("isa"))
    text += str_cat(", ", known("isa", ""), run.value("isa_forced", Line()) == true ? " (forced)" : "");
  if (run.contains("threads")) text += str_cat(", threads of a rank: ", known("threads", ""));
  if (run.contains("kernels")) text += str_cat(", kernels: ", known("kernels", ""));
  return text + ". ";
}

std::string run_text(const Line& run) {
  const Line& others = run["others_percent"];
  std::string text = machine_text(run);
  if (!others.is_number()) return text + "What other programs used of the processors meanwhile is not known.";
  text += str_cat("Other programs used ", value_text(others), " % of the processors meanwhile");
  return text + (others.get<double>() > kLoudPercent ? ": the figures are noisy." : ".");
}

std::string comparison_text(const Line& summary) {
  const auto number = [&](const char* key) { return value_text(summary[key]); };
  std::string text = str_cat("Compared: ", number("same"), " the same within the noise, ", number("faster"),
                             " faster, ", number("slower"), " slower, ", number("new"), " new, ", number("gone"),
                             " gone. The runs were apart, so their rounds are not ",
                             "paired: a change is one of medians, by ", 100 * kLeastChange, " % at least");
  if (summary["by_ranks"] != 0)
    text += str_cat(", with p < ", kUnlikely, " in a rank test (Mann-Whitney) of the rounds");
  if (summary["by_quartiles"] != 0)
    text += str_cat(summary["by_ranks"] != 0 ? "; for " + number("by_quartiles") + " of them" : "",
                    ", with quartiles that do not overlap: a run has less than ", kRoundsToRank, " rounds");
  const Line before = summary["others_percent_before"], after = summary["others_percent_after"];
  text += ". ";
  if (before.is_number() && after.is_number())
    text += str_cat("Other programs used ", value_text(before), " % of the processors in the old run and ",
                    value_text(after), " % in the new one.");
  else
    text += "What other programs used of the processors is not known of both runs.";
  const std::string note = summary["note"];
  return text + (note.empty() ? "" : " Doubtful: " + note + ".");
}

std::string changes_text(const std::vector<Line>& changes) {
  if (changes.empty()) return "";
  return "\n" + table_text({changes.begin(), changes.end() - 1}) + comparison_text(changes.back()) + '\n';
}

}  // namespace tessera::cli

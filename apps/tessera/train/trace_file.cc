#include "train/trace_file.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

namespace tessera::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr size_t kMostSpans = 400'000;  // of all ranks: about 150 bytes each
constexpr size_t kMostOfAThread = 50'000;

int64_t nanoseconds(Trace::Clock::time_point t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}

// One rank's traces as lines: "clock NS" read behind a barrier, then of each thread "thread LEFT_OUT NAME" and
// "BEGIN_NS LENGTH_NS STEP BYTES WAITED_NS NAME".
std::string lines_of(const std::vector<NamedTrace>& threads, const ProcessGroup& group) {
  group.barrier("trace");
  std::ostringstream out;
  out << "clock " << nanoseconds(Trace::Clock::now()) << '\n';
  for (const auto& [name, trace] : threads) {
    out << "thread " << trace->left_out() << ' ' << name << '\n';
    for (const Trace::Span& s : trace->spans()) {
      out << nanoseconds(s.begin) << ' ' << nanoseconds(s.end) - nanoseconds(s.begin) << ' ' << s.step << ' ' << s.bytes
          << ' ' << static_cast<int64_t>(s.waited_s * 1e9) << ' ' << s.name << '\n';
    }
  }
  return out.str();
}

std::string rest_of(std::istringstream& line) {
  std::string text;
  std::getline(line >> std::ws, text);
  return text;
}

// Turns the lines of all ranks into events.
class Writer {
 public:
  Writer(std::ostream& out, const std::vector<std::string>& ranks, int ranks_per_host)
      : out_(out), ranks_(ranks), ranks_per_host_(static_cast<size_t>(ranks_per_host)) {}

  void run() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      for_each_line(
          rank, [&](int64_t begin, std::istringstream&) { origin_ = std::min(origin_, begin + shift(rank)); },
          [](int64_t, const std::string&) {});
    }
    out_ << "{\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [";
    for (size_t rank = 0; rank < ranks_.size(); ++rank) write_rank(rank);
    out_ << "\n],\n\"otherData\": " << json{{"spans", spans_}, {"spans_left_out", left_out_}}.dump() << "}\n";
  }

 private:
  int64_t clock(size_t rank) const { return std::stoll(ranks_[rank].substr(ranks_[rank].find(' ') + 1)); }
  // From the clock of the rank's host to that of the first host.
  int64_t shift(size_t rank) const { return clock(0) - clock(rank / ranks_per_host_ * ranks_per_host_); }

  template <class OnSpan, class OnThread>
  void for_each_line(size_t rank, const OnSpan& on_span, const OnThread& on_thread) const {
    std::istringstream lines(ranks_[rank]);
    std::string text;
    std::getline(lines, text);  // the clock
    while (std::getline(lines, text)) {
      std::istringstream line(text);
      int64_t first = 0;
      if (line >> first) {
        on_span(first, line);
        continue;
      }
      line.clear();
      std::string word;
      line >> word >> first;
      on_thread(first, rest_of(line));
    }
  }

  void event(const json& e) {
    out_ << (first_ ? "\n" : ",\n") << e.dump();
    first_ = false;
  }

  void write_rank(size_t rank) {
    int thread = -1;
    event({{"name", "process_name"}, {"ph", "M"}, {"pid", rank}, {"args", {{"name", cat("rank ", rank)}}}});
    for_each_line(
        rank,
        [&](int64_t begin, std::istringstream& line) {
          int64_t length = 0, step = 0, bytes = 0, waited = 0;
          line >> length >> step >> bytes >> waited;
          json args = {{"step", step}};
          if (bytes) args["bytes"] = bytes;
          if (waited) args["waited_us"] = static_cast<double>(waited) / 1e3;
          const double ts = static_cast<double>(begin + shift(rank) - origin_) / 1e3;
          event({{"name", rest_of(line)},
                 {"ph", "X"},
                 {"pid", rank},
                 {"tid", thread},
                 {"ts", ts},
                 {"dur", static_cast<double>(length) / 1e3},
                 {"args", std::move(args)}});
          ++spans_;
        },
        [&](int64_t left_out, const std::string& name) {
          left_out_ += left_out;
          event({{"name", "thread_name"}, {"ph", "M"}, {"pid", rank}, {"tid", ++thread}, {"args", {{"name", name}}}});
        });
  }

  std::ostream& out_;
  const std::vector<std::string>& ranks_;
  size_t ranks_per_host_;
  int64_t origin_ = std::numeric_limits<int64_t>::max();
  int64_t spans_ = 0, left_out_ = 0;
  bool first_ = true;
};

}  // namespace

size_t most_spans(int world_size, int threads) {
  return std::min(kMostOfAThread, kMostSpans / static_cast<size_t>(world_size * threads));
}

void write_trace(const std::string& path, const std::vector<NamedTrace>& threads, const ProcessGroup& group) {
  const std::vector<std::string> ranks = group.all_gather_text(lines_of(threads, group), "trace");
  std::string wrong;
  if (group.rank() == 0) {
    std::ofstream out(path);
    Writer(out, ranks, group.local_world_size()).run();
    out.close();
    if (!out) wrong = cat("cannot write the trace to ", path);
  }
  wrong = group.all_gather_text(wrong, "trace written")[0];
  if (!wrong.empty()) fail(Code::kUnavailable, wrong);
}

}  // namespace tessera::cli

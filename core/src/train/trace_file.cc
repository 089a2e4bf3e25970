#include "train/trace_file.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

namespace tessera {
namespace {

using json = nlohmann::ordered_json;

constexpr size_t kMostSpans = 400'000;  // over all ranks, about 150 bytes each
constexpr size_t kMostOfAThread = 50'000;

int64_t nanoseconds(Trace::Clock::time_point t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}

// Agreed between all ranks: clock offsets, read after a barrier, and the first span.
struct Times {
  int64_t shift = 0;   // from this host's clock to the first host's
  int64_t origin = 0;  // the earliest span of all, on the first host's clock
};
Times agreed_times(const std::vector<NamedTrace>& threads, const ProcessGroup& group) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const auto& [name, trace] : threads) {
    for (const Trace::Span& s : trace->spans()) first = std::min(first, nanoseconds(s.begin));
  }
  group.barrier("trace");
  struct Moment {
    int64_t now, first;
  };
  const std::vector<Moment> all = group.all_gather(Moment{nanoseconds(Trace::Clock::now()), first}, "trace");
  const auto shift_of = [&](size_t rank) {
    const auto local = static_cast<size_t>(group.local_world_size());
    return all[0].now - all[rank / local * local].now;
  };
  Times times{shift_of(static_cast<size_t>(group.rank())), std::numeric_limits<int64_t>::max()};
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const int64_t begin = all[rank].first;
    if (begin != std::numeric_limits<int64_t>::max()) times.origin = std::min(times.origin, begin + shift_of(rank));
  }
  return times;
}

// Formats one rank's spans as events, one by one.
class Events {
 public:
  Events(const std::vector<NamedTrace>& threads, int rank, const Times& times)
      : threads_(threads), rank_(rank), times_(times) {
    add({{"name", "process_name"}, {"ph", "M"}, {"pid", rank}, {"args", {{"name", str_cat("rank ", rank)}}}});
    for (size_t t = 0; t < threads.size(); ++t) {
      add({{"name", "thread_name"}, {"ph", "M"}, {"pid", rank}, {"tid", t}, {"args", {{"name", threads[t].first}}}});
    }
  }

  // Returns the next events, about `bytes` in size; "": there are no more.
  std::string take(size_t bytes) {
    while (text_.size() < bytes && thread_ < threads_.size()) {
      const auto& spans = threads_[thread_].second->spans();
      if (span_ == spans.size()) {
        ++thread_;
        span_ = 0;
      } else {
        add(event_of(spans[span_++]));
      }
    }
    return std::exchange(text_, {});
  }

 private:
  void add(const json& event) { text_ += ",\n" + event.dump(); }
  json event_of(const Trace::Span& s) const {
    json args = {{"step", s.step}};
    if (s.bytes) args["bytes"] = s.bytes;
    if (s.waited_s > 0) args["waited_us"] = std::round(s.waited_s * 1e9) / 1e3;
    const auto microseconds = [](int64_t ns) { return static_cast<double>(ns) / 1e3; };
    return {{"name", s.name},
            {"ph", "X"},
            {"pid", rank_},
            {"tid", thread_},
            {"ts", microseconds(nanoseconds(s.begin) + times_.shift - times_.origin)},
            {"dur", microseconds(nanoseconds(s.end) - nanoseconds(s.begin))},
            {"args", std::move(args)}};
  }

  const std::vector<NamedTrace>& threads_;
  int rank_;
  Times times_;
  size_t thread_ = 0, span_ = 0;
  std::string text_;
};

// Gathers all ranks' pieces on rank 0, in rank order; other ranks get nothing.
std::string gathered(const std::string& piece, const ProcessGroup& group, bool* all_empty) {
  const auto world = static_cast<size_t>(group.world_size()), rank = static_cast<size_t>(group.rank());
  const std::vector<int64_t> of_all = group.all_gather(std::ssize(piece), "trace");
  const int64_t total = std::accumulate(of_all.begin(), of_all.end(), int64_t{0});
  *all_empty = total == 0;
  std::vector<int64_t> sent(world, 0);
  sent[0] = of_all[rank];
  const Tensor out = Tensor::from<uint8_t>(std::vector<uint8_t>(piece.begin(), piece.end()));
  const Tensor in = Tensor::empty({rank == 0 ? total : 0}, DType::kUInt8);
  group.all_to_all_v(out, sent, in, rank == 0 ? of_all : std::vector<int64_t>(world, 0), "trace").wait();
  const auto* text = static_cast<const char*>(in.raw());
  return {text, text + in.numel()};
}

}  // namespace

size_t most_spans(int world_size, int threads) {
  return std::min(kMostOfAThread, kMostSpans / static_cast<size_t>(world_size * threads));
}

std::string write_trace(const std::string& path, const std::vector<NamedTrace>& threads, const ProcessGroup& group) {
  constexpr size_t kPiece = 1 << 18;  // largest piece of a rank that rank 0 holds at a time
  Events events(threads, group.rank(), agreed_times(threads, group));
  const Tensor counts = Tensor::zeros({2}, DType::kInt64);  // spans of all ranks, and those left out
  for (const auto& [name, trace] : threads) {
    counts.span<int64_t>()[0] += static_cast<int64_t>(trace->spans().size());
    counts.span<int64_t>()[1] += trace->left_out();
  }
  group.all_reduce(counts, ReduceOp::kSum, "trace").wait();
  std::ofstream out;
  if (group.rank() == 0) {
    out.open(path);
    out << "{\"displayTimeUnit\": \"ms\",\n\"otherData\": "
        << json{{"spans", counts.span<int64_t>()[0]}, {"spans_left_out", counts.span<int64_t>()[1]}}.dump()
        << ",\n\"traceEvents\": [";
  }
  size_t comma = 1;  // a comma precedes every event except the first
  for (bool done = false; !done;) {
    const std::string piece = gathered(events.take(kPiece), group, &done);
    if (group.rank() != 0) continue;
    out << std::string_view(piece).substr(std::min(comma, piece.size()));
    comma = 0;
  }
  if (group.rank() != 0) return "";
  out << "\n]}\n";
  out.close();
  return out ? "" : str_cat("cannot write the trace to ", path, ": the job itself is not affected");
}

}  // namespace tessera

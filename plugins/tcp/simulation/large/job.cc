#include "job.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <memory>
#include <sstream>

#include "../../tcp.h"

namespace tessera::tcp::simulation {
namespace {

using Engine = sdk::PairEngine<LargeLink>;
struct LargeGroup final : sdk::PairwiseGroup<Engine> {
  using PairwiseGroup::PairwiseGroup;
  std::unique_ptr<sdk::Group> split(int32_t, int32_t, const sdk::CollectiveCall&) override { return nullptr; }
};

constexpr int64_t kStepHeader = 64;  // bytes that the core sends each other rank first in a step
constexpr int64_t kRows = 16;        // bytes of rows that a rank has for each other rank

DLTensor bytes_view(std::vector<char>& data, int64_t& size) {
  size = static_cast<int64_t>(data.size());
  return {data.data(), {kDLCPU, 0}, 1, sdk::dtype_of<uint8_t>(), &size, nullptr, 0};
}

// Exchanges sizes first, like ProcessGroup::all_gather_text().
std::vector<char> gather_text(sdk::Group& group, std::vector<char> text, const char* label) {
  const std::vector<int64_t> counts =
      sdk::all_gather_value(group, static_cast<int64_t>(text.size()), sdk::named_call(label, 0));
  int64_t total = 0, text_size = 0, all_size = 0;
  for (const int64_t count : counts) total += count;
  std::vector<char> all(static_cast<size_t>(total));
  sdk::finish(
      group.all_gather_v(bytes_view(text, text_size), bytes_view(all, all_size), counts, sdk::named_call(label, 0)));
  return all;
}

class Run {
 public:
  explicit Run(const LargeJob& job) : job_(job), world_(job.ranks, job.network) {}

  LargeReport run() {
    began_ = world_.now();
    for (int rank = 0; rank < job_.ranks; ++rank) {
      world_.start(rank, [this, rank] { be_rank(rank); });
    }
    world_.run();
    if (job_.trouble == Trouble::kNone && failed_ > 0) problem_ << failed_ << " ranks failed: " << text_;
    if (job_.trouble != Trouble::kNone) judge();
    for (size_t i = paths_.size(); i-- > 0;) {
      paths_[i].seconds = std::chrono::duration<double>(ends_[i] - (i == 0 ? began_ : ends_[i - 1])).count();
    }
    return {std::move(paths_), problem_.str()};
  }

 private:
  enum Path : size_t { kConnect, kPlan, kStep, kMoved, kSave, kLast, kEnd };
  int culprit() const { return job_.ranks / 2; }

  void be_rank(int rank) {
    try {
      auto group = std::make_unique<LargeGroup>(options(rank));
      try {
        work(*group, rank);
      } catch (const sdk::Failure& failure) {
        ++failed_;
        right_ += failure.rank() == culprit();
        text_ = failure.what();
      }
      constexpr const char* kNames[] = {"last barrier", "dead rank", "slow rank"};
      done(kLast, kNames[static_cast<size_t>(job_.trouble)]);
      world_.next_phase();
      group.reset();
      world_.close();
      done(kEnd, "end");
    } catch (const LargeWorld::Died&) {
    }
  }

  sdk::PairEngineOptions<LargeLink> options(int rank) const {
    sdk::PairEngineOptions<LargeLink> options;
    options.rank = rank;
    options.timeout_s = job_.timeout_s;
    options.spin_us = 0;
    options.direct_world = job_.direct_world;
    for (int r = 0; r < job_.ranks; ++r) {
      options.links.emplace_back(rank, r);
      options.names.push_back(r);
    }
    return options;
  }

  void work(sdk::Group& group, int rank) {
    world_.next_phase();
    sdk::finish(group.barrier(sdk::named_call("connect", 0)));
    done(kConnect, "barrier");

    world_.next_phase();
    const uint64_t digest = 4711;
    sdk::all_gather_value(group, digest, sdk::named_call("job", 0));
    sdk::all_gather_value(group, digest, sdk::named_call("what to plan", 0));
    std::vector<char> plan(rank == 0 ? job_.plan_bytes : 0, 'p');
    if (gather_text(group, std::move(plan), "plan").size() != job_.plan_bytes) problem_ << "the plan is not whole\n";
    done(kPlan, "plan, fingerprints");

    world_.next_phase();
    through_grid(group, kStepHeader, true);
    done(kStep, "step's headers");

    world_.next_phase();
    through_grid(group, kRows, false);
    through_grid(group, kRows, true);
    done(kMoved, "rows and gradients");

    world_.next_phase();
    for (const char* part : {"rows", "dense", "files"}) gather_text(group, {'.'}, part);
    sdk::finish(group.barrier(sdk::named_call("saved", 0)));
    done(kSave, "save");

    world_.next_phase();
    if (job_.trouble == Trouble::kDead && rank == culprit()) world_.die();
    if (job_.trouble == Trouble::kSlow && rank == culprit()) world_.sleep(LargeWorld::seconds(2 * job_.timeout_s));
    sdk::finish(group.barrier(sdk::named_call("end", 0)));
  }

  // Sends along rows and columns of a grid, as the core does (core/src/wiring/rank_grid.h).
  void through_grid(sdk::Group& group, int64_t block, bool to_owners) const {
    const int own = group.rank(), columns = job_.grid_row, rows = job_.ranks / columns;
    const auto along_row = [&](int peer) { return peer / columns == own / columns ? rows * block : 0; };
    const auto along_column = [&](int peer) { return peer % columns == own % columns ? columns * block : 0; };
    if (rows > 1 && !to_owners) exchange(group, along_column);
    exchange(group, along_row);
    if (rows > 1 && to_owners) exchange(group, along_column);
  }

  template <class BytesFor>
  void exchange(sdk::Group& group, BytesFor bytes_for) const {
    std::vector<int64_t> counts;
    int64_t bytes = 0;
    for (int peer = 0; peer < job_.ranks; ++peer) bytes += counts.emplace_back(bytes_for(peer));
    std::vector<char> sent(static_cast<size_t>(bytes)), got(sent.size());
    int64_t sent_size = 0, got_size = 0;
    sdk::finish(group.all_to_all_v(bytes_view(sent, sent_size), counts, bytes_view(got, got_size), counts,
                                   sdk::named_call("step", 0)));
  }

  void done(size_t path, const char* name) {
    if (paths_.size() <= path) paths_.resize(path + 1);
    if (ends_.size() <= path) ends_.resize(path + 1);
    PathCost& cost = paths_[path];
    cost.name = name;
    const auto most = [](Traffic& of, const Traffic& one) {
      of = {std::max(of.messages, one.messages), std::max(of.bytes, one.bytes)};
    };
    most(cost.sent, world_.sent());
    most(cost.received, world_.received());
    ends_[path] = std::max(ends_[path], world_.now());
  }

  // Checks that all other ranks fail and blame the same rank. A slow rank also fails.
  void judge() {
    const int expected = job_.ranks - 1;
    if (failed_ < expected) problem_ << "only " << failed_ << " ranks noticed it\n";
    if (right_ < expected) problem_ << "only " << right_ << " ranks blame rank " << culprit() << ": " << text_ << "\n";
  }

  const LargeJob& job_;
  LargeWorld world_;
  LargeWorld::Time began_;
  std::vector<PathCost> paths_;
  std::vector<LargeWorld::Time> ends_;
  int failed_ = 0, right_ = 0;
  std::string text_;
  std::ostringstream problem_;
};

}  // namespace

std::string cannot_reach(int ranks) {
  constexpr double kPerPair = 760, kGiB = double{1 << 30};  // about the bytes of two ranks' state for each other
  std::ostringstream why;
  if (ranks < 2 || ranks > kMaxRanks) {
    why << "the simulation takes 2 to " << kMaxRanks << " ranks, the most that tcp connects, not " << ranks;
    return why.str();
  }
  double free_bytes = 0;
  std::ifstream lines("/proc/meminfo");
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("MemAvailable:")) free_bytes = 1024 * std::strtod(line.c_str() + 13, nullptr);
  }
  const double needed = kPerPair * ranks * ranks;
  if (free_bytes > 0 && needed > free_bytes) {
    why << std::fixed << std::setprecision(1) << "simulating " << ranks << " ranks takes about " << needed / kGiB
        << " GiB of memory, but only " << free_bytes / kGiB << " GiB are free: take fewer ranks";
  }
  return why.str();
}

LargeReport run_large(const LargeJob& job) { return Run(job).run(); }

size_t bookkeeping_of(int ranks) {
  const auto allocated = [] {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const size_t before = allocated();
  sdk::PairEngineOptions<Channel> options;
  options.links.resize(static_cast<size_t>(ranks));
  options.names.resize(options.links.size());
  const auto engine = std::make_unique<sdk::PairEngine<Channel>>(std::move(options));
  engine->recycle(engine->prepare(sdk::OpKind::kBarrier, sdk::named_call("one", 0)));
  return allocated() - before;
}

}  // namespace tessera::tcp::simulation

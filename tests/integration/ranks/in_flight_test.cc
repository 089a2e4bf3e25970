// The exchanges of a step that are in flight at the same time: those of sequences and of pooled tables, and those of
// dense gradients while layers run backward.
#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "spawn.h"
#include "tessera/config.h"
#include "tessera/train_job.h"

namespace tessera::test::in_flight_test {
namespace {

constexpr int64_t kSteps = 4;

// The exchange of the buckets of `top` may start before `marked`, which is below it, runs backward.
const char* const kJob = R"(
job = {seed = 3, device = "cpu", threads = 1}
comm = {bucket_mib = 0.001}
table_defaults = {sharding = "table_wise"}
model = {embedding_dim = 4}
table = [{name = "user", features = ["c0"]}, {name = "item", features = ["c1"], pooling = "none"}]
layer = [
  {name = "numbers", type = "linear", inputs = ["dense"], options = {width = 4}},
  {name = "marked", type = "test.marked", inputs = ["numbers"], options = {width = 4, log = "events"}},
  {name = "history", type = "sum_pooling", inputs = ["c1"]},
  {name = "top", type = "mlp", inputs = ["marked", "user", "history"], options = {widths = [64, 1]}}]
head = [{name = "click", input = "top"}]
data = {reader = "synthetic", columns = 2, rows = [20, 30], pooling = [1, 3], dense = 2, samples = 64, batch = 16}
)";

struct Event {
  std::string what, label, site;
};

struct Ranks {
  int world, local_world;
  bool ahead;
};

// Returns what a rank's transport and the layer `marked` did in training, in order.
std::vector<Event> events_of(const std::string& path) {
  std::vector<Event> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Event e;
    std::string flags;
    std::getline(words, e.what, '|');
    std::getline(words, e.label, '|');
    std::getline(words, flags, '|');
    std::getline(words, e.site, '|');
    out.push_back(std::move(e));
  }
  return out;
}

class InFlight : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // The events of each rank, of `kSteps` steps; and of all losses the same text.
  std::vector<std::vector<Event>> train(const Ranks& ranks, const std::vector<std::string>& settings) {
    // All ranks must have the same options, so each has a folder of its own.
    const auto folder_of = [&](int rank) { return folder_ / std::to_string(rank); };
    const auto losses =
        cli::run_in_ranks(ranks.world, ranks.local_world, 60, [&](const RankEnvironment& where) -> std::string {
          std::filesystem::create_directories(folder_of(where.rank));
          std::filesystem::current_path(folder_of(where.rank));
          const Runtime runtime({.plugin_path = {TESSERA_TEST_PLUGINS}});
          std::vector<std::string> set = settings;
          set.push_back(str_cat("job.pipeline=", ranks.ahead ? "true" : "false"));
          const ProcessGroupOptions options{.backend = "test.half(tcp)",
                                            .options = R"({"waits": true, "log": "events"})"};
          const Config config = parse_config(kJob, "job.toml", set);
          TrainJob job(runtime, config, {}, ProcessGroup::connect(runtime, where, options));
          std::ofstream("events", std::ios::trunc).close();  // only steps from here on
          job.train({});
          std::filesystem::copy_file("events", "of_steps", std::filesystem::copy_options::overwrite_existing);
          std::ostringstream out;
          for (const double loss : job.report(job.evaluate()).losses) out << std::hexfloat << loss << ' ';
          return out.str();
        });
    for (const std::string& text : losses) EXPECT_EQ(text, losses[0]);
    losses_ = losses[0];
    std::vector<std::vector<Event>> out;
    for (int rank = 0; rank < ranks.world; ++rank) out.push_back(events_of(folder_of(rank) / "of_steps"));
    return out;
  }

  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / str_cat("tessera_in_flight_", getpid());
  std::string losses_;
};

// How many messages with a label there were, and how many at the same time.
struct Count {
  int64_t all = 0, now = 0, most = 0;
};
std::map<std::string, Count> counts_of(const std::vector<Event>& events) {
  std::map<std::string, Count> out;
  for (const Event& e : events) {
    Count& count = out[e.label];
    if (e.what == "wait") {
      --count.now;
      continue;
    }
    ++count.all;
    count.most = std::max(count.most, ++count.now);
  }
  return out;
}

TEST_F(InFlight, SequencesAndPooledTablesWaitForEachOtherNowhere) {
  for (const std::vector<Event>& events : train({2, 2, false}, {})) {
    std::map<std::string, Count> counts = counts_of(events);
    for (const char* label : {"step header", "rows", "gradients"}) {
      EXPECT_EQ(counts[label].all, 2 * kSteps) << label;
      EXPECT_EQ(counts[label].most, 2) << label;
    }
  }
  const std::string in_step = losses_;
  // The headers of two batches are in flight at most one after the other.
  for (const std::vector<Event>& events : train({2, 2, true}, {})) {
    EXPECT_EQ(counts_of(events)["step header"].all, 2 * kSteps);
    EXPECT_EQ(counts_of(events)["step header"].most, 2);
  }
  EXPECT_EQ(losses_, in_step);
}

TEST_F(InFlight, NeitherDoThePayloadsOfLargeBatches) {
  for (const std::vector<Event>& events : train({2, 2, false}, {"data.samples=200000", "data.batch=100000"})) {
    std::map<std::string, Count> counts = counts_of(events);
    EXPECT_EQ(counts["ids"].all, 2 * 2);
    EXPECT_EQ(counts["ids"].most, 2);
  }
}

// Pooled rows are summed inside a host and then cross to the other one, while rows of sequences go there directly.
TEST_F(InFlight, SequencesTravelBesideBothHopsOfPooledTables) {
  const std::vector<std::string> settings = {"table_defaults.sharding=\"table_row_wise\"",
                                             "table.item.sharding=\"row_wise\""};
  for (const std::vector<Event>& events : train({4, 2, false}, settings)) {
    std::string now;  // which of them are in flight
    for (const Event& e : events) {
      const bool wait = e.what == "wait";
      for (const std::string direction : {"rows", "gradients"}) {
        if (e.label == direction && !wait) now = "sequences";
        if (e.label == direction && wait) now = "none";
        if (wait && e.label.starts_with(direction + " ")) {
          EXPECT_EQ(now, "sequences") << e.label;
        }
      }
    }
    EXPECT_EQ(counts_of(events)["rows across hosts"].all, kSteps);
  }
}

// The work that started first is waited for first, as abi/collective.h promises to transports.
TEST_F(InFlight, WaitsAreInTheOrderOfStarts) {
  for (const std::vector<Event>& events : train({2, 2, false}, {})) {
    std::deque<std::string> started;
    for (const Event& e : events) {
      if (e.what == "backward") continue;
      if (e.what != "wait") {
        started.push_back(e.site);
        continue;
      }
      ASSERT_FALSE(started.empty());
      EXPECT_EQ(e.site, started.front()) << e.label;
      started.pop_front();
    }
  }
}

TEST_F(InFlight, DenseGradientsTravelBeforeBackwardEnds) {
  for (const std::string lossy : {"[]", R"(["dense_gradients"])"}) {
    for (const std::vector<Event>& events : train({2, 2, false}, {"comm.lossy=" + lossy})) {
      // These count the buckets that started before `marked` ran backward, and after it.
      int64_t before = 0, after = 0, steps = 0;
      bool ran = false;
      for (const Event& e : events) {
        if (e.what == "backward") {
          ran = true;
          ++steps;
        } else if (e.label == "rows" && e.what != "wait") {
          ran = false;
        } else if (e.label == "dense gradients" && e.what != "wait") {
          ++(ran ? after : before);
        }
      }
      EXPECT_EQ(steps, kSteps);
      EXPECT_EQ(before, kSteps) << lossy;
      EXPECT_EQ(after, kSteps) << lossy;
    }
  }
}

}  // namespace
}  // namespace tessera::test::in_flight_test

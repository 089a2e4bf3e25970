// Runs one simulated job and checks that it ends in time, that no byte is wrong, and that the rank at fault is named.
#include <algorithm>
#include <optional>
#include <sstream>

#include "../tcp.h"
#include "job.h"
#include "scenario.h"

namespace tessera::tcp::simulation {
namespace {

// Names of ranks differ from their ranks in the group, as in a group made by a split.
constexpr int kFirstName = 10;
// Time that a rank may take beyond an operation's deadline: for the grace of a late wait(), and to learn why a peer is
// gone.
constexpr Duration kSlack = milliseconds(2500);

struct Simulated final : sdk::PairGroup<Channel> {
  using PairwiseGroup::PairwiseGroup;
  std::unique_ptr<sdk::Group> split(int32_t, int32_t, const sdk::CollectiveCall&) override { return nullptr; }
};

struct Outcome {
  std::optional<tsr_code> failed;  // unset if the rank did everything that it should
  std::string text;
  int blamed = -1;  // a rank of the group
  bool ended = false;
};

class Simulation {
 public:
  Simulation(uint64_t seed, bool in_rounds)
      : scenario_(seed, in_rounds),
        world_(seed, scenario_.world, scenario_.weather),
        links_(static_cast<size_t>(scenario_.world)),
        outcomes_(links_.size()),
        memory_(links_.size()),
        groups_(links_.size()) {
    for (auto& links : links_) links.resize(links_.size());
    for (int a = 0; a < scenario_.world; ++a) {
      for (int b = a + 1; b < scenario_.world; ++b) join(a, b);
    }
    for (int rank = 0; rank < scenario_.world; ++rank) {
      world_.start(rank, [this, rank] { be_rank(rank); });
    }
    if (scenario_.early) plan_fault();
  }

  Report run() {
    const Time start = world_.now();
    const std::string endless = world_.run();
    const Duration took = world_.now() - start;
    if (!endless.empty()) report(endless);
    for (int rank = 0; rank < scenario_.world; ++rank) judge(rank);
    return {problems_.str(), took, world_.memory_reads()};
  }

 private:
  void join(int a, int b) {
    for (auto which : {&Link::data, &Link::control}) {
      const auto [one, other] = world_.connect(a, b);
      links_[at(a)][at(b)].*which = Fd(one);
      links_[at(b)][at(a)].*which = Fd(other);
    }
  }

  void plan_fault() {
    const Time when = world_.now() + scenario_.when;
    const int culprit = scenario_.culprit;
    switch (scenario_.fault) {
      case Fault::kKilled:
        world_.at(when, [this, culprit] { world_.kill(culprit); });
        break;
      case Fault::kStopped:
        world_.at(when, [this, culprit] { world_.stop(culprit); });
        if (scenario_.how_long != Duration{})
          world_.at(when + scenario_.how_long, [this, culprit] { world_.go_on(culprit); });
        break;
      case Fault::kCutOff:
        world_.at(when, [this] { world_.cut_off(culprits()); });
        break;
      case Fault::kReset:
        world_.at(when, [this, culprit] { world_.reset(culprit, scenario_.other, scenario_.after % 2); });
        break;
      case Fault::kAborts:
        world_.start(culprit, [this, culprit] {
          world_.sleep(scenario_.when);
          if (groups_[at(culprit)]) groups_[at(culprit)]->abort("enough");
        });
        break;
      default:
        break;
    }
  }

  // --- what a rank does ---

  void be_rank(int rank) {
    Outcome& outcome = outcomes_[at(rank)];
    try {
      groups_[at(rank)] = std::make_unique<Simulated>(options(rank));
      if (++connected_ == scenario_.world && !scenario_.early) plan_fault();
      exchange(rank, *groups_[at(rank)]);
    } catch (const sdk::Failure& failure) {
      outcome.failed = failure.code();
      outcome.text = failure.what();
      outcome.blamed = failure.rank() - kFirstName;
      for (const auto& started : memory_[at(rank)]) started->scribble();
    }
    world_.forget_memory(rank);
    groups_[at(rank)].reset();
    links_[at(rank)].clear();
    outcome.ended = true;
  }

  sdk::PairEngineOptions<Channel> options(int rank) {
    sdk::PairEngineOptions<Channel> options;
    options.rank = rank;
    options.timeout_s = scenario_.timeout_s;
    options.spin_us = scenario_.spin_us;
    options.direct_world = scenario_.direct_world;
    for (int r = 0; r < scenario_.world; ++r) options.names.push_back(kFirstName + r);
    std::vector<SharedMemory> shared = share_memory(
        links_[at(rank)],
        {rank, true, scenario_.single_copy, scenario_.hosts, options.names, scenario_.timeout_s,
         Clock::now() + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(scenario_.timeout_s))});
    for (int r = 0; r < scenario_.world; ++r) {
      options.links.emplace_back(std::move(links_[at(rank)][at(r)]), std::move(shared[at(r)]), rank < r);
    }
    return options;
  }

  void exchange(int rank, sdk::Group& group) {
    auto& memory = memory_[at(rank)];
    std::vector<Started*> waiting;
    const bool odd = rank == scenario_.culprit;
    for (size_t i = 0; i < scenario_.operations.size(); ++i) {
      if (odd && scenario_.fault == Fault::kLeaves && i == scenario_.after) return finish_all(rank, waiting);
      Operation operation = scenario_.operations[i];
      const bool differs = odd && scenario_.fault == Fault::kDisagrees && i == scenario_.after;
      if (differs) operation = {sdk::OpKind::kAllReduce, 4321};
      memory.push_back(std::make_unique<Started>(group, i, operation, differs ? "odd" : "step"));
      waiting.push_back(memory.back().get());
      if (waiting.size() >= scenario_.in_flight) finish_one(rank, waiting);
      if (scenario_.pause != Duration{}) world_.sleep(world_.random().up_to(scenario_.pause));
    }
    finish_all(rank, waiting);
  }

  void finish_all(int rank, std::vector<Started*>& waiting) {
    while (!waiting.empty()) finish_one(rank, waiting);
  }

  void finish_one(int rank, std::vector<Started*>& waiting) {
    const auto chosen = waiting.begin() + static_cast<std::ptrdiff_t>(world_.random().below(waiting.size()));
    Started& started = **chosen;
    waiting.erase(chosen);
    const Time begin = world_.now();
    struct InTime {
      Simulation& self;
      int rank;
      Time begin;
      ~InTime() { self.check_time(rank, begin); }
    } const in_time{*this, rank, begin};
    sdk::finish(started.work());
    if (const std::string wrong = started.wrong(); !wrong.empty()) report(wrong);
  }

  void check_time(int rank, Time begin) {
    const bool stood_still = scenario_.fault == Fault::kStopped && rank == scenario_.culprit;
    const Duration most = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(scenario_.timeout_s));
    if (!is_gone(rank) && !stood_still && world_.now() - begin > most + kSlack) {
      std::ostringstream out;
      out << "rank " << rank << " waited for " << std::chrono::duration<double>(world_.now() - begin).count() << " s";
      report(out.str());
    }
  }

  // --- what has to be true ---

  std::vector<int> culprits() const {
    if (scenario_.fault == Fault::kReset) return {scenario_.culprit, scenario_.other};
    if (scenario_.fault != Fault::kCutOff) return {scenario_.culprit};
    std::vector<int> ranks;
    for (int r = 0; r < scenario_.world; ++r) {
      if (scenario_.hosts[at(r)] == scenario_.hosts[at(scenario_.culprit)]) ranks.push_back(r);
    }
    return ranks;
  }
  bool is_culprit(int rank) const {
    const std::vector<int> ranks = culprits();
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }
  // True if the rank never says anything again.
  bool is_gone(int rank) const {
    const bool for_good =
        scenario_.fault == Fault::kKilled || (scenario_.fault == Fault::kStopped && scenario_.how_long == Duration{});
    return for_good && rank == scenario_.culprit;
  }

  void judge(int rank) {
    const Outcome& outcome = outcomes_[at(rank)];
    if (is_gone(rank)) return;
    if (!outcome.ended) return report("rank " + std::to_string(rank) + " has not ended");
    if (!outcome.failed) return;
    const std::string said = "rank " + std::to_string(rank) + " says (" + std::to_string(*outcome.failed) +
                             ", blames " + std::to_string(outcome.blamed) + "): " + outcome.text;
    if (!expected(rank, outcome)) report(said);
  }

  bool expected(int rank, const Outcome& outcome) const {
    const bool right = outcome.blamed >= 0 && is_culprit(outcome.blamed);
    const auto is = [&](tsr_code code) { return *outcome.failed == code; };
    const auto says = [&](const char* text) { return outcome.text.find(text) != std::string::npos; };
    const bool odd = rank == scenario_.culprit;
    switch (scenario_.fault) {
      case Fault::kNone:
        return false;
      case Fault::kKilled:
        return right && is(TSR_ABORTED) && says("died");
      case Fault::kStopped: {
        // A stopped rank is late itself, and considers the others late until it hears from them.
        const Duration most = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(scenario_.timeout_s));
        const bool may_be = scenario_.how_long == Duration{} || 2 * scenario_.how_long > most;
        return may_be && (right || odd);
      }
      case Fault::kCutOff:
        // Ranks that are cut off report the same about the others.
        return (right != is_culprit(rank)) && (says("can no longer be reached") || says("late") || says("did not"));
      case Fault::kReset:  // the other rank may already be done
        return right && is(TSR_ABORTED) && (says("died") || says("closed its group"));
      case Fault::kLeaves:
        return right && is(TSR_ABORTED) && says("closed its group");
      case Fault::kAborts:
        return right && says("enough") && is(odd ? TSR_CANCELLED : TSR_ABORTED);
      case Fault::kDisagrees:  // a rank that is not involved may be done and gone
        return says("\"odd\"") && (is(TSR_INVALID_ARGUMENT) ? says("disagree") : says("closed its group"));
    }
    return false;
  }

  void report(const std::string& problem) { problems_ << problem << '\n'; }
  static size_t at(int rank) { return static_cast<size_t>(rank); }

  Scenario scenario_;
  World world_;
  std::vector<std::vector<Link>> links_;  // per rank, and per rank at the other end
  std::vector<Outcome> outcomes_;
  std::vector<std::vector<std::unique_ptr<Started>>> memory_;
  std::vector<std::unique_ptr<Simulated>> groups_;
  int connected_ = 0;
  std::ostringstream problems_;
};

}  // namespace

Report simulate(uint64_t seed, bool in_rounds) { return Simulation(seed, in_rounds).run(); }

}  // namespace tessera::tcp::simulation

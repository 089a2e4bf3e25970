// Checks sharders: layouts tile the table, are the same in every process, and unroute undoes route.
#include "tessera/abi/sharder.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "verify/asked_sharder.h"
#include "verify/check.h"
#include "verify/kernel_bed.h"
#include "verify/layouts.h"
#include "verify/threads.h"

namespace tessera::cli::verify {
namespace {

Question random_question(Random& random, bool limited) {
  constexpr uint32_t kWorlds[] = {1, 2, 3, 4, 5, 8, 16};
  constexpr int64_t kCols[] = {1, 4, 8, 12, 16, 64, 100, 128, 256, 512};
  Question q{"t", 0, 0, 0, 0};
  q.world = kWorlds[random() % std::size(kWorlds)];
  do q.local = static_cast<uint32_t>(between(random, 1, q.world));
  while (q.world % q.local != 0);
  q.rows = random() % 3 == 0 ? between(random, 1, 20) : between(random, 1, 5000);
  q.cols = kCols[random() % std::size(kCols)];
  q.pooling = static_cast<int32_t>(between(random, TSR_POOLING_NONE, TSR_POOLING_MAX));
  q.device = random() % 4 == 0 ? kDLCUDA : kDLCPU;
  if (limited) q.max_shards = between(random, 1, 6);
  if (limited && random() % 2 == 0) q.min_partition = 4 * between(random, 1, 16);
  return q;
}

int64_t shards_of(const OneLayout& layout) {
  size_t n = 0;
  for (const OnePart& part : layout.parts) n += part.rectangles.size();
  return static_cast<int64_t>(n);
}

void check_sharder_arguments(Subject& subject) {
  Random random = subject.random();
  const Asked sharder(subject);
  for (int i = 0; i < 20; ++i) {
    const Question q = random_question(random, i % 2 == 1);
    require(sharder.layouts(q) == sharder.layouts(q, true), q.text(),
            ": it proposes something else when the host's structs are longer");
    Call call;
    subject.doing("propose, to a host that takes no layout");
    call.fails_well(sharder.refused(q, call), "propose");
  }
}

void check_sharder_tiling(Subject& subject) {
  Random random = subject.random();
  const Asked sharder(subject);
  const bool routes = TSR_HAS(tsr_sharder, &sharder.api(), route);
  int offers = 0;
  for (int i = 0; i < (subject.thorough() ? 5000 : 500); ++i) {
    const Question q = random_question(random, i % 4 == 0);
    for (const OneLayout& layout : sharder.layouts(q)) {
      ++offers;
      check_layout(layout, q, routes);
    }
  }
  const Question empty{"t", 0, 4, 2, 2};
  for (const OneLayout& layout : sharder.layouts(empty)) check_layout(layout, empty, routes);
  if (offers == 0) throw Warning("it proposed no layout for any of hundreds of tables");
}

void check_sharder_limits(Subject& subject) {
  Random random = subject.random(1);
  const Asked sharder(subject);
  for (int i = 0; i < 300; ++i) {
    const Question q = random_question(random, true);
    for (const OneLayout& layout : sharder.layouts(q)) {
      require(shards_of(layout) <= q.max_shards, q.text(), ": a layout has ", shards_of(layout),
              " shards, but max_shards must be kept");
    }
  }
}

// Routes ids and rows of one table through one sharder.
struct Routes {
  const Asked& sharder;
  const Question& q;
  const OneLayout& layout;
  tsr_table table;
  tsr_topology topology;

  Routes(const Asked& s, const Question& question, const OneLayout& chosen)
      : sharder(s), q(question), layout(chosen), table(table_of(q, 0, nullptr)), topology(topology_of(q, nullptr)) {}

  static constexpr int32_t kUnwritten = -77;
  struct Place {
    std::vector<int32_t> row_sets;
    std::vector<int64_t> rows;
  };
  // The result of route; kUnwritten if it writes nothing.
  Place asked(const std::vector<int64_t>& ids) const {
    const auto n = static_cast<int64_t>(ids.size());
    Array in({kDLInt, 64, 1}, {n}), row_sets({kDLInt, 32, 1}, {n}), rows({kDLInt, 64, 1}, {n});
    std::copy(ids.begin(), ids.end(), in.data<int64_t>());
    std::fill_n(row_sets.data<int32_t>(), n, kUnwritten);
    std::fill_n(rows.data<int64_t>(), n, kUnwritten);
    call("route", in, row_sets, rows);
    row_sets.check_end("route");
    rows.check_end("route");
    return {{row_sets.data<int32_t>(), row_sets.data<int32_t>() + n}, {rows.data<int64_t>(), rows.data<int64_t>() + n}};
  }
  Place of(const std::vector<int64_t>& ids) const {
    Place out = asked(ids);
    for (size_t i = 0; i < ids.size(); ++i) {
      require(out.row_sets[i] != kUnwritten && out.rows[i] != kUnwritten, q.text(), ": route leaves the output of id ",
              ids[i], " unwritten");
    }
    return out;
  }
  std::vector<int64_t> back(int32_t row_set, const std::vector<int64_t>& local) const {
    const auto n = static_cast<int64_t>(local.size());
    Array ids({kDLInt, 64, 1}, {n}), row_sets({kDLInt, 32, 1}, {n}), rows({kDLInt, 64, 1}, {n});
    std::fill_n(ids.data<int64_t>(), n, kUnwritten);
    std::fill_n(row_sets.data<int32_t>(), n, row_set);
    std::copy(local.begin(), local.end(), rows.data<int64_t>());
    call("unroute", ids, row_sets, rows);
    ids.check_end("unroute");
    return {ids.data<int64_t>(), ids.data<int64_t>() + n};
  }

 private:
  void call(const std::string& what, const Array& ids, const Array& row_sets, const Array& rows) const {
    const tsr_route route{sizeof(tsr_route), 0,         layout.num_row_sets, 0,          &table, &topology,
                          layout.cookie,     ids.raw(), row_sets.raw(),      rows.raw(), nullptr};
    Call call;
    const auto& slot = what == "route" ? sharder.api().route : sharder.api().unroute;
    call.succeeds(slot(sharder.self(), &route, call.out()), what + " for a " + q.text());
  }
};

// A fingerprint of all answers to a seeded series of questions.
uint64_t fingerprint(const Asked& sharder, Random random, std::vector<uint64_t>* each) {
  uint64_t all = 0xcbf29ce484222325u;
  const auto mix = [&](int64_t value) { all = (all ^ static_cast<uint64_t>(value)) * 0x100000001b3u; };
  for (int i = 0; i < 60; ++i) {
    const Question q = random_question(random, i % 3 == 0);
    for (const OneLayout& layout : sharder.layouts(q)) {
      mix(layout.cookie);
      for (const OnePart& part : layout.parts) {
        for (const int32_t number : {part.placement, part.combine, part.row_set}) mix(number);
        for (const tsr_rectangle& r : part.rectangles) {
          for (const int64_t number : {r.row, r.rows, r.col, r.cols}) mix(number);
        }
      }
      if (!TSR_HAS(tsr_sharder, &sharder.api(), route) || layout.num_row_sets == 0) continue;
      std::vector<int64_t> ids(static_cast<size_t>(std::min<int64_t>(q.rows, 500)));
      for (size_t k = 0; k < ids.size(); ++k) ids[k] = static_cast<int64_t>(k);
      const Routes::Place at = Routes(sharder, q, layout).asked(ids);
      for (size_t k = 0; k < ids.size(); ++k) mix(at.row_sets[k] * int64_t{1000003} + at.rows[k]);
    }
    each->push_back(all);
  }
  return all;
}

// Uses other processes: different pids, different launcher variables, different memory addresses.
void check_sharder_determinism(Subject& subject) {
  constexpr size_t kProcesses = 4, kQuestions = 60;
  struct Answers {
    uint64_t each[kProcesses][kQuestions];
    bool done[kProcesses];
    char failed[800];
  };
  auto* answers =
      static_cast<Answers*>(mmap(nullptr, sizeof(Answers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  require(answers != MAP_FAILED, "no memory for this check");
  for (size_t p = 0; p < kProcesses; ++p) {
    const pid_t child = fork();
    require(child >= 0, "no process for this check");
    if (child == 0) {
      setenv("RANK", std::to_string(p).c_str(), 1);
      setenv("LOCAL_RANK", std::to_string(p).c_str(), 1);
      (void)mmap(nullptr, (p * 37 + 1) << 16, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                 0);  // moves later allocations to other addresses
      [[maybe_unused]] static void* volatile shift = std::malloc(p * 4096 + 1);
      try {
        std::vector<uint64_t> each;
        fingerprint(Asked(subject), subject.random(2), &each);
        std::copy(each.begin(), each.end(), answers->each[p]);
        answers->done[p] = true;
      } catch (const std::exception& e) {
        std::strncpy(answers->failed, e.what(), sizeof(answers->failed) - 1);
      }
      _exit(0);
    }
    waitpid(child, nullptr, 0);
    if (answers->failed[0] != '\0') broken(std::string(answers->failed));
    require(answers->done[p], "it crashed in propose or route");
  }
  Random random = subject.random(2);
  for (size_t i = 0; i < kQuestions; ++i) {
    const Question q = random_question(random, i % 3 == 0);
    for (size_t p = 1; p < kProcesses; ++p) {
      require(answers->each[p][i] == answers->each[0][i], q.text(),
              ": two processes get different layouts or routes, so ranks would not agree on which one holds a row");
    }
  }
}

// `held` has the rows of each row set.
void check_bijection(const Routes& routes, const std::vector<int64_t>& held, Random& random) {
  const Question& q = routes.q;
  std::vector<int64_t> ids(static_cast<size_t>(q.rows));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  std::shuffle(ids.begin(), ids.end(), random);
  const Routes::Place at = routes.of(ids);
  std::vector<std::vector<int64_t>> owner(held.size());
  for (size_t s = 0; s < held.size(); ++s) owner[s].assign(static_cast<size_t>(held[s]), -1);
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t row_set = at.row_sets[i];
    require(row_set >= 0 && static_cast<size_t>(row_set) < held.size() && at.rows[i] >= 0 &&
                at.rows[i] < held[static_cast<size_t>(row_set)],
            q.text(), ": route takes id ", ids[i], " to row ", at.rows[i], " of row set ", row_set,
            ", which does not exist");
    int64_t& who = owner[static_cast<size_t>(row_set)][static_cast<size_t>(at.rows[i])];
    require(who < 0, q.text(), ": route takes ids ", who, " and ", ids[i], " to one row, ", at.rows[i], " of row set ",
            row_set);
    who = ids[i];
  }
  for (size_t s = 0; s < held.size(); ++s) {
    std::vector<int64_t> rows(owner[s].size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
    const std::vector<int64_t> back = routes.back(static_cast<int32_t>(s), rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      require(back[i] == owner[s][i], q.text(), ": unroute takes row ", i, " of row set ", s, " to id ", back[i],
              ", but route takes id ", owner[s][i], " there");
    }
  }
  for (size_t i = 0; i < std::min<size_t>(ids.size(), 20); ++i) {  // one id at a time must give the same as all at once
    const Routes::Place alone = routes.of({ids[i]});
    require(alone.row_sets[0] == at.row_sets[i] && alone.rows[0] == at.rows[i], q.text(), ": route takes id ", ids[i],
            " elsewhere when it is asked only for it");
  }
}

// The same check for rows that keep their ids (TSR_SHARDER_KEEPS_IDS).
void check_keyed(const Routes& routes, size_t row_sets) {
  const Question& q = routes.q;
  std::vector<int64_t> ids(static_cast<size_t>(q.rows));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  const Routes::Place at = routes.of(ids);
  require(at.rows == ids, q.text(), ": route gives an id another row, but says that rows keep their ids");
  for (const int32_t s : at.row_sets)
    require(s >= 0 && static_cast<size_t>(s) < row_sets, q.text(), ": route names row set ", s, " of ", row_sets);
  for (size_t i = 0; i < std::min<size_t>(ids.size(), 20); ++i) {
    require(routes.back(at.row_sets[i], {ids[i]}).front() == ids[i], q.text(), ": unroute takes row ", ids[i],
            " to another id, but rows keep their ids");
    require(routes.of({ids[i]}).row_sets[0] == at.row_sets[i], q.text(), ": route takes id ", ids[i],
            " elsewhere when it is asked only for it");
  }
}

void check_sharder_routes(Subject& subject) {
  Random random = subject.random(3);
  const Asked sharder(subject);
  if (!TSR_HAS(tsr_sharder, &sharder.api(), route)) throw Skipped("it routes no rows: its parts are ranges");
  const Asked elsewhere(subject);  // as in a process that runs a plan made by another process
  int routed = 0;
  for (int i = 0; i < (subject.thorough() ? 600 : 80); ++i) {
    const Question q = random_question(random, i % 5 == 0);
    for (const OneLayout& layout : sharder.layouts(q)) {
      if (layout.num_row_sets == 0) continue;
      subject.doing("route, " + q.text());
      const std::vector<int64_t> some = {0, q.rows / 2, q.rows - 1};
      const Routes::Place here = Routes(sharder, q, layout).of(some), there = Routes(elsewhere, q, layout).of(some);
      require(here.row_sets == there.row_sets && here.rows == there.rows, q.text(),
              ": route answers differently if propose was not called before: it may use only tsr_route, which "
              "includes its cookie");
      if (sharder.keeps_ids())
        check_keyed(Routes(sharder, q, layout), row_sets_of(layout).size());
      else
        check_bijection(Routes(sharder, q, layout), row_sets_of(layout), random);
      ++routed;
    }
  }
  if (routed == 0) throw Warning("it has route, but proposes no routed layout");
}

// An unknown flag that must be understood is refused in each struct that propose gets.
void check_sharder_flags(Subject& subject) {
  constexpr uint32_t kMust = 1u << 31;
  const Asked sharder(subject);
  Random random = subject.random();
  const Question q = random_question(random, false);
  const char* feature = "feature";
  const std::vector<uint64_t> bytes(q.world, uint64_t{1} << 34);
  const tsr_layout_sink sink{
      sizeof(tsr_layout_sink), 0, nullptr,
      [](const tsr_layout_sink*, const tsr_layout*, tsr_error*) { return static_cast<tsr_code>(TSR_OK); }};
  const char* const structs[] = {"tsr_table", "tsr_topology", "tsr_constraints"};
  for (size_t i = 0; i < std::size(structs); ++i) {
    const char* const what = structs[i];
    tsr_table table = table_of(q, 1, &feature);
    tsr_topology topology = topology_of(q, bytes.data());
    tsr_constraints limits{sizeof(tsr_constraints), 0, 0, 0};
    (i == 0 ? table.flags : i == 1 ? topology.flags : limits.flags) = kMust;
    subject.doing(str_cat("propose with an unknown flag in ", what));
    Call call;
    const tsr_code code = sharder.api().propose(sharder.self(), &table, &topology, &limits, &sink, call.out());
    const std::string of = str_cat("propose with an unknown flag in ", what, " that must be understood");
    call.fails(code, of);
    require(code == TSR_UNIMPLEMENTED, of, " fails with ", name_of(code), ", but that is TSR_UNIMPLEMENTED");
  }
}

// The check of check_bijection for some ids of a large table.
void check_some(const Routes& routes, const std::vector<int64_t>& held, Random& random) {
  const Question& q = routes.q;
  const std::vector<int64_t> ids = some_ids(q.rows, random);
  const Routes::Place at = routes.of(ids);
  std::vector<std::map<int64_t, int64_t>> owner(held.size());  // row to id, by row set
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto row_set = static_cast<size_t>(at.row_sets[i]);
    require(at.row_sets[i] >= 0 && row_set < held.size() && at.rows[i] >= 0 && at.rows[i] < held[row_set], q.text(),
            ": route takes id ", ids[i], " to row ", at.rows[i], " of row set ", at.row_sets[i],
            ", which does not exist");
    const auto [who, is_new] = owner[row_set].try_emplace(at.rows[i], ids[i]);
    require(is_new, q.text(), ": route takes ids ", who->second, " and ", ids[i], " to one row, ", at.rows[i],
            " of row set ", row_set);
  }
  for (size_t s = 0; s < held.size(); ++s) {
    std::vector<int64_t> rows;
    for (const auto& [row, id] : owner[s]) rows.push_back(row);
    const std::vector<int64_t> back = routes.back(static_cast<int32_t>(s), rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t id = owner[s].at(rows[i]);
      require(back[i] == id, q.text(), ": unroute takes row ", rows[i], " of row set ", s, " to id ", back[i],
              ", but route takes id ", id, " there");
    }
  }
}

// Asks about tables with millions of rows, odd and wide columns, and many ranks.
void check_sharder_large(Subject& subject) {
  Random random = subject.random(5);
  const Asked sharder(subject);
  const bool routes = TSR_HAS(tsr_sharder, &sharder.api(), route);
  std::vector<Question> all = {{"t", 1000003, 16, 3, 3},
                               {"t", 30011, 257, 8, 4, TSR_POOLING_MEAN},
                               {"t", 70001, 1031, 40, 8},
                               {"t", 65537, 4096, 64, 8, TSR_POOLING_NONE},
                               {"t", (int64_t{1} << 32) + 12345, 32, 6, 2}};  // rows are counted in 64 bits
  if (subject.thorough()) {
    for (const uint32_t world : {2u, 7u, 256u})
      all.push_back({"t", between(random, 1000000, 3000000), 8 * between(random, 1, 300), world, world});
  }
  for (const Question& q : all) {
    for (const OneLayout& layout : sharder.layouts(q)) {
      check_layout(layout, q, routes);
      if (layout.num_row_sets == 0) continue;
      subject.doing("route, " + q.text());
      const Routes asked(sharder, q, layout);
      if (sharder.keeps_ids()) {
        if (q.rows <= 4000000) check_keyed(asked, row_sets_of(layout).size());
      } else if (q.rows <= 4000000) {
        check_bijection(asked, row_sets_of(layout), random);
      } else {
        check_some(asked, row_sets_of(layout), random);
      }
    }
  }
}

void check_sharder_threads(Subject& subject) {
  const Asked sharder(subject);
  std::vector<uint64_t> alone;
  fingerprint(sharder, subject.random(4), &alone);
  subject.doing("propose and route on four threads at once");
  on_four_threads([&](int) {
    for (int i = 0; i < 20; ++i) {
      std::vector<uint64_t> together;
      fingerprint(sharder, subject.random(4), &together);
      require(together == alone, "on several threads at once it answers differently than on one");
    }
  });
}

}  // namespace

std::span<const Check> sharder_checks() {
  static constexpr const char* kRoute = "abi/sharder.h, tsr_sharder::route";
  static constexpr const char* kPure = "abi/sharder.h, a pure function";
  static constexpr Check kChecks[] = {
      {"sharder.arguments", 3, TSR_SHARDER_KIND, "abi/sharder.h, tsr_sharder::propose", 20, check_sharder_arguments},
      {"sharder.flags", 3, TSR_SHARDER_KIND, "abi/base.h, flags", 20, check_sharder_flags},
      {"sharder.tiling", 4, TSR_SHARDER_KIND, kLayoutRule, 60, check_sharder_tiling},
      {"sharder.limits", 4, TSR_SHARDER_KIND, "abi/sharder.h, tsr_constraints", 20, check_sharder_limits},
      {"sharder.determinism", 4, TSR_SHARDER_KIND, kPure, 30, check_sharder_determinism},
      {"sharder.routes", 4, TSR_SHARDER_KIND, kRoute, 90, check_sharder_routes},
      {"sharder.large", 4, TSR_SHARDER_KIND, kRoute, 200, check_sharder_large},
      {"sharder.threads", 5, TSR_SHARDER_KIND, kPure, 60, check_sharder_threads},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify

// Sharders: layouts that tile, the same ones in every process, and route / unroute that undo each other.
#include "tessera/abi/sharder.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include "verify/check.h"
#include "wiring/tiling.h"

namespace tessera::cli::verify {
namespace {

constexpr const char* kLayoutRule = "abi/sharder.h, tsr_layout";

struct OnePart {
  int32_t placement, combine, row_set;
  std::vector<tsr_rectangle> rectangles;
  bool operator==(const OnePart& o) const {
    return placement == o.placement && combine == o.combine && row_set == o.row_set &&
           std::equal(rectangles.begin(), rectangles.end(), o.rectangles.begin(), o.rectangles.end(),
                      [](const tsr_rectangle& a, const tsr_rectangle& b) {
                        return a.row == b.row && a.rows == b.rows && a.col == b.col && a.cols == b.cols;
                      });
  }
};
using OneLayout = std::vector<OnePart>;

// A question to a sharder.
struct Question {
  std::string name = "t";
  int64_t rows, cols;
  uint32_t world, local;
  int32_t pooling = TSR_POOLING_SUM;
  int64_t min_partition = 0, max_shards = 0;
  int32_t device = kDLCPU;

  std::string text() const {
    std::string out = cat("table of ", rows, " rows x ", cols, " columns on ", world, " ranks");
    if (local != world) out += cat(", ", local, " a host");
    if (min_partition > 0) out += cat(", min_partition ", min_partition);
    if (max_shards > 0) out += cat(", max_shards ", max_shards);
    return out;
  }
};

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

// What is handed over when a struct is longer than the plugin knows.
template <class T>
struct Longer {
  T value;
  unsigned char more[32];
};

// A sharder, and what it said last.
class Asked {
 public:
  explicit Asked(Subject& subject) : subject_(subject), part_(subject.make()), api_(part_.api<tsr_sharder>()) {}

  std::vector<OneLayout> layouts(const Question& q, bool longer = false, bool tell = true) const {
    if (tell) subject_.doing("propose, " + q.text());
    Sink sink;
    Call call;
    const tsr_code code = propose(q, longer, sink.raw(), call);
    if (!sink.wrong.empty()) throw Broken(q.text() + ": " + sink.wrong, kLayoutRule);
    call.fails_well(code, "propose");
    call.succeeds(code, cat("propose for a ", q.text()));
    return sink.layouts;
  }

  // A sink that takes nothing.
  tsr_code refused(const Question& q, Call& call) const {
    const tsr_layout_sink sink{sizeof(tsr_layout_sink), 0, nullptr,
                               [](const tsr_layout_sink*, const tsr_layout*, tsr_error* err) {
                                 if (err != nullptr) {
                                   std::strcpy(err->message, "verify takes no layout");
                                   err->code = TSR_RESOURCE_EXHAUSTED;
                                 }
                                 return static_cast<tsr_code>(TSR_RESOURCE_EXHAUSTED);
                               }};
    return propose(q, false, &sink, call);
  }

  const tsr_sharder& api() const { return api_; }
  void* self() const { return part_.self(); }

 private:
  struct Sink {
    std::vector<OneLayout> layouts;
    std::string wrong;
    const tsr_layout_sink* raw() {
      raw_ = {sizeof(tsr_layout_sink), 0, this, [](const tsr_layout_sink* s, const tsr_layout* l, tsr_error*) {
                static_cast<Sink*>(s->self)->take(l);
                return static_cast<tsr_code>(TSR_OK);
              }};
      return &raw_;
    }

   private:
    void take(const tsr_layout* l) {
      if (!TSR_HAS(tsr_layout, l, parts) || l->num_parts == 0) return void(wrong = "a layout has no parts");
      OneLayout layout;
      for (uint32_t i = 0; i < l->num_parts; ++i) {
        const auto& part = *reinterpret_cast<const tsr_layout_part*>(reinterpret_cast<const char*>(l->parts) +
                                                                     size_t{l->part_stride} * i);
        if (!TSR_HAS(tsr_layout_part, &part, rectangles) || part.num_rectangles == 0)
          return void(wrong = "a layout has a part without rectangles");
        if (part.rectangle_stride < sizeof(tsr_rectangle))
          return void(wrong = cat("rectangle_stride is ", part.rectangle_stride, ", less than a rectangle"));
        OnePart one{part.placement, part.combine, part.row_set, {}};
        for (uint32_t k = 0; k < part.num_rectangles; ++k) {
          one.rectangles.push_back(*reinterpret_cast<const tsr_rectangle*>(
              reinterpret_cast<const char*>(part.rectangles) + size_t{part.rectangle_stride} * k));
        }
        layout.push_back(std::move(one));
      }
      layouts.push_back(std::move(layout));
    }
    tsr_layout_sink raw_{};
  };

  tsr_code propose(const Question& q, bool longer, const tsr_layout_sink* sink, Call& call) const {
    const char* features[] = {"feature"};
    const std::vector<uint64_t> bytes(q.world, uint64_t{1} << 34);
    Longer<tsr_table> table{
        {sizeof(tsr_table), q.pooling, q.name.c_str(), q.rows, q.cols, {kDLFloat, 32, 1}, 1, features}, {}};
    Longer<tsr_topology> topology{{sizeof(tsr_topology), q.world, q.local, q.device, bytes.data()}, {}};
    Longer<tsr_constraints> limits{{sizeof(tsr_constraints), 0, q.min_partition, q.max_shards}, {}};
    if (longer) {
      table.value.struct_size = sizeof(table);
      topology.value.struct_size = sizeof(topology);
      limits.value.struct_size = sizeof(limits);
      std::memset(table.more, 0xC3, sizeof(table.more));
      std::memset(topology.more, 0xC3, sizeof(topology.more));
      std::memset(limits.more, 0xC3, sizeof(limits.more));
    }
    return api_.propose(part_.self(), &table.value, &topology.value, &limits.value, sink, call.out());
  }

  Subject& subject_;
  Made part_;
  const tsr_sharder& api_;
};

std::string why_misplaced(const OnePart& part, const Question& q) {
  const size_t n = part.rectangles.size();
  switch (part.placement) {
    case TSR_PLACE_ANY_RANK:
    case TSR_PLACE_IN_HOST:
      return "";
    case TSR_PLACE_ONE_HOST:
      return n <= q.local ? ""
                          : cat("TSR_PLACE_ONE_HOST with ", n, " rectangles for the ", q.local, " ranks of a host");
    case TSR_PLACE_EVERY_RANK:
      return n == q.world ? "" : cat("TSR_PLACE_EVERY_RANK with ", n, " rectangles for ", q.world, " ranks");
    case TSR_PLACE_HOSTS:
      return n % q.local == 0
                 ? ""
                 : cat("TSR_PLACE_HOSTS with ", n, " rectangles, which fill no hosts of ", q.local, " ranks");
    default:
      return cat("placement ", part.placement, " does not exist");
  }
}

std::string why_not_covering(const OnePart& part, const Question& q) {
  const std::span<const tsr_rectangle> all(part.rectangles);
  if (part.combine < TSR_COMBINE_CONCAT || part.combine > TSR_COMBINE_REPLICA)
    return cat("combine ", part.combine, " does not exist");
  if (part.combine == TSR_COMBINE_REPLICA) {
    if (part.row_set == TSR_ROWS_ROUTED) return "a REPLICA part holds all rows: its row set is TSR_ROWS_RANGE";
    for (size_t i = 0; i < all.size(); ++i) {
      if (std::string why = why_not_tiling(all.subspan(i, 1), q.rows, q.cols); !why.empty()) return why;
    }
    return "";
  }
  if (part.row_set == TSR_ROWS_ROUTED) return why_not_tiling_routed(all, q.rows, q.cols);
  for (const tsr_rectangle& r : all) {
    if (part.combine == TSR_COMBINE_CONCAT && r.rows != q.rows)
      return cat(text_of(r), " lacks rows, but TSR_COMBINE_CONCAT puts columns beside each other");
  }
  return why_not_tiling(all, q.rows, q.cols);
}

void check_layout(const OneLayout& layout, const Question& q, bool routes) {
  for (const OnePart& part : layout) {
    if (part.row_set != TSR_ROWS_RANGE && part.row_set != TSR_ROWS_ROUTED)
      broken(q.text(), ": row set ", part.row_set, " does not exist");
    require(part.row_set != TSR_ROWS_ROUTED || routes, q.text(), ": rows are routed, but route is NULL");
    if (const std::string why = why_misplaced(part, q); !why.empty()) broken(q.text(), ": ", why);
  }
  if (layout.size() > 1) return;  // parts that cover a table together: this core does not run them yet
  if (const std::string why = why_not_covering(layout[0], q); !why.empty()) broken(q.text(), ": ", why);
}

int64_t shards_of(const OneLayout& layout) {
  size_t n = 0;
  for (const OnePart& part : layout) n += part.rectangles.size();
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
              " shards: what cannot keep max_shards is not proposed");
    }
  }
}

// A number for all answers of a seeded series of questions.
uint64_t fingerprint(const Asked& sharder, Random random, std::vector<uint64_t>* each) {
  uint64_t all = 0xcbf29ce484222325u;
  const auto mix = [&](int64_t value) { all = (all ^ static_cast<uint64_t>(value)) * 0x100000001b3u; };
  for (int i = 0; i < 60; ++i) {
    const Question q = random_question(random, i % 3 == 0);
    for (const OneLayout& layout : sharder.layouts(q)) {
      for (const OnePart& part : layout) {
        for (const int32_t number : {part.placement, part.combine, part.row_set}) mix(number);
        for (const tsr_rectangle& r : part.rectangles) {
          for (const int64_t number : {r.row, r.rows, r.col, r.cols}) mix(number);
        }
      }
      if (!TSR_HAS(tsr_sharder, &sharder.api(), route) || layout[0].row_set != TSR_ROWS_ROUTED) continue;
      const tsr_table table{sizeof(tsr_table), q.pooling, "t", q.rows, q.cols, {kDLFloat, 32, 1}, 0, nullptr};
      std::vector<int64_t> ids(static_cast<size_t>(std::min<int64_t>(q.rows, 500))), rows(ids.size());
      for (size_t k = 0; k < ids.size(); ++k) ids[k] = static_cast<int64_t>(k);
      std::vector<int32_t> shards(ids.size());
      Call call;
      call.succeeds(
          sharder.api().route(sharder.self(), &table, static_cast<uint32_t>(layout[0].rectangles.size()),
                              static_cast<int64_t>(ids.size()), ids.data(), shards.data(), rows.data(), call.out()),
          "route");
      for (size_t k = 0; k < ids.size(); ++k) mix(shards[k] * int64_t{1000003} + rows[k]);
    }
    each->push_back(all);
  }
  return all;
}

// Other processes: another number, other variables of a launcher, memory elsewhere.
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
      mmap(nullptr, (p * 37 + 1) << 16, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);  // what follows lies elsewhere
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
              ": two processes get different layouts or routes, so ranks would not agree on who holds a row");
    }
  }
}

// Ids and rows of one table, through one sharder.
struct Routes {
  const Asked& sharder;
  const Question& q;
  uint32_t shards;
  tsr_table table;

  Routes(const Asked& s, const Question& question, uint32_t n)
      : sharder(s), q(question), shards(n), table{sizeof(tsr_table), q.pooling, q.name.c_str(), q.rows, q.cols,
                                                  {kDLFloat, 32, 1}, 0,         nullptr} {}

  struct Place {
    std::vector<int32_t> shards;
    std::vector<int64_t> rows;
  };
  Place of(const std::vector<int64_t>& ids) const {
    constexpr int32_t kUnwritten = -77;
    Place out{std::vector<int32_t>(ids.size() + 1, kUnwritten), std::vector<int64_t>(ids.size() + 1, kUnwritten)};
    Call call;
    call.succeeds(sharder.api().route(sharder.self(), &table, shards, static_cast<int64_t>(ids.size()), ids.data(),
                                      out.shards.data(), out.rows.data(), call.out()),
                  "route for a " + q.text());
    require(out.shards.back() == kUnwritten && out.rows.back() == kUnwritten, q.text(), ": route writes more than ",
            ids.size(), " outputs");
    for (size_t i = 0; i < ids.size(); ++i) {
      require(out.shards[i] != kUnwritten && out.rows[i] != kUnwritten, q.text(), ": route leaves the output of id ",
              ids[i], " unwritten");
    }
    out.shards.pop_back();
    out.rows.pop_back();
    return out;
  }
  std::vector<int64_t> back(uint32_t shard, const std::vector<int64_t>& rows) const {
    std::vector<int64_t> ids(rows.size(), -77);
    Call call;
    call.succeeds(sharder.api().unroute(sharder.self(), &table, shards, shard, static_cast<int64_t>(rows.size()),
                                        rows.data(), ids.data(), call.out()),
                  "unroute for a " + q.text());
    return ids;
  }
};

// `held`: the rows of each shard.
void check_bijection(const Routes& routes, const std::vector<int64_t>& held, Random& random) {
  const Question& q = routes.q;
  std::vector<int64_t> ids(static_cast<size_t>(q.rows));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  std::shuffle(ids.begin(), ids.end(), random);
  const Routes::Place at = routes.of(ids);
  std::vector<std::vector<int64_t>> owner(held.size());
  for (size_t s = 0; s < held.size(); ++s) owner[s].assign(static_cast<size_t>(held[s]), -1);
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t shard = at.shards[i];
    require(shard >= 0 && static_cast<size_t>(shard) < held.size() && at.rows[i] >= 0 &&
                at.rows[i] < held[static_cast<size_t>(shard)],
            q.text(), ": route takes id ", ids[i], " to row ", at.rows[i], " of shard ", shard,
            ", which does not exist");
    int64_t& who = owner[static_cast<size_t>(shard)][static_cast<size_t>(at.rows[i])];
    require(who < 0, q.text(), ": route takes ids ", who, " and ", ids[i], " to one row, ", at.rows[i], " of shard ",
            shard);
    who = ids[i];
  }
  for (size_t s = 0; s < held.size(); ++s) {
    std::vector<int64_t> rows(owner[s].size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
    const std::vector<int64_t> back = routes.back(static_cast<uint32_t>(s), rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      require(back[i] == owner[s][i], q.text(), ": unroute takes row ", i, " of shard ", s, " to id ", back[i],
              ", but route takes id ", owner[s][i], " there");
    }
  }
  for (size_t i = 0; i < std::min<size_t>(ids.size(), 20); ++i) {  // one at a time, as all at once
    const Routes::Place alone = routes.of({ids[i]});
    require(alone.shards[0] == at.shards[i] && alone.rows[0] == at.rows[i], q.text(), ": route takes id ", ids[i],
            " elsewhere when it is asked for it alone");
  }
}

void check_sharder_routes(Subject& subject) {
  Random random = subject.random(3);
  const Asked sharder(subject);
  if (!TSR_HAS(tsr_sharder, &sharder.api(), route)) throw Skipped("it routes no rows: its parts are ranges");
  int routed = 0;
  for (int i = 0; i < (subject.thorough() ? 600 : 80); ++i) {
    const Question q = random_question(random, i % 5 == 0);
    for (const OneLayout& layout : sharder.layouts(q)) {
      if (layout.size() > 1 || layout[0].row_set != TSR_ROWS_ROUTED) continue;
      std::vector<int64_t> held;
      for (const tsr_rectangle& r : layout[0].rectangles) held.push_back(r.rows);
      if (layout[0].rectangles[0].cols != q.cols) continue;  // also cut by columns: rows are held several times
      subject.doing("route, " + q.text());
      check_bijection(Routes(sharder, q, static_cast<uint32_t>(held.size())), held, random);
      ++routed;
    }
  }
  if (routed == 0) throw Warning("it has route, but proposes no routed layout");
}

void check_sharder_threads(Subject& subject) {
  const Asked sharder(subject);
  std::vector<uint64_t> alone;
  fingerprint(sharder, subject.random(4), &alone);
  subject.doing("propose and route on four threads at once");
  std::vector<std::string> said(4);
  std::vector<std::thread> threads;
  for (std::string& text : said) {
    threads.emplace_back([&] {
      try {
        for (int i = 0; i < 20; ++i) {
          std::vector<uint64_t> together;
          fingerprint(sharder, subject.random(4), &together);
          require(together == alone, "on several threads at once it answers otherwise than alone");
        }
      } catch (const std::exception& e) {
        text = e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : said) require(text.empty(), text);
}

}  // namespace

std::span<const Check> sharder_checks() {
  static constexpr const char* kRoute = "abi/sharder.h, tsr_sharder::route";
  static constexpr const char* kPure = "abi/sharder.h, a pure function";
  static constexpr Check kChecks[] = {
      {"sharder.arguments", 3, TSR_SHARDER_KIND, "abi/sharder.h, tsr_sharder::propose", 20, check_sharder_arguments},
      {"sharder.tiling", 4, TSR_SHARDER_KIND, kLayoutRule, 30, check_sharder_tiling},
      {"sharder.limits", 4, TSR_SHARDER_KIND, "abi/sharder.h, tsr_constraints", 20, check_sharder_limits},
      {"sharder.determinism", 4, TSR_SHARDER_KIND, kPure, 30, check_sharder_determinism},
      {"sharder.routes", 4, TSR_SHARDER_KIND, kRoute, 30, check_sharder_routes},
      {"sharder.threads", 5, TSR_SHARDER_KIND, kPure, 60, check_sharder_threads},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify

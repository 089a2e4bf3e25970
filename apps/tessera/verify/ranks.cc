#include "verify/ranks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>
#include <optional>

#include "processes.h"
#include "spawn.h"
#include "verify/threads.h"

namespace tessera::cli::verify {
namespace {

// State in memory that ranks and their parent share.
struct Said {
  std::atomic<bool> done{false};
  bool threw = false;
  int32_t code = 0;
  int32_t blamed = -1;
  double seconds = 0;
  char text[900]{};
};

class SharedEnds {
 public:
  explicit SharedEnds(int world) : bytes_(sizeof(Said) * static_cast<size_t>(world)) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail(Code::kResourceExhausted, "no memory for ranks");
    all_ = static_cast<Said*>(memory);
    for (int r = 0; r < world; ++r) new (all_ + r) Said;
  }
  ~SharedEnds() { munmap(all_, bytes_); }
  SharedEnds(const SharedEnds&) = delete;
  SharedEnds& operator=(const SharedEnds&) = delete;
  Said& operator[](int rank) const { return all_[rank]; }

 private:
  size_t bytes_;
  Said* all_;
};

bool knows_emulated_device(const tsr_collective_info& info) {
  for (const int32_t* type = info.device_types; type != nullptr && *type != 0; ++type) {
    if (*type == kDLExtDev) return true;
  }
  return false;
}

Group connect(const Made& part, const tsr_rendezvous& where) {
  const auto& api = part.api<tsr_collective>();
  tsr_group* group = nullptr;
  Call call;
  const tsr_code code = api.connect(part.self(), &where, &group, call.out());
  call.fails_well(code, "connect");
  if (code != TSR_OK) throw Refused(code, call.message(), call.rank());
  require(group != nullptr, "connect succeeded, but gave no group");
  return {api, group, described(part)};
}

// Connects, runs the body, closes and destroys.
void meet(Subject& subject, tsr_rendezvous where, bool counts, const std::function<void(Group&)>& body) {
  std::optional<Made> counting;
  if (counts) counting.emplace(counting_collective(), subject.host().raw(), "{}", subject.inner());
  const Made part = counts ? subject.make_around(*counting->raw()) : subject.make();
  if (knows_emulated_device(described(part))) where.device = {kDLExtDev, 0};
  Group group = connect(part, where);
  if (group.rank() != where.rank || group.world() != where.world_size)
    broken("rank ", where.rank, " of ", where.world_size, " is told that it is rank ", group.rank(), " of ",
           group.world());
  if (counts) group.counted_by(&part, counting->raw());
  body(group);
}

void be_rank(Subject& subject, tsr_rendezvous where, bool counts, const std::function<void(Group&)>& body, Said& said) {
  const Deadline start = Clock::now();
  const auto end = [&](tsr_code code, const char* text, int32_t rank) {
    said.threw = true;
    said.blamed = rank;
    said.code = code;
    std::strncpy(said.text, text, sizeof(said.text) - 1);
  };
  try {
    subject.component();
    const int threads = threads_now();
    meet(subject, where, counts, body);
    require_no_threads_left(threads);
  } catch (const Refused& e) {
    end(e.code(), e.what(), e.rank());
  } catch (const std::exception& e) {
    end(TSR_UNKNOWN, e.what(), -1);
  }
  said.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  said.done = true;
}

}  // namespace

tsr_collective_info described(const Made& part) {
  auto info = sdk::sized<tsr_collective_info>();
  Call call;
  const tsr_code code = part.api<tsr_collective>().describe(part.self(), &info, call.out());
  call.succeeds(code, "describe");
  return info;
}

bool Group::on_emulated_device() const { return knows_emulated_device(info_); }

Group::~Group() {
  if (raw_ != nullptr) api_->close(raw_);
}

tsr_work* Group::begin(const char* label, double timeout_s, const Start& start) const {
  const tsr_collective_call how = sdk::named_call(label, timeout_s);
  tsr_work* work = nullptr;
  Call call;
  const tsr_code code = start(&how, &work, call.out());
  call.fails_well(code, str_cat("the start of ", label == nullptr ? "an operation" : label));
  if (code != TSR_OK) throw Refused(code, call.message(), call.rank());
  require(work != nullptr, "an operation started, but gave no work");
  return work;
}

void Group::wait(tsr_work* work) const {
  Call call;
  const tsr_code code = api_->wait(work, call.out());
  call.fails_well(code, "wait");
  if (code != TSR_OK) throw Refused(code, call.message(), call.rank());
}

void Group::barrier(const char* label, double timeout_s) const {
  run(
      label, [this](const tsr_collective_call* c, tsr_work** w, tsr_error* e) { return api_->barrier(raw_, c, w, e); },
      timeout_s);
}

tsr_group* Group::split(int32_t color, int32_t key) const {
  tsr_group* child = nullptr;
  Call call;
  const tsr_collective_call how = sdk::named_call("split");
  const tsr_code code = api_->split(raw_, color, key, &how, &child, call.out());
  call.fails_well(code, "split");
  if (code != TSR_OK) throw Refused(code, call.message(), call.rank());
  return child;
}

std::vector<RankEnd> in_ranks(Subject& subject, const Meeting& meeting, const std::function<void(Group&)>& body) {
  const int port = free_port();
  const std::string token = random_token();
  const SharedEnds said(meeting.world);
  Processes processes(meeting.world, Processes::kWithParent);
  subject.doing(str_cat("an exchange of ", meeting.world, " ranks"));
  std::vector<bool> comes(static_cast<size_t>(meeting.world), true);
  for (const int rank : meeting.absent) comes[static_cast<size_t>(rank)] = false;
  std::vector<bool> awaited = comes;
  for (const int rank : meeting.lost) awaited[static_cast<size_t>(rank)] = false;
  for (int rank = 0; rank < meeting.world; ++rank) {
    if (!comes[static_cast<size_t>(rank)] || !processes.fork_rank(rank)) continue;
    RankEnvironment::clear_environment();
    auto where = sdk::sized<tsr_rendezvous>();
    where.rank = where.local_rank = rank;
    where.world_size = where.local_world_size = meeting.world;
    where.device = {kDLCPU, 0};
    where.master_port = port;
    where.master_addr = "127.0.0.1";
    where.token = token.c_str();
    where.timeout_s = meeting.timeout_s;
    where.flags = meeting.flags;
    be_rank(subject, where, meeting.counts, body, said[rank]);
    _exit(0);
  }
  const Deadline deadline = after(meeting.patience_s);
  while (processes.running() > 0 && Clock::now() < deadline) {
    for (int rank = 0; rank < meeting.world; ++rank) processes.reap(rank);
    bool waiting = false;
    for (int rank = 0; rank < meeting.world; ++rank) waiting |= awaited[static_cast<size_t>(rank)] && !said[rank].done;
    if (!waiting) break;
    usleep(500);
  }
  std::vector<RankEnd> ends;
  for (int rank = 0; rank < meeting.world; ++rank) {
    const Said& s = said[rank];
    ends.push_back({s.done, s.threw, s.code, s.text, s.seconds, s.blamed});
  }
  return ends;
}

void in_all_ranks(Subject& subject, const Meeting& meeting, const std::function<void(Group&)>& body) {
  const std::vector<RankEnd> ends = in_ranks(subject, meeting, body);
  // A rank's own finding says more than what the others were told about its end.
  for (const bool own : {true, false}) {
    for (size_t rank = 0; rank < ends.size(); ++rank) {
      if (ends[rank].threw && (ends[rank].code == TSR_UNKNOWN) == own)
        broken(own ? "" : str_cat("rank ", rank, " of ", ends.size(), " failed with ", name_of(ends[rank].code), ": "),
               ends[rank].text);
    }
  }
  for (size_t rank = 0; rank < ends.size(); ++rank)
    require(ends[rank].returned, "rank ", rank, " of ", ends.size(), " crashed, or was not done after ",
            meeting.patience_s, " s");
}

}  // namespace tessera::cli::verify

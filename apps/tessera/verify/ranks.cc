#include "verify/ranks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>

#include "processes.h"
#include "spawn.h"

namespace tessera::cli::verify {
namespace {

// In memory that ranks and their parent share.
struct Said {
  std::atomic<bool> done{false};
  bool threw = false;
  int32_t code = 0;
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

Group connect(const Made& part, const tsr_rendezvous& where) {
  const auto& api = part.api<tsr_collective>();
  tsr_group* group = nullptr;
  Call call;
  const tsr_code code = api.connect(part.self(), &where, &group, call.out());
  call.fails_well(code, "connect");
  if (code != TSR_OK) throw Refused(code, call.message());
  require(group != nullptr, "connect succeeded, but gave no group");
  return {api, group};
}

void be_rank(Subject& subject, const tsr_rendezvous& where, const std::function<void(Group&)>& body, Said& said) {
  const Deadline start = Clock::now();
  const auto end = [&](tsr_code code, const char* text) {
    said.threw = true;
    said.code = code;
    std::strncpy(said.text, text, sizeof(said.text) - 1);
  };
  try {
    const Made part = subject.make();
    Group group = connect(part, where);
    if (group.rank() != where.rank || group.world() != where.world_size)
      broken("rank ", where.rank, " of ", where.world_size, " is told that it is rank ", group.rank(), " of ",
             group.world());
    body(group);
  } catch (const Refused& e) {
    end(e.code(), e.what());
  } catch (const std::exception& e) {
    end(TSR_UNKNOWN, e.what());
  }
  said.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  said.done = true;
}

}  // namespace

Group::~Group() {
  if (raw_ != nullptr) api_->close(raw_);
}

tsr_work* Group::begin(const char* label, double timeout_s, const Start& start) const {
  const tsr_collective_call how{sizeof(tsr_collective_call), 0, nullptr, timeout_s, label};
  tsr_work* work = nullptr;
  Call call;
  const tsr_code code = start(&how, &work, call.out());
  call.fails_well(code, cat("the start of ", label == nullptr ? "an operation" : label));
  if (code != TSR_OK) throw Refused(code, call.message());
  require(work != nullptr, "an operation started, but gave no work");
  return work;
}

void Group::wait(tsr_work* work) const {
  Call call;
  const tsr_code code = api_->wait(work, call.out());
  call.fails_well(code, "wait");
  if (code != TSR_OK) throw Refused(code, call.message());
}

void Group::barrier(const char* label, double timeout_s) const {
  run(
      label, [this](const tsr_collective_call* c, tsr_work** w, tsr_error* e) { return api_->barrier(raw_, c, w, e); },
      timeout_s);
}

tsr_group* Group::split(int32_t color) const {
  tsr_group* child = nullptr;
  Call call;
  const tsr_code code = api_->split(raw_, color, &child, call.out());
  call.fails_well(code, "split");
  if (code != TSR_OK) throw Refused(code, call.message());
  return child;
}

std::vector<RankEnd> in_ranks(Subject& subject, const Meeting& meeting, const std::function<void(Group&)>& body) {
  const int port = free_port();
  const std::string token = random_token();
  const SharedEnds said(meeting.world);
  Processes processes(meeting.world, Processes::kWithParent);
  subject.doing(cat("an exchange of ", meeting.world, " ranks"));
  std::vector<bool> comes(static_cast<size_t>(meeting.world), true);
  for (const int rank : meeting.absent) comes[static_cast<size_t>(rank)] = false;
  std::vector<bool> awaited = comes;
  for (const int rank : meeting.lost) awaited[static_cast<size_t>(rank)] = false;
  for (int rank = 0; rank < meeting.world; ++rank) {
    if (!comes[static_cast<size_t>(rank)] || !processes.fork_rank(rank)) continue;
    RankEnvironment::clear_environment();
    const tsr_rendezvous where{sizeof(tsr_rendezvous), rank, meeting.world, rank,
                               meeting.world,          port, "127.0.0.1",   token.c_str(),
                               meeting.timeout_s};
    be_rank(subject, where, body, said[rank]);
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
    ends.push_back({s.done, s.threw, s.code, s.text, s.seconds});
  }
  return ends;
}

void in_all_ranks(Subject& subject, const Meeting& meeting, const std::function<void(Group&)>& body) {
  const std::vector<RankEnd> ends = in_ranks(subject, meeting, body);
  // What a rank found out says more than what the others were told of its end.
  for (const bool own : {true, false}) {
    for (size_t rank = 0; rank < ends.size(); ++rank) {
      if (ends[rank].threw && (ends[rank].code == TSR_UNKNOWN) == own)
        broken(own ? "" : cat("rank ", rank, " of ", ends.size(), " failed with ", name_of(ends[rank].code), ": "),
               ends[rank].text);
    }
  }
  for (size_t rank = 0; rank < ends.size(); ++rank)
    require(ends[rank].returned, "rank ", rank, " of ", ends.size(), " crashed, or was not done after ",
            meeting.patience_s, " s");
}

}  // namespace tessera::cli::verify

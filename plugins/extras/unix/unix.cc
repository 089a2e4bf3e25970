// unix: connects ranks of one host over Unix domain sockets. This file has the rendezvous, which makes two stream
// sockets per pair of ranks, one of them for notices. Everything else is the SDK's (tessera/sdk/pair_engine.h).
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <tessera/sdk/pair_engine.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>

namespace {

using namespace tessera::sdk;

struct Link : SocketLink {
  static constexpr const char* kName = "unix";
  using SocketLink::SocketLink;
};

// The first message of a connection, from the caller. The answer is one byte: y, or n if the token is wrong.
struct Hello {
  uint64_t magic = 0x3130584e55525354;  // "TSRUNX01"
  int32_t rank = 0, world = 0, is_for_notices = 0;
  char token[252] = {};
};

// The ranks that meet: the group's name, and the names of its ranks, which are their ranks in the job. The other
// members are the same for all groups of a job.
struct Party {
  std::string folder, token, group;
  double timeout_s = 0;
  int32_t rank = 0;
  std::vector<int32_t> names;

  int32_t world() const { return static_cast<int32_t>(names.size()); }
  int32_t name() const { return names[static_cast<size_t>(rank)]; }
};

// The socket of a rank of a group, in the job's folder.
sockaddr_un address_of(const Party& party, int32_t name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = party.folder + "/" + party.group + "." + std::to_string(name);
  if (path.size() >= sizeof(address.sun_path))
    fail(TSR_INVALID_ARGUMENT, "unix: ", path, " is too long for a socket's name: give a shorter \"folder\"");
  set_text(address.sun_path, sizeof(address.sun_path), path);
  return address;
}

const sockaddr* any(const sockaddr_un& address) { return reinterpret_cast<const sockaddr*>(&address); }
Fd new_socket() { return Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

// Connects a rank to the others of a group. It listens as soon as it is made. The destructor removes its file, and with
// the last file the folder.
class Meeting {
 public:
  Meeting(const Party& party, PairClock::time_point deadline)
      : party_(party), address_(address_of(party, party.name())) {
    while (!open()) {
      if (PairClock::now() >= deadline)
        fail(TSR_UNAVAILABLE, "unix: another process listens at ", address_.sun_path,
             ": is a job with this MASTER_PORT running?");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  ~Meeting() {
    unlink(address_.sun_path);
    rmdir(party_.folder.c_str());
  }
  // Opens two connections to each other rank: calls lower ranks and answers higher ones.
  std::vector<Link> meet(const Party& party, PairClock::time_point deadline) {
    party_ = party;
    ways_ = std::vector<std::array<Way, 2>>(party.names.size());
    while (true) {
      for (int32_t rank = 0; rank < party_.rank; ++rank) {
        for (int32_t which : {0, 1}) call(rank, which);
      }
      while (answer()) continue;
      const std::vector<int32_t> missing = who_is_missing();
      if (missing.empty()) break;
      if (PairClock::now() >= deadline)
        throw Failure(TSR_DEADLINE_EXCEEDED,
                      "unix: " + rank_list(missing) + " did not connect to rank " + std::to_string(party_.name()) +
                          " within " + seconds_text(party_.timeout_s),
                      first_of(missing));
      pollfd knock{socket_.get(), POLLIN, 0};
      poll(&knock, 1, 2);
    }
    std::vector<Link> links;
    for (auto& [data, notices] : ways_) links.emplace_back(std::move(data.there), std::move(notices.there));
    return links;
  }

 private:
  [[noreturn]] void cannot(const char* what) const {
    fail(TSR_UNAVAILABLE, "unix: cannot ", what, " ", party_.folder, ": ", std::strerror(errno));
  }
  // Starts to listen; returns false if it must be tried again. Removes the file that a killed job has left.
  bool open() {
    struct stat is {};
    if (mkdir(party_.folder.c_str(), 0700) != 0 && errno != EEXIST) cannot("make");
    if (lstat(party_.folder.c_str(), &is) != 0) return false;  // removed with another group's last file
    if (!S_ISDIR(is.st_mode) || is.st_uid != geteuid() || (is.st_mode & 077) != 0)
      fail(TSR_PERMISSION_DENIED, "unix: ", party_.folder, " is not a folder that only this user may enter: remove it");
    socket_ = new_socket();
    if (bind(socket_.get(), any(address_), sizeof(address_)) == 0) {
      if (chmod(address_.sun_path, 0700) != 0 || listen(socket_.get(), 1024) != 0) cannot("listen in");
      return true;
    }
    if (errno == ENOENT) return false;
    if (errno != EADDRINUSE) cannot("listen in");
    if (connect(new_socket().get(), any(address_), sizeof(address_)) != 0 && errno == ECONNREFUSED)
      unlink(address_.sun_path);
    return false;
  }

  struct Way {
    Fd there, calling;
  };
  std::vector<int32_t> who_is_missing() const {
    std::vector<int32_t> names;
    for (size_t rank = 0; rank < ways_.size(); ++rank) {
      const bool is_here = ways_[rank][0].there && ways_[rank][1].there;
      if (!is_here && static_cast<int32_t>(rank) != party_.rank) names.push_back(party_.names[rank]);
    }
    return names;
  }

  // Does one step: calls, or checks for the answer. After a failure it is tried again.
  void call(int32_t rank, int32_t which) {
    Way& way = ways_[static_cast<size_t>(rank)][static_cast<size_t>(which)];
    if (way.there) return;
    const int32_t name = party_.names[static_cast<size_t>(rank)];
    if (!way.calling) {
      way.calling = new_socket();
      const sockaddr_un to = address_of(party_, name);
      Hello hello{.rank = party_.rank, .world = party_.world(), .is_for_notices = which};
      set_text(hello.token, sizeof(hello.token), party_.token);
      if (connect(way.calling.get(), any(to), sizeof(to)) != 0 ||
          ::send(way.calling.get(), &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello))
        return way.calling.reset();
    }
    char said = 0;
    const ssize_t n = ::recv(way.calling.get(), &said, 1, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n == 1 && said == 'n') fail(TSR_PERMISSION_DENIED, "unix: rank ", name, " has another job token");
    if (n == 1) std::swap(way.there, way.calling);
    way.calling.reset();
  }

  // Answers one caller. Returns false if none is waiting.
  bool answer() {
    Fd caller(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!caller) return false;
    const timeval patience{1, 0};
    setsockopt(caller.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    Hello hello;
    const bool whole = ::recv(caller.get(), &hello, sizeof(hello), MSG_WAITALL) == sizeof(hello);
    if (!whole || hello.magic != Hello().magic || hello.world != party_.world() || hello.rank <= party_.rank ||
        hello.rank >= party_.world())
      return true;
    const bool trusted = party_.token == std::string(hello.token, strnlen(hello.token, sizeof(hello.token)));
    Way& way = ways_[static_cast<size_t>(hello.rank)][hello.is_for_notices != 0 ? 1 : 0];
    const char said = trusted ? 'y' : 'n';
    if (::send(caller.get(), &said, 1, MSG_NOSIGNAL) == 1 && trusted) way.there = std::move(caller);
    return true;
  }

  Party party_;
  sockaddr_un address_;
  Fd socket_;
  std::vector<std::array<Way, 2>> ways_;  // per rank: for data, and for notices
};

class UnixGroup final : public PairGroup<Link> {
 public:
  UnixGroup(Party party, std::vector<Link> links)
      : PairGroup<Link>(PairEngineOptions<Link>{
            .rank = party.rank, .timeout_s = party.timeout_s, .links = std::move(links), .names = party.names}),
        party_(std::move(party)) {}

  static std::unique_ptr<UnixGroup> made(Party party, std::optional<Meeting>& meeting, PairClock::time_point deadline) {
    std::vector<Link> links(1);
    if (party.world() > 1) links = meeting->meet(party, deadline);
    auto group = std::make_unique<UnixGroup>(std::move(party), std::move(links));
    const double left = std::max(0.1, std::chrono::duration<double>(deadline - PairClock::now()).count());
    finish(group->barrier(named_call("connect", left)));
    return group;
  }

  int32_t host_of(int32_t) const override { return 0; }

  // A rank that joins a group listens before the other ranks learn of it, so that a socket that exists is the right
  // one.
  std::unique_ptr<Group> split(int32_t color, int32_t key, const CollectiveCall& call) override {
    const PairClock::time_point deadline = seconds_from_now(call.timeout_s > 0 ? call.timeout_s : party_.timeout_s);
    Party child = party_;
    child.group += "-" + std::to_string(splits_++) + "," + std::to_string(color);
    std::optional<Meeting> meeting;
    if (color >= 0 && world_size() > 1) meeting.emplace(child, deadline);
    struct Choice {
      int32_t color, key;
    };
    const std::vector<Choice> choices = all_gather_value(*this, Choice{color, key}, call);
    if (color < 0) return nullptr;
    child.names.clear();
    for (const int32_t rank : ranks_of_color(choices, color)) {
      if (rank == this->rank()) child.rank = child.world();
      child.names.push_back(party_.names[static_cast<size_t>(rank)]);
    }
    return made(std::move(child), meeting, deadline);
  }

 private:
  Party party_;
  uint64_t splits_ = 0;
};

class Unix final : public Collective {
 public:
  // Option: folder, in which the job's folder is created.
  explicit Unix(const Setup& setup) : folder_(setup.options.string("folder", "/tmp")) {}

  std::unique_ptr<Group> connect(const tsr_rendezvous& where) override {
    check_rendezvous(Link::kName, where);
    const PairClock::time_point deadline = seconds_from_now(where.timeout_s);
    if (where.local_world_size > 0 && where.local_world_size != where.world_size)
      fail(TSR_INVALID_ARGUMENT, "unix: of ", where.world_size, " ranks ", where.local_world_size,
           " are on this host: it connects only ranks of one host; use tcp");
    const std::string token = where.token == nullptr ? "" : where.token;
    if (token.size() >= sizeof(Hello::token))
      fail(TSR_INVALID_ARGUMENT, "unix: the job's token has more than ", sizeof(Hello::token) - 1, " bytes");
    const std::string name = "/tessera-" + std::to_string(geteuid()) + "-" + std::to_string(where.master_port);
    std::vector<int32_t> names(static_cast<size_t>(where.world_size));
    std::iota(names.begin(), names.end(), 0);
    Party party{folder_ + name, token, "all", where.timeout_s, where.rank, names};
    std::optional<Meeting> meeting;
    if (where.world_size > 1) meeting.emplace(party, deadline);
    return UnixGroup::made(std::move(party), meeting, deadline);
  }

 private:
  std::string folder_;
};

}  // namespace

TESSERA_PLUGIN("unix", "1.0.0",
               component<Unix>({.id = "unix", .version = "1.0.0", .about = "ranks of one host, Unix domain sockets"}));

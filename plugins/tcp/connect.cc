// Connects a group after a rendezvous, and makes its sub-groups.
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>

#include "door.h"
#include "mesh.h"
#include "rendezvous.h"
#include "tcp.h"

namespace tessera::tcp {
namespace {

void check(const tsr_rendezvous& where) {
  sdk::check_rendezvous("tcp", where);
  if (where.world_size > kMaxRanks) {
    sdk::fail(TSR_INVALID_ARGUMENT, "tcp: there are at most ", kMaxRanks, " ranks, not ", where.world_size,
              ": use another transport, such as mpi");
  }
  if (where.world_size == 1) return;
  if (where.master_addr == nullptr || where.master_addr[0] == '\0') {
    sdk::fail(TSR_INVALID_ARGUMENT, "tcp: MASTER_ADDR is not set: it must be the address of rank 0");
  }
  if (where.master_port < 1 || where.master_port > 65535) {
    sdk::fail(TSR_INVALID_ARGUMENT, "tcp: MASTER_PORT ", where.master_port, " is not a port");
  }
}

using EngineOptions = sdk::PairEngineOptions<Channel>;

EngineOptions engine_options(const Job& job, const GroupId& id, int32_t rank, const Members& members, MeshBuilder& mesh,
                             double timeout_s, Clock::time_point deadline) {
  const MeshOptions options{id, rank, members, timeout_s, deadline, job.proxied};
  std::vector<Link> links = mesh.connect(options);
  std::vector<SharedMemory> shared = share_memory(
      links, {rank, job.shm, job.single_copy, hosts_of(members.addresses), members.names, timeout_s, deadline});
  EngineOptions engine;
  engine.rank = rank;
  engine.timeout_s = timeout_s;
  engine.spin_us = job.spin_us;
  engine.names = members.names;
  engine.waited = job.waited;
  for (int32_t peer = 0; peer < static_cast<int32_t>(links.size()); ++peer) {
    engine.links.emplace_back(std::move(links[peer]), std::move(shared[peer]), rank < peer);
  }
  return engine;
}

constexpr int64_t kDescriptors = 3;  // per other rank: two connections, and shared memory while connecting
constexpr int64_t kSpareDescriptors = 64;

}  // namespace

void ensure_descriptors(int64_t more) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  std::error_code unknown;
  int64_t open = 0;
  for (std::filesystem::directory_iterator at("/proc/self/fd", unknown), end; at != end; at.increment(unknown)) ++open;
  const rlim_t needed = static_cast<rlim_t>(open + more);
  if (needed <= limit.rlim_cur) return;
  if (needed > limit.rlim_max) {
    sdk::fail(TSR_RESOURCE_EXHAUSTED, "tcp: this process has ", open, " files open and needs ", more,
              " more for its connections (three to each other rank of a group), but its limit is ", limit.rlim_max,
              ": raise it (ulimit -Hn)");
  }
  limit.rlim_cur = needed;
  setrlimit(RLIMIT_NOFILE, &limit);
}

Proxied parse_proxy(const std::string& text) {
  if (text.empty()) return {};
  const size_t colon = text.rfind(':');
  boost::system::error_code wrong;
  const auto address = asio::ip::make_address(text.substr(0, colon), wrong);
  int port = 0;
  if (colon != std::string::npos) std::from_chars(text.data() + colon + 1, text.data() + text.size(), port);
  if (wrong || port < 1 || port > 65535) {
    sdk::fail(TSR_INVALID_ARGUMENT, "tcp: option \"proxy\" must be a numeric ADDRESS:PORT, not \"", text, "\"");
  }
  return to_address(Endpoint(address, static_cast<uint16_t>(port)));
}

std::vector<int32_t> hosts_of(const std::vector<Address>& addresses) {
  std::map<asio::ip::address, int32_t> numbers;
  std::vector<int32_t> hosts;
  for (const Address& address : addresses) {
    const asio::ip::address ip = to_endpoint(address).address();
    const asio::ip::address key = ip.is_loopback() ? asio::ip::address_v4::loopback() : ip;
    hosts.push_back(numbers.emplace(key, static_cast<int32_t>(numbers.size())).first->second);
  }
  return hosts;
}

Group::Group(Job job, const GroupId& id, int32_t rank, Members members, MeshBuilder& mesh, double timeout_s,
             Clock::time_point deadline)
    : PairwiseGroup(engine_options(job, id, rank, members, mesh, timeout_s, deadline)),
      job_(std::move(job)),
      id_(id),
      members_(std::move(members)),
      hosts_(hosts_of(members_.addresses)) {
  const double left = std::chrono::duration<double>(deadline - Clock::now()).count();
  sdk::finish(barrier(sdk::named_call("connect", std::max(left, 0.1))));
}

Group::Group(Job job, int32_t name, double timeout_s)
    : PairwiseGroup([&] {
        EngineOptions options;
        options.timeout_s = timeout_s;
        options.links.resize(1);
        options.names = {name};
        return options;
      }()),
      job_(std::move(job)),
      members_{std::vector<Address>(1), {name}},
      hosts_(1) {}

bool Group::waited_s(std::span<double> seconds) const {
  for (size_t rank = 0; rank < seconds.size(); ++rank) seconds[rank] = job_.waited->seconds(members_.names[rank]);
  return true;
}

int32_t Group::shares_memory_with() const {
  int32_t ranks = 0;
  engine_.for_each_link([&](const Channel& link) { ranks += link.shares_memory(); });
  return ranks;
}

std::unique_ptr<sdk::Group> Tcp::connect(const tsr_rendezvous& where) {
  check(where);
  const auto waited = std::make_shared<sdk::WaitedFor>(static_cast<size_t>(where.world_size));
  Job job{host_, where.token == nullptr ? "" : where.token, spin_us_, shm_, single_copy_, proxied_, waited};
  if (where.world_size == 1) return std::make_unique<Group>(std::move(job), 0, where.timeout_s);
  ensure_descriptors(kDescriptors * (where.world_size - 1) + kSpareDescriptors);
  std::optional<MeshBuilder> mesh;
  RendezvousOptions options{.host = host_,
                            .rank = where.rank,
                            .world_size = where.world_size,
                            .master_addr = where.master_addr,
                            .master_port = static_cast<uint16_t>(where.master_port),
                            .token = job.token,
                            .timeout_s = where.timeout_s,
                            .deadline = sdk::seconds_from_now(where.timeout_s),
                            .proxied = proxied_,
                            .listen = [&](const Address& own) {
                              mesh.emplace(host_, job.token, own);
                              return mesh->address().port;
                            }};
  Meeting meeting = meet(options);
  if (meeting.addresses.empty()) {
    const MeshOptions learner{meeting.group, where.rank, {}, where.timeout_s, options.deadline, proxied_};
    meeting.addresses = mesh->learn(learner, where.world_size, meeting.teacher);
  }
  Members members{std::move(meeting.addresses), std::vector<int32_t>(static_cast<size_t>(where.world_size))};
  std::iota(members.names.begin(), members.names.end(), 0);
  return std::make_unique<Group>(std::move(job), meeting.group, where.rank, std::move(members), *mesh, where.timeout_s,
                                 options.deadline);
}

// Every rank listens on a new port and tells the others; ranks of one color form a mesh. Each group therefore has its
// own connections, and a failing group does not disturb another.
std::unique_ptr<sdk::Group> Group::split(int32_t color, int32_t key, const sdk::CollectiveCall& call) {
  struct Choice {
    int32_t color;
    int32_t key;
    int32_t port;
  };
  const Clock::time_point deadline = sdk::seconds_from_now(call.timeout_s > 0 ? call.timeout_s : engine_.timeout_s());
  const uint64_t number = splits_++;
  const bool alone = world_size() == 1;
  std::optional<MeshBuilder> mesh;
  if (color >= 0 && !alone) mesh.emplace(job_.host, job_.token, members_.addresses[rank()]);
  const Choice mine{color, key, mesh ? mesh->address().port : 0};
  const std::vector<Choice> choices = sdk::all_gather_value(*this, mine, call);

  if (color < 0) return nullptr;
  int32_t my_rank = 0;
  Members members;
  for (const int32_t rank : sdk::ranks_of_color(choices, color)) {
    if (rank == this->rank()) my_rank = static_cast<int32_t>(members.names.size());
    members.addresses.push_back(members_.addresses[rank]);
    members.addresses.back().port = static_cast<uint16_t>(choices[rank].port);
    members.names.push_back(members_.names[rank]);
  }
  if (members.names.size() == 1) return std::make_unique<Group>(job_, members.names[0], engine_.timeout_s());
  ensure_descriptors(kDescriptors * static_cast<int64_t>(members.names.size() - 1) + kSpareDescriptors);
  return std::make_unique<Group>(job_, child_id(id_, number, color), my_rank, std::move(members), *mesh,
                                 engine_.timeout_s(), deadline);
}

}  // namespace tessera::tcp

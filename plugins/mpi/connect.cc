// Connects the ranks of the launcher's job to a group, and makes its sub-groups.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <numeric>

#include "group.h"

namespace tessera::mpi {
namespace {

// Counts the machine's processors, because a launcher may have bound each rank to one of them.
long processors() { return sysconf(_SC_NPROCESSORS_ONLN); }

// The group of all ranks of the job, in which new groups are agreed upon. [any-thread]
std::unique_ptr<Group> join_all(const tsr_rendezvous& where, const EngineOptions& how) {
  static std::mutex mutex;
  static Group* lobby = nullptr;  // never destroyed, like MPI itself
  const std::lock_guard lock(mutex);
  if (lobby == nullptr) {
    EngineOptions options{.rank = where.rank};
    options.ranks.resize(static_cast<size_t>(where.world_size));
    std::iota(options.ranks.begin(), options.ranks.end(), 0);
    options.spin_us = how.spin_us;
    lobby = new Group(std::move(options));
  }
  return lobby->split(0, 0, sdk::named_call("connect", how.timeout_s), how);
}

}  // namespace

// Open MPI's ranks find each other through PMIx, whichever launcher starts them. Without it, MPI_Init makes a job of
// one rank.
void Mpi::probe(sdk::Host) {
  if (std::getenv("PMIX_RANK") != nullptr) return;
  sdk::fail(TSR_FAILED_PRECONDITION,
            "this process was not started as a rank of an MPI job: start the job with mpirun, or srun --mpi=pmix");
}

Mpi::Mpi(const sdk::Setup& setup) : spin_us_(setup.options.number("spin_us", -1)) {
  const double bytes = setup.options.number("max_message", 1 << 30);
  if (!(bytes >= 1 && bytes <= 1 << 30)) {
    sdk::fail(TSR_INVALID_ARGUMENT, "mpi: max_message is ", bytes, ": it takes 1 to ", 1 << 30, " bytes");
  }
  max_message_ = static_cast<size_t>(bytes);
}

std::unique_ptr<sdk::Group> Mpi::connect(const tsr_rendezvous& where) {
  sdk::check_rendezvous("mpi", where);
  const int32_t here = where.local_world_size > 0 ? where.local_world_size : where.world_size;
  const bool crowded = here > processors();
  EngineOptions how;
  how.timeout_s = where.timeout_s;
  how.spin_us = spin_us_ >= 0 ? spin_us_ : crowded ? 50 : 1000;
  how.max_message = max_message_;
  if (where.world_size == 1) {
    how.ranks = {0};
    return std::make_unique<Group>(std::move(how));
  }
  Process& process = Process::instance();
  process.initialise(where.timeout_s);
  if (process.rank() != where.rank || process.size() != where.world_size) {
    sdk::fail(TSR_INVALID_ARGUMENT, "mpi: the environment says rank ", where.rank, " of ", where.world_size,
              ", but MPI says rank ", process.rank(), " of ", process.size(),
              ": let only one launcher start the ranks, or choose another comm.backend");
  }
  return join_all(where, how);
}

int32_t Group::host_of(int32_t rank) const {
  return world_size() == 1 ? 0 : Process::instance().host_of(engine_.options().ranks[static_cast<size_t>(rank)]);
}

std::unique_ptr<sdk::Group> Group::split(int32_t color, int32_t key, const sdk::CollectiveCall& call) {
  return split(color, key, call, engine_.options());
}

// Every rank proposes a group id; each new group uses the id of its rank 0.
std::unique_ptr<Group> Group::split(int32_t color, int32_t key, const sdk::CollectiveCall& call,
                                    const EngineOptions& how) {
  struct Member {
    int32_t color, key;
    uint64_t id;
  };
  const size_t world = static_cast<size_t>(world_size());
  Member mine{color, key, 0};
  if (world > 1) {
    const std::lock_guard lock(Process::instance().mutex());
    mine.id = Process::instance().new_group_id();
  }
  const std::vector<Member> members = sdk::all_gather_value(*this, mine, call);

  if (color < 0) return nullptr;
  EngineOptions child{.timeout_s = how.timeout_s, .spin_us = how.spin_us, .max_message = how.max_message};
  for (const int32_t rank : sdk::ranks_of_color(members, color)) {
    if (child.ranks.empty()) child.id = members[static_cast<size_t>(rank)].id;
    if (rank == this->rank()) child.rank = static_cast<int32_t>(child.ranks.size());
    child.ranks.push_back(engine_.options().ranks[static_cast<size_t>(rank)]);
  }
  return std::make_unique<Group>(std::move(child));
}

}  // namespace tessera::mpi

// Finds this process's rank, as its launcher tells it. Launchers' variables are read only here.
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "tessera/process_group.h"

#include "config/fnv1a.h"

namespace tessera {
namespace {

const char* text(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

int number(const char* name, int fallback) {
  const char* value = text(name);
  if (!value) return fallback;
  int out = 0;
  const char* end = value + std::strlen(value);
  const auto [at, error] = std::from_chars(value, end, out);
  const bool complete = at == end || *at == '(';  // Slurm: "4(x2)", on two hosts
  if (error != std::errc() || !complete || out < 0)
    fail(Code::kInvalidArgument, "the environment's ", name, " is \"", value, "\", which is not a whole number");
  return out;
}

// The variables of one launcher.
struct Launcher {
  const char* source;
  const char* present;  // a variable that is set for ranks, but not for a shell inside an allocation
  const char *rank, *world, *local_rank, *local_world;
};
constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"slurm", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
};

// Open MPI's library reads this variable to learn its rank and job.
constexpr const char* kPmixRank = "PMIX_RANK";
constexpr const char* kPmixJob = "PMIX_NAMESPACE";

// "node[03-07,09]" -> "node03"; "a,b" -> "a".
std::string first_host(const std::string& list) {
  const size_t bracket = list.find('[');
  const size_t comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const size_t end = list.find_first_of("-,]", bracket + 1);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1);
}

// If no port is given, ranks derive one from the job's name, so that two jobs on a host rarely collide.
int port_from(const char* job) { return 20000 + static_cast<int>(fnv1a(job) % 10000); }

// Refuses hosts with different numbers of ranks, which Slurm lists as "4,3". All ranks see the same list.
void check_even(const char* local_world) {
  const char* value = text(local_world);
  if (value && std::strchr(value, ',')) {
    fail(Code::kInvalidArgument, "the environment's ", local_world, " is \"", value,
         "\": every host needs the same number ranks (srun --ntasks-per-node)");
  }
}

void check(const RankEnvironment& e) {
  if (e.world_size < 1 || e.rank >= e.world_size) {
    fail(Code::kInvalidArgument, e.source, " says rank ", e.rank, " of ", e.world_size,
         ": the rank must be below the world size");
  }
}

// Equal numbers of ranks on all hosts are checked later, when the ranks have met, so that all ranks get the error.
void check_local(const RankEnvironment& e) {
  if (e.local_world_size < 1 || e.local_rank >= e.local_world_size) {
    fail(Code::kInvalidArgument, e.source, " says local rank ", e.local_rank, " of ", e.local_world_size,
         ": the local rank must be below the local world size");
  }
}

}  // namespace

void RankEnvironment::clear_environment() {
  for (const Launcher& l : kLaunchers) {
    for (const char* name : {l.present, l.rank, l.world, l.local_rank, l.local_world}) ::unsetenv(name);
  }
  for (const char* name : {kPmixRank, kPmixJob}) ::unsetenv(name);
}

RankEnvironment RankEnvironment::from_environment() {
  RankEnvironment e{.source = "single"};
  for (const Launcher& l : kLaunchers) {
    if (!text(l.present)) continue;
    e.source = l.source;
    e.rank = number(l.rank, 0);
    e.world_size = number(l.world, 1);
    check_even(l.local_world);
    e.local_world_size = number(l.local_world, 0);
    e.local_rank = number(l.local_rank, e.rank % std::max(1, e.local_world_size));
    if (text(l.local_world)) check_local(e);
    break;
  }
  if (const char* job = text(kPmixJob))
    e.master_port = port_from(job);
  else if (const char* slurm = text("SLURM_JOB_ID"))
    e.master_port = port_from(slurm);
  if (const char* nodes = text("SLURM_STEP_NODELIST"); nodes && e.source == "slurm") e.master_addr = first_host(nodes);
  if (const char* address = text("MASTER_ADDR")) e.master_addr = address;
  e.master_port = number("MASTER_PORT", e.master_port);
  if (e.master_port < 1 || e.master_port > 65535)
    fail(Code::kInvalidArgument, "MASTER_PORT is ", e.master_port, ": a port is 1 to 65535");
  if (const char* token = text("TESSERA_JOB_TOKEN")) e.token = token;
  check(e);
  return e;
}

}  // namespace tessera

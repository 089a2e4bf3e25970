// tessera launch: starts a command as N ranks.
#include <algorithm>
#include <boost/lexical_cast/try_lexical_convert.hpp>

#include "command.h"
#include "options.h"
#include "spawn.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

constexpr char kAbout[] =
    "Starts COMMAND N times on this host, with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, "
    "MASTER_PORT and a random TESSERA_JOB_TOKEN in the environment. If one process fails, the others are ended, and "
    "its exit status is returned.";

template <class T>
T number(const std::string& option, const std::string& text, T least, T most) {
  T value{};
  if (!boost::conversion::try_lexical_convert(text, value) || !(value >= least && value <= most)) {
    throw UsageError(str_cat(option, " takes a number from ", least, " to ", most, ", not \"", text, "\""));
  }
  return value;
}

// Options for jobs on several nodes, as given.
struct NodeWords {
  std::string nodes, node, directory, timeout, address;

  void set(LaunchOptions& launched) const {
    const bool any = !(nodes + node + directory + timeout + address).empty();
    if (!any) return;
    if (nodes.empty() || node.empty() || directory.empty())
      throw UsageError("a job on several nodes needs --nnodes N, --node-rank K and --rendezvous DIR");
    RendezvousOptions meets;
    meets.directory = directory;
    meets.nodes = number<int>("--nnodes", nodes, 1, 1024);
    meets.node = number<int>("--node-rank", node, 0, meets.nodes - 1);
    if (!timeout.empty()) meets.timeout_s = number<double>("--rendezvous-timeout", timeout, 1, 86400);
    meets.address = address;
    meets.master_port = launched.master_port;
    launched.rendezvous = meets;
  }
};

// Options for restarts, as given.
struct StartWords {
  std::string of_rank, of_job, pause, elastic;
};

void set_starts(const StartWords& starts, LaunchOptions& launched, std::string& ranks) {
  if (!starts.of_rank.empty()) launched.restarts = number<int>("--restarts", starts.of_rank, 0, 1000000);
  if (!starts.of_job.empty()) launched.job_restarts = number<int>("--restart-job", starts.of_job, 0, 1000000);
  if (launched.restarts > 0 && launched.job_restarts > 0)
    throw UsageError("--restarts starts single ranks again and --restart-job all of them: give only one of the two");
  if (!starts.pause.empty()) {
    if (launched.restarts + launched.job_restarts == 0)
      throw UsageError("--restart-pause has no effect without --restarts N or --restart-job N");
    launched.restart_pause_s = number<double>("--restart-pause", starts.pause, 0.01, 3600);
  }
  if (starts.elastic.empty()) return;
  const size_t colon = starts.elastic.find(':');
  if (colon == std::string::npos || launched.job_restarts == 0)
    throw UsageError("--elastic takes MIN:MAX, two numbers of ranks, and needs --restart-job N");
  const int nodes = launched.rendezvous ? launched.rendezvous->nodes : 1;
  const int most = number<int>("--elastic", starts.elastic.substr(colon + 1), nodes, 1024 * nodes);
  launched.least_ranks = number<int>("--elastic", starts.elastic.substr(0, colon), 1, most);
  if (ranks.empty()) ranks = std::to_string(most / nodes);
  if (number<int>("--nproc", ranks, 1, 1024) * nodes > most)
    throw UsageError("-n N is more than --elastic MIN:MAX allows");
}

}  // namespace

int launch_command(const std::vector<std::string>& args) {
  LaunchOptions launched;
  std::string ranks, port, grace;
  NodeWords nodes;
  StartWords starts;
  Options options("launch", "-n N [OPTIONS] [--] COMMAND [ARGS]", kAbout);
  auto add = options.add_options();
  add("nproc,n", po::value(&ranks)->value_name("N"), "number of ranks on each node");
  add("master-port", po::value(&port)->value_name("P"), "port on which rank 0 listens (default: a free one)");
  add("grace", po::value(&grace)->value_name("SECONDS"),
      "time from SIGTERM to SIGKILL when ranks must be ended (default: 5). The launcher passes on a signal that it "
      "gets; the time then begins when a rank has ended, or with a second signal");
  add("restarts", po::value(&starts.of_rank)->value_name("N"),
      "start only the rank that failed again, up to N times in total (default: 0); for servers");
  add("restart-job", po::value(&starts.of_job)->value_name("N"),
      "start all ranks again after one has failed and the others have ended, up to N times (default: 0); for "
      "tessera train with --save DIR --resume");
  add("restart-pause", po::value(&starts.pause)->value_name("SECONDS"),
      "pause before the first restart (default: 0.3 for a rank, 1 for a job). It doubles with each restart, up to "
      "30 times the first one, until a start gets further than all before it");
  add("elastic", po::value(&starts.elastic)->value_name("MIN:MAX"),
      "with --restart-job: start with MAX ranks, and restart with one rank less for each that was killed, down to "
      "MIN; with --nnodes these are the ranks of all nodes");
  add("nnodes", po::value(&nodes.nodes)->value_name("N"),
      "run the job on N nodes, with a launcher on each; all launchers have the same options except --node-rank");
  add("node-rank", po::value(&nodes.node)->value_name("K"), "number of this node, from 0");
  add("rendezvous", po::value(&nodes.directory)->value_name("DIR"),
      "directory in which the launchers of all nodes meet, on a file system that they share");
  add("rendezvous-timeout", po::value(&nodes.timeout)->value_name("SECONDS"),
      "time to wait for the other nodes (default: 60)");
  add("local-addr", po::value(&nodes.address)->value_name("ADDRESS"),
      "address of this node for the other nodes (default: that of its route to other networks)");
  // Our options end at the first word that is not one; most are followed by a value. The rest is the command.
  const auto alone = [](const std::string& option) {
    return option == "-h" || option == "--help" || option.find('=') != std::string::npos ||
           (option.size() > 2 && option[1] != '-');  // such as -n2
  };
  size_t end = 0;
  while (end < args.size() && args[end].starts_with('-') && args[end] != "--") end += alone(args[end]) ? 1 : 2;
  end = std::min(end, args.size());
  const auto ours = args.begin() + static_cast<std::ptrdiff_t>(end);
  if (!parse_options({args.begin(), ours}, options)) return 0;
  if (!port.empty()) launched.master_port = number<int>("--master-port", port, 1, 65535);
  nodes.set(launched);
  set_starts(starts, launched, ranks);
  if (!grace.empty()) launched.grace_s = number<double>("--grace", grace, 0, 3600);
  if (ranks.empty()) throw UsageError("-n N is missing: the number of ranks");
  launched.ranks = number<int>("--nproc", ranks, 1, 1024);
  const auto command = ours != args.end() && *ours == "--" ? ours + 1 : ours;
  if (command == args.end()) throw UsageError("the command to start is missing: tessera launch -n N -- COMMAND");
  launched.table = true;
  return launch(launched, {command, args.end()});
}

}  // namespace tessera::cli

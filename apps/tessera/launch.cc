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
    "MASTER_PORT\n"
    "and a random TESSERA_JOB_TOKEN in the environment. If one fails, the others are ended, and its status is "
    "returned.";

template <class T>
T number(const std::string& option, const std::string& text, T least, T most) {
  T value{};
  if (!boost::conversion::try_lexical_convert(text, value) || !(value >= least && value <= most)) {
    throw UsageError(cat(option, " takes a number from ", least, " to ", most, ", not \"", text, "\""));
  }
  return value;
}

}  // namespace

int launch_command(const std::vector<std::string>& args) {
  LaunchOptions launched;
  std::string ranks, port, grace, restarts, job_restarts, elastic;
  Options options("launch", "-n N [OPTIONS] [--] COMMAND [ARGS]", kAbout);
  auto add = options.add_options();
  add("nproc,n", po::value(&ranks)->value_name("N"), "how many ranks");
  add("master-port", po::value(&port)->value_name("P"), "where rank 0 listens (default: a free port)");
  add("grace", po::value(&grace)->value_name("SECONDS"),
      "from SIGTERM to SIGKILL when ranks have to be ended (default: 5); after a signal for the launcher, which is "
      "handed "
      "on, from when a rank has ended, or from a second signal");
  add("restarts", po::value(&restarts)->value_name("N"),
      "start a rank that fails again instead, so many times in all (default: 0): for servers");
  add("restart-job", po::value(&job_restarts)->value_name("N"),
      "start all ranks again when one has failed and the others have ended, so many times (default: 0): for tessera "
      "train "
      "with --save DIR --resume");
  add("elastic", po::value(&elastic)->value_name("MIN:MAX"),
      "with --restart-job: start with MAX ranks, and again with one less for each that was killed, down to MIN");
  // Ours are the options before the first word that is none, most with a value behind them; the rest is the command.
  const auto alone = [](const std::string& option) {
    return option == "-h" || option == "--help" || option.find('=') != std::string::npos ||
           (option.size() > 2 && option[1] != '-');  // -n2
  };
  size_t end = 0;
  while (end < args.size() && args[end].starts_with('-') && args[end] != "--") end += alone(args[end]) ? 1 : 2;
  end = std::min(end, args.size());
  const auto ours = args.begin() + static_cast<std::ptrdiff_t>(end);
  if (!parse_options({args.begin(), ours}, options)) return 0;
  if (!port.empty()) launched.master_port = number<int>("--master-port", port, 1, 65535);
  if (!restarts.empty()) launched.restarts = number<int>("--restarts", restarts, 0, 1000000);
  if (!job_restarts.empty()) launched.job_restarts = number<int>("--restart-job", job_restarts, 0, 1000000);
  if (launched.restarts > 0 && launched.job_restarts > 0)
    throw UsageError("--restarts starts single ranks again and --restart-job all of them: give one of them");
  if (!elastic.empty()) {
    const size_t colon = elastic.find(':');
    if (colon == std::string::npos || launched.job_restarts == 0)
      throw UsageError("--elastic takes MIN:MAX, two numbers of ranks, and needs --restart-job N");
    const int most = number<int>("--elastic", elastic.substr(colon + 1), 1, 1024);
    launched.least_ranks = number<int>("--elastic", elastic.substr(0, colon), 1, most);
    if (ranks.empty()) ranks = std::to_string(most);
    if (number<int>("--nproc", ranks, 1, 1024) > most) throw UsageError("-n N is more than --elastic MIN:MAX allows");
  }
  if (!grace.empty()) launched.grace_s = number<double>("--grace", grace, 0, 3600);
  if (ranks.empty()) throw UsageError("-n N is missing: how many ranks?");
  launched.ranks = number<int>("--nproc", ranks, 1, 1024);
  const auto command = ours != args.end() && *ours == "--" ? ours + 1 : ours;
  if (command == args.end()) throw UsageError("the command to start is missing: tessera launch -n N -- COMMAND");
  launched.table = true;
  return launch(launched, {command, args.end()});
}

}  // namespace tessera::cli

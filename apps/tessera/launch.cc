// tessera launch: starts a command as N ranks.
#include <boost/lexical_cast/try_lexical_convert.hpp>
#include <iostream>

#include "command.h"
#include "spawn.h"

namespace tessera::cli {
namespace {

constexpr const char* kHelp =
    "usage: tessera launch -n N [--master-port P] [--grace SECONDS] [--restarts N] [--] COMMAND [ARGS]\n\n"
    "Starts COMMAND N times on this host, with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, "
    "MASTER_PORT\n"
    "and a random TESSERA_JOB_TOKEN in the environment. If one fails, the others are ended, and its status is "
    "returned.\n\n"
    "  -n, --nproc N        how many ranks\n"
    "  --master-port P      where rank 0 listens (default: a free port)\n"
    "  --grace SECONDS      from SIGTERM to SIGKILL when ranks have to be ended (default: 5)\n"
    "  --restarts N         start a rank that fails again instead, so many times in all (default: 0)\n";

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
  LaunchOptions options;
  options.ranks = 0;
  size_t i = 0;
  for (; i < args.size(); ++i) {
    const std::string& option = args[i];
    if (option == "--") {
      ++i;
      break;
    }
    if (option.empty() || option[0] != '-') break;
    if (option == "--help" || option == "-h") {
      std::cout << kHelp;
      return 0;
    }
    if (option != "-n" && option != "--nproc" && option != "--master-port" && option != "--grace" &&
        option != "--restarts") {
      throw UsageError(cat("unknown option ", option, ": see tessera launch --help"));
    }
    if (i + 1 == args.size()) throw UsageError(cat(option, " needs a value"));
    const std::string& value = args[++i];
    if (option == "--master-port") {
      options.master_port = number<int>(option, value, 1, 65535);
    } else if (option == "--restarts") {
      options.restarts = number<int>(option, value, 0, 1000000);
    } else if (option == "--grace") {
      options.grace_s = number<double>(option, value, 0, 3600);
    } else {
      options.ranks = number<int>(option, value, 1, 1024);
    }
  }
  if (options.ranks == 0) throw UsageError("-n N is missing: how many ranks?");
  if (i == args.size()) throw UsageError("the command to start is missing: tessera launch -n N -- COMMAND");
  return launch(options, {args.begin() + static_cast<std::ptrdiff_t>(i), args.end()});
}

}  // namespace tessera::cli

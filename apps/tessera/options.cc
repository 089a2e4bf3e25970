#include "options.h"

#include <sys/resource.h>

#include "command.h"

namespace tessera::cli {

namespace po = boost::program_options;

po::variables_map parse_options(const char* command, const std::vector<std::string>& args,
                                const po::options_description& options,
                                const po::positional_options_description& positions) {
  po::variables_map given;
  try {
    po::store(po::command_line_parser(args)
                  .options(options)
                  .positional(positions)
                  .style(po::command_line_style::default_style & ~po::command_line_style::allow_guessing)
                  .run(),
              given);
    po::notify(given);
  } catch (const po::error& e) {
    throw UsageError(std::string(e.what()) + ": see tessera " + command + " --help");
  }
  return given;
}

Error out_of_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);  // ru_maxrss counts KiB
  return {Code::kResourceExhausted,
          cat("out of memory: this process had ", usage.ru_maxrss / 1024,
              " MiB, and neither the machine nor a limit of it (a container's, ulimit -v) gives more")};
}

}  // namespace tessera::cli

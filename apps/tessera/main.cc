// tessera COMMAND [ARGS]: finds the command and turns what it throws into one sentence and an exit status.
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <iostream>
#include <string_view>

#include "command.h"
#include "plugin_watch.h"
#include "tessera/error.h"

namespace {

using tessera::cli::Command;

constexpr Command kCommands[] = {
    {"plugins", "list every plugin found, and why it was chosen, unusable or rejected", tessera::cli::plugins_command},
    {"plan", "plan where every table lives, and compare plans", tessera::cli::plan_command},
    {"calibrate", "measure this machine for the planner: lookups, exchanges, dense layers",
     tessera::cli::calibrate_command},
    {"conformance", "run files of recorded cases against a kernel", tessera::cli::conformance_command},
    {"bench", "measure lookups, collectives, steps and training", tessera::cli::bench_command},
    {"train", "train a model from one config file", tessera::cli::train_command, true},
    {"serve", "answer over HTTP what a packed model predicts", tessera::cli::serve_command, true},
    {"launch", "start a command as N ranks", tessera::cli::launch_command},
    {"quantize", "pack a checkpoint into a model that answers", tessera::cli::quantize_command},
    {"model", "show and verify packed models", tessera::cli::model_command},
    {"predict", "score files of samples with a packed model", tessera::cli::predict_command},
};

void print_help(std::ostream& out) {
  out << "usage: tessera COMMAND [OPTIONS]\n\n";
  for (const Command& c : kCommands)
    out << "  " << c.name << std::string(14 - std::strlen(c.name), ' ') << c.summary << '\n';
  out << "\ntessera COMMAND --help lists a command's options.\n";
}

// Models lie in mapped files: what cannot be read any more is a signal there, which would say nothing. It ends the
// process as before once this has said why.
void explain_lost_pages() {
  struct sigaction action {};
  action.sa_handler = [](int) {
    constexpr std::string_view kText =
        "tessera: a file that is mapped into memory cannot be read any more: an I/O error, or it was made shorter\n";
    [[maybe_unused]] const ssize_t told = write(STDERR_FILENO, kText.data(), kText.size());
    raise(SIGBUS);
  };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + std::min(argc, 2), argv + argc);
  const std::string name = argc > 1 ? argv[1] : "";
  if (name.empty() || name == "help" || name == "--help" || name == "-h") {
    print_help(name.empty() ? std::cerr : std::cout);
    return name.empty() ? 2 : 0;
  }
  for (const Command& c : kCommands) {
    if (name != c.name) continue;
    const auto say = [&](const std::exception& e) {  // in one piece: ranks share standard error
      std::cerr << "tessera " + name + ": " + e.what() + "\n";
    };
    explain_lost_pages();
    if (c.outlives_readers) signal(SIGPIPE, SIG_IGN);
    try {
      tessera::cli::report_crashes();
      return c.run(args);
    } catch (const tessera::cli::UsageError& e) {
      say(e);
      return 2;
    } catch (const tessera::Error& e) {
      say(e);
      return e.code() == tessera::Code::kInvalidArgument || e.code() == tessera::Code::kNotFound ? 2 : 1;
    } catch (const std::bad_alloc&) {
      say(tessera::cli::out_of_memory());
      return 1;
    } catch (const std::exception& e) {
      say(e);
      return 1;
    }
  }
  std::cerr << "tessera: unknown command \"" << name << "\": see tessera help\n";
  return 2;
}

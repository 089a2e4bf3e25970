// tessera COMMAND [ARGS]: finds the command and turns its exceptions into one sentence and an exit status.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <string_view>

#include "command.h"
#include "options.h"
#include "plugin_watch.h"
#include "program.h"
#include "tessera/abi/plugin.h"
#include "tessera/error.h"

namespace {

using namespace tessera::cli;

CommandGroup all_commands() {
  return {"tessera",
          {{"plugins", "list the plugins, and why they are used or not", plugins_command},
           {"new", "write the project of a new plugin", new_command},
           {"verify", "check that a plugin keeps to the contract", verify_command},
           {"plan", "plan which rank stores which shard, and compare plans", plan_command},
           {"stats", "print how a job's data uses each table", stats_command},
           {"calibrate", "measure this machine, for the planner", calibrate_command},
           {"conformance", "run files of recorded cases against a kernel", conformance_command},
           {"bench", "measure lookups, collectives, steps and training", bench_command},
           {"train", "train a model from one config file", train_command, true},
           {"tune", "look for settings that validate best", tune_command},
           {"report", "compare the reports of two training runs", report_command},
           {"serve", "serve the predictions of a packed model over HTTP", serve_command, true},
           {"launch", "start a command as N ranks", launch_command},
           {"trace", "compare two runs recorded by the transport \"trace\"", trace_command},
           {"quantize", "pack a checkpoint into a model for serving", quantize_command},
           {"model", "print example jobs; show, verify and export models", model_command},
           {"data", "look at data files, write a config, compare files", data_command},
           {"copy", "copy files from an object store, or to it", copy_command},
           {"predict", "score files with a packed model", predict_command}}};
}

struct ExitStatus {
  const char* status;
  const char* means;
};
constexpr ExitStatus kExitStatuses[] = {
    {"0", "Done."},
    {"1", "The command failed (a rank, a file, the network), or a check did."},
    {"2",
     "The command was used wrongly: invalid arguments or config; a file that is missing, does not fit or would "
     "be replaced."},
    {"75", "train: SIGTERM, SIGINT or SIGHUP ended the job between two steps. It has saved, if --save was given."},
    {"126, 127", "launch: the command cannot be run; there is no such command."},
    {"128 + N",
     "Signal N ended the command, or the rank that failed first. launch also returns other statuses of "
     "that rank."},
};

std::string exit_status_manual() {
  std::string out = ".SH EXIT STATUS\n";
  for (const ExitStatus& s : kExitStatuses) out += std::string(".TP\n\\fB") + s.status + "\\fR\n" + s.means + "\n";
  return out;
}

// Models lie in mapped files, so a failed read there is a signal, which says nothing. This handler says why; then the
// signal ends the process as before.
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

// If a standard stream is closed, the next opened file would get its number and receive what is printed. Opens
// /dev/null for each closed stream.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    if (open("/dev/null", O_RDWR) != stream) _exit(1);  // open() takes the lowest free number
  }
}

// Printed output is the result of a command: a plan, a config, scores. Failing to write it is an error.
void finish_printing() {
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout)
    tessera::fail(tessera::Code::kUnavailable, "cannot write to standard output: is the disk full?");
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  signal(SIGXFSZ, SIG_IGN);  // turns a file size limit into an error, like a full disk
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  const std::string first = args.empty() ? "" : args[0];
  if (first == "--version") {
    std::cout << "tessera " TESSERA_VERSION ", plugin ABI " << TSR_ABI_MAJOR << '.' << TSR_ABI_MINOR << '\n';
    return 0;
  }
  const CommandGroup commands = all_commands();
  if (first == "--man") std::cout << manual_head("tessera", "sharded embedding tables, every component a plugin");
  const Command* command = commands.find(first);
  explain_lost_pages();
  if (command && command->outlives_readers) signal(SIGPIPE, SIG_IGN);
  return status_of("tessera" + (command ? " " + first : ""), [&] {
    report_crashes();
    const int status = commands.run(args);
    if (first == "--man") std::cout << exit_status_manual();
    // Training, serving and launching succeed even if nobody reads the output.
    if (status == 0 && !(command && command->outlives_readers)) finish_printing();
    return status;
  });
}

// A subcommand of `tessera`: one function, found by name. Wrong use throws UsageError: one sentence, exit status 2.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tessera/error.h"

namespace tessera::cli {

// The user asked for something impossible: unknown option, missing file, wrong type.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The Error that reports std::bad_alloc: kResourceExhausted, with the memory this process had when it failed.
Error out_of_memory();

struct Command {
  std::string name;
  std::string summary;  // one line, for lists and manual pages
  // `args` follow the subcommand's name. Returns the exit status.
  std::function<int(const std::vector<std::string>& args)> run;
  // True for commands that do more than print, such as training: they continue when nobody reads their output any more.
  bool outlives_readers = false;
};

// A command with subcommands: `tessera` itself, and `tessera bench`.
struct CommandGroup {
  std::string name;  // "tessera bench"
  std::vector<Command> commands;

  const Command* find(const std::string& name) const;  // nullptr if there is none
  // Runs the command named by args[0] with the remaining arguments. --help (or help) lists the commands, or shows the
  // help of the command named next; --man writes the page for man(1). Throws UsageError for an unknown name.
  int run(const std::vector<std::string>& args) const;
};

int plan_command(const std::vector<std::string>& args);
int plugins_command(const std::vector<std::string>& args);
int conformance_command(const std::vector<std::string>& args);
int bench_command(const std::vector<std::string>& args);
int report_command(const std::vector<std::string>& args);
int tune_command(const std::vector<std::string>& args);
int train_command(const std::vector<std::string>& args);
int calibrate_command(const std::vector<std::string>& args);
int launch_command(const std::vector<std::string>& args);
int stats_command(const std::vector<std::string>& args);
int trace_command(const std::vector<std::string>& args);
int serve_command(const std::vector<std::string>& args);
int quantize_command(const std::vector<std::string>& args);
int model_command(const std::vector<std::string>& args);
int data_command(const std::vector<std::string>& args);
int copy_command(const std::vector<std::string>& args);
int predict_command(const std::vector<std::string>& args);
int new_command(const std::vector<std::string>& args);
int verify_command(const std::vector<std::string>& args);

}  // namespace tessera::cli

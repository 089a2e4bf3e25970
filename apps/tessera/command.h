// A subcommand of `tessera`: one function, found by name. Wrong use throws UsageError: one sentence, exit status 2.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tessera/error.h"

namespace tessera::cli {

// What the user typed cannot be: unknown option, missing file, wrong type.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What std::bad_alloc is told as: how much memory this process had when there was no more. kResourceExhausted.
Error out_of_memory();

struct Command {
  std::string name;
  std::string summary;  // one line for lists and manual pages
  // args: what follows the subcommand's name. Returns the exit status.
  std::function<int(const std::vector<std::string>& args)> run;
  // Its work is not what it prints: it goes on when nobody reads that any more.
  bool outlives_readers = false;
};

// Several commands behind one: `tessera` itself, and `tessera bench`.
struct CommandGroup {
  std::string name;  // "tessera bench"
  std::vector<Command> commands;

  const Command* find(const std::string& name) const;  // nullptr: there is none
  // Runs the command that args[0] names with the rest of them. --help (or help) lists the commands, or gives the help
  // of the one named behind it; --man writes the page for man(1). Throws UsageError for a name that is not known.
  int run(const std::vector<std::string>& args) const;
};

int plan_command(const std::vector<std::string>& args);
int plugins_command(const std::vector<std::string>& args);
int conformance_command(const std::vector<std::string>& args);
int bench_command(const std::vector<std::string>& args);
int report_command(const std::vector<std::string>& args);
int train_command(const std::vector<std::string>& args);
int calibrate_command(const std::vector<std::string>& args);
int launch_command(const std::vector<std::string>& args);
int stats_command(const std::vector<std::string>& args);
int trace_command(const std::vector<std::string>& args);
int serve_command(const std::vector<std::string>& args);
int quantize_command(const std::vector<std::string>& args);
int model_command(const std::vector<std::string>& args);
int data_command(const std::vector<std::string>& args);
int predict_command(const std::vector<std::string>& args);
int new_command(const std::vector<std::string>& args);
int verify_command(const std::vector<std::string>& args);

}  // namespace tessera::cli

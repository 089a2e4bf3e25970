#include "command.h"

#include <sys/resource.h>

#include <algorithm>
#include <iostream>

#include "options.h"
#include "tessera/sdk/nearest.h"

namespace tessera::cli {
namespace {

std::string help_text(const CommandGroup& group) {
  std::string out = str_cat("usage: ", group.name, " COMMAND [OPTIONS]\n\n");
  size_t widest = 0;
  for (const Command& c : group.commands) widest = std::max(widest, c.name.size());
  for (const Command& c : group.commands)
    out += str_cat("  ", c.name, std::string(widest + 3 - c.name.size(), ' '), c.summary, "\n");
  return out + str_cat("\n", group.name, " COMMAND --help lists a command's options.\n");
}

// The manual page of "tessera bench" is tessera-bench.
std::string page_name(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string manual(const CommandGroup& group) {
  std::string out = str_cat(".SH SYNOPSIS\n", manual_text(group.name), " COMMAND [OPTIONS]\n.SH COMMANDS\n");
  for (const Command& c : group.commands)
    out += str_cat(".TP\n\\fB", manual_text(page_name(group.name) + "-" + c.name), "\\fR(1)\n", manual_text(c.summary),
                   "\n");
  return out;
}

}  // namespace

Error out_of_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);  // ru_maxrss counts KiB
  return {Code::kResourceExhausted,
          str_cat("out of memory: this process had ", usage.ru_maxrss / 1024,
                  " MiB, and the machine or a limit (a container's, ulimit -v) allows no more")};
}

const Command* CommandGroup::find(const std::string& wanted) const {
  const auto found = std::find_if(commands.begin(), commands.end(), [&](const Command& c) { return c.name == wanted; });
  return found == commands.end() ? nullptr : &*found;
}

int CommandGroup::run(const std::vector<std::string>& args) const {
  if (args.empty()) {
    std::cerr << help_text(*this);
    return 2;
  }
  std::vector<std::string> rest(args.begin() + 1, args.end());
  std::string wanted = args[0];
  const bool help = wanted == "help" || wanted == "--help" || wanted == "-h";
  if (wanted == "--man" || (help && rest.empty())) {
    std::cout << (help ? help_text(*this) : manual(*this));
    return 0;
  }
  if (help) {
    wanted = rest[0];
    rest.erase(rest.begin());
    rest.push_back("--help");
  }
  const Command* command = find(wanted);
  if (!command) {
    std::vector<std::string> names;
    for (const Command& c : commands) names.push_back(c.name);
    throw UsageError(
        str_cat("unknown command \"", wanted, '"', sdk::nearest_text(wanted, names), ": see ", name, " --help"));
  }
  if (rest == std::vector<std::string>{"--man"})
    std::cout << manual_head(page_name(name + " " + wanted), command->summary);
  return command->run(rest);
}

}  // namespace tessera::cli

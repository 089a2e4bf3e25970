// The options of a subcommand.
#pragma once

#include <boost/program_options.hpp>
#include <string>
#include <vector>

namespace tessera::cli {

// What was given, by full names; variables that options were bound to are set. Throws UsageError, which ends in
// "see tessera COMMAND --help". Without `positions` every argument is an option's.
boost::program_options::variables_map parse_options(
    const char* command, const std::vector<std::string>& args,
    const boost::program_options::options_description& options,
    const boost::program_options::positional_options_description& positions = {});

}  // namespace tessera::cli

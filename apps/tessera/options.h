// The options of a command. Its help, its manual page and the shell completion are all made from them.
#pragma once

#include <boost/program_options.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tessera::cli {

class Options : public boost::program_options::options_description {
 public:
  // `command` is for example "train" or "bench lookup". `forms` has a line for each way of use, without the command:
  // "--config FILE [OPTIONS]". `about` has sentences, which are wrapped; empty lines separate paragraphs,
  // and lines that start with a space are shown as they are.
  Options(std::string command, std::string forms, std::string about = "");

  // Declares a positional argument after those declared before it: one, or any number (count -1).
  void argument(const char* name, const boost::program_options::value_semantic* value, int count = 1);

  const std::string& command() const { return command_; }
  std::string help() const;    // text for a terminal
  std::string manual() const;  // the same for man(1): the sections from SYNOPSIS on

 private:
  friend std::optional<boost::program_options::variables_map> parse_options(const std::vector<std::string>& args,
                                                                            Options& options);
  std::string command_, forms_, about_;
  boost::program_options::options_description arguments_;
  boost::program_options::positional_options_description positions_;
};

// Reads the options that were given, by full names, and sets the variables bound to them. Returns nothing after --help
// or --man, which every command has: the text was printed and the command has nothing else to do. Throws UsageError,
// which ends in "see tessera COMMAND --help".
std::optional<boost::program_options::variables_map> parse_options(const std::vector<std::string>& args,
                                                                   Options& options);

// The head of a manual page: "tessera-train" and its summary in one line.
std::string manual_head(const std::string& page, const std::string& summary);
// Escapes text for man(1), so that groff finds no requests in it.
std::string manual_text(const std::string& text);

}  // namespace tessera::cli

// The options of a command. Its help, its manual page and what a shell completes are all made of them.
#pragma once

#include <boost/program_options.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tessera::cli {

class Options : public boost::program_options::options_description {
 public:
  // command: "train", "bench lookup". forms: what follows it, a line for each way of use: "--config FILE [OPTIONS]".
  // about: sentences; paragraphs are parted by empty lines, and lines that start with a space are shown as they are.
  Options(std::string command, std::string forms, std::string about = "");

  // What is given without a name, behind the arguments declared before it: one, or any number (count -1).
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

// What was given, by full names; variables that options were bound to are set. Nothing where it was --help, which every
// command has, or --man: that was printed, and the command has nothing else to do. Throws UsageError, which ends in
// "see tessera COMMAND --help".
std::optional<boost::program_options::variables_map> parse_options(const std::vector<std::string>& args,
                                                                   Options& options);

// The head of a manual page: "tessera-train", and what it is in one line.
std::string manual_head(const std::string& page, const std::string& summary);
// Text for man(1), with nothing in it that groff takes for its own.
std::string manual_text(const std::string& text);

}  // namespace tessera::cli

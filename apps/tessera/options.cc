#include "options.h"

#include <algorithm>
#include <cctype>
#include <iostream>
#include <limits>
#include <sstream>

#include "command.h"
#include "tessera/error.h"
#include "tessera/sdk/draft/reader_paths.h"
#include "tessera/sdk/nearest.h"
#include "wrapped.h"

namespace tessera::cli {

namespace po = boost::program_options;

namespace {

// Formats "tessera train --config FILE", each form after `first` or `next`.
std::string forms_text(const std::string& command, const std::string& forms, const char* first, const char* next) {
  std::string out;
  std::istringstream lines(forms);
  for (std::string form; std::getline(lines, form);)
    out += str_cat(out.empty() ? first : next, "tessera ", command, " ", form, "\n");
  return out;
}

// Paragraphs are wrapped; lines that start with a space are left as they are.
std::string help_paragraphs(const std::string& text) {
  std::string out, paragraph;
  std::istringstream lines(text);
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) out += wrapped(paragraph);
    paragraph.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && !line.starts_with(' ')) {
      paragraph += line + ' ';
      continue;
    }
    end_paragraph();
    out += line + '\n';
  }
  end_paragraph();
  return out;
}

// The same for man(1), which fills paragraphs itself.
std::string manual_paragraphs(const std::string& text) {
  std::string out;
  std::istringstream lines(text);
  bool kept = false;
  for (std::string line; std::getline(lines, line);) {
    const bool keep = line.starts_with(' ');
    if (keep != kept) out += keep ? ".nf\n" : ".fi\n";
    kept = keep;
    out += line.empty() ? ".PP\n" : manual_text(line) + "\n";
  }
  return out + (kept ? ".fi\n" : "");
}

constexpr const char* kPathWords[] = {"FILE", "DIR", "MODEL", "CHECKPOINT", "FROM"};  // values of options
constexpr const char* kSurplus = "surplus arguments";  // a name that cannot be given as an option

std::string nearest_option(const std::string& name, const po::options_description& known) {
  std::vector<std::string> names;
  for (const auto& option : known.options()) {
    if (!option->long_name().empty()) names.push_back("--" + option->long_name());
  }
  return sdk::nearest_name(name, names);
}

// Refuses an empty value, which a variable of a script that is not set gives, and URLs. Only readers of data open URLs:
// to all else one would be the name of a local folder, such as "s3:".
void check_values(const po::options_description& known, const po::parsed_options& parsed) {
  for (const po::option& given : parsed.options) {
    const po::option_description* const option = known.find_nothrow(given.string_key, false);
    const std::string what = option ? option->format_parameter() : "";
    const bool path = std::any_of(std::begin(kPathWords), std::end(kPathWords),
                                  [&](const char* word) { return what.starts_with(word); });
    for (const std::string& value : given.value) {
      if (option && value.empty())
        throw UsageError(str_cat("--", given.string_key, " has an empty value: give ",
                                 what.empty() || what == "arg" ? "one" : what, ", or leave the option out"));
      if (path && given.string_key != "data" && sdk::is_url(value))
        throw UsageError(str_cat("--", given.string_key, " takes a path on this machine, not ", value,
                                 ": `tessera copy` brings files here and takes them to a store"));
    }
  }
}

}  // namespace

Options::Options(std::string command, std::string forms, std::string about)
    : command_(std::move(command)), forms_(std::move(forms)), about_(std::move(about)) {}

void Options::argument(const char* name, const po::value_semantic* value, int count) {
  arguments_.add_options()(name, value);
  positions_.add(name, count);
}

std::string Options::help() const {
  std::ostringstream out;
  out << forms_text(command_, forms_, "usage: ", "       ") << '\n';
  if (!about_.empty()) out << help_paragraphs(about_) << '\n';
  out << *this;
  return out.str();
}

std::string Options::manual() const {
  std::string out = ".SH SYNOPSIS\n.nf\n" + manual_text(forms_text(command_, forms_, "", "")) + ".fi\n";
  if (!about_.empty()) out += ".SH DESCRIPTION\n" + manual_paragraphs(about_);
  out += ".SH OPTIONS\n";
  for (const auto& option : options()) {
    const std::string value = option->format_parameter();
    out += ".TP\n\\fB" + manual_text(option->format_name()) + "\\fR" + manual_text(value.empty() ? "" : " " + value) +
           "\n" + manual_text(option->description()) + "\n";
  }
  return out;
}

std::optional<po::variables_map> parse_options(const std::vector<std::string>& args, Options& options) {
  options.add_options()("help,h", "print this text");
  po::options_description all;
  all.add(options).add(options.arguments_).add_options()("man", "print the same for man(1)");
  po::positional_options_description positions = options.positions_;
  using Words = std::vector<std::string>;
  if (positions.max_total_count() != std::numeric_limits<unsigned>::max()) {
    all.add_options()(kSurplus, po::value<Words>());
    positions.add(kSurplus, -1);
  }
  const std::string see = ": see tessera " + options.command() + " --help";
  po::variables_map given;
  try {
    const po::parsed_options parsed =
        po::command_line_parser(args)
            .options(all)
            .positional(positions)
            .style(po::command_line_style::default_style & ~po::command_line_style::allow_guessing)
            .run();
    check_values(options, parsed);
    po::store(parsed, given);
    if (given.contains("help") || given.contains("man")) {
      std::cout << (given.contains("man") ? options.manual() : options.help());
      return std::nullopt;
    }
    if (given.contains(kSurplus))
      throw UsageError(str_cat('"', given[kSurplus].as<Words>()[0], "\" is one argument too many", see));
    po::notify(given);
  } catch (const po::unknown_option& e) {
    const std::string name = e.get_option_name();
    throw UsageError(str_cat("there is no option ", name, "; the nearest is ", nearest_option(name, options), see));
  } catch (const po::error& e) {
    throw UsageError(e.what() + see);
  }
  return given;
}

std::string manual_head(const std::string& page, const std::string& summary) {
  std::string title = page;
  std::transform(title.begin(), title.end(), title.begin(), [](unsigned char c) { return std::toupper(c); });
  return str_cat(".TH ", title, " 1 \"\" \"tessera " TESSERA_VERSION "\" Tessera\n.SH NAME\n", page, " \\- ",
                 manual_text(summary), "\n");
}

std::string manual_text(const std::string& text) {
  std::string out;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    line_start = c == '\n';
  }
  return out;
}

}  // namespace tessera::cli

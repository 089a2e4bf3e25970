// tessera data describe: writes a config for files that have no description yet. tessera data check: compares new files
// with those of training.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "command.h"
#include "data/check.h"
#include "data/describe.h"
#include "data/toml_text.h"
#include "options.h"
#include "outputs.h"
#include "page/page_file.h"
#include "plugin_watch.h"
#include "tessera/data.h"
#include "train/progress.h"
#include "wrapped.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

struct DataArguments {
  std::string action, output, reader, html, other;  // other: the new files of check
  DescribeOptions describe;
};

bool parse_data_arguments(const std::vector<std::string>& args, DataArguments* out) {
  Options options(
      "data", "describe FILE [OPTIONS]\ncheck TRAIN NEW [OPTIONS]",
      "describe looks at all rows of a file, of the files in a directory, or of the files that match a pattern. It "
      "writes a config with fitting columns: the label, dense values and ids.\n\n"
      "check compares new files with those that a model was trained on: missing columns, unseen values, numbers that "
      "have moved. Its exit status is 1 if it finds a difference.");
  auto add = options.add_options();
  add("label", po::value(&out->describe.label)->value_name("COLUMN"),
      "column to predict, or several as A,B (default: a column named like a label, or the first one of zeros and "
      "ones); check: columns that new files need not have");
  add("reader", po::value(&out->reader)->value_name("NAME"),
      "reader plugin, such as \"csv?delimiter=;\" (default: the one that opens the path; otherwise csv with the "
      "delimiter that fits)");
  add("rows", po::value(&out->describe.rows)->value_name("N"),
      "number of rows to look at, evenly spread (default: all)");
  add("html", po::value(&out->html)->value_name("FILE"), "also write what was seen as a page with small histograms");
  add("output", po::value(&out->output)->value_name("FILE"),
      "write the config to this new file instead of standard "
      "output");
  options.argument("action", po::value(&out->action));
  options.argument("file", po::value(&out->describe.path));
  options.argument("new", po::value(&out->other));
  const auto given = parse_options(args, options);
  if (!given) return false;
  if (out->action != "describe" && out->action != "check") {
    constexpr const char* kActions = "tessera data describe FILE and tessera data check TRAIN NEW";
    throw UsageError(out->action.empty() ? str_cat("an action is needed: there are ", kActions)
                                         : str_cat('"', out->action, "\" is not known; there are ", kActions));
  }
  if (out->action == "check" && out->other.empty())
    throw UsageError("two files are needed: tessera data check TRAIN NEW");
  if (out->describe.path.empty()) throw UsageError("a file is needed: tessera data describe FILE");
  if (out->action == "check" && !out->output.empty()) throw UsageError("--output is of describe; check has --html");
  if (out->action == "describe" && !out->other.empty())
    throw UsageError(str_cat("describe takes one file or a pattern in quotes, not also ", out->other));
  if (given->count("rows") > 0 && out->describe.rows < 1) throw UsageError("--rows takes a number of rows: 1 or more");
  return true;
}

// Refuses a job, and files of formats that pandas reads and no reader here does.
void refuse_other_formats(const std::string& path) {
  const std::string ending = lower(std::filesystem::path(path).extension().string());
  if (ending == ".toml") fail(Code::kInvalidArgument, path, " is a job: name the files of its data.path instead");
  for (const auto& [endings, what, reads] :
       {std::array<const char*, 3>{".xlsx .xls .ods", "a spreadsheet", "read_excel"},
        {".json .jsonl .ndjson", "JSON", "read_json"},
        {".pkl .pickle", "a pickle", "read_pickle"}}) {
    if (ending.empty() || (str_cat(endings, ' ')).find(ending + ' ') == std::string::npos) continue;
    fail(Code::kInvalidArgument, path, " is ", what,
         ", which no reader reads: write it as CSV or Parquet first, for example with pandas.", reads,
         "(...).to_csv(\"data.csv\", index=False)");
  }
}

// The reader that opens the path. For text, readers with other delimiters follow.
std::vector<std::string> readers_for(const Runtime& runtime, const std::string& path) {
  refuse_other_formats(path);
  std::string first = "csv";
  try {
    DataConfig data;
    data.reader.clear();
    data.path = path;
    first = reader_of(runtime, data);
  } catch (const Error&) {  // the name does not tell; the rows may
  }
  if (!description_of(runtime, first, path).empty())
    fail(Code::kInvalidArgument, path, " describes its own columns: read it with reader = \"", first,
         "\" and path in [data], without any [[column]]");
  std::vector<std::string> texts = {"csv", "tsv", "csv?delimiter=;", "csv?delimiter=|"};
  const auto own = std::find(texts.begin(), texts.end(), first);
  if (own == texts.end()) return {first};
  std::rotate(texts.begin(), own, own + 1);
  return texts;
}

// `options` for another path, with the readers that may open it.
LookOptions look_options(const Runtime& runtime, LookOptions options, const std::string& path,
                         const std::string& reader) {
  options.path = path;
  options.readers = reader.empty() ? readers_for(runtime, path) : std::vector<std::string>{reader};
  options.text = reader.empty() && options.readers.size() > 1;
  options.progress = stderr_is_terminal();
  return options;
}

int check_files(const Runtime& runtime, const DataArguments& a) {
  LookOptions options = a.describe;
  options.keep_rows = true;
  const FilesSeen train = look_at_files(runtime, look_options(runtime, options, a.describe.path, a.reader));
  const FilesSeen now = look_at_files(runtime, look_options(runtime, options, a.other, a.reader));
  std::vector<std::string> labels;
  std::istringstream names(a.describe.label);
  for (std::string name; std::getline(names, name, ',');) labels.push_back(name);
  const std::vector<Difference> all = differences(train, now, labels);
  const std::string about = str_cat(a.other, ", ", now.rows, " rows, beside ", a.describe.path, ", ", train.rows,
                                    " rows: ", all.empty() ? "no difference" : "see below");
  if (!a.html.empty()) write_page(a.html, "tessera data check", differences_page(train, now, all, about));
  for (const Difference& d : all)
    std::cout << wrapped((d.column.empty() ? "" : d.column + ": ") + d.sentence, "", "  ");
  if (const std::string copies = copies_sentence(train, now); !copies.empty()) std::cout << wrapped(copies, "", "  ");
  if (all.empty())
    std::cout << wrapped(str_cat(a.other, " (", now.rows, " rows) has no difference from ", a.describe.path, " (",
                                 train.rows, " rows) that would spoil a model"));
  return all.empty() ? 0 : 1;
}

}  // namespace

int data_command(const std::vector<std::string>& args) {
  DataArguments a;
  if (!parse_data_arguments(args, &a)) return 0;
  check_outputs({{"--html", a.html}, {"--output", a.output}}, {{a.describe.path, a.other}, {}});
  std::error_code ignored;
  if (!a.output.empty() && std::filesystem::exists(a.output, ignored))
    fail(Code::kAlreadyExists, a.output, " exists: write to another file, or remove it first");
  if (!a.html.empty()) check_page(a.html);
  const PluginWatch watch;
  const Runtime runtime;
  if (a.action == "check") return check_files(runtime, a);
  static_cast<LookOptions&>(a.describe) = look_options(runtime, a.describe, a.describe.path, a.reader);
  const Description described = describe_files(runtime, a.describe);
  const std::string& text = described.job;
  if (!described.guess.empty()) std::cerr << "tessera data describe: " << described.guess << '\n';
  if (!a.html.empty()) write_page(a.html, "tessera data describe", described.page);
  if (a.output.empty()) {
    std::cout << text;
    return 0;
  }
  std::ofstream file(a.output);
  file << text;
  file.close();
  if (!file) fail(Code::kUnavailable, "cannot write to ", a.output);
  return 0;
}

}  // namespace tessera::cli

#include "config/reader_of_path.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "tessera/error.h"

namespace tessera::config {

namespace fs = std::filesystem;

std::string ending_of(const std::string& path) {
  fs::path name = fs::path(path).filename();
  if (name.extension() == ".gz" || name.extension() == ".zst") name = name.stem();
  std::string ending = name.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending.empty() ? ending : ending.substr(1);
}

namespace {

constexpr char kUnsaid = '\n';

// Endings of data files, for text and for readers whose name differs from the ending.
struct Ending {
  const char* ending;
  const char* reader;
  char delimiter;  // implied by the name; kUnsaid: text with any delimiter; 0: no text
};
constexpr std::array<Ending, 6> kEndings = {{{"csv", "csv", ','},
                                             {"tsv", "tsv", '\t'},
                                             {"txt", "csv", kUnsaid},
                                             {"arrow", "arrow", 0},
                                             {"feather", "arrow", 0},
                                             {"parquet", "parquet", 0}}};

const Ending* known_ending(const std::string& ending) {
  const auto at = std::find_if(kEndings.begin(), kEndings.end(), [&](const Ending& e) { return ending == e.ending; });
  return at == kEndings.end() ? nullptr : &*at;
}

// If the first line lacks the delimiter that its name implies, the most frequent delimiter in it decides.
std::string reader_of_text(const Ending& own, const std::string& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return own.reader;  // a pipe can be read only once
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  if (line.starts_with("\x1f\x8b") || line.starts_with("\x28\xb5\x2f\xfd")) return own.reader;  // compressed
  const auto count = [&](char c) { return std::count(line.begin(), line.end(), c); };
  if (count(own.delimiter) > 0) return own.reader;
  constexpr std::array<std::pair<char, const char*>, 4> kOthers = {
      {{',', "csv"}, {'\t', "tsv"}, {';', "csv?delimiter=;"}, {'|', "csv?delimiter=|"}}};
  const auto most = std::max_element(kOthers.begin(), kOthers.end(),
                                     [&](const auto& a, const auto& b) { return count(a.first) < count(b.first); });
  return count(most->first) > 0 ? most->second : own.reader;
}

// Returns a directory's first file with the ending, by name.
std::string first_file(const std::string& directory, const std::string& ending) {
  std::string first;
  std::error_code failed;
  for (fs::directory_iterator at(directory, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string file = at->path().string();
    if (ending_of(file) == ending && (first.empty() || file < first)) first = file;
  }
  return first;
}

// Returns the ending that all of a directory's data files share; empty: there is none. `found`: all endings, separated
// by commas.
std::string ending_of_files(const std::string& directory, std::string* found) {
  std::set<std::string> endings;
  constexpr int kMostFiles = 10000;  // number of files to look at
  int seen = 0;
  std::error_code failed;
  for (fs::recursive_directory_iterator at(directory, failed), end; !failed && at != end && seen < kMostFiles;
       at.increment(failed), ++seen) {
    std::error_code ignored;
    const std::string ending = ending_of(at->path().string());
    if (known_ending(ending) != nullptr && at->is_regular_file(ignored)) endings.insert(ending);
  }
  found->clear();
  for (const std::string& ending : endings) *found += str_cat(found->empty() ? "." : ", .", ending);
  return endings.size() == 1 ? *endings.begin() : std::string();
}

}  // namespace

std::string reader_of_path(const std::string& path) {
  constexpr const char* kSay = ": set data.reader, as in reader = \"csv\" (tessera plugins lists the readers)";
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    const std::string ending = ending_of(path);
    if (ending.empty())
      fail(Code::kInvalidArgument, "data.path is \"", path, "\", whose name has no ending that names a reader", kSay);
    const Ending* const known = known_ending(ending);
    if (known == nullptr) return ending;
    return known->delimiter != 0 ? reader_of_text(*known, path) : known->reader;
  }
  std::string found;
  const std::string ending = ending_of_files(path, &found);
  if (ending.empty())
    fail(Code::kInvalidArgument, "data.path is the directory \"", path, "\", whose files ",
         found.empty() ? std::string("do not end in .csv, .parquet or the like") : str_cat("end in ", found), kSay);
  const Ending* const known = known_ending(ending);
  return known->delimiter != 0 ? reader_of_text(*known, first_file(path, ending)) : known->reader;
}

}  // namespace tessera::config

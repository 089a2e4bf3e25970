// tessera new KIND NAME [FOLDER]: writes a plugin project, out of tree, that builds and passes `tessera verify`.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "command.h"
#include "options.h"
#include "project_templates.h"
#include "tessera/sdk/nearest.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kAboutNew[] =
    "Writes the project of a working plugin, which you can change into your own: its source, a CMakeLists.txt with a "
    "test that runs tessera verify, a README.md and a file for a CI system. It builds against an installed Tessera.\n"
    "\n"
    "  KIND    sharder, kernel, optimizer, collective, module, reader or metric\n"
    "  NAME    id of the component: letters a-z, digits, _ . and -, preferably with\n"
    "          a dot, as in \"acme.hot\"\n"
    "  FOLDER  new folder for the project (default: NAME, with _ for . and -)";

struct NewProject {
  const ProjectTemplate* kind = nullptr;
  std::string id;
  std::string target;  // the id as CMake targets and files spell it
  fs::path folder;
};

const ProjectTemplate& template_of(const std::string& kind) {
  for (const ProjectTemplate& t : project_templates()) {
    if (t.kind == kind) return t;
  }
  throw UsageError(str_cat("there is no project of the kind \"", kind,
                           "\", only: ", sdk::joined(project_templates(), &ProjectTemplate::kind)));
}

NewProject checked_project(const std::string& kind, const std::string& id, const std::string& folder) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz",
                             kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789_.-";
  if (id.empty() || kLetters.find(id[0]) == kLetters.npos || id.find_first_not_of(kAllowed) != id.npos)
    throw UsageError(
        str_cat("NAME is \"", id, "\", but ids begin with a letter a-z and have letters a-z, digits, _ . - only"));
  NewProject out{&template_of(kind), id, id, folder};
  for (char& c : out.target) {
    if (c == '.' || c == '-') c = '_';
  }
  if (out.folder.empty()) out.folder = out.target;
  if (fs::exists(out.folder))
    throw UsageError(str_cat(out.folder.string(), " exists: name a folder that does not exist"));
  return out;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

void write_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) fail(Code::kUnavailable, "cannot write ", path.string());
}

void write_project(const NewProject& p) {
  for (const ProjectFile& file : project_files()) {
    const std::string text =
        replaced(replaced(replaced(file.text, "@ID@", p.id), "@TARGET@", p.target), "@KIND@", p.kind->kind);
    write_file(p.folder / file.path, text);
  }
  const std::string sample = p.kind->id;  // id used in the template
  std::string plugin = p.id;
  std::replace(plugin.begin(), plugin.end(), '.', '-');
  write_file(p.folder / (p.target + ".cc"),
             replaced(replaced(p.kind->text, sample, p.id), replaced(sample, ".", "-"), plugin));
}

}  // namespace

int new_command(const std::vector<std::string>& args) {
  namespace po = boost::program_options;
  std::string kind, id, folder;
  Options options("new", "KIND NAME [FOLDER]", kAboutNew);
  options.argument("kind", po::value(&kind));
  options.argument("name", po::value(&id));
  options.argument("folder", po::value(&folder));
  if (!parse_options(args, options)) return 0;
  if (kind.empty() || id.empty()) throw UsageError("a KIND and a NAME are needed: see tessera new --help");
  const NewProject project = checked_project(kind, id, folder);
  write_project(project);
  const std::string where = project.folder.string();
  std::cout << str_cat(where, " contains the project of the ", kind, " \"", id, "\". Build and test it:\n  cmake -S ",
                       where, " -B ", where, "/build -DCMAKE_PREFIX_PATH=WHERE_TESSERA_IS && cmake --build ", where,
                       "/build\n  ctest --test-dir ", where, "/build\n");
  return 0;
}

}  // namespace tessera::cli

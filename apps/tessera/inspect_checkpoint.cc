#include "inspect_checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"
#include "modules/row_figures.h"
#include "tessera/train_job.h"
#include "wrapped.h"

namespace tessera::cli {
namespace {

using checkpoint::Manifest;
using checkpoint::TableEntry;
using json = nlohmann::ordered_json;

std::string percent(double share) {
  char out[16];
  std::snprintf(out, sizeof(out), "%.1f %%", 100 * share);
  return out;
}

std::string newest(int64_t steps) { return steps == 1 ? "step" : str_cat(steps, " steps"); }

void verify_files(const std::string& directory, const Manifest& manifest) {
  for (const Manifest::File& listed : manifest.files) {
    const checkpoint::InputFile file = checkpoint::open_listed(directory, listed);
    if (file.crc32(0, file.size()) != listed.crc) checkpoint::fail_wrong_sum(directory, listed);
  }
}

int64_t bytes_of(const Manifest& manifest) {
  int64_t out = 0;
  for (const Manifest::File& file : manifest.files) out += file.bytes;
  return out;
}

json table_json(const TableEntry& t) {
  json out = {{"name", t.name},
              {"rows", t.stored_rows()},
              {"dim", t.dim},
              {"dtype", to_string(t.dtype)},
              {"optimizer", t.optimizer.name},
              {"states", t.state_list()}};
  if (t.keys) out["ids"] = t.rows;
  if (t.removed) out["removed"] = *t.removed;
  if (t.figures) out["figures"] = to_json(*t.figures);
  return out;
}

void print_text(const std::string& path, const Manifest& m) {
  const std::optional<int64_t> step = saved_step(m.progress);
  std::cout << wrapped(str_cat(path, ", a checkpoint", step ? str_cat(" after step ", *step) : "", " of ", m.world_size,
                               m.world_size == 1 ? " rank, " : " ranks, ", m.files.size(), " files of ", bytes_of(m),
                               " bytes"),
                       "", "  ")
            << '\n';
  if (m.base)
    std::cout << wrapped("some tables have only the rows that changed since " + m.base->name, "", "  ") << '\n';
  size_t widest = 8;
  for (const TableEntry& t : m.tables) widest = std::max(widest, t.name.size());
  const auto row = [&](const std::string& name, const auto& rows, const auto& dim, const char* type,
                       const std::string& optimizer, const std::string& states) {
    std::ostringstream out;
    out << std::left << std::setw(static_cast<int>(widest)) << name << std::right << std::setw(13) << rows
        << std::setw(6) << dim << ' ' << std::left << std::setw(9) << type << std::setw(22) << optimizer << ' ';
    const std::string figures = out.str();
    return wrapped(states, figures, std::string(figures.size(), ' '));
  };
  std::cout << row("table", "rows", "dim", "type", "optimizer", "states");
  for (const TableEntry& t : m.tables)
    std::cout << row(t.name, t.stored_rows(), t.dim, to_string(t.dtype), t.optimizer.name, t.state_list());
  for (const TableEntry& t : m.tables) {
    const std::string said =
        t.removed   ? str_cat(t.stored_rows(), " rows are new or changed, ", *t.removed, " ids were removed")
        : t.figures ? in_words(*t.figures, t.stored_rows())
                    : "";
    if (!said.empty()) std::cout << wrapped(str_cat(t.name, ": ", said), "  ", "    ");
  }
}

}  // namespace

bool is_checkpoint(const std::string& directory) { return checkpoint::has_checkpoint(directory); }

void inspect_checkpoint(const std::string& directory, bool verify, bool as_json) {
  const checkpoint::HeldCheckpoint held = checkpoint::hold_checkpoint(directory);
  const Manifest m = checkpoint::manifest_in(held.path);
  for (const Manifest::File& listed : m.files) (void)checkpoint::open_listed(held.path, listed);
  if (verify) verify_files(held.path, m);
  if (m.base) {
    const checkpoint::HeldCheckpoint base = checkpoint::hold_base(held.path, *m.base);
    const Manifest of_base = checkpoint::manifest_in(base.path);
    for (const Manifest::File& listed : of_base.files) (void)checkpoint::open_listed(base.path, listed);
    if (verify) verify_files(base.path, of_base);
  }
  if (as_json) {
    json out = {{"path", held.path}, {"type", "checkpoint"}, {"ranks", m.world_size}, {"bytes", bytes_of(m)}};
    if (const std::optional<int64_t> step = saved_step(m.progress)) out["step"] = *step;
    for (const TableEntry& t : m.tables) out["tables"].push_back(table_json(t));
    if (m.base) out["base"] = m.base->name;
    if (verify) out["verified"] = true;
    std::cout << out.dump(1) << '\n';
    return;
  }
  print_text(held.path, m);
  std::printf(verify ? "all checksums are right\n" : "all files have the right sizes; --verify also reads them\n");
}

std::string in_words(const RowFigures& f, int64_t rows) {
  std::string out = str_cat(rows, f.capacity > 0 ? str_cat(" of ", f.capacity) : "", " rows in use");
  if (f.capacity > 0) out += str_cat(" (", percent(static_cast<double>(rows) / static_cast<double>(f.capacity)), ')');
  if (f.lookups > 0)
    out += str_cat(", ", percent(static_cast<double>(f.hits) / static_cast<double>(f.lookups)), " of ", f.lookups,
                   " lookups found one");
  out += str_cat(", ", f.evictions, " evicted");
  if (f.steps_of(1) == 0) return out;
  return out + str_cat("; half were seen in the newest ", newest(f.steps_of(0.5)), ", 99 % in the newest ",
                       newest(f.steps_of(0.99)), ", all in the newest ", newest(f.steps_of(1)));
}

}  // namespace tessera::cli

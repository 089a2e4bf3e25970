#include "inspect_checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>

#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"
#include "config/json.h"
#include "modules/row_figures.h"
#include "train/saved_run.h"

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
  std::printf("%s, a checkpoint%s of %d %s, %zu files of %lld bytes\n\n", path.c_str(),
              step ? str_cat(" after step ", *step).c_str() : "", m.world_size, m.world_size == 1 ? "rank" : "ranks",
              m.files.size(), static_cast<long long>(bytes_of(m)));
  if (m.base) std::printf("of some tables only the rows that changed since %s, beside it\n\n", m.base->name.c_str());
  size_t widest = 8;
  for (const TableEntry& t : m.tables) widest = std::max(widest, t.name.size());
  const int name = static_cast<int>(widest);
  std::printf("%-*s %12s %5s %-8s %-22s %s\n", name, "table", "rows", "dim", "type", "optimizer", "states");
  for (const TableEntry& t : m.tables) {
    std::printf("%-*s %12lld %5lld %-8s %-22s %s\n", name, t.name.c_str(), static_cast<long long>(t.stored_rows()),
                static_cast<long long>(t.dim), to_string(t.dtype), t.optimizer.name.c_str(), t.state_list().c_str());
  }
  for (const TableEntry& t : m.tables) {
    if (t.removed) {
      std::printf("  %s: %lld rows changed or are new, ids that lost theirs: %lld\n", t.name.c_str(),
                  static_cast<long long>(t.stored_rows()), static_cast<long long>(*t.removed));
    } else if (t.figures) {
      std::printf("  %s: %s\n", t.name.c_str(), in_words(*t.figures, t.stored_rows()).c_str());
    }
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
  std::printf(verify ? "all checksums are right\n" : "all files are there in their sizes; --verify reads them\n");
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

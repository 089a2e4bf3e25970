// Builds the model of a directory of publications for tests, without a ModelFollower.
#pragma once

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "publishing/patched_model.h"
#include "publishing/publication.h"
#include "tessera/predictor.h"

namespace tessera::test {

using publishing::Publication;

inline std::string path_in(const std::string& directory, Publication::Kind kind, int64_t number) {
  return directory + "/" + Publication::name_of(kind, number);
}

// Applies all deltas up to a number to the oldest base. Each must follow the one that it names.
inline publishing::PatchedModel model_at(const std::string& directory, int64_t number) {
  const int64_t base = publishing::publications_in(directory, Publication::kBase).at(0);
  publishing::PatchedModel out(path_in(directory, Publication::kBase, base));
  std::string hash = publishing::read_publication(directory, Publication::kBase, base).hash;
  for (int64_t n = base + 1; n <= number; ++n) {
    const Publication delta = publishing::read_publication(directory, Publication::kDelta, n);
    if (delta.previous != hash)
      throw std::runtime_error("delta " + std::to_string(n) + " is not behind the one before");
    hash = delta.hash;
    const publishing::Delta content = publishing::read_delta(directory, delta);
    out.check(content, "delta");
    out.apply(content);
  }
  return out;
}

// Returns the rows by id.
inline std::map<int64_t, std::string> rows_of(const QuantizedTable& table) {
  std::map<int64_t, std::string> out;
  const auto& remapping = table.config.remapping;
  for (int64_t r = 0; r < table.rows.size(0); ++r) {
    const char* row = static_cast<const char*>(table.rows.raw()) + r * table.rows.size(1);
    out[remapping ? remapping->keys().data<int64_t>()[r] : r] = {row, static_cast<size_t>(table.rows.size(1))};
  }
  return out;
}

// Returns the first place where two models differ in their bits; "": none.
inline std::string difference(const InferenceModel& a, const InferenceModel& b) {
  if (a.tables.size() != b.tables.size() || a.dense.size() != b.dense.size()) return "other tables or parameters";
  for (size_t t = 0; t < a.tables.size(); ++t) {
    if (a.tables[t].config.row_format != b.tables[t].config.row_format) return "another format";
    const auto mine = rows_of(a.tables[t]), theirs = rows_of(b.tables[t]);
    if (mine.size() != theirs.size())
      return str_cat("table ", a.tables[t].config.name, ": ", mine.size(), " rows and ", theirs.size());
    for (const auto& [id, row] : mine) {
      const auto other = theirs.find(id);
      if (other == theirs.end() || other->second != row)
        return str_cat("table ", a.tables[t].config.name, ": row ", id);
    }
  }
  for (const auto& [name, value] : a.dense) {
    const auto other = b.dense.find(name);
    if (other == b.dense.end() || other->second.shape() != value.shape() ||
        std::memcmp(other->second.raw(), value.raw(), static_cast<size_t>(value.bytes())) != 0)
      return "parameter " + name;
  }
  return "";
}

// Copies a publication in a trainer's order: its JSON last.
inline void copy_publication(const std::string& from, const std::string& to, Publication::Kind kind, int64_t number) {
  namespace fs = std::filesystem;
  const std::string name = Publication::name_of(kind, number);
  if (kind == Publication::kBase) {
    fs::copy(from + "/" + name, to + "/" + name);
  } else {
    fs::copy(from + "/" + name + ".safetensors", to + "/" + name + ".safetensors");
  }
  fs::copy(from + "/" + name + ".json", to + "/copied");
  fs::rename(to + "/copied", to + "/" + name + ".json");
}

}  // namespace tessera::test

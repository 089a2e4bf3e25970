#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tessera/runtime.h"

namespace tessera {
namespace {

using Row = std::array<std::string, 6>;

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

Row row_of(const LoadEntry& e) {
  const std::string file = std::filesystem::path(e.path).filename().string();
  const std::string id = e.id.empty() ? "(" + file + ")" : e.id;
  const std::string why = e.reason.empty() ? e.path : e.path + ": " + e.reason;
  return {id, or_dash(e.kind), or_dash(e.version), or_dash(e.abi), to_string(e.state), why};
}

void print(const Row& row, const std::array<size_t, 6>& widths, std::string* out) {
  for (size_t i = 0; i < row.size(); ++i) {
    *out += row[i];
    if (i + 1 < row.size()) out->append(widths[i] + 2 - row[i].size(), ' ');
  }
  *out += '\n';
}

}  // namespace

const char* to_string(LoadEntry::State state) {
  switch (state) {
    case LoadEntry::State::kChosen:
      return "chosen";
    case LoadEntry::State::kAsked:
      return "asked";
    case LoadEntry::State::kAvailable:
      return "available";
    case LoadEntry::State::kUnusable:
      return "unusable";
    case LoadEntry::State::kRejected:
      return "rejected";
  }
  return "unknown";
}

std::string LoadReport::text() const {
  std::vector<Row> rows{{"ID", "KIND", "VERSION", "ABI", "STATE", "WHERE AND WHY"}};
  for (const LoadEntry& e : entries) rows.push_back(row_of(e));
  std::array<size_t, 6> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const Row& row : rows) print(row, widths, &out);
  out += "searched, in this order:\n";
  for (const std::string& directory : searched) out += "  " + directory + "\n";
  return out;
}

std::string LoadReport::json() const {
  nlohmann::ordered_json out;
  out["searched"] = searched;
  out["plugins"] = nlohmann::ordered_json::array();
  for (const LoadEntry& e : entries) {
    out["plugins"].push_back({{"path", e.path},
                              {"id", e.id},
                              {"kind", e.kind},
                              {"version", e.version},
                              {"abi", e.abi},
                              {"state", to_string(e.state)},
                              {"reason", e.reason}});
  }
  // File names need not be UTF-8.
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace tessera

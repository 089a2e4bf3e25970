#include "train/same_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "config/fnv1a.h"
#include "config/json.h"
#include "data/content_hash.h"
#include "tessera/error.h"

namespace tessera {
namespace {

using json = nlohmann::ordered_json;

// A list in the order of comparison: a subject, its value, and true if people can read the value.
json compared(const Dataset& data, uint64_t train_hash, uint64_t test_hash) {
  json out = json::array();
  out.push_back({"training rows", data.train_rows(), true});
  out.push_back({"test rows", data.test_rows(), true});
  const json encoding =
      data.encoding.empty() ? json::object() : config::parse_json(data.encoding, {"the data's encoding"});
  const json vocabularies = encoding.value("vocabularies", json::object());
  for (const auto& [table, words] : vocabularies.items()) {
    out.push_back({str_cat("words of \"", table, '"'), words.size(), true});
    out.push_back({str_cat("the words of \"", table, "\" or their order"), fnv1a(words.dump()), false});
  }
  for (const DataColumn& column : data.columns)
    out.push_back({str_cat("rows of the column \"", column.name, '"'), column.rows, true});
  out.push_back({"the training rows or their order", train_hash, false});
  out.push_back({"the test rows or their order", test_hash, false});
  const json columns = encoding.value("columns", json::array());
  for (const json& column : columns) {
    for (const char* learned : {"mean", "deviation"}) {  // their last digits depend on the order of the rows
      if (column.contains(learned))
        out.push_back({str_cat(learned, " of \"", column.value("name", ""), '"'), column[learned], true});
    }
  }
  out.push_back({"learned values of the columns", fnv1a(data.encoding), false});
  return out;
}

// Returns the first difference as half a sentence; empty: there is none.
std::string difference(const json& mine, const json& first) {
  for (size_t i = 0; i < std::min(mine.size(), first.size()); ++i) {
    if (mine[i] == first[i]) continue;
    const auto subject = mine[i][0].get<std::string>();
    if (mine[i][0] != first[i][0]) return str_cat(subject, " instead of ", first[i][0].get<std::string>());
    return mine[i][2].get<bool>() ? str_cat(subject, ": ", mine[i][1].dump(), " instead of ", first[i][1].dump())
                                  : str_cat(subject, " differ");
  }
  return mine.size() == first.size() ? "" : "other columns";
}

}  // namespace

void check_same_data(const ProcessGroup& group, const Dataset& data, bool arriving) {
  if (group.world_size() == 1) return;
  const uint64_t train = arriving ? 0 : data::content_hash(data.train);
  const uint64_t test = arriving ? 0 : data::content_hash(data.test);
  std::string columns;
  for (const DataColumn& c : data.columns) columns += str_cat(c.name, ' ', c.rows, '\n');
  const std::vector<uint64_t> digest = {static_cast<uint64_t>(data.train_rows()),
                                        static_cast<uint64_t>(data.test_rows()),
                                        fnv1a(data.encoding),
                                        fnv1a(columns),
                                        train,
                                        test};
  const auto digests = group.all_gather(digest, "data");
  if (std::count(digests.begin(), digests.end(), digest) == std::ssize(digests)) return;
  const std::vector<std::string> all = group.all_gather_text(compared(data, train, test).dump(), "data of ranks");
  const json first = config::parse_json(all[0], {"the data of rank 0"});
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const std::string what = difference(config::parse_json(all[rank], {str_cat("the data of rank ", rank)}), first);
    if (what.empty()) continue;
    throw Error(Code::kFailedPrecondition,
                str_cat("rank ", rank, " reads other data than rank 0: ", what,
                        "; give all ranks the same files, with their rows in the same order"),
                static_cast<int>(rank));
  }
  fail(Code::kInternal, "the ranks' data differ in an unknown part");
}

}  // namespace tessera

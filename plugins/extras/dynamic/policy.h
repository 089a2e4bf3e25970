// The options of a table. They decide which ids get rows, which are evicted, and what an id without a row reads.
#pragma once

#include <tessera/sdk/kernel.h>
#include <tessera/sdk/options.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace extras {

using namespace tessera::sdk;

enum class Evict { kLru, kLfu, kDecayed };
enum class Absent { kZero, kStart, kShared };

struct Policy {
  // Reads its options out of a table's options.
  Policy(Options& options, const char* table);

  int64_t capacity = 0;    // rows; 0: the table's number of rows
  uint64_t max_bytes = 0;  // another limit of the capacity, in bytes of rows and states; 0: none
  Evict evict = Evict::kLru;
  double half_life = 1000;      // for Evict::kDecayed, in steps
  int64_t ttl = 0;              // steps without a sighting after which a row expires; 0: never
  double ttl_seconds = 0;       // the same in seconds
  std::vector<int64_t> pinned;  // ids that are never evicted, ascending
  int64_t admit_after = 1;      // sightings needed for a row
  double admit_probability = 1;
  // A full bucket accepts an id only if it was sighted at least as often as the count of the id that would be evicted
  // (TinyLFU: Einziger, Friedman and Manes, 2017).
  bool tinylfu = false;
  // The values that ids without a row read: 0; start values, only in training; or a shared row, which they train.
  Absent absent = Absent::kZero;
};

// Reads ids, one per line; returns them ascending.
inline std::vector<int64_t> ids_of_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) fail(TSR_NOT_FOUND, "cannot read ", path, ", which pinned names: a file with an id on each line");
  std::vector<int64_t> out;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty()) continue;
    int64_t id = -1;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), id);
    if (error != std::errc() || end != line.data() + line.size() || id < 0 || id == INT64_MAX)
      fail(TSR_INVALID_ARGUMENT, path, ", line ", number, ": \"", line.substr(0, 40),
           "\" is not an id: a number from 0 to 2^63 - 2, one a line");
    out.push_back(id);
  }
  if (!in.eof() || out.empty())
    fail(TSR_INVALID_ARGUMENT, path, ", which pinned names, ", in.eof() ? "has no id" : "cannot be read to its end");
  std::sort(out.begin(), out.end());
  return out;
}

inline Policy::Policy(Options& options, const char* table) {
  const auto at_least = [&](const char* key, int64_t otherwise, int64_t least) {
    const int64_t value = options.integer(key, otherwise);
    if (value < least)
      fail(TSR_INVALID_ARGUMENT, "table \"", table, "\": ", key, " is ", value, ", but needs ", least, " or more");
    return value;
  };
  capacity = at_least("capacity", 0, options.has("capacity") ? 1 : 0);
  max_bytes = static_cast<uint64_t>(at_least("max_bytes", 0, 0));
  const std::string how = options.string("evict", "lru");
  if (how == "lfu")
    evict = Evict::kLfu;
  else if (how == "decayed")
    evict = Evict::kDecayed;
  else if (how != "lru")
    fail(TSR_INVALID_ARGUMENT, "table \"", table, "\": evict is \"", how, "\", but must be lru, lfu or decayed");
  half_life = options.number("half_life", half_life);
  if (!(half_life > 0 && std::isfinite(half_life)))
    fail(TSR_INVALID_ARGUMENT, "table \"", table, "\": half_life is ", half_life, " steps, but must be above 0");
  if (options.has("half_life") && evict != Evict::kDecayed)
    fail(TSR_INVALID_ARGUMENT, "table \"", table, "\": half_life belongs to evict=decayed, not to ", how);
  ttl = at_least("ttl_steps", 0, 0);
  ttl_seconds = options.number("ttl_seconds", 0);
  if (!(ttl_seconds >= 0 && std::isfinite(ttl_seconds)))
    fail(TSR_INVALID_ARGUMENT, "table \"", table, "\": ttl_seconds is ", ttl_seconds, ", but needs 0 or more");
  if (options.has("pinned")) pinned = ids_of_file(options.string("pinned", ""));
  admit_after = at_least("admit_after", 1, 1);
  if (admit_after > 255)
    fail(TSR_INVALID_ARGUMENT, "table \"", table, "\": admit_after is ", admit_after,
         ", but sightings are counted to 255");
  admit_probability = options.number("admit_probability", 1);
  if (!(admit_probability > 0 && admit_probability <= 1))
    fail(TSR_INVALID_ARGUMENT, "table \"", table, "\": admit_probability is ", admit_probability,
         ", but must be above 0 and at most 1");
  const std::string admit = options.string("admit", "always");
  if (admit != "always" && admit != "tinylfu")
    fail(TSR_INVALID_ARGUMENT, "table \"", table, "\": admit is \"", admit, "\", but must be always or tinylfu");
  tinylfu = admit == "tinylfu";
  if (tinylfu && evict == Evict::kLru)
    fail(TSR_INVALID_ARGUMENT, "table \"", table,
         "\": admit=tinylfu compares how often ids were seen, which evict=lru does not count: set evict to lfu or "
         "decayed");
  const std::string what = options.string("absent", "zero");
  if (what == "start")
    absent = Absent::kStart;
  else if (what == "shared")
    absent = Absent::kShared;
  else if (what != "zero")
    fail(TSR_INVALID_ARGUMENT, "table \"", table, "\": absent is \"", what, "\", but must be zero, start or shared");
}

}  // namespace extras

// Tests that every id has one row and every row one id, for any list, and that bad lists and lists of another plan are
// refused.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>

#include "hot_rows.h"

namespace {

using namespace extras;

int failures = 0;
template <class... Parts>
void expect(bool holds, const Parts&... parts) {
  if (holds) return;
  ++failures;
  std::ostringstream out;
  (out << ... << parts);
  std::printf("%s\n", out.str().c_str());
}

// A temporary file, removed in the destructor.
class HotFile {
 public:
  explicit HotFile(const std::string& text) {
    const int fd = mkstemp(path_.data());
    if (fd < 0) std::abort();
    std::ofstream(path_) << text;
  }
  ~HotFile() { std::remove(path_.c_str()); }
  std::string options(const std::string& more = "") const { return "{\"file\": \"" + path_ + "\"" + more + "}"; }

 private:
  std::string path_ = "/tmp/hot_rows_XXXXXX";
};

HotRows made(const std::string& json) {
  Options options(json.c_str());
  return HotRows(options);
}

Table table_of(int64_t rows) { return {"t", rows, 8, TSR_POOLING_SUM, dtype_of<float>(), {}}; }

void every_row_has_its_place(int64_t rows, int64_t hot, uint32_t world) {
  std::mt19937 random(static_cast<unsigned>(rows + hot));
  std::set<int64_t> chosen;
  while (static_cast<int64_t>(chosen.size()) < hot) chosen.insert(static_cast<int64_t>(random()) % rows);
  std::string line = "other 1 2 3\n\nt";
  for (const int64_t row : chosen) line.append(" ").append(std::to_string(row));
  const HotFile file(line + "\n");
  const HotRows sharder = made(file.options());
  const Topology topology{world, world, kDLCPU, {}};
  const auto layouts = sharder.propose(table_of(rows), topology, {});
  if (layouts.size() != 1) return expect(false, layouts.size(), " layouts");
  std::vector<int64_t> room;  // rows per row set
  for (const LayoutPart& part : layouts[0].parts) {
    const bool replica = part.combine == TSR_COMBINE_REPLICA;
    for (size_t i = 0; i < (replica ? 1 : part.rectangles.size()); ++i) room.push_back(part.rectangles[i].rows);
  }
  const Routed layout{table_of(rows), topology, static_cast<uint32_t>(room.size()), layouts[0].cookie};
  std::vector<int64_t> ids, local(static_cast<size_t>(rows)), back(local.size());
  for (int64_t id = 0; id < rows; ++id) ids.push_back(id);
  std::vector<int32_t> sets(local.size());
  sharder.route(layout, ids, sets, local);
  sharder.unroute(layout, sets, local, back);
  expect(back == ids, "unroute does not undo route");
  std::set<std::pair<int32_t, int64_t>> places;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool fits = sets[i] >= 0 && static_cast<size_t>(sets[i]) < room.size() && local[i] >= 0 &&
                      local[i] < room[static_cast<size_t>(sets[i])];
    expect(fits, "row ", i, " lies outside");
    expect(places.emplace(sets[i], local[i]).second, "row ", i, " lies where another does");
    expect(hot == 0 || (sets[i] == 0) == chosen.contains(ids[i]), "row ", i, " is in row set ", sets[i]);
  }
  Routed of_another = layout;
  of_another.cookie += 2;
  try {
    sharder.route(of_another, ids, sets, local);
    expect(false, "the cookie of another list is taken");
  } catch (const Failure& failure) {
    expect(std::string(failure.what()).find("another list of hot rows") != std::string::npos, failure.what());
  }
}

void refuses(const std::string& text, const std::string& more, const std::string& sentence) {
  const HotFile file(text);
  try {
    const HotRows sharder = made(file.options(more));
    sharder.propose(table_of(10), {2, 2, kDLCPU, {}}, {});
    expect(false, text, " is taken");
  } catch (const Failure& failure) {
    expect(std::string(failure.what()).find(sentence) != std::string::npos, failure.what());
  }
}

}  // namespace

int main() {
  for (const uint32_t world : {1u, 2u, 5u}) {
    every_row_has_its_place(100, 0, world);
    every_row_has_its_place(100, 1, world);
    every_row_has_its_place(101, 17, world);
    every_row_has_its_place(40, 40, world);
  }
  refuses("t 3 10\n", "", "row 10 of \"t\" is hot, which has 10 rows");
  refuses("t 3 x\n", "", "must be its name and then rows");
  refuses("t 3 3\n", "", "each once");
  refuses("t -1\n", "", "has row -1");
  refuses("t 1\n", ", \"rows\": -1", "cannot be negative");
  const HotFile file("t 5 3 9\n");
  const auto layout = made(file.options(", \"rows\": 2")).propose(table_of(10), {2, 2, kDLCPU, {}}, {});
  expect(layout.at(0).parts.at(0).rectangles.at(0).rows == 2, "option \"rows\" does not count");
  expect(made(file.options()).propose(table_of(10), {2, 2, kDLCPU, {}}, {0, 3}).empty(), "max_shards is not kept");
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

// Compares a cached table with a table in memory, bit for bit, for operations in random order and with a thread that
// prefetches. Also tests failing files, the map, and both ways to move pieces of a file.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <tessera/sdk/plain_lookup.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>
#include <sstream>
#include <thread>

#include "plain_rows.h"
#include "tiered.h"

namespace {

using namespace extras;
using namespace tessera::sdk;

int failures = 0;
template <class... Parts>
void expect(bool right, const Parts&... parts) {
  if (right) return;
  if (++failures > 20) return;
  std::ostringstream text;
  (text << ... << parts);
  std::printf("%s\n", text.str().c_str());
}

constexpr int64_t kDim = 5;
constexpr int64_t kRows[] = {700, 90};
constexpr size_t kTables = std::size(kRows);

float start_of(uint32_t table, int64_t id, int64_t column) {
  return static_cast<float>(id) + static_cast<float>(column) / 8 + 1000 * static_cast<float>(table);
}
tsr_code fill(void*, uint32_t table, int64_t count, const int64_t* rows, float* out, tsr_error*) {
  for (int64_t i = 0; i < count * kDim; ++i) out[i] = start_of(table, rows[i / kDim], i % kDim);
  return TSR_OK;
}
tsr_code state(void*, uint32_t i, tsr_state* out, tsr_error*) {
  if (i > 0) return TSR_OUT_OF_RANGE;
  *out = {sizeof(tsr_state), TSR_STATE_PER_ROW, dtype_of<float>(), 0, 0.25, "updates"};
  return TSR_OK;
}
void update_row(void*, const tsr_update*, int64_t, float*, const float*, float* const*) {}

// The configs of instances, and the two kernels.
struct Bed {
  Bed() {
    optimizer_api.struct_size = sizeof(optimizer_api);
    optimizer_api.state = state;
    optimizer_api.update_row = update_row;
    optimizer_component.id = "test.counted";
    optimizer_component.api = &optimizer_api;
    for (size_t t = 0; t < kTables; ++t)
      tables[t] = {sizeof(tsr_kernel_table), 0, t == 0 ? "large" : "small", kRows[t], kDim, nullptr, 0, 0};
    config.struct_size = sizeof(config);
    config.compute_kernel = "key_value";
    config.device = {kDLCPU, 0};
    config.weight_dtype = config.output_dtype = dtype_of<float>();
    config.num_tables = kTables;
    config.table_stride = sizeof(tsr_kernel_table);
    config.tables = tables;
    config.optimizer = &optimizer;
    config.start_values = &start;
    plain_component.id = "test.plain";
    plain_component.api = &Kernel::table<Plain>;
  }
  std::unique_ptr<KernelInstance> open(const std::string& options) {
    Options own(options);
    Tiered kernel(Setup{Host(nullptr), own, &plain_part});
    own.finish();
    return kernel.open(config);
  }

  tsr_optimizer optimizer_api{};
  tsr_component optimizer_component{};
  tsr_instance optimizer{&optimizer_component, nullptr};
  tsr_start_values start{sizeof(tsr_start_values), 0, nullptr, fill, nullptr};
  tsr_kernel_table tables[kTables];
  tsr_kernel_config config{};
  Plain plain;
  tsr_component plain_component{};
  tsr_instance plain_part{&plain_component, &plain};
};

DLTensor tensor(const void* data, DLDataType type, std::vector<int64_t>& shape) {
  return {const_cast<void*>(data), {kDLCPU, 0}, static_cast<int32_t>(shape.size()), type, shape.data(), nullptr, 0};
}

// Bags of three features; the last two read the same positions of two tables.
struct Batch {
  Batch(std::mt19937& random, int64_t bags) {
    std::vector<int64_t> sizes;
    for (int64_t f = 0; f < 2; ++f) {
      for (int64_t b = 0; b < bags; ++b) {
        offsets.push_back(std::ssize(ids));
        const int64_t rows = f == 0 ? kRows[0] : std::min(kRows[0], kRows[1]);
        for (uint32_t n = random() % 4; n > 0; --n) {
          const double u = static_cast<double>(random()) / 4294967296.0;
          ids.push_back(static_cast<int64_t>(u * u * u * static_cast<double>(rows)));  // low ids are popular
        }
      }
      offsets.push_back(std::ssize(ids));
    }
    for (int64_t f = 0; f < 3; ++f)
      features.push_back({f == 2 ? 1 : 0, TSR_POOLING_SUM, bags, f == 0 ? 0 : bags + 1, f * kDim, 3 * kDim, 0, 0});
    width = bags * 3 * kDim;
    ids_shape = {std::ssize(ids)};
    offsets_shape = {std::ssize(offsets)};
    dl_ids = tensor(ids.data(), dtype_of<int64_t>(), ids_shape);
    dl_offsets = tensor(offsets.data(), dtype_of<int64_t>(), offsets_shape);
    raw.struct_size = sizeof(raw);
    raw.num_features = 3;
    raw.feature_stride = sizeof(tsr_lookup_feature);
    raw.features = features.data();
    raw.ids = &dl_ids;
    raw.offsets = &dl_offsets;
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  std::vector<int64_t> ids, offsets, ids_shape, offsets_shape;
  std::vector<tsr_lookup_feature> features;
  DLTensor dl_ids{}, dl_offsets{};
  int64_t width;
  tsr_lookup raw{};
};

// The cached tables, and equal tables in memory.
class Pair {
 public:
  explicit Pair(const std::string& options) : cached_(bed_.open(options)), plain_(bed_.config) {
    for (uint32_t t = 0; t < kTables; ++t) {
      std::vector<int64_t> ids(static_cast<size_t>(kRows[t]));
      std::iota(ids.begin(), ids.end(), 0);
      std::vector<float> weights(ids.size() * kDim);
      fill(nullptr, t, kRows[t], ids.data(), weights.data(), nullptr);
      move(ids, weights, {}, [&](tsr_rows& rows) { plain_.import_rows(t, rows); });
    }
  }
  TieredTables& cached() { return static_cast<TieredTables&>(*cached_); }

  void evaluate(std::mt19937& random, int64_t bags) {
    Batch batch(random, bags);
    batch.raw.flags = TSR_LOOKUP_READ_ONLY;
    forward(batch, nullptr, nullptr);
  }
  struct Live {
    std::unique_ptr<Batch> batch;
    tsr_context *cached = nullptr, *plain = nullptr;
  };
  Live begin(std::unique_ptr<Batch> batch) {
    Live live{std::move(batch)};
    forward(*live.batch, &live.cached, &live.plain);
    return live;
  }
  void update(const Live& live, std::mt19937& random) {
    std::vector<float> values(static_cast<size_t>(live.batch->width));
    for (float& x : values) x = static_cast<float>(random() % 16) / 16 - 0.4f;
    std::vector<int64_t> shape{live.batch->width};
    const DLTensor grad = tensor(values.data(), dtype_of<float>(), shape);
    const tsr_update update{sizeof(tsr_update), 0, 0.1, 1};
    const tsr_backward args{sizeof(tsr_backward), 0, &live.batch->raw, &grad, nullptr, 1, &update};
    cached_->backward(live.cached, args, nullptr);
    plain_.backward(live.plain, args, nullptr);
  }
  void end(const Live& live) { cached_->release(live.cached); }

  // Imports some rows into both, with or without states.
  void import(std::mt19937& random) {
    const uint32_t t = random() % kTables;
    std::vector<int64_t> ids;
    for (int64_t id = random() % 7; id < kRows[t]; id += 1 + random() % 20) ids.push_back(id);
    std::shuffle(ids.begin(), ids.end(), random);
    std::vector<float> weights(ids.size() * kDim), states(random() % 2 == 0 ? ids.size() : 0);
    for (float& x : weights) x = static_cast<float>(random() % 1000);
    for (float& x : states) x = static_cast<float>(random() % 100);
    move(ids, weights, states, [&](tsr_rows& rows) {
      cached_->import_rows(t, rows);
      plain_.import_rows(t, rows);
    });
  }
  void mark(uint32_t follower) {
    cached().marked_now(follower);
    for (uint32_t t = 0; t < kTables; ++t) marked_[follower][t] = exported(plain_, t, 1000);
  }
  // Checks that rows which differ from the mark are reported, with their states, and that most others are not.
  void compare_changes(int step, uint32_t follower) {
    for (uint32_t t = 0; t < kTables; ++t) {
      const auto now = exported(plain_, t, 1000);
      const auto changed = exported_by(
          [&](uint64_t& cursor, tsr_rows& rows) { cached().export_changed(follower, t, cursor, rows); }, 31);
      expect(cached().changes(follower, t).changed == std::ssize(changed[0]), "step ", step, ": table ", t,
             " counts others");
      size_t at = 0;
      for (size_t row = 0; row < now[0].size(); ++row) {
        const auto weights = [&](const auto& of, size_t i) {
          return std::vector(of[1].begin() + i * kDim, of[1].begin() + (i + 1) * kDim);
        };
        const bool named = at < changed[0].size() && changed[0][at] == now[0][row];
        const auto& was = marked_[follower][t];
        const bool same = weights(now, row) == weights(was, row) && now[2][row] == was[2][row];
        expect(named || same, "step ", step, ": row ", row, " of table ", t, " changed, and is not named");
        if (!named) continue;
        expect(weights(changed, at) == weights(now, row) && changed[2][at] == now[2][row], "step ", step, ": row ", row,
               " of table ", t, " is another");
        ++at;
      }
      expect(at == changed[0].size(), "step ", step, ": table ", t, " names what it has not");
    }
  }
  void compare(int step) {
    for (uint32_t t = 0; t < kTables; ++t)
      expect(exported(*cached_, t, 97) == exported(plain_, t, 1000), "step ", step, ": table ", t, " differs");
  }
  static std::array<std::vector<float>, 3> exported(KernelInstance& from, uint32_t t, size_t at_once) {
    return exported_by([&](uint64_t& cursor, tsr_rows& rows) { from.export_rows(t, cursor, rows); }, at_once);
  }
  template <class Export>
  static std::array<std::vector<float>, 3> exported_by(const Export& call, size_t at_once) {
    std::vector<float> all_ids, all_weights, all_states;
    for (uint64_t cursor = 0;;) {
      std::vector<int64_t> ids(at_once);
      std::vector<float> weights(at_once * kDim), states(at_once);
      int64_t count = 0;
      move(ids, weights, states, [&](tsr_rows& rows) {
        call(cursor, rows);
        count = rows.count;
      });
      all_ids.insert(all_ids.end(), ids.begin(), ids.begin() + count);
      all_weights.insert(all_weights.end(), weights.begin(), weights.begin() + count * kDim);
      all_states.insert(all_states.end(), states.begin(), states.begin() + count);
      if (count == 0) return std::array{all_ids, all_weights, all_states};
    }
  }

 private:
  template <class Call>
  static void move(std::vector<int64_t>& ids, std::vector<float>& weights, const std::vector<float>& states,
                   const Call& call) {
    std::vector<int64_t> one{std::ssize(ids)}, two{std::ssize(ids), kDim};
    const DLTensor dl_ids = tensor(ids.data(), dtype_of<int64_t>(), one);
    const DLTensor dl_weights = tensor(weights.data(), dtype_of<float>(), two);
    const DLTensor dl_states = tensor(states.data(), dtype_of<float>(), one);
    const DLTensor* const all[] = {&dl_states};
    tsr_rows rows{sizeof(tsr_rows), 0,      states.empty() ? 0u : 1u, 0, std::ssize(ids), &dl_ids, &dl_weights,
                  &all[0],          nullptr};
    call(rows);
  }
  void forward(const Batch& batch, tsr_context** of_cached, tsr_context** of_plain) {
    std::vector<float> got(static_cast<size_t>(batch.width), -1.0f), want(got);
    std::vector<int64_t> shape{batch.width};
    cached_->forward(batch.raw, tensor(got.data(), dtype_of<float>(), shape), nullptr, of_cached);
    plain_.forward(batch.raw, tensor(want.data(), dtype_of<float>(), shape), nullptr, of_plain);
    expect(got == want, "a lookup differs");
  }

  Bed bed_;
  std::unique_ptr<KernelInstance> cached_;
  PlainRows plain_;
  using AllRows = std::array<std::array<std::vector<float>, 3>, kTables>;
  std::array<AllRows, kFollowers> marked_;  // the rows at each follower's mark
};

void check_against_memory(const std::string& options, bool prefetching, int steps) {
  std::mt19937 random(static_cast<uint32_t>(options.size()) + prefetching);
  Pair pair(options);
  std::vector<Pair::Live> live;
  auto next = std::make_unique<Batch>(random, 6);
  for (int step = 1; step <= steps; ++step) {
    auto now = std::exchange(next, std::make_unique<Batch>(random, 6));
    std::thread ahead;
    if (prefetching) ahead = std::thread([&] { pair.cached().prefetch(next->raw); });
    live.push_back(pair.begin(std::move(now)));
    // Sometimes two batches are in flight, and the later one ends first.
    if (live.size() > 1 || random() % 2 == 0) {
      while (!live.empty()) {
        if (random() % 8 != 0) pair.update(live.back(), random);
        pair.end(live.back());
        live.pop_back();
      }
    }
    if (random() % 6 == 0) pair.evaluate(random, random() % 60);
    if (ahead.joinable()) ahead.join();
    if (live.empty() && random() % 20 == 0) pair.import(random);
    if (step == steps - 60) pair.mark(0);
    if (step == steps - 40 || step == steps - 20) pair.mark(1);
  }
  for (const Pair::Live& l : live) pair.end(l);
  pair.compare(steps);
  for (uint32_t follower = 0; follower < kFollowers; ++follower) pair.compare_changes(steps, follower);
  const tsr_kernel_stats s = pair.cached().stats(0);
  expect(s.evictions > 0 && s.storage_writes > 0 && s.storage_reads > 0, options, ": nothing was evicted or read");
  expect(s.lookups > s.hits && s.hits > 0, options, ": ", s.hits, " hits of ", s.lookups);
}

// An evaluation may need more rows than the cache holds; training may not.
void check_too_small() {
  std::mt19937 random(1);
  Pair pair(R"({"cache_rows": 12})");
  pair.evaluate(random, 300);
  std::string said;
  try {
    pair.end(pair.begin(std::make_unique<Batch>(random, 100)));
  } catch (const Failure& e) {
    said = e.what();
  }
  expect(said.find("table \"large\": the steps in progress need more rows than the 12 that fit in its cache: set a "
                   "larger cache_mib") == 0,
         "too many rows: ", said);
  pair.evaluate(random, 300);  // works, because nothing is pinned after a failure
  pair.end(pair.begin(std::make_unique<Batch>(random, 1)));
}

// If the disk is full, a call fails with a sentence, and rows in memory are still there.
void check_full_disk(const char* io) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::mt19937 random(3);
  Pair pair(std::string(R"({"cache_rows": 60, "io": ")") + io + "\"}");
  const rlimit small{4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string said;
  for (int step = 0; step < 500 && said.empty(); ++step) {
    try {
      const Pair::Live live = pair.begin(std::make_unique<Batch>(random, 6));
      pair.update(live, random);
      pair.end(live);
    } catch (const Failure& e) {
      said = e.what();
    }
  }
  setrlimit(RLIMIT_FSIZE, &before);
  expect(said.find("table \"large\": its file in \"/var/tmp\" cannot be written: File too large; make room there") == 0,
         "a full disk: ", said);
}

// If a read fails, the call fails with a sentence, and rows in memory stay and can be looked up. The test replaces the
// file by one that gives EIO. A ring has the file registered and would not notice, so only threads are tested.
void check_broken_disk() {
  std::mt19937 random(6);
  Pair pair(R"({"cache_rows": 60, "io": "threads"})");
  const auto steps = [&](int count) {
    for (int step = 0; step < count; ++step) {
      const Pair::Live live = pair.begin(std::make_unique<Batch>(random, 6));
      pair.update(live, random);
      pair.end(live);
    }
  };
  steps(200);
  const std::filesystem::directory_iterator all("/proc/self/fd"), end;
  const auto is_rows = [](const auto& file) {
    std::error_code ignored;
    return std::filesystem::read_symlink(file, ignored).string().find("tessera-rows-") != std::string::npos;
  };
  std::vector<int> files;
  for (auto at = all; at != end; ++at) {
    if (is_rows(at->path())) files.push_back(std::stoi(at->path().filename()));
  }
  expect(files.size() == kTables, files.size(), " files of rows are open");
  const int broken = open("/proc/self/mem", O_RDONLY);
  for (const int file : files) dup2(broken, file);
  close(broken);
  std::string said;
  try {
    steps(500);
  } catch (const Failure& e) {
    said = e.what();
  }
  expect(said.find("its file in \"/var/tmp\" cannot be ") != std::string::npos &&
             said.find("; continue from the last checkpoint") != std::string::npos,
         "a broken disk: ", said);
}

void check_refusals() {
  Bed bed;
  const auto refused = [&](const std::string& options, const std::string& want) {
    std::string said = "nothing";
    try {
      bed.open(options);
    } catch (const Failure& e) {
      said = e.what();
    }
    expect(said.find(want) != std::string::npos, options, ": ", said);
  };
  refused(R"({"directory": "/does/not/exist"})",
          "table \"large\": no file can be made in \"/does/not/exist\": No such file or directory");
  refused(R"({"io": "tape"})", "io is \"tape\", but must be \"auto\", \"uring\" or \"threads\"");
  refused(R"({"cache_mib": 0})", "a cache of 0 MiB");
  refused(R"({"depth": 0})", "depth is 0");
  refused(R"({"cash_mib": 3})", "cache_mib");
}

void check_map() {
  std::mt19937 random(2);
  IdMap map;
  std::map<int64_t, uint32_t> plain;
  for (int i = 0; i < 20000; ++i) {
    const auto id = static_cast<int64_t>(random() % 300) << (random() % 2 * 40);
    if (random() % 2 == 0) {
      expect(map.insert(id, static_cast<uint32_t>(i)) == plain.emplace(id, i).second, "insert ", id);
    } else {
      map.erase(id);
      plain.erase(id);
    }
    const auto at = plain.find(id);
    expect(map.find(id) == (at == plain.end() ? IdMap::kNone : at->second), "find ", id);
  }
  for (const auto& [id, value] : plain) expect(map.find(id) == value, "find ", id, " at the end");
  expect(map.size() == plain.size(), "size ", map.size());
}

// Tests blocks in random order, more than are in flight at a time, parts of blocks, and reads beyond the end of the
// file.
void check_pieces(int file, PieceIo* io) {
  if (io == nullptr) return;
  std::mt19937 random(4);
  constexpr uint64_t kBlocks = 300, kPart = 77;
  BlockBuffer written, got;
  written.room(kBlocks * kBlockBytes);
  got.room(kBlocks * kBlockBytes);
  for (uint64_t i = 0; i < kBlocks * kBlockBytes; ++i) written.data()[i] = static_cast<char>(random() % 100);
  std::vector<Piece> out, in, parts;
  std::vector<char> small(kBlocks * kPart, 'x');
  for (uint64_t i = 0; i < kBlocks; ++i) {
    out.push_back({written.data() + i * kBlockBytes, kBlockBytes, i * kBlockBytes});
    in.push_back({got.data() + i * kBlockBytes, kBlockBytes, i * kBlockBytes});
    parts.push_back({small.data() + i * kPart, kPart, i * kBlockBytes + random() % (kBlockBytes - kPart)});
  }
  std::shuffle(out.begin(), out.end(), random);
  std::shuffle(in.begin(), in.end(), random);
  expect(ftruncate(file, 0) == 0, "ftruncate");
  expect(io->move(Direction::kWrite, out) == 0, io->name(), " cannot write");
  expect(io->move(Direction::kRead, in) == 0, io->name(), " cannot read");
  expect(std::memcmp(got.data(), written.data(), kBlocks * kBlockBytes) == 0, io->name(), " gives other bytes");
  expect(io->move(Direction::kRead, parts) == 0, io->name(), " cannot read parts");
  bool same = true;
  for (const Piece& p : parts) same &= std::memcmp(p.memory, written.data() + p.offset, p.bytes) == 0;
  expect(same, io->name(), " gives other parts");
  const Piece one{got.data(), kBlockBytes, kBlockBytes}, part{small.data(), 10, 5}, behind{small.data(), 10, 1 << 22};
  expect(io->move(Direction::kRead, std::span(&one, 1)) == 0, io->name(), ": one piece");
  expect(io->move(Direction::kRead, std::span(&behind, 1)) == EIO, io->name(), " reads behind the end");
  expect(io->move(Direction::kWrite, std::span(&part, 1)) == EINVAL, io->name(), " writes a part");
  expect(io->move(Direction::kRead, {}) == 0, io->name(), ": no piece");
}

void check_io() {
  char path[] = "/var/tmp/tessera-test-XXXXXX";
  const int file = mkstemp(path);
  unlink(path);
  for (const int flags : {0, O_DIRECT}) {
    if (fcntl(file, F_SETFL, flags) != 0) continue;
    check_pieces(file, thread_io(file, {4}).get());
    check_pieces(file, thread_io(file, {1}).get());
    check_pieces(file, uring_io(file, {16}).get());
  }
  close(file);
  BlockBuffer block;
  const Piece one{block.room(kBlockBytes), kBlockBytes, 0};
  const auto refuses = [&](std::unique_ptr<PieceIo> io, Direction direction, int error) {
    if (io != nullptr) expect(io->move(direction, std::span(&one, 1)) == error, io->name(), " does not refuse");
  };
  const int closed = open("/dev/null", O_RDONLY), broken = open("/proc/self/mem", O_RDONLY);
  refuses(thread_io(closed, {2}), Direction::kWrite, EBADF);
  refuses(uring_io(closed, {2}), Direction::kWrite, EBADF);
  refuses(thread_io(broken, {2}), Direction::kRead, EIO);
  refuses(uring_io(broken, {2}), Direction::kRead, EIO);
  close(closed);
  close(broken);
  std::printf("io_uring is %s\n", uring_io(0, {2}) == nullptr ? "not there: threads alone were tried" : "there");
}

}  // namespace

int main() {
  check_map();
  check_io();
  for (const bool prefetching : {false, true}) {
    check_against_memory(R"({"cache_rows": 80})", prefetching, 400);
    check_against_memory(R"({"cache_rows": 90, "io": "threads", "depth": 3})", prefetching, 400);
    check_against_memory(R"({"cache_rows": 50, "shared": true})", prefetching, 400);
  }
  check_too_small();
  check_full_disk("auto");
  check_full_disk("threads");
  check_broken_disk();
  check_refusals();
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
